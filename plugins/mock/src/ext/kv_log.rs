//! The log of what the prefix cache holds, in whole blocks, and `cascadia.kv-events/1` over it.
//!
//! Holds: a block is stored once and removed once, its parent before it and after it. Only the last events are kept; the
//! numbers go on.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use cascadia_plugin_api::sdk::{KvChange, KvEvent, KvEvents, KvTier, Result};
use parking_lot::Mutex;

use crate::engine::Mock;
use crate::options::Options;

/// A log that the cache writes and any thread reads.
pub(crate) type SharedLog = Arc<Mutex<Log>>;

/// The events, and the blocks that are held.
#[derive(Debug)]
pub(crate) struct Log {
    block_size: usize,
    most: usize,
    ring: VecDeque<KvEvent>,
    last: u64,
    held: HashMap<u64, Held>,
    /// Held blocks in the order in which they were stored.
    order: BTreeMap<u64, u64>,
    stored: u64,
    /// Numbers are left out.
    gaps: bool,
    /// Parents are invented.
    orphans: bool,
}

#[derive(Debug)]
struct Held {
    prompts: usize,
    place: u64,
    parent: Option<u64>,
    tokens: Vec<u32>,
    salt: String,
    adapter: String,
}

impl Log {
    /// An empty log.
    pub(crate) fn new(options: &Options) -> Log {
        Log {
            block_size: usize::try_from(options.kv_block_size).unwrap_or(usize::MAX),
            most: options.kv_events,
            ring: VecDeque::new(),
            last: 0,
            held: HashMap::new(),
            order: BTreeMap::new(),
            stored: 0,
            gaps: options.breaks("kv-gap"),
            orphans: options.breaks("kv-orphan"),
        }
    }

    /// A prompt is kept from now on.
    pub(crate) fn keep(&mut self, salt: &str, adapter: &str, prompt: &[u32], now: u64) {
        let (mut parent, mut fresh, mut begin) = (None, Vec::new(), None);
        for (hash, block) in blocks(salt, adapter, prompt, self.block_size) {
            let held = self.held.entry(hash).or_insert_with(|| {
                begin.get_or_insert(parent);
                fresh.push((hash, block));
                self.stored += 1;
                self.order.insert(self.stored, hash);
                let (salt, adapter) = (salt.to_owned(), adapter.to_owned());
                Held { prompts: 0, place: self.stored, parent, tokens: block.to_vec(), salt, adapter }
            });
            held.prompts += 1;
            parent = Some(hash);
        }
        if let Some(mut parent) = begin {
            if self.orphans && !fresh.is_empty() {
                parent = Some(parent.map_or(1, |known: u64| !known));
            }
            let change = KvChange::Stored {
                parent,
                blocks: fresh.iter().map(|(hash, _)| *hash).collect(),
                tokens: fresh.iter().flat_map(|(_, tokens)| tokens.iter().copied()).collect(),
                block_size: u32::try_from(self.block_size).unwrap_or(u32::MAX),
            };
            self.write(change, salt, adapter, now);
        }
    }

    /// A prompt that was kept is not any more.
    pub(crate) fn release(&mut self, salt: &str, adapter: &str, prompt: &[u32], now: u64) {
        let mut gone = Vec::new();
        for (hash, _) in blocks(salt, adapter, prompt, self.block_size) {
            let Some(held) = self.held.get_mut(&hash) else { continue };
            held.prompts -= 1;
            if held.prompts == 0 {
                self.order.remove(&held.place);
                self.held.remove(&hash);
                gone.push(hash);
            }
        }
        gone.reverse();
        if !gone.is_empty() {
            self.write(KvChange::Removed { blocks: gone }, salt, adapter, now);
        }
    }

    /// Everything is gone.
    pub(crate) fn clear(&mut self, now: u64) {
        if !self.held.is_empty() {
            self.held.clear();
            self.order.clear();
            self.write(KvChange::Cleared, "", "", now);
        }
    }

    fn write(&mut self, change: KvChange, salt: &str, adapter: &str, now: u64) {
        self.last += if self.gaps && self.last > 0 { 2 } else { 1 };
        let event = KvEvent {
            sequence: self.last,
            change,
            tier: KvTier::Device,
            adapter: adapter.to_owned(),
            cache_salt: salt.to_owned(),
            timestamp_ns: now,
        };
        self.ring.push_back(event);
        while self.ring.len() > self.most {
            self.ring.pop_front();
        }
    }

    /// At most `most` events from number `from` on.
    pub(crate) fn read(&self, from: u64, most: usize) -> Vec<KvEvent> {
        self.ring.iter().skip_while(|event| event.sequence < from).take(most).cloned().collect()
    }

    /// What is held, an event a block.
    pub(crate) fn snapshot(&self) -> Vec<KvEvent> {
        let held = self.order.values().filter_map(|hash| Some((*hash, self.held.get(hash)?)));
        held.map(|(hash, held)| KvEvent {
            sequence: self.last,
            change: KvChange::Stored {
                parent: held.parent,
                blocks: vec![hash],
                tokens: held.tokens.clone(),
                block_size: u32::try_from(self.block_size).unwrap_or(u32::MAX),
            },
            tier: KvTier::Device,
            adapter: held.adapter.clone(),
            cache_salt: held.salt.clone(),
            timestamp_ns: 0,
        })
        .collect()
    }
}

impl KvEvents for Mock {
    fn read(&self, from: u64, most: usize) -> Result<Vec<KvEvent>> {
        Ok(self.log.lock().read(from, most))
    }

    fn snapshot(&self) -> Result<(Vec<KvEvent>, u64)> {
        let log = self.log.lock();
        Ok((log.snapshot(), log.last))
    }
}

/// The whole blocks of a prompt, each with the hash of all up to its end.
fn blocks<'a>(
    salt: &str,
    adapter: &str,
    prompt: &'a [u32],
    size: usize,
) -> impl Iterator<Item = (u64, &'a [u32])> {
    let names = salt.bytes().chain([0xff]).chain(adapter.bytes());
    let mut hash = names.fold(0xcbf2_9ce4_8422_2325_u64, mix);
    prompt.chunks_exact(size.max(1)).map(move |block| {
        hash = block.iter().flat_map(|id| id.to_le_bytes()).fold(hash, mix);
        (hash, block)
    })
}

/// One step of FNV-1a.
pub(crate) fn mix(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(kv_events: usize) -> Log {
        Log::new(&Options { kv_block_size: 2, kv_events, ..Options::default() })
    }

    #[test]
    fn shared_blocks_are_stored_once_and_removed_with_their_last_prompt() {
        let mut log = log(9);
        log.keep("", "", &[1, 2, 3, 4, 5], 1);
        log.keep("", "", &[1, 2, 9, 9], 1);
        log.keep("", "", &[1, 2], 1);
        log.keep("salt", "", &[1, 2], 1);
        let events = log.read(1, 9);
        let numbers: Vec<_> = events.iter().map(|e| e.sequence).collect();
        assert_eq!(numbers, [1, 2, 3]);
        let KvChange::Stored { parent: None, blocks, tokens, .. } = &events[0].change else {
            panic!("stored")
        };
        assert_eq!((blocks.len(), tokens.as_slice()), (2, &[1, 2, 3, 4][..]));
        let KvChange::Stored { parent, .. } = &events[1].change else { panic!("stored") };
        assert_eq!(*parent, Some(blocks[0]));
        assert_eq!(log.snapshot().len(), 4);
        log.release("", "", &[1, 2, 3, 4, 5], 2);
        assert_eq!(log.read(4, 9)[0].change, KvChange::Removed { blocks: vec![blocks[1]] });
        log.clear(3);
        log.clear(3);
        assert_eq!((log.read(5, 9).len(), log.snapshot().len(), log.last), (1, 0, 5));
    }

    #[test]
    fn only_the_last_events_are_kept_and_the_numbers_go_on() {
        let mut log = log(2);
        (0..5).for_each(|n| log.keep("", "", &[n, n], 1));
        assert_eq!(log.read(1, 9)[0].sequence, 4);
        assert_eq!(log.read(5, 1).len(), 1);
        assert_eq!(log.read(6, 9), []);
    }
}
