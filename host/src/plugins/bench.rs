//! `cascadia-host plugin bench`: drives an engine as a worker does and counts what its tokens cost.
//!
//! What must hold: a measured round reads the clock twice, not once a step, for a step may be shorter than reading it. The
//! receiver counts and does nothing else, so what is left is the boundary and the engine behind it.
//!
//! Knows nothing of the command line and prints nothing.

mod clock;
mod count;
mod spread;

use std::time::{Duration, Instant};

pub use spread::Spread;

use super::Built;
use super::build::Card;
use super::engine::{Engine, Next, Taken};
use crate::generate::{Request, Sampling};
use count::{Count, Counting, Listening};

/// An engine with tasks that gives no token for so long is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest sleep of an idle driver.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// How long an engine may take to end what it has.
const CLOSE: Duration = Duration::from_secs(10);
/// A prompt that is text of bytes too, and in every vocabulary.
const PROMPT: &[u8] = b"one two three four";
/// Most tokens of one task; where the window is shorter, that.
const LONG: u64 = 1 << 30;

/// How much a round measures.
#[derive(Debug, Clone, Copy)]
pub enum Amount {
    /// So many tokens.
    Tokens(u64),
    /// As many tokens as come in about this time.
    Time(Duration),
}

/// What to measure.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Numbers of tasks at once, each measured by itself.
    pub batches: &'a [usize],
    /// Rounds per number.
    pub rounds: usize,
    /// What a round measures.
    pub amount: Amount,
}

/// One round.
#[derive(Debug, Clone, Copy, Default)]
pub struct Round {
    /// Tokens that came.
    pub tokens: u64,
    /// Chunks they came in.
    pub chunks: u64,
    /// Pushes, or frames of an isolated engine.
    pub pushes: u64,
    /// Steps of the engine. An isolated one tells them ten times a second.
    pub steps: u64,
    /// How long it took.
    pub wall: Duration,
    /// Processor time of this process: the host's, and that of an engine in it.
    pub host: Duration,
    /// Processor time of the engine's own process, where it has one.
    pub child: Option<Duration>,
}

/// The rounds of a number of tasks at once.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Tasks at once.
    pub batch: usize,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// Nanoseconds per token between the first piece of a push and its end: the host's reading and its receiver. From a
    /// round of its own, since it reads the clock twice a push.
    pub receiver_ns: f64,
}

impl Measured {
    /// Median and quartiles of a figure over the rounds.
    pub fn spread(&self, figure: impl Fn(&Round) -> f64) -> Spread {
        Spread::of(self.rounds.iter().map(figure).collect())
    }

    /// All tokens that were counted.
    pub fn tokens(&self) -> u64 {
        self.rounds.iter().map(|round| round.tokens).sum()
    }
}

impl Round {
    /// Something per token; 0 where there was none.
    pub fn per_token(&self, time: Duration) -> f64 {
        if self.tokens == 0 { 0.0 } else { time.as_nanos() as f64 / self.tokens as f64 }
    }

    /// Something per second.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// Measures a built engine and closes it. `model` is the name in its requests.
///
/// # Errors
/// One line: the engine failed, refused a task, or gave no tokens.
pub fn run(built: &Built, model: &str, plan: &Plan<'_>) -> Result<Vec<Measured>, String> {
    let engine = built.engine.as_ref();
    let mut driver = Driver { engine, card: &built.card, model, next: 1, open: Vec::new() };
    let measured: Result<Vec<Measured>, String> =
        plan.batches.iter().map(|batch| driver.measure(*batch, plan)).collect();
    let closed = engine.close(CLOSE);
    let measured = measured?;
    closed.map_err(|failure| format!("the engine did not close: {}", failure.message))?;
    Ok(measured)
}

/// When a drive is over.
#[derive(Clone, Copy)]
enum Until {
    Tokens(u64),
    Then(Instant),
    /// When no task is left.
    Empty,
}

struct Driver<'a> {
    engine: &'a dyn Engine,
    card: &'a Card,
    model: &'a str,
    next: u64,
    open: Vec<u64>,
}

impl Driver<'_> {
    fn measure(&mut self, batch: usize, plan: &Plan<'_>) -> Result<Measured, String> {
        self.fill(batch)?;
        let target = self.warm(batch, plan.amount)?;
        let mut rounds = Vec::new();
        for _ in 0..plan.rounds {
            rounds.push(self.round(batch, target)?);
        }
        let mut listening = Listening::new();
        self.drive(batch, &mut listening, Until::Tokens(target.div_ceil(4)))?;
        for task in self.open.clone() {
            self.engine.cancel(task);
        }
        self.drive(0, &mut Counting::default(), Until::Empty)?;
        Ok(Measured { batch, rounds, receiver_ns: listening.ns_per_token() })
    }

    /// Runs until caches and clocks are warm; answers how many tokens a round has.
    fn warm(&mut self, batch: usize, amount: Amount) -> Result<u64, String> {
        let mut counting = Counting::default();
        match amount {
            Amount::Tokens(tokens) => {
                let tokens = tokens.max(1);
                self.drive(batch, &mut counting, Until::Tokens(tokens.div_ceil(4)))?;
                Ok(tokens)
            }
            Amount::Time(time) => {
                let begun = Instant::now();
                self.drive(batch, &mut counting, Until::Then(begun + time / 2))?;
                let rate = counting.tokens as f64 / begun.elapsed().as_secs_f64().max(1e-9);
                Ok(((rate * time.as_secs_f64()) as u64).max(1))
            }
        }
    }

    fn round(&mut self, batch: usize, target: u64) -> Result<Round, String> {
        let mut counting = Counting::default();
        self.engine.link().take_steps();
        let (host, child) = (clock::this(), self.engine.process().and_then(clock::of));
        let begun = Instant::now();
        self.drive(batch, &mut counting, Until::Tokens(target))?;
        let wall = begun.elapsed();
        let ended = self.engine.process().and_then(clock::of);
        Ok(Round {
            tokens: counting.tokens,
            chunks: counting.chunks,
            pushes: counting.pushes,
            steps: self.engine.link().take_steps(),
            wall,
            host: clock::this().saturating_sub(host),
            child: child.zip(ended).map(|(before, after)| after.saturating_sub(before)),
        })
    }

    /// Steps the engine while there is more to do at once, tokens come and nothing is to be seen to. The loop that is
    /// measured. Answers whether the last step gave a token, and what it left to do.
    fn rush<C: Count>(&self, count: &mut C, target: u64) -> Result<(bool, Next), String> {
        let mut before = count.counted().tokens;
        loop {
            let stepped = self.engine.step(count.receiver());
            let next = stepped.map_err(|failure| format!("the engine failed: {}", failure.message))?;
            let counted = count.counted();
            if next != Next::More || counted.tokens == before || counted.tokens >= target || counted.noted {
                return Ok((counted.tokens > before, next));
            }
            before = counted.tokens;
        }
    }

    /// Steps the engine with `batch` tasks until it is enough.
    fn drive<C: Count>(&mut self, batch: usize, count: &mut C, until: Until) -> Result<(), String> {
        let link = self.engine.link();
        let mut last = Instant::now();
        let mut seen = None;
        loop {
            match until {
                Until::Tokens(target) if count.counted().tokens >= target => return Ok(()),
                Until::Then(then) if Instant::now() >= then && count.counted().tokens > 0 => return Ok(()),
                Until::Empty if self.open.is_empty() => return Ok(()),
                _ => {}
            }
            let target = if let Until::Tokens(target) = until { target } else { 0 };
            let (came, next) = self.rush(count, target)?;
            if count.counted().noted {
                self.settle(count.counted(), batch)?;
            }
            let now = Instant::now();
            if came {
                (last, seen) = (now, None);
            } else if now.duration_since(last) > PATIENCE {
                return Err(format!("no token came for {} s although there are tasks", PATIENCE.as_secs()));
            }
            let until = match next {
                Next::More => {
                    seen = None;
                    continue;
                }
                Next::Idle => Instant::now() + IDLE_WAIT,
                Next::Until(at) => at.min(Instant::now() + IDLE_WAIT),
            };
            match seen.take() {
                // Looks once more after it has read the epoch: what woke it between is not slept over.
                None => seen = Some(link.epoch()),
                Some(epoch) => link.wait(epoch, until),
            }
        }
    }

    /// Takes note of what has ended, and gives the engine as many tasks as it should have.
    #[cold]
    fn settle(&mut self, counting: &mut Counting, batch: usize) -> Result<(), String> {
        counting.noted = false;
        if let Some(fault) = counting.fault.take() {
            return Err(fault);
        }
        for task in counting.ended.drain(..) {
            self.engine.link().forget(task);
            self.open.retain(|open| *open != task);
        }
        self.fill(batch)
    }

    fn fill(&mut self, batch: usize) -> Result<(), String> {
        while self.open.len() < batch {
            let task = self.next;
            self.next += 1;
            self.engine.link().lend(task);
            match self.engine.submit(task, &self.request(task)) {
                Ok(Taken::Now | Taken::Later) => self.open.push(task),
                Err(failure) => {
                    return Err(format!(
                        "the engine refused task {} of {batch} at once: {}",
                        self.open.len() + 1,
                        failure.message
                    ));
                }
            }
        }
        Ok(())
    }

    fn request(&self, task: u64) -> Request {
        let tokens: Vec<u32> = PROMPT.iter().map(|byte| u32::from(*byte)).collect();
        let window = match self.card.context_length {
            0 => LONG,
            window => window.saturating_sub(tokens.len() as u64 + 1).max(1),
        };
        Request {
            id: format!("bench-{task}"),
            model: self.model.to_owned(),
            max_tokens: u32::try_from(window.min(LONG)).unwrap_or(u32::MAX),
            min_tokens: 0,
            ignore_eos: self.card.has("ignore_eos"),
            stop_tokens: Vec::new(),
            stops: Vec::new(),
            sampling: Sampling { temperature: 0.0, ..Sampling::default() },
            tokens,
            ..Request::default()
        }
    }
}
