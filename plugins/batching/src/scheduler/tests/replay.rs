//! A reader of the log that believes nothing: what it makes of the events must be the index itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Change, Event, Log, Scheduler, Scope};

/// Everything that is held, by what it is: the whole text up to a block's end.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) last: u64,
    held: BTreeMap<u64, (Arc<Scope>, Vec<u32>)>,
}

impl Replay {
    /// Reads what is new, a few at a time.
    pub(super) fn follow(&mut self, log: &Log) {
        loop {
            let events = log.read(self.last + 1, 3);
            assert!(events.len() <= 3);
            if events.is_empty() {
                return;
            }
            for event in events {
                assert_eq!(event.number, self.last + 1, "numbers have no hole");
                self.last = event.number;
                self.apply(event);
            }
        }
    }

    pub(super) fn apply(&mut self, event: Event) {
        match event.change {
            Change::Stored { parent, blocks, tokens } => {
                assert!(!blocks.is_empty());
                let size = tokens.len() / blocks.len();
                assert_eq!(tokens.len(), size * blocks.len());
                let mut text = match parent {
                    Some(parent) => {
                        let (scope, text) = &self.held[&parent];
                        assert_eq!(*scope, event.scope, "a chain has one scope");
                        text.clone()
                    }
                    None => Vec::new(),
                };
                for (block, tokens) in blocks.iter().zip(tokens.chunks(size)) {
                    text.extend_from_slice(tokens);
                    let before = self.held.insert(*block, (event.scope.clone(), text.clone()));
                    assert_eq!(before, None, "stored twice");
                }
            }
            Change::Removed { blocks } => {
                for block in blocks {
                    let (scope, text) = self.held.remove(&block).expect("removed what is held");
                    let child = |(other, longer): &(Arc<Scope>, Vec<u32>)| {
                        *other == scope && longer.len() > text.len() && longer.starts_with(&text)
                    };
                    assert!(!self.held.values().any(child), "a parent went before its child");
                }
            }
            Change::Cleared => self.held.clear(),
        }
    }

    /// Texts are held once, and exactly those of the index and the snapshot.
    pub(super) fn compare(&self, scheduler: &Scheduler) {
        let texts: BTreeSet<_> =
            self.held.values().map(|(scope, text)| (&scope.salt, &scope.adapter, text)).collect();
        assert_eq!(texts.len(), self.held.len(), "a text is held once");
        let index = scheduler.store.index.all();
        assert_eq!(index.len(), self.held.len());
        for (hash, _, _, tokens) in index {
            assert!(self.held[&hash].1.ends_with(&tokens));
        }
        let (events, last) = scheduler.log().snapshot();
        assert_eq!(last, self.last);
        let mut whole = Replay::default();
        for event in events {
            assert_eq!(event.number, last);
            whole.apply(event);
        }
        assert_eq!(whole.held, self.held);
    }

    /// Tokens of the longest held beginning of a text, in whole blocks.
    pub(super) fn longest(&self, scope: &Scope, tokens: &[u32]) -> usize {
        let fits = |(other, text): &&(Arc<Scope>, Vec<u32>)| **other == *scope && tokens.starts_with(text);
        self.held.values().filter(fits).map(|(_, text)| text.len()).max().unwrap_or(0)
    }
}
