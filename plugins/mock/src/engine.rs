//! The engine: takes tasks and cancels from any thread, steps the batch on the driving one, and commits the faults that
//! block, panic or fail a call.
//!
//! Holds: the inbox is locked for a few lines only, never while a step works or pushes, so that submit, cancel and the load
//! report are prompt. The load is right before a push says so: a host that asks on a finish sees the slot free.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::chunk::FINISH_NONE;
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{
    Card, Engine, Error, Extensions, Flow, GrammarKind, Level, Load, MaskFiller, Masks, Next, Pause,
    Progress, Result, Sink, Task, Worker, log, now_ns, spawn,
};
use parking_lot::Mutex;

use crate::batch::{Batch, Block};
use crate::breach::KeptSink;
use crate::control::{fail_if, panic_if, spend};
use crate::crash::crash;
use crate::ext::adapters::Shelf;
use crate::ext::embed::Desk;
use crate::ext::kv_log::SharedLog;
use crate::ext::own_thread::OwnThread;
use crate::inbox::{Inbox, Settled};
use crate::meter::Meter;
use crate::options::Options;
use crate::order::{Order, Site};
use crate::prompt::Echoes;
use crate::relay::Relay;
use crate::run::{Fault, Run};
use crate::tray::Delivery;
use crate::{card, prompt};

/// A running mock.
pub(crate) struct Mock {
    pub(crate) worker: Worker,
    pub(crate) options: Options,
    card: Card,
    meter: Meter,
    born: Instant,
    relay: Relay,
    inbox: Mutex<Inbox>,
    echoes: Echoes,
    /// The sink of the last step, for those who use it when they must not.
    last_sink: Mutex<Option<KeptSink>>,
    /// Locked by the driving thread only, and between steps by who saves a state.
    pub(crate) batch: Mutex<Batch>,
    masks: Mutex<Masks>,
    pub(crate) log: SharedLog,
    pub(crate) shelf: Shelf,
    pub(crate) desk: Desk,
    pub(crate) filler: OnceLock<MaskFiller>,
    pub(crate) own: OwnThread,
    pub(crate) me: Weak<Mock>,
}

impl Mock {
    /// An engine with these options and links.
    pub(crate) fn new(worker: Worker, options: Options, relay: Relay) -> Result<Arc<Mock>> {
        let card = card::card(&options)?;
        let batch = Batch::new(&options);
        Ok(Arc::new_cyclic(|me| Mock {
            card,
            meter: Meter::new(worker),
            born: Instant::now(),
            last_sink: Mutex::new(None),
            inbox: Mutex::new(Inbox::new(options.slots, options.max_waiting, options.kv_blocks)),
            log: batch.log(),
            batch: Mutex::new(batch),
            masks: Mutex::default(),
            echoes: Echoes::default(),
            shelf: Shelf::default(),
            desk: Desk::default(),
            filler: OnceLock::new(),
            own: OwnThread::default(),
            me: Weak::clone(me),
            worker,
            relay,
            options,
        }))
    }

    /// The host's time, or our own where the host lends no clock.
    fn now(&self) -> u64 {
        match now_ns() {
            0 => u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1),
            now => now,
        }
    }

    /// Takes a task; `generated_from` says where the answer begins that is known already.
    pub(crate) fn accept(&self, mut task: Task, generated_from: Option<usize>) -> Result<()> {
        let known = generated_from.map_or_else(Vec::new, |at| task.tokens.split_off(at));
        let text = prompt::text(&task.tokens, &task.text).into_owned();
        let order = Order::read(&self.options.order, prompt::order_line(&text))?;
        std::thread::sleep(Duration::from_millis(order.slow_submit_ms));
        let window = usize::try_from(self.options.context_length).unwrap_or(usize::MAX);
        if let Some(refusal) = order.refusal(task.tokens.len(), window) {
            return Err(refusal);
        }
        crash(order.crash(Site::Submit), Site::Submit);
        if let Some(sink) = self.last_sink.lock().filter(|_| order.push_in_submit) {
            sink.push(task.id, FINISH_NONE);
        }
        refuse_unsupported(&task, self.filler.get().is_some())?;
        let style = match self.shelf.find(&task.adapter) {
            Err(_) if self.options.breaks("adapter-any") => None,
            found => found?,
        };
        if task.tokens.len() > window {
            return Err(Error::prompt_too_long(task.tokens.len(), window));
        }
        let panics = order.thread_panic;
        let mut run = Run::new(task, order, || self.echoes.of(&text), &self.options, style);
        run.resume(&known)?;
        if run.order.span {
            let id = run.task.id.to_string();
            run.span = Some(self.worker.span(run.task.trace, "task", &[("task", &id)]));
        }
        self.inbox.lock().put(run)?;
        self.own.ring();
        if panics {
            // Nobody waits for it: what it leaves is the report of its end.
            drop(spawn(self.worker, "mock watcher", || panic!("the prompt asked for a panic in a thread")));
        }
        Ok(())
    }

    /// Whether the engine was closed and has nothing more to do.
    pub(crate) fn is_over(&self) -> bool {
        self.inbox.lock().is_over() && self.desk.len() == 0
    }

    /// A step, on whichever thread drives.
    pub(crate) fn turn(&self, sink: &mut Sink) -> Result<Next> {
        let mut batch = self.batch.lock();
        let mut now = self.now();
        self.inbox.lock().hand_over(&mut batch, now)?;
        if self.relay.has_peers() {
            batch.untravelled().for_each(|run| run.travel(|text| self.relay.travel(text)));
            now = self.now();
        }
        while let Some(block) = batch.take_block(now) {
            self.block(block);
            now = self.now();
        }
        let kept = KeptSink::of(sink);
        while let Some((task, breach)) = batch.take_breach(now) {
            kept.commit(breach, task);
        }
        *self.last_sink.lock() = Some(kept);
        if let Some(filler) = self.filler.get() {
            let vocabulary = usize::try_from(self.card.vocab_size).unwrap_or(usize::MAX);
            batch.ask(filler, vocabulary, &mut self.masks.lock(), now);
        }
        if let Err(fault) = batch.advance(now) {
            return Err(self.fail(&mut batch, fault, now));
        }
        let Settled { lost, waiting } = self.inbox.lock().settle(&mut batch);
        self.meter.book(batch.chunks(), lost);
        let flow = sink.push_each(batch.chunks().iter().map(Delivery::chunk));
        batch.pushed();
        if flow == Flow::Stop {
            return Ok(Next::Idle);
        }
        if self.desk.work(&self.options.broken, sink) || waiting {
            return Ok(Next::More);
        }
        Ok(match batch.next(now) {
            // Nobody would end a wait that is told by our own clock.
            Next::Until(_) if now_ns() == 0 => Next::More,
            next => next,
        })
    }

    /// Holds the step up, as a long prefill does.
    fn block(&self, block: Block) {
        let begun = Instant::now();
        let limit = Duration::from_millis(block.ms);
        while begun.elapsed() < limit && !(block.watch && self.worker.cancelled(block.task)) {
            if block.beat {
                self.worker.beat();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The engine as a whole fails: no task of it gets a finish, and every later call fails too.
    fn fail(&self, batch: &mut Batch, fault: Fault, now: u64) -> Error {
        batch.clear(now);
        let (error, panics) = match fault {
            Fault::Error(error) => (error, None),
            Fault::Crash(how) => {
                (Error::new(code::POISONED, "the engine panicked before; build it anew"), Some(how))
            }
        };
        let failed = self.inbox.lock().fail(error.clone());
        self.meter.book_failed(failed);
        log(Level::Warn, "fault", "engine fails as asked", &[("code", code::name(error.code))]);
        crash(panics, Site::Step);
        error
    }
}

impl Engine for Mock {
    fn warmup(&self, progress: &Progress) -> Result<()> {
        panic_if(&self.options, "warmup");
        spend(self.options.warmup_delay_ms, "warmup", progress)?;
        fail_if(&self.options.fail_warmup)
    }

    fn submit(&self, task: Task) -> Result<()> {
        self.accept(task, None).inspect_err(|_| self.meter.book_refused())
    }

    fn step(&self, _budget: Duration, sink: &mut Sink) -> Result<Next> {
        if self.own.is_on() { Ok(Next::Idle) } else { self.turn(sink) }
    }

    fn cancel(&self, task: u64) {
        let how = self.inbox.lock().cancel(task);
        self.desk.cancel(task);
        self.own.ring();
        crash(how, Site::Cancel);
    }

    fn close(&self, _deadline: Duration) -> Result<()> {
        self.inbox.lock().close();
        self.desk.close();
        self.relay.close();
        self.worker.wake();
        self.own.join(&self.options.broken);
        panic_if(&self.options, "close");
        std::thread::sleep(Duration::from_millis(self.options.close_delay_ms));
        Ok(())
    }

    fn card(&self) -> Card {
        self.card.clone()
    }

    fn load(&self) -> Load {
        let mut load = self.inbox.lock().load();
        load.running += self.desk.len();
        load
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            kv_events: Some(self),
            token_mask: Some(self),
            tokenize: Some(self),
            embeddings: Some(self),
            stage: None,
            kv_state: Some(self),
            adapters: Some(self),
            pause: Some(self),
            async_sink: Some(self),
        }
    }
}

impl Pause for Mock {
    fn pause(&self, task: u64) {
        if !self.options.breaks("pause-deaf") {
            self.inbox.lock().pause(task, true);
            self.own.ring();
        }
    }

    fn resume(&self, task: u64) {
        self.inbox.lock().pause(task, false);
        self.own.ring();
    }
}

/// A task may not bring what the engine would have to leave out.
fn refuse_unsupported(task: &Task, filler: bool) -> Result<()> {
    let masked = task.grammar.0 == GrammarKind::Mask;
    match () {
        () if task.attachments > 0 => Err(Error::unsupported("attachments")),
        () if masked && !filler => Err(Error::unsupported("filler of masks yet")),
        () if !masked && task.grammar.0 != GrammarKind::None => Err(Error::unsupported("grammars")),
        () => Ok(()),
    }
}
