//! A small engine: scheduler, backend, and for each sequence the text that it must come to.

use std::collections::BTreeMap;

use super::backend::{self, Backend};
use super::replay::Replay;
use crate::{Drafts, Entry, Id, Limits, Outcome, Refused, Scheduler, Ticket};

pub(super) struct Rig {
    pub(super) scheduler: Scheduler,
    pub(super) backend: Backend,
    pub(super) replay: Replay,
    pub(super) now_ns: u64,
    pub(super) guess: Guess,
    pub(super) live: BTreeMap<Id, Wanted>,
    pub(super) coming: Vec<Coming>,
    /// Whole texts of those that ended.
    pub(super) done: BTreeMap<Id, Vec<u32>>,
    pub(super) expired: Vec<Id>,
    /// Tokens found in the cache, by those let in.
    pub(super) cached: BTreeMap<Id, usize>,
    pub(super) answers: Vec<u32>,
    pub(super) steps: usize,
    pub(super) rows: usize,
}

/// A state on its way.
pub(super) struct Coming {
    pub(super) ticket: Ticket,
    entry: Entry,
    content: Vec<u32>,
}

pub(super) struct Wanted {
    pub(super) entry: Entry,
    pub(super) tokens: Vec<u32>,
    /// Answers of scored rows, by position.
    scored: BTreeMap<u32, u32>,
}

/// Proposes what the model will say, with some mistakes.
pub(super) struct Guess {
    pub(super) most: usize,
    /// One of so many is wrong; 0 = none.
    pub(super) wrong: u32,
    state: u32,
}

impl Drafts for Guess {
    fn propose(&mut self, _: Id, tokens: &[u32], most: usize, out: &mut Vec<u32>) {
        let right = backend::plain(tokens, most.min(self.most));
        for token in &right[tokens.len()..] {
            self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mistake = self.wrong > 0 && (self.state >> 8).is_multiple_of(self.wrong);
            out.push(if mistake { token + 1 } else { *token });
        }
    }
}

impl Rig {
    pub(super) fn new(limits: Limits) -> Self {
        Rig {
            backend: Backend::new(limits.blocks, limits.block_size),
            scheduler: Scheduler::new(limits).unwrap(),
            replay: Replay::default(),
            now_ns: 1,
            guess: Guess { most: 0, wrong: 0, state: 7 },
            live: BTreeMap::new(),
            coming: Vec::new(),
            done: BTreeMap::new(),
            expired: Vec::new(),
            cached: BTreeMap::new(),
            answers: Vec::new(),
            steps: 0,
            rows: 0,
        }
    }

    pub(super) fn add(&mut self, entry: Entry) -> Result<(), Refused> {
        self.scheduler.add(entry.clone(), self.now_ns)?;
        self.want(entry);
        Ok(())
    }

    pub(super) fn want(&mut self, entry: Entry) {
        let tokens = entry.tokens.clone();
        self.live.insert(entry.id, Wanted { entry, tokens, scored: BTreeMap::new() });
    }

    pub(super) fn cancel(&mut self, id: Id) {
        assert_eq!(self.scheduler.cancel(id), self.live.remove(&id).is_some());
        self.check();
    }

    /// Plans, and checks what the plan says. False where nothing lives.
    pub(super) fn plan(&mut self) -> bool {
        let planned = self.scheduler.plan(self.now_ns, &mut self.guess).is_some();
        for id in self.scheduler.expired() {
            let wanted = self.live.remove(id).expect("only what lives expires");
            assert!(wanted.entry.deadline_ns > 0 && wanted.entry.deadline_ns <= self.now_ns);
            self.expired.push(*id);
        }
        let late = |wanted: &Wanted| (1..=self.now_ns).contains(&wanted.entry.deadline_ns);
        assert!(!self.live.values().any(late), "work is spent on what is late");
        assert_eq!(planned, !self.live.is_empty(), "there is a step as long as something lives");
        for admitted in self.scheduler.admitted().to_vec() {
            let entry = &self.live[&admitted.id].entry;
            let longest = self.replay.longest(&entry.scope, &entry.tokens).min(entry.tokens.len() - 1);
            let longest = if entry.score && entry.generated_from > 1 { 0 } else { longest };
            assert!(admitted.cached <= longest, "nothing is reused that was not stored");
            if self.scheduler.log().read(self.replay.last + 1, 1).is_empty() {
                assert_eq!(admitted.cached, longest, "all is reused that is stored");
            }
            assert_eq!(self.cached.insert(admitted.id, admitted.cached), None, "let in once");
        }
        self.scheduler.check_budget();
        self.check();
        planned
    }

    /// Computes the step that is out.
    pub(super) fn finish(&mut self) {
        let Some(batch) = self.scheduler.batch() else { return };
        self.steps += 1;
        self.rows += batch.ids.len();
        self.backend.infer(batch, &mut self.answers);
        let mut outcomes = Vec::new();
        for part in &batch.parts {
            // One that was cancelled meanwhile: what is said of it does not matter.
            let Some(wanted) = self.live.get_mut(&part.id) else {
                outcomes.push(if part.next == 0 {
                    Outcome::Computed
                } else {
                    Outcome::Token { accepted: 0, token: 0 }
                });
                continue;
            };
            for place in 0..part.scored {
                let answer = self.answers[(part.first_sampled + place) as usize];
                let before = wanted.scored.insert(part.scored_from + place, answer);
                assert_eq!(before, None, "a row is scored once");
            }
            if part.next == 0 {
                outcomes.push(Outcome::Computed);
                continue;
            }
            let answers = &self.answers[part.next_sampled()];
            let drafts = batch.drafts(part);
            let accepted = drafts
                .iter()
                .zip(answers)
                .take_while(|(draft, answer)| **draft == i64::from(**answer))
                .count();
            wanted.tokens.extend_from_slice(&answers[..=accepted]);
            let accepted = accepted as u32;
            outcomes.push(if wanted.tokens.len() < wanted.entry.most {
                Outcome::Token { accepted, token: answers[accepted as usize] }
            } else {
                Outcome::Ended { accepted }
            });
        }
        self.scheduler.commit(&outcomes).unwrap();
        self.check();
        let over: Vec<Id> = self
            .live
            .iter()
            .filter(|(_, one)| one.tokens.len() >= one.entry.most)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            let wanted = self.live.remove(&id).unwrap();
            wanted.verify();
            self.done.insert(id, wanted.tokens);
        }
    }

    /// The model breaks in the step that is out.
    pub(super) fn fail(&mut self) {
        if let Some(batch) = self.scheduler.batch() {
            self.backend.fail(batch);
        }
        self.scheduler.abandon();
        self.check();
    }

    pub(super) fn step(&mut self) -> bool {
        let planned = self.plan();
        self.finish();
        planned
    }

    /// Until nothing lives.
    pub(super) fn run(&mut self) {
        for _ in 0..20_000 {
            if !self.step() {
                return;
            }
        }
        panic!("20000 steps, and {} sequences are not through", self.live.len());
    }

    /// Moves a running sequence to a new name, with its blocks, as if to another engine. False where it does not run or
    /// there is no room.
    pub(super) fn migrate(&mut self, id: Id, to: Id) -> bool {
        if !self.send(id, to) {
            return false;
        }
        self.arrive(self.coming.len() - 1);
        self.live.contains_key(&to)
    }

    /// Ends a running sequence and reserves blocks for its state under a new name. False where it does not run or there is
    /// no room.
    pub(super) fn send(&mut self, id: Id, to: Id) -> bool {
        let Some(state) = self.scheduler.state(id) else { return false };
        let content = self.backend.export(state.blocks, state.positions);
        let wanted = &self.live[&id];
        assert_eq!(state.tokens, wanted.tokens);
        let mut entry = wanted.entry.clone();
        entry.id = to;
        entry.tokens = state.tokens.to_vec();
        // Scored rows stay behind with the old name.
        entry.score = false;
        let positions = state.positions;
        self.cancel(id);
        let ticket = match self.scheduler.reserve(&entry, positions) {
            Ok(ticket) => ticket,
            Err(Refused::NoRoom { .. }) => return false,
            Err(other) => panic!("{other}"),
        };
        self.check();
        self.coming.push(Coming { ticket, entry, content });
        true
    }

    /// One of the states that are on their way has come, and runs if its blocks and a place are still to be had.
    pub(super) fn arrive(&mut self, place: usize) {
        if self.coming.is_empty() {
            return;
        }
        let Coming { ticket, entry, content } = self.coming.remove(place % self.coming.len());
        if let Some(blocks) = self.scheduler.reserved(&ticket) {
            self.backend.import(blocks, &content);
        }
        match self.scheduler.restore(ticket, entry.clone(), content.len(), self.now_ns) {
            Ok(()) => self.want(entry),
            Err(Refused::NoRoom { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        self.check();
    }

    /// One of the states that are on their way does not come.
    pub(super) fn lose(&mut self, place: usize) {
        if !self.coming.is_empty() {
            self.coming.remove(place % self.coming.len());
            self.check();
        }
    }

    pub(super) fn check(&mut self) {
        self.scheduler.check_all();
        if self.scheduler.batch().is_none() {
            self.replay.follow(&self.scheduler.log());
            self.replay.compare(&self.scheduler);
        }
    }
}

impl Wanted {
    /// Whether the text is what the model says without any scheduler.
    fn verify(&self) {
        let prompt = &self.entry.tokens[..self.entry.generated_from];
        assert_eq!(
            self.tokens,
            backend::plain(prompt, self.entry.most - prompt.len()),
            "{:?}",
            self.entry.id
        );
        let scored = if self.entry.score { prompt.len() - 1 } else { 0 };
        let positions: Vec<u32> = self.scored.keys().copied().collect();
        assert_eq!(positions, (0..scored as u32).collect::<Vec<_>>(), "each row of the prompt is scored");
        for (position, answer) in &self.scored {
            assert_eq!(*answer, backend::next(&prompt[..=*position as usize]));
        }
    }
}
