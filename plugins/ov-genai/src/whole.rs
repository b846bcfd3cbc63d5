//! The engine as the host sees it: what generates, and what stands beside it.

use std::time::Duration;

use cascadia_plugin_api::sdk::{
    Card, Engine, Extensions, Load, Next, Progress, Result, Sink, Task, Tokenize,
};

use crate::words::Tokenizer;

/// What generates, and the model's tokenizer where the host cannot read it.
pub(crate) struct Whole {
    pub(crate) generator: Box<dyn Engine>,
    pub(crate) tokenizer: Option<Tokenizer>,
}

impl Engine for Whole {
    fn warmup(&self, progress: &Progress) -> Result<()> {
        self.generator.warmup(progress)
    }

    fn submit(&self, task: Task) -> Result<()> {
        self.generator.submit(task)
    }

    fn step(&self, budget: Duration, sink: &mut Sink) -> Result<Next> {
        self.generator.step(budget, sink)
    }

    fn cancel(&self, task: u64) {
        self.generator.cancel(task);
    }

    fn close(&self, deadline: Duration) -> Result<()> {
        self.generator.close(deadline)
    }

    fn card(&self) -> Card {
        let card = self.generator.card();
        match &self.tokenizer {
            Some(own) => Card {
                tokenizer: "engine".to_owned(),
                vocab_size: own.vocabulary() as u64,
                chat_template: own.chat_template(),
                ..card
            },
            None => card,
        }
    }

    fn load(&self) -> Load {
        self.generator.load()
    }

    fn extensions(&self) -> Extensions<'_> {
        let tokenize = self.tokenizer.as_ref().map(|own| own as &dyn Tokenize);
        Extensions { tokenize, ..Extensions::default() }
    }
}
