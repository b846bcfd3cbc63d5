//! The traits an author implements, and the small values they take and give.
#![expect(unsafe_code, reason = "Progress calls back into the host")]

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Error, Extensions, Result, Sink, Task, Worker};
use crate::abi::{self, code, prim::Str};

/// One engine of a plugin.
#[derive(Debug, Clone, Copy)]
pub struct EngineInfo {
    /// Name, unique in the plugin, `[a-z0-9-]+`; the same as in the manifest.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
}

/// A plugin: a library with one or more engines.
pub trait Plugin {
    /// The engines, in a fixed order.
    fn engines() -> &'static [EngineInfo];

    /// Runs once when the library was opened, before all else; the host's services are there.
    /// Quick: no device, no model. An error refuses the plugin with its text.
    fn start() -> Result<()> {
        Ok(())
    }

    /// How well `engine` suits this machine, 0 = not at all. Quick; touches no device.
    fn score(_engine: &str) -> u32 {
        1
    }

    /// Ids of the extensions that at least one of its engines has ([`crate::abi::ids`]); of others the host gets none.
    fn extensions() -> &'static [&'static str] {
        &[]
    }

    /// A builder for `engine`. `worker` names the instance to the host.
    fn builder(engine: &str, worker: Worker) -> Result<Box<dyn Builder>>;
}

/// Turns options and weights into an engine.
pub trait Builder: Send {
    /// Takes the options, checked against the manifest's schema and completed with its defaults.
    fn configure(&mut self, options: &[(&str, &str)]) -> Result<()>;

    /// Opens the listener of a pipeline stage; answers the bound address.
    fn listen(&mut self, _address: &str) -> Result<String> {
        Err(Error::unsupported("pipeline stages"))
    }

    /// Connects to pipeline neighbours, given as (rank, address).
    fn connect_peers(&mut self, _peers: &[(u32, String)]) -> Result<()> {
        Err(Error::unsupported("pipeline stages"))
    }

    /// Loads the weights.
    fn load(&mut self, shard: &Shard, progress: &Progress) -> Result<()>;

    /// The engine; called once, after a successful load.
    fn build(self: Box<Self>) -> Result<Box<dyn Engine>>;
}

/// A running engine. `step` is called by one thread at a time, everything else by any thread beside it.
pub trait Engine: Send + Sync {
    /// Runs what the first request would otherwise pay for.
    fn warmup(&self, _progress: &Progress) -> Result<()> {
        Ok(())
    }

    /// Takes a task; must not block. After `Ok` exactly one finish is pushed for it.
    fn submit(&self, task: Task) -> Result<()>;

    /// Does a piece of work and pushes what came of it. An error means that the engine as a whole failed.
    fn step(&self, budget: Duration, sink: &mut Sink) -> Result<Next>;

    /// Asks for the end of a task; its finish is still pushed. Must not block.
    fn cancel(&self, task: u64);

    /// Ends all work within the deadline.
    fn close(&self, _deadline: Duration) -> Result<()> {
        Ok(())
    }

    /// What the loaded model is and can do.
    fn card(&self) -> Card;

    /// The load at this moment; must not block.
    fn load(&self) -> Load;

    /// What this engine has of the plugin's extensions.
    fn extensions(&self) -> Extensions<'_> {
        Extensions::default()
    }
}

/// For engines whose own threads need to reach them.
impl<E: Engine + ?Sized> Engine for Arc<E> {
    fn warmup(&self, progress: &Progress) -> Result<()> {
        (**self).warmup(progress)
    }

    fn submit(&self, task: Task) -> Result<()> {
        (**self).submit(task)
    }

    fn step(&self, budget: Duration, sink: &mut Sink) -> Result<Next> {
        (**self).step(budget, sink)
    }

    fn cancel(&self, task: u64) {
        (**self).cancel(task);
    }

    fn close(&self, deadline: Duration) -> Result<()> {
        (**self).close(deadline)
    }

    fn card(&self) -> Card {
        (**self).card()
    }

    fn load(&self) -> Load {
        (**self).load()
    }

    fn extensions(&self) -> Extensions<'_> {
        (**self).extensions()
    }
}

/// What a step left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Step again now.
    More,
    /// Nothing until the next submit, cancel or wake.
    Idle,
    /// Nothing before this time of [`super::now_ns`], a submit, a cancel or a wake.
    Until(u64),
}

/// A worker's load; zero where the engine has no such thing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Tasks being generated.
    pub running: u32,
    /// Tasks accepted and not begun.
    pub waiting: u32,
    /// KV-cache blocks in use.
    pub kv_blocks_used: u64,
    /// KV-cache blocks there are.
    pub kv_blocks_total: u64,
    /// Tokens held for reuse by a prefix cache.
    pub tokens_cached: u64,
}

/// The part of a model that this worker holds.
#[derive(Debug, Clone)]
pub struct Shard {
    /// File or folder on this machine.
    pub path: PathBuf,
    /// The served name.
    pub model_id: String,
    /// First layer, and one past the last; both 0 = all.
    pub layers: (u32, u32),
    /// Place in the pipeline, and number of stages.
    pub rank: (u32, u32),
}

/// What the loaded model is and can do; see [`crate::ext::ModelCardV1`].
#[derive(Debug, Clone, Default)]
pub struct Card {
    /// Most tokens of prompt and answer together; 0 = not known.
    pub context_length: u64,
    /// Most tasks the engine takes at once, running and waiting; 0 = no limit of its own.
    pub max_tasks: u64,
    /// Size of the vocabulary; 0 = not known.
    pub vocab_size: u64,
    /// Full name of the device.
    pub device: String,
    /// How weights and cache are stored.
    pub quantization: String,
    /// Empty: the host takes the tokenizer from the model's files. `bytes`: token ids 0..255 are bytes. `engine`: the host
    /// asks the engine ([`super::Tokenize`]); `vocab_size` then says how many ids there are.
    pub tokenizer: String,
    /// Chat template to use when the model's files have none.
    pub chat_template: String,
    /// Names from [`crate::ext::features`].
    pub features: Vec<&'static str>,
    /// Lines that an operator should read once.
    pub notes: Vec<String>,
}

impl Card {
    /// The card as the JSON object of the boundary.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{");
        for (key, n) in [
            ("context_length", self.context_length),
            ("max_tasks", self.max_tasks),
            ("vocab_size", self.vocab_size),
        ] {
            if n > 0 {
                // Writing to a String cannot fail.
                write!(out, "\"{key}\":{n},").unwrap_or_default();
            }
        }
        let texts = [
            ("device", &self.device),
            ("quantization", &self.quantization),
            ("tokenizer", &self.tokenizer),
            ("chat_template", &self.chat_template),
        ];
        for (key, text) in texts {
            if !text.is_empty() {
                write!(out, "\"{key}\":{},", quote(text)).unwrap_or_default();
            }
        }
        let list = |items: &mut dyn Iterator<Item = &str>| items.map(quote).collect::<Vec<_>>().join(",");
        let features = list(&mut self.features.iter().copied());
        let notes = list(&mut self.notes.iter().map(String::as_str));
        write!(out, "\"features\":[{features}],\"notes\":[{notes}]}}").unwrap_or_default();
        out
    }
}

pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => write!(out, "\\u{:04x}", c as u32).unwrap_or_default(),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Reports how a long call goes on, and says when the host wants it to give up.
#[derive(Clone, Copy)]
pub struct Progress(pub(super) abi::prim::Progress);

impl Progress {
    /// Reports `done` of `total` (0 = unknown) in `phase`; an error when the host wants the call to give up.
    pub fn report(&self, phase: &str, done: u64, total: u64) -> Result<()> {
        // SAFETY: the host lends the callback for the call that this value was passed to; the SDK does not let it outlive
        // that call except by a copy an author keeps, which the trait's documentation forbids.
        match unsafe { (self.0.report)(self.0.ctx, Str::new(phase.as_bytes()), done, total) } {
            0 => Ok(()),
            _ => Err(Error::new(code::CANCELLED, format!("given up in {phase}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Card;

    #[test]
    fn a_card_is_valid_json_whatever_its_texts() {
        let card = Card {
            device: "a \"quoted\"\nname\\".into(),
            features: vec!["seed"],
            notes: vec!["\u{1}".into()],
            ..Card::default()
        };
        let expected = "{\"device\":\"a \\\"quoted\\\"\\u000aname\\\\\",\"features\":[\"seed\"],\"notes\":[\"\\u0001\"]}";
        assert_eq!(card.to_json(), expected);
    }
}
