//! What must hold, counted anew from everything there is.

use std::collections::{BTreeMap, BTreeSet};

use crate::Scheduler;

impl Scheduler {
    /// Panics with what does not hold. Between any two calls.
    pub(super) fn check_all(&self) {
        self.check_blocks();
        self.check_sequences();
        self.check_index();
        if let Some(batch) = self.batch() {
            self.check_batch(batch);
        }
    }

    fn check_blocks(&self) {
        let mut refs = vec![0_u32; self.limits.blocks];
        for sequence in self.sequences.iter().flatten() {
            for block in sequence.table.iter().chain(sequence.source.iter().map(|(_, block)| block)) {
                refs[*block as usize] += 1;
            }
        }
        for block in self.reserved.iter().flat_map(|state| &state.blocks) {
            refs[*block as usize] += 1;
            assert!(!self.store.index.names(*block), "a reserved block is indexed");
        }
        let pool = &self.store.pool;
        let free: BTreeSet<u32> = pool.free_blocks().iter().copied().collect();
        let cached: BTreeSet<u32> = pool.cached_blocks().into_iter().collect();
        assert_eq!(free.len(), pool.free_blocks().len(), "a block is free twice");
        assert_eq!(cached.len(), pool.cached(), "cached blocks are counted");
        for block in 0..self.limits.blocks as u32 {
            let count = refs[block as usize];
            assert_eq!(pool.refs(block), count, "block {block} is held as often as it is reached");
            let states = [free.contains(&block), cached.contains(&block), count > 0];
            assert_eq!(states.iter().filter(|state| **state).count(), 1, "block {block} is in {states:?}");
            let named = self.store.index.names(block);
            assert!(!named || !free.contains(&block), "free block {block} is indexed");
            assert!(named || !cached.contains(&block), "cached block {block} is not indexed");
        }
        let load = self.load();
        assert_eq!(load.free + load.held + load.cached, load.blocks);
        assert_eq!(load.held, refs.iter().filter(|count| **count > 0).count());
    }

    fn check_sequences(&self) {
        let size = self.limits.block_size;
        assert!(self.running.len() <= self.limits.sequences);
        for list in [&self.running, &self.waiting] {
            assert!(list.is_sorted(), "lists are in order");
        }
        let living = self.sequences.iter().flatten().count();
        assert_eq!(living, self.running.len() + self.waiting.len(), "each lives in one list");
        assert!(self.waiting.iter().all(|(_, slot)| self.at(*slot).table.is_empty()));
        for (_, slot) in &self.running {
            let sequence = self.at(*slot);
            let length = sequence.tokens.len();
            assert!(sequence.computed < length && length < sequence.most);
            assert!(sequence.table.len() >= sequence.computed.div_ceil(size).max(1));
            let most = (length + sequence.planned).div_ceil(size);
            assert!(sequence.table.len() <= most, "surplus blocks are given back");
            // One more than is computed where all is cached: the last row goes into a copy.
            assert!(sequence.named * size <= sequence.computed + 1);
            for (place, block) in sequence.table.iter().enumerate() {
                assert_eq!(self.store.index.names(*block), place < sequence.named, "place {place}");
            }
        }
    }

    fn check_index(&self) {
        let all = self.store.index.all();
        let by_block: BTreeMap<u32, _> =
            all.iter().map(|(hash, block, parent, _)| (*block, (*hash, *parent))).collect();
        let cached = self.store.pool.cached_blocks();
        for (_, block, parent, _) in &all {
            let Some(parent) = parent else { continue };
            assert!(by_block.contains_key(parent), "block {block} lost {parent}");
            let place = |block| cached.iter().position(|other| other == block);
            match (place(block), place(parent)) {
                (Some(child), Some(parent)) => assert!(child < parent, "children go first"),
                (None, Some(_)) => panic!("block {block} is held and its parent {parent} is not"),
                _ => {}
            }
        }
        for (_, slot) in &self.running {
            let sequence = self.at(*slot);
            for place in 0..sequence.named {
                let (hash, parent) = by_block[&sequence.table[place]];
                assert_eq!(hash, sequence.hashes[place]);
                assert_eq!(parent, place.checked_sub(1).map(|before| sequence.table[before]));
            }
        }
    }

    /// Right behind a plan: afterwards others come and go.
    pub(super) fn check_budget(&self) {
        let Some(batch) = self.batch() else { return };
        let waiting = self.running.len() - self.turn.len() + self.waiting.len();
        if waiting <= self.turn.len() {
            let prompts: u32 = batch.parts[self.turn.len()..].iter().map(|part| part.rows).sum();
            let most = self.limits.rows_beside + self.limits.rows_beside / 2;
            assert!(prompts as usize <= most, "prompts leave time for tokens");
        }
    }

    fn check_batch(&self, batch: &crate::Batch) {
        let size = self.limits.block_size;
        assert!(batch.ids.len() <= self.limits.rows, "the row budget is kept");
        assert_eq!(batch.subsequence_begins.len(), batch.parts.len() + 1);
        assert_eq!(batch.block_indices_begins.len(), batch.parts.len() + 1);
        assert_eq!(batch.positions.len(), batch.ids.len());
        let mut written: BTreeSet<i32> = batch.copies.iter().map(|copy| copy.to as i32).collect();
        assert_eq!(written.len(), batch.copies.len(), "a block is the copy of one");
        let copies = written.clone();
        let mut sampled = 0;
        let mut longest = 0;
        for (place, part) in batch.parts.iter().enumerate() {
            let rows = batch.subsequence_begins[place] as usize..batch.subsequence_begins[place + 1] as usize;
            assert_eq!(rows.len(), part.rows as usize);
            assert_eq!(rows.start, part.first_row as usize);
            assert_eq!(batch.past_lens[place] as u32, part.past);
            let sequence = self.at(self.out[place]);
            assert_eq!(sequence.computed, part.past as usize, "rows follow what is computed");
            for (step, row) in rows.enumerate() {
                assert_eq!(
                    batch.positions[row],
                    i64::from(part.past) + step as i64,
                    "positions are contiguous"
                );
            }
            assert_eq!(part.first_sampled as usize, sampled);
            sampled = part.sampled().end;
            let end = (part.past + part.rows) as usize;
            longest = longest.max(end);
            let blocks = batch.blocks(place);
            assert_eq!(blocks.len(), end.div_ceil(size));
            for block in &blocks[part.past as usize / size..] {
                assert_eq!(self.store.pool.refs(*block as u32), 1, "a shared block is written");
                assert!(!self.store.index.names(*block as u32), "an indexed block is written");
                assert!(written.insert(*block) || copies.contains(block), "two write one block");
            }
        }
        assert_eq!(batch.sampled_rows.len(), sampled);
        assert!(batch.sampled_rows.is_sorted_by(|a, b| a < b));
        assert_eq!(batch.max_context_len as usize, longest);
        if let Some((rank, slot)) = self.running.first() {
            assert!(self.at(*slot).planned > 0, "the first of all, {rank:?}, stands still");
        }
    }
}
