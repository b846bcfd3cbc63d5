//! One task in progress: when it is due and what it pushes then.
//!
//! Holds: a run that answered [`Went::Ended`] or [`Went::Lost`] is never asked again. Time is passed in, in nanoseconds.

mod word;

use std::sync::Arc;

use cascadia_plugin_api::sdk::{Error, GrammarKind, Span, Task};

use crate::code::Code;
use crate::crash::Crash;
use crate::ext::adapters::Style;
use crate::ext::mask::{Choice, Masked};
use crate::options::{Options, nanos};
use crate::order::{Order, Site};
use crate::plan::Plan;
use crate::prompt;
use crate::script::{End, Item, MAX_ITEMS, Script, Token};
use crate::tray::{Delivery, Ending};
use crate::writer::{Writer, logprob};

/// What came of an advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Went {
    /// Nothing to push.
    Nothing,
    /// A chunk; more will follow.
    Pushed,
    /// The last chunk.
    Ended,
    /// The end, kept secret from the host.
    Lost,
}

/// How the whole engine fails.
#[derive(Debug)]
pub(crate) enum Fault {
    /// `step` answers an error.
    Error(Error),
    /// `step` goes down.
    Crash(Crash),
}

/// A task that was accepted.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) task: Task,
    pub(crate) order: Order,
    pub(crate) cached: Option<u32>,
    /// Its first chunk was pushed.
    pub(crate) begun: bool,
    /// Nothing is generated until this is false again.
    pub(crate) paused: bool,
    /// Its words may go the short way: see [`word`].
    quick: bool,
    /// What the host's masks make of it.
    pub(crate) masked: Option<Box<Masked>>,
    #[expect(dead_code, reason = "how many tasks have an adapter is the number of these")]
    style: Option<Arc<Style>>,
    /// Its span in the host's traces; ends with it.
    pub(crate) span: Option<Span>,
    /// Ids of the answer so far.
    answer: Vec<u32>,
    /// Its text has been to the other stages.
    pub(crate) travelled: bool,
    /// Blocks in the cache, when that was last asked.
    blocks: u64,
    plan: Plan,
    writer: Writer,
    prefill: u64,
    own_pace: Option<u64>,
    ready_at: u64,
    cancel_at: Option<u64>,
}

impl Run {
    /// A run of `task`; `echo` gives the words of its prompt, where it plays them.
    pub(crate) fn new(
        task: Task,
        order: Order,
        echo: impl FnOnce() -> (Option<Item>, Script),
        options: &Options,
        style: Option<Arc<Style>>,
    ) -> Run {
        let (opening, script) = match order.script.as_ref().or(options.script.as_ref()) {
            Some(script) => (None, script.clone()),
            None => echo(),
        };
        let (opening, script) = match &style {
            Some(style) => (opening.map(|item| style.item(&item)), style.script(&script)),
            None => (opening, script),
        };
        let mut plan = Plan::new(opening, script, order.repeat.unwrap_or(options.repeat));
        let masked = (task.grammar.0 == GrammarKind::Mask).then(|| {
            let words = plan.take_words();
            let ignore = options.breaks("mask-ignored");
            Box::new(Masked::new(words, order.drafts, order.take_back, ignore, task.stop_tokens.clone()))
        });
        let mut run = Run {
            masked,
            quick: false,
            style,
            span: None,
            paused: false,
            blocks: 0,
            answer: Vec::new(),
            plan: if order.invalid_utf8 { broken_utf8(plan) } else { plan },
            writer: writer(&task, &order, options),
            prefill: nanos(order.prefill_delay_ms.unwrap_or(options.prefill_delay_ms)),
            own_pace: order.token_delay_ms.map(nanos),
            cached: None,
            begun: false,
            travelled: false,
            ready_at: 0,
            cancel_at: None,
            task,
            order,
        };
        run.quick = run.has_only_words();
        run
    }

    /// Lets the task's text go to the other stages by `way`; the words that come back are the ones to repeat. Where the way
    /// fails, so does the task.
    pub(crate) fn travel(&mut self, way: impl FnOnce(&str) -> Result<String, Error>) {
        self.travelled = true;
        let sent = prompt::text(&self.task.tokens, &self.task.text);
        match way(&sent) {
            Ok(came) if came == sent => {}
            Ok(came) => {
                let (opening, script) = prompt::echo(&came);
                self.plan = Plan::new(opening, script, 1);
            }
            Err(error) => {
                self.order.fail_after = Some(0);
                // One that goes on from a saved state has begun, and would say words first.
                self.quick = false;
                self.order.error_code = Some(Code(error.code));
                self.order.error_message = Some(error.message);
            }
        }
    }

    /// The task has a slot; `pace` is the engine's.
    pub(crate) fn start(&mut self, now: u64, pace: u64) {
        let lead = if self.order.whole {
            // All the time that a streamed answer would take, in one piece.
            let (delays, items) = self.plan.length();
            let items = items.min(self.writer.max);
            nanos(delays).saturating_add(items.saturating_mul(self.own_pace.unwrap_or(pace)))
        } else {
            nanos(self.plan.pass_delays())
        };
        self.ready_at = now.saturating_add(self.prefill).saturating_add(lead);
    }

    /// The host wants the end.
    pub(crate) fn cancel(&mut self, now: u64) {
        if !self.order.ignore_cancel {
            self.cancel_at.get_or_insert(now.saturating_add(nanos(self.order.cancel_delay_ms)));
        }
    }

    /// The engine closes: nothing is waited for.
    pub(crate) fn end_now(&mut self) {
        self.cancel_at = Some(0);
    }

    /// Whether the engine's pace counts for it.
    pub(crate) fn is_shared(&self) -> bool {
        self.own_pace.is_none() && !self.order.whole
    }

    /// When it has something to do, given the engine's next tick; `u64::MAX` = never.
    pub(crate) fn due(&self, tick: u64) -> u64 {
        self.dues().at(tick)
    }

    /// When it has something to do.
    pub(crate) fn dues(&self) -> Dues {
        let next = match () {
            () if self.paused => Dues::NEVER,
            () if reached(self.order.stall_after, &self.writer) => Dues::NEVER,
            () if self.is_shared() => Dues { shared: self.ready_at, own: u64::MAX },
            () => Dues { shared: u64::MAX, own: self.ready_at },
        };
        Dues { own: next.own.min(self.cancel_at.unwrap_or(u64::MAX)), ..next }
    }

    /// Blocks in the cache for it, of `size` tokens each. Divided only when one more is needed: that is asked in every step.
    pub(crate) fn blocks(&mut self, size: u64) -> u64 {
        let tokens = self.task.tokens.len() as u64 + self.writer.generated;
        if tokens > self.blocks.saturating_mul(size) {
            self.blocks = tokens.div_ceil(size);
        }
        self.blocks
    }

    /// Whether the engine fails now.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let order = &self.order;
        let late = reached(order.panic_after, &self.writer).then_some(Crash::Panic);
        if let Some(crash) = order.crash(Site::Step).or(late) {
            return Some(Fault::Crash(crash));
        }
        reached(order.step_error_after, &self.writer).then(|| Fault::Error(order.failure()))
    }

    /// Does what is due; the chunk is left in `out`.
    pub(crate) fn advance(&mut self, now: u64, out: &mut Delivery) -> Went {
        if self.cancel_at.is_some_and(|at| now >= at) {
            out.ending = Ending::End(End::Cancelled);
        } else if reached(self.order.fail_after, &self.writer) {
            out.ending = Ending::Error(self.order.failure());
        } else {
            self.generate(now, out);
        }
        if out.is_empty() {
            return Went::Nothing;
        }
        if !std::mem::replace(&mut self.begun, true) {
            if let Some(span) = &self.span {
                span.event("first token", &[]);
            }
            self.report(out);
        }
        self.answer.extend_from_slice(&out.tokens);
        out.timestamp_ns = self.order.timestamp_ns.unwrap_or(now);
        match (out.ends(), self.order.no_finish) {
            (false, _) => Went::Pushed,
            (true, false) => Went::Ended,
            (true, true) => {
                out.ending = Ending::No;
                Went::Lost
            }
        }
    }

    /// Whether it generates now, and only what a mask lets it.
    pub(crate) fn wants_mask(&self, tick: u64, now: u64) -> bool {
        let cancelled = self.cancel_at.is_some_and(|at| now >= at);
        self.masked.is_some() && !cancelled && !self.writer.is_full() && self.due(tick) <= now
    }

    /// The prompt and the answer so far.
    pub(crate) fn sequence(&self) -> Vec<u32> {
        [self.task.tokens.as_slice(), &self.answer].concat()
    }

    /// Goes on as if `answer` had been generated; it must be what the script says.
    pub(crate) fn resume(&mut self, answer: &[u32]) -> Result<(), Error> {
        let mut scratch = Delivery::default();
        for _ in 0..MAX_ITEMS {
            if scratch.tokens.len() >= answer.len() || scratch.ends() {
                break;
            }
            if !self.play(&mut scratch) {
                self.plan.pass_delays();
            }
        }
        if scratch.tokens != answer {
            return Err(Error::kv_state("tokens", "of another text", "what the script says"));
        }
        self.answer = scratch.tokens;
        self.begun = !answer.is_empty();
        Ok(())
    }

    fn generate(&mut self, now: u64, out: &mut Delivery) {
        if let Some(masked) = &mut self.masked {
            let choice = std::mem::take(&mut masked.chosen);
            match choice {
                _ if self.writer.is_full() => out.ending = Ending::End(End::Length),
                Choice { error: Some(error), .. } => out.ending = Ending::Error(error),
                Choice { ends: true, .. } => out.ending = Ending::End(End::Stop),
                Choice { tokens, .. } => self.writer.write(&tokens, out),
            }
            return self.pace(now);
        }
        let items = match self.order.chunk {
            _ if self.order.whole => MAX_ITEMS,
            Some(n) => n.get(),
            None => 1,
        };
        let mut done = 0;
        while done < items && !out.ends() && self.writer.generated < self.writer.halt {
            if self.writer.is_full() {
                out.ending = Ending::End(End::Length);
                break;
            }
            if !self.play(out) {
                break;
            }
            done += 1;
        }
        self.pace(now);
    }

    /// Plays one item. False at a delay.
    fn play(&mut self, out: &mut Delivery) -> bool {
        match self.plan.peek() {
            None => self.end(out),
            Some(Item::Tokens(tokens)) => self.writer.write(tokens, out),
            Some(Item::Error(error)) => out.ending = Ending::Error(error.clone()),
            Some(Item::Finish(end)) if self.ends_count() => out.ending = Ending::End(*end),
            Some(Item::Finish(_)) => {}
            Some(Item::Delay(_)) if self.order.whole => {}
            Some(Item::Delay(_)) => return false,
        }
        self.plan.pass();
        true
    }

    /// The script is at its end: an end token, as far as it counts.
    fn end(&mut self, out: &mut Delivery) {
        if !self.ends_count() && self.plan.again() {
            if let Some(Item::Tokens(tokens)) = self.plan.peek() {
                self.writer.write(tokens, out);
            }
            return;
        }
        out.stop_token = self.order.stop_token;
        out.ending = Ending::End(self.order.finish.unwrap_or(End::Stop));
    }

    fn ends_count(&self) -> bool {
        !self.task.ignore_eos && self.writer.may_end()
    }

    /// Says when the next item may come.
    fn pace(&mut self, now: u64) {
        if let Some(own) = self.own_pace {
            self.ready_at = next_beat(self.ready_at, own, now);
        }
        if !self.order.whole {
            let delay = nanos(self.plan.pass_delays());
            if delay > 0 {
                self.ready_at = self.ready_at.max(now.saturating_add(delay));
            }
        }
    }

    /// What is told once, with the first chunk.
    fn report(&self, out: &mut Delivery) {
        let counted = u32::try_from(self.task.tokens.len()).unwrap_or(u32::MAX);
        if !self.order.no_prompt_tokens {
            out.prompt_tokens = Some(self.order.prompt_tokens.unwrap_or(counted));
        }
        out.cached_tokens = self.order.cached_tokens.or(self.cached);
        if self.task.prompt_logprobs.is_some() {
            let known = (1..u64::from(counted)).map(logprob);
            out.prompt_logprobs = std::iter::once(f32::NAN).chain(known).take(counted as usize).collect();
        }
    }
}

/// When a task, or the first of several, has something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dues {
    /// From then on with the engine's tick.
    shared: u64,
    /// Whatever the tick.
    own: u64,
}

impl Dues {
    pub(crate) const NEVER: Dues = Dues { shared: u64::MAX, own: u64::MAX };

    /// The first of both.
    pub(crate) fn first(self, other: Dues) -> Dues {
        Dues { shared: self.shared.min(other.shared), own: self.own.min(other.own) }
    }

    /// When that is, given the next tick; `u64::MAX` = never.
    pub(crate) fn at(self, tick: u64) -> u64 {
        let shared = if self.shared == u64::MAX { u64::MAX } else { self.shared.max(tick) };
        shared.min(self.own)
    }
}

/// The next point of a regular beat; a beat that was missed is not made up for.
pub(crate) fn next_beat(last: u64, pace: u64, now: u64) -> u64 {
    let next = last.saturating_add(pace);
    if next > now { next } else { now.saturating_add(pace) }
}

fn reached(after: Option<u64>, writer: &Writer) -> bool {
    after.is_some_and(|n| writer.generated >= n)
}

fn writer(task: &Task, order: &Order, options: &Options) -> Writer {
    let window = options.context_length.saturating_sub(task.tokens.len() as u64);
    let asked = if task.max_tokens == 0 { u64::MAX } else { task.max_tokens.into() };
    let halts = [order.fail_after, order.stall_after, order.step_error_after, order.panic_after];
    Writer {
        generated: 0,
        max: if order.max_tokens_ignore { u64::MAX } else { asked.min(window) },
        min: task.min_tokens.into(),
        halt: halts.into_iter().flatten().min().unwrap_or(u64::MAX),
        stops: task.stop_tokens.clone(),
        alternatives: task.logprobs,
        nan: order.nan,
        bad_logprobs: order.bad_logprobs,
    }
}

/// The same answer after a lone continuation byte and before half a character.
fn broken_utf8(mut plan: Plan) -> Plan {
    let item = |bytes: &[u8]| Item::Tokens(vec![Token::of(bytes)]);
    let mut items = vec![item(&[0x85])];
    while let Some(next) = plan.peek().filter(|_| items.len() < MAX_ITEMS) {
        items.push(next.clone());
        plan.pass();
    }
    items.push(item(&[0xf0, 0x9f]));
    Plan::new(None, Script(items.into()), 1)
}
