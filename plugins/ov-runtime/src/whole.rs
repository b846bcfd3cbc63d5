//! The engine as the host sees it: the batch, and what other threads may ask of it.

use std::sync::Arc;
use std::time::Duration;

use cascadia_batching::{Change, Event, Log};
use cascadia_plugin_api::sdk::{
    Card, Engine, Error, Extensions, KvChange, KvEvent, KvEvents, KvReader, KvState, KvTier, KvWriter, Load,
    MaskFiller, Next, Progress, Result, Serial, Sink, Task, TokenMask,
};

use crate::engine::Batched;
use crate::masks::Filler;
use crate::state::{self, Form};

/// See the file.
pub(crate) struct Whole {
    pub(crate) batch: Serial<Batched>,
    pub(crate) log: Arc<Log>,
    pub(crate) filler: Filler,
    /// Tokens of a block.
    pub(crate) block_tokens: u32,
    /// What a state must be like.
    pub(crate) form: Form,
}

impl Engine for Whole {
    fn warmup(&self, progress: &Progress) -> Result<()> {
        self.batch.warmup(progress)
    }

    fn submit(&self, task: Task) -> Result<()> {
        self.batch.submit(task)
    }

    fn step(&self, budget: Duration, sink: &mut Sink) -> Result<Next> {
        self.batch.step(budget, sink)
    }

    fn cancel(&self, task: u64) {
        self.batch.cancel(task);
    }

    fn close(&self, deadline: Duration) -> Result<()> {
        self.batch.close(deadline)
    }

    fn card(&self) -> Card {
        self.batch.card()
    }

    fn load(&self) -> Load {
        self.batch.load()
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            kv_events: Some(self),
            token_mask: Some(self),
            kv_state: Some(self),
            ..Extensions::default()
        }
    }
}

impl Whole {
    fn event(&self, event: Event) -> KvEvent {
        let change = match event.change {
            Change::Stored { parent, blocks, tokens } => {
                KvChange::Stored { parent, blocks, tokens, block_size: self.block_tokens }
            }
            Change::Removed { blocks } => KvChange::Removed { blocks },
            Change::Cleared => KvChange::Cleared,
        };
        KvEvent {
            sequence: event.number,
            change,
            tier: KvTier::Device,
            adapter: event.scope.adapter.clone(),
            cache_salt: event.scope.salt.clone(),
            timestamp_ns: event.at_ns,
        }
    }
}

impl KvEvents for Whole {
    fn read(&self, from: u64, most: usize) -> Result<Vec<KvEvent>> {
        Ok(self.log.read(from, most).into_iter().map(|event| self.event(event)).collect())
    }

    fn snapshot(&self) -> Result<(Vec<KvEvent>, u64)> {
        let (held, last) = self.log.snapshot();
        Ok((held.into_iter().map(|event| self.event(event)).collect(), last))
    }
}

impl TokenMask for Whole {
    fn attach(&self, filler: MaskFiller) -> Result<()> {
        self.filler.set(filler).map_err(|_| Error::config("a filler is attached already"))
    }
}

impl KvState for Whole {
    fn save(&self, task: u64, out: &mut KvWriter) -> Result<()> {
        state::save(&self.batch, &self.form, task, out)
    }

    fn restore(&self, task: Task, state: &KvReader<'_>) -> Result<()> {
        state::restore(&self.batch, &self.form, task, state)
    }
}
