//! The engine `my-engine`: it repeats the prompt, one byte per token.
//!
//! Replace [`Echo`] by your model; the rest is what every engine has. `submit`, `cancel` and the queue are the SDK's
//! ([`Serial`]): everything here runs on the one thread that steps.

use std::time::Duration;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::ext::features;
use cascadia_plugin_api::sdk::{
    Builder, Card, Chunk, Engine, EngineInfo, Error, Finish, Level, Load, Next, Plugin, Progress, Result,
    Serial, SerialEngine, Shard, Sink, Task, Worker, log,
};

/// Most tokens of prompt and answer together.
const WINDOW: usize = 4096;
/// Tasks that may wait for a slot.
const WAITING: usize = 64;

struct MyPlugin;

impl Plugin for MyPlugin {
    fn engines() -> &'static [EngineInfo] {
        // The same names as in manifest.json.
        &[EngineInfo { name: "my-engine", description: "repeats the prompt, a byte per token" }]
    }

    fn builder(engine: &str, _worker: Worker) -> Result<Box<dyn Builder>> {
        match engine {
            "my-engine" => Ok(Box::new(Setup { slots: 4, panic_in: String::new() })),
            other => Err(Error::new(code::UNSUPPORTED, format!("there is no engine {other:?}"))),
        }
    }
}

/// What is known before there is an engine.
struct Setup {
    slots: usize,
    panic_in: String,
}

impl Builder for Setup {
    fn configure(&mut self, options: &[(&str, &str)]) -> Result<()> {
        // The host has checked them against manifest.json and filled the defaults in.
        for (key, value) in options {
            let bad = || Error::config(format!("option {key} is {value:?}; it takes a whole number from 1"));
            match *key {
                "slots" => self.slots = value.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?,
                "panic-in" => (*value).clone_into(&mut self.panic_in),
                other => return Err(Error::config(format!("there is no option {other}"))),
            }
        }
        Ok(())
    }

    fn load(&mut self, shard: &Shard, progress: &Progress) -> Result<()> {
        assert_ne!(self.panic_in, "load", "the option panic-in asked for it");
        // Here the weights at shard.path are read; report now and then, and give up when it fails.
        progress.report("weights", 1, 1)?;
        log(Level::Info, "load", "loaded", &[("model", &shard.model_id)]);
        Ok(())
    }

    fn build(self: Box<Self>) -> Result<Box<dyn Engine>> {
        let panics = self.panic_in == "step";
        Ok(Box::new(Serial::new(Echo { slots: self.slots, panics, running: Vec::new() }, WAITING)))
    }
}

/// The engine.
struct Echo {
    slots: usize,
    panics: bool,
    running: Vec<Running>,
}

/// A task at work.
struct Running {
    task: Task,
    done: usize,
    limit: usize,
}

impl Running {
    /// The next token and whether it is the last; none at the end of the text.
    fn next(&mut self) -> (Option<u32>, Finish<'static>) {
        let Some(token) = self.task.tokens.get(self.done).copied() else { return (None, Finish::Stop) };
        if self.task.stop_tokens.contains(&token) {
            return (None, Finish::Stop);
        }
        self.done += 1;
        (Some(token), if self.done == self.limit { Finish::Length } else { Finish::No })
    }
}

impl SerialEngine for Echo {
    type Limits = ();

    fn limits(&self) {}

    /// Refuses at once, on the caller's thread, what can never work.
    fn check((): &(), task: &Task) -> Result<()> {
        if task.tokens.is_empty() {
            return Err(Error::config("the prompt is empty"));
        }
        if task.tokens.len() >= WINDOW {
            return Err(Error::prompt_too_long(task.tokens.len(), WINDOW - 1));
        }
        if let Some(id) = task.tokens.iter().find(|id| **id > 255) {
            return Err(Error::config(format!("token {id} is no byte")));
        }
        Ok(())
    }

    fn start(&mut self, task: Task, _sink: &mut Sink) {
        let room = WINDOW - task.tokens.len();
        let asked = if task.max_tokens == 0 { room } else { task.max_tokens as usize };
        self.running.push(Running { limit: asked.min(room), done: 0, task });
    }

    /// One token for every task at work, all in one push.
    fn step(&mut self, _budget: Duration, sink: &mut Sink) -> Result<Next> {
        assert!(!self.panics, "the option panic-in asked for it");
        let news: Vec<_> =
            self.running.iter_mut().map(|running| (running.task.id, running.done, running.next())).collect();
        let prompts: Vec<_> = self.running.iter().map(|running| running.task.tokens.len() as u32).collect();
        let chunks: Vec<_> = news
            .iter()
            .zip(&prompts)
            .map(|((task, done, (token, finish)), prompt)| Chunk {
                task: *task,
                // With the tokenizer "bytes" the host makes the text of the ids.
                tokens: token.as_slice(),
                prompt_tokens: (*done == 0).then_some(*prompt),
                finish: *finish,
                ..Chunk::default()
            })
            .collect();
        sink.push(&chunks);
        let over = |id: u64| news.iter().any(|(task, _, (_, finish))| *task == id && *finish != Finish::No);
        self.running.retain(|running| !over(running.task.id));
        Ok(if self.running.is_empty() { Next::Idle } else { Next::More })
    }

    fn cancel(&mut self, task: u64, sink: &mut Sink) {
        // Ids that are over or were never here come too.
        if let Some(at) = self.running.iter().position(|running| running.task.id == task) {
            self.running.remove(at);
            sink.push(&[Chunk { task, finish: Finish::Cancelled, ..Chunk::default() }]);
        }
    }

    fn has_room(&self) -> bool {
        self.running.len() < self.slots
    }

    fn card(&self) -> Card {
        Card {
            context_length: WINDOW as u64,
            max_tasks: WAITING as u64,
            vocab_size: 256,
            device: "none".into(),
            tokenizer: "bytes".into(),
            chat_template: "{% for m in messages %}{{ m.content or '' }}{% endfor %}".into(),
            // Names of cascadia_plugin_api::ext::features; what is not here the host refuses for you.
            features: vec![features::SAMPLING],
            notes: vec!["my-engine repeats the prompt; it is no model yet".into()],
            ..Card::default()
        }
    }

    fn load(&self) -> Load {
        Load { running: self.running.len() as u32, ..Load::default() }
    }
}

cascadia_plugin_api::export_plugin! {
    plugin: MyPlugin,
    id: "my-engine",
    about: include_str!("../manifest.json"),
}
