//! The engine: takes tasks and cancels from any thread, steps the batch on the driving one, and commits the faults that
//! block, panic or fail a call.
//!
//! Holds: the inbox is locked for a few lines only, never while a step works or pushes, so that submit, cancel and the load
//! report are prompt. The load is right before a push says so: a host that asks on a finish sees the slot free.

use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::chunk::FINISH_NONE;
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{
    Card, Chunk, Engine, Error, Flow, GrammarKind, Level, Load, Next, Progress, Result, Sink, Task, Worker,
    log, now_ns,
};
use parking_lot::Mutex;

use crate::batch::{Batch, Block};
use crate::breach::KeptSink;
use crate::control::{fail_if, panic_if, spend};
use crate::crash::crash;
use crate::inbox::Inbox;
use crate::meter::Meter;
use crate::options::Options;
use crate::order::{Order, Site};
use crate::relay::Relay;
use crate::run::{Fault, Run};
use crate::tray::Delivery;
use crate::{card, prompt};

/// A running mock.
pub(crate) struct Mock {
    worker: Worker,
    options: Options,
    card: Card,
    meter: Meter,
    born: Instant,
    relay: Relay,
    inbox: Mutex<Inbox>,
    /// The sink of the last step, for those who use it when they must not.
    last_sink: Mutex<Option<KeptSink>>,
    /// Locked by the driving thread only.
    batch: Mutex<Batch>,
}

impl Mock {
    /// An engine with these options and links.
    pub(crate) fn new(worker: Worker, options: Options, relay: Relay) -> Result<Mock> {
        Ok(Mock {
            card: card::card(&options)?,
            meter: Meter::new(worker),
            born: Instant::now(),
            last_sink: Mutex::new(None),
            inbox: Mutex::new(Inbox::new(options.slots, options.max_waiting, options.kv_blocks)),
            batch: Mutex::new(Batch::new(&options)),
            worker,
            relay,
            options,
        })
    }

    /// The host's time, or our own where the host lends no clock.
    fn now(&self) -> u64 {
        match now_ns() {
            0 => u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1),
            now => now,
        }
    }

    fn accept(&self, task: Task) -> Result<()> {
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
        refuse_unsupported(&task)?;
        if task.tokens.len() > window {
            return Err(Error::prompt_too_long(task.tokens.len(), window));
        }
        let run = Run::new(task, order, &text, &self.options);
        self.inbox.lock().put(run)
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
    fn fail(&self, batch: &mut Batch, fault: Fault) -> Error {
        batch.clear();
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
        self.accept(task).inspect_err(|_| self.meter.book_refused())
    }

    fn step(&self, _budget: Duration, sink: &mut Sink) -> Result<Next> {
        let mut batch = self.batch.lock();
        self.inbox.lock().hand_over(&mut batch, self.now())?;
        if self.relay.has_peers() {
            batch.untravelled().for_each(|run| run.travel(|text| self.relay.travel(text)));
        }
        while let Some(block) = batch.take_block(self.now()) {
            self.block(block);
        }
        let kept = KeptSink::of(sink);
        while let Some((task, breach)) = batch.take_breach(self.now()) {
            kept.commit(breach, task);
        }
        *self.last_sink.lock() = Some(kept);
        let now = self.now();
        if let Err(fault) = batch.advance(now) {
            return Err(self.fail(&mut batch, fault));
        }
        let lost = self.inbox.lock().settle(&mut batch);
        self.meter.book(batch.chunks(), lost);
        let chunks: Vec<Chunk<'_>> = batch.chunks().iter().map(Delivery::chunk).collect();
        let flow = sink.push(&chunks);
        batch.pushed();
        if flow == Flow::Stop {
            return Ok(Next::Idle);
        }
        if self.inbox.lock().is_waiting(&batch) {
            return Ok(Next::More);
        }
        Ok(match batch.next(now) {
            // Nobody would end a wait that is told by our own clock.
            Next::Until(_) if now_ns() == 0 => Next::More,
            next => next,
        })
    }

    fn cancel(&self, task: u64) {
        let how = self.inbox.lock().cancel(task);
        crash(how, Site::Cancel);
    }

    fn close(&self, _deadline: Duration) -> Result<()> {
        self.inbox.lock().close();
        self.relay.close();
        self.worker.wake();
        panic_if(&self.options, "close");
        std::thread::sleep(Duration::from_millis(self.options.close_delay_ms));
        Ok(())
    }

    fn card(&self) -> Card {
        self.card.clone()
    }

    fn load(&self) -> Load {
        self.inbox.lock().load()
    }
}

/// A task may not bring what the engine would have to leave out.
fn refuse_unsupported(task: &Task) -> Result<()> {
    match () {
        () if task.attachments > 0 => Err(Error::unsupported("attachments")),
        () if !task.adapter.is_empty() => Err(Error::unsupported("adapters")),
        () if task.grammar.0 != GrammarKind::None => Err(Error::unsupported("grammars")),
        () => Ok(()),
    }
}
