//! An engine that does nothing but push, over the SDK: a prepared batch of one-token chunks, one push a step. `null.c` beside
//! it is the same over the tables themselves; the difference of the two is what the SDK costs.
//!
//! Holds: the batch is rebuilt only when a task comes or goes. The inbox is locked for a few lines, never over a push.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{
    Builder, Card, Chunk, Engine, EngineInfo, Error, Finish, Load, Next, Plugin, Progress, Result, Shard,
    Sink, Task, Worker, now_ns,
};
use parking_lot::Mutex;

const SLOTS: usize = 256;
const TOKEN: &[u32] = &[120];
/// What an engine that is late makes up for, in nanoseconds.
const LATE: u64 = 100_000_000;

struct Null;

cascadia_plugin_api::export_plugin! {
    plugin: Null,
    id: "null-engine",
    about: include_str!("../manifest.json"),
}

impl Plugin for Null {
    fn engines() -> &'static [EngineInfo] {
        &[EngineInfo { name: "null", description: "the same token for ever" }]
    }

    fn builder(engine: &str, _worker: Worker) -> Result<Box<dyn Builder>> {
        if engine != "null" {
            return Err(Error::new(code::UNSUPPORTED, format!("no engine {engine}; this plugin has null")));
        }
        Ok(Box::new(Setup { per_second: 0 }))
    }
}

struct Setup {
    per_second: u64,
}

impl Builder for Setup {
    fn configure(&mut self, options: &[(&str, &str)]) -> Result<()> {
        for (key, value) in options {
            match (*key, value.parse()) {
                ("tokens-per-second", Ok(n)) => self.per_second = n,
                _ => return Err(Error::config(format!("option {key} cannot be {value}"))),
            }
        }
        Ok(())
    }

    fn load(&mut self, _shard: &Shard, _progress: &Progress) -> Result<()> {
        Ok(())
    }

    fn build(self: Box<Self>) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Pusher {
            per_second: self.per_second,
            changed: AtomicBool::new(false),
            inbox: Mutex::default(),
            batch: Mutex::default(),
        }))
    }
}

/// What other threads have left.
#[derive(Default)]
struct Inbox {
    /// Ids and tokens still to come; none where the first would be a stop token.
    submits: Vec<(u64, Option<u64>)>,
    cancels: Vec<u64>,
    closed: bool,
    /// Tasks that there are.
    tasks: usize,
}

#[derive(Default)]
struct Batch {
    chunks: Vec<Chunk<'static>>,
    /// Tokens of each before its limit, when the batch was last changed.
    left: Vec<u64>,
    /// Steps since then, and how many there are before a task ends.
    made: u64,
    until: u64,
    due_ns: u64,
}

struct Pusher {
    per_second: u64,
    changed: AtomicBool,
    inbox: Mutex<Inbox>,
    /// Locked by the driving thread only.
    batch: Mutex<Batch>,
}

impl Batch {
    /// Forgets what has ended, takes in what has come, and marks what was cancelled.
    fn change(&mut self, inbox: &mut Inbox) {
        let made = std::mem::take(&mut self.made);
        let kept = |chunk: &Chunk<'_>| chunk.finish == Finish::No;
        let both = self.chunks.iter().zip(&self.left);
        self.left = both.filter(|(chunk, _)| kept(chunk)).map(|(_, left)| left - made).collect();
        self.chunks.retain(kept);
        for (task, tokens) in inbox.submits.drain(..) {
            let (tokens, finish, left) = match tokens {
                Some(left) => (TOKEN, Finish::No, left),
                None => (&[][..], Finish::Stop, 1),
            };
            self.chunks.push(Chunk { task, tokens, finish, ..Chunk::default() });
            self.left.push(left);
        }
        self.until = self.left.iter().copied().min().unwrap_or(u64::MAX);
        for chunk in &mut self.chunks {
            if inbox.closed || inbox.cancels.contains(&chunk.task) {
                (chunk.finish, chunk.tokens) = (Finish::Cancelled, &[]);
                self.until = 1;
            }
        }
        inbox.cancels.clear();
    }

    /// Marks what the coming push ends. Answers whether there is any.
    fn end(&mut self) -> bool {
        if self.made < self.until {
            return false;
        }
        for (chunk, left) in self.chunks.iter_mut().zip(&self.left) {
            if chunk.finish == Finish::No && *left == self.made {
                chunk.finish = Finish::Length;
            }
        }
        true
    }
}

impl Engine for Pusher {
    fn submit(&self, task: Task) -> Result<()> {
        let mut inbox = self.inbox.lock();
        if inbox.closed {
            return Err(Error::new(code::CLOSED, "the engine is closed"));
        }
        if inbox.tasks == SLOTS {
            return Err(Error::new(code::QUEUE_FULL, format!("all {SLOTS} slots are taken; try again")));
        }
        inbox.tasks += 1;
        let tokens = if task.max_tokens == 0 { u64::MAX / 2 } else { task.max_tokens.into() };
        let stopped = TOKEN.iter().any(|token| task.stop_tokens.contains(token));
        inbox.submits.push((task.id, (!stopped).then_some(tokens)));
        self.changed.store(true, Ordering::Release);
        Ok(())
    }

    fn step(&self, _budget: Duration, sink: &mut Sink) -> Result<Next> {
        let batch = &mut *self.batch.lock();
        let mut next = Next::More;
        if self.per_second > 0 {
            let now = now_ns();
            if now < batch.due_ns && !batch.chunks.is_empty() {
                return Ok(Next::Until(batch.due_ns));
            }
            next = Next::Until(batch.due_ns);
        }
        if self.changed.load(Ordering::Acquire) {
            self.changed.store(false, Ordering::Relaxed);
            batch.change(&mut self.inbox.lock());
        }
        if batch.chunks.is_empty() {
            return Ok(Next::Idle);
        }
        if next != Next::More {
            let (now, period) = (now_ns(), batch.chunks.len() as u64 * 1_000_000_000 / self.per_second);
            batch.due_ns = if batch.due_ns + LATE > now { batch.due_ns } else { now } + period;
            next = Next::Until(batch.due_ns);
        }
        batch.made += 1;
        if batch.end() {
            // Before the push says so: who asks on a finish sees the slot free.
            let over = batch.chunks.iter().filter(|chunk| chunk.finish != Finish::No).count();
            self.inbox.lock().tasks -= over;
            self.changed.store(true, Ordering::Relaxed);
        }
        sink.push(&batch.chunks);
        Ok(next)
    }

    fn cancel(&self, task: u64) {
        self.inbox.lock().cancels.push(task);
        self.changed.store(true, Ordering::Release);
    }

    fn close(&self, _deadline: Duration) -> Result<()> {
        self.inbox.lock().closed = true;
        self.changed.store(true, Ordering::Release);
        Ok(())
    }

    fn card(&self) -> Card {
        Card {
            max_tasks: SLOTS as u64,
            vocab_size: 256,
            device: "none".into(),
            tokenizer: "bytes".into(),
            chat_template: "{% for m in messages %}{{ m.content or '' }}{% endfor %}".into(),
            features: vec!["ignore_eos"],
            ..Card::default()
        }
    }

    fn load(&self) -> Load {
        let running = u32::try_from(self.inbox.lock().tasks).unwrap_or(u32::MAX);
        Load { running, ..Load::default() }
    }
}
