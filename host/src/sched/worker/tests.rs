//! What comes together is begun together.

mod flood;

use std::sync::mpsc::{SyncSender, sync_channel};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::generate::{Assembler, Consumer, Event, Outbox, assemble::Detokenize};
use crate::plugins::Receiver;
use crate::sched::flight::Mode;

const LONG: Duration = Duration::from_secs(30);

/// An engine that works never, and tells before each step how many tasks it has got.
struct Still {
    link: &'static Link,
    taken: AtomicU64,
    steps: SyncSender<u64>,
    /// What a submit waits for, where it is held up.
    holds: Option<Mutex<std::sync::mpsc::Receiver<()>>>,
}

impl Engine for Still {
    fn link(&self) -> &'static Link {
        self.link
    }

    fn submit(&self, _: u64, _: &Request) -> Result<Taken, Failure> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        if let Some(holds) = &self.holds {
            // A test that is over holds nothing up.
            holds.lock().recv_timeout(LONG).unwrap_or_default();
        }
        Ok(Taken::Now)
    }

    fn step(&self, _: &mut dyn Receiver) -> Result<Next, Box<Failure>> {
        // The test may be over, or look at the first few only.
        self.steps.try_send(self.taken.load(Ordering::Relaxed)).unwrap_or_default();
        Ok(Next::Idle)
    }

    fn cancel(&self, _: u64) {
        self.link.wake();
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn close(&self, _: Duration) -> Result<(), Failure> {
        Ok(())
    }
}

struct Nothing;

impl Detokenize for Nothing {
    fn push(&mut self, _: u32, _: &mut Vec<u8>) -> bool {
        true
    }
    fn finish(&mut self, _: &mut Vec<u8>) {}
}

impl Consumer for Nothing {
    fn write(&mut self, _: Event<'_>, _: &mut Outbox) {}
}

fn flight(worker: &Worker) -> Arc<Flight> {
    let assembler = Assembler::new(Box::new(Nothing), Vec::new(), 1);
    let mode = Mode::Collect { limit: 100 };
    Arc::new(Flight::new(worker.task_id(), mode, assembler, Box::new(Nothing), CancellationToken::new()))
}

/// A worker whose engine rests, and what its engine tells.
fn resting() -> (Arc<Worker>, std::sync::mpsc::Receiver<u64>) {
    held_up(None)
}

fn held_up(holds: Option<std::sync::mpsc::Receiver<()>>) -> (Arc<Worker>, std::sync::mpsc::Receiver<u64>) {
    let (steps, told) = sync_channel(16);
    let holds = holds.map(Mutex::new);
    let engine = Still { link: Link::new("test"), taken: AtomicU64::new(0), steps, holds };
    let metrics = Arc::new(Metrics::new());
    let gate = Gate::new(64, 0, LONG, Arc::clone(&metrics));
    let worker = Worker::start("w".to_owned(), "m", Box::new(engine), gate, metrics).expect("a thread");
    assert_eq!(told.recv_timeout(LONG), Ok(0), "it looked for work once");
    (worker, told)
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

#[test]
fn an_engine_at_rest_begins_with_all_that_come_together() {
    let (worker, told) = resting();
    run(async {
        let mut all = tokio::task::JoinSet::new();
        for turns in 0..16 {
            let worker = Arc::clone(&worker);
            all.spawn(async move {
                // Some come a few turns of the runtime later than others, and none a turn without another before it.
                for _ in 0..turns / 4 {
                    tokio::task::yield_now().await;
                }
                let permit = worker.gate().at_once().expect("a slot");
                worker.submit_together(flight(&worker), Request::default(), permit).await;
            });
        }
        all.join_all().await;
    });
    assert_eq!(told.recv_timeout(LONG), Ok(16));
    assert!(worker.close(LONG));
}

#[test]
fn one_that_leaves_while_others_are_awaited_does_not_leave_them_behind() {
    let (worker, told) = resting();
    run(async {
        let permit = || worker.gate().at_once().expect("a slot");
        let mut first = Box::pin(worker.submit_together(flight(&worker), Request::default(), permit()));
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(first.as_mut().poll(cx).is_pending())).await
        );
        worker.submit_together(flight(&worker), Request::default(), permit()).await;
        assert!(told.try_recv().is_err(), "nobody has woken the engine");
        drop(first);
    });
    assert_eq!(told.recv_timeout(LONG), Ok(2));
    assert!(worker.close(LONG));
}

#[test]
fn who_is_between_mailbox_and_engine_is_ended_with_all_others() {
    let (goes_on, holds) = sync_channel(2);
    let (worker, told) = held_up(Some(holds));
    let flights = [flight(&worker), flight(&worker)];
    for flight in &flights {
        worker.post(Arc::clone(flight), Request::default(), worker.gate().at_once().expect("a slot"));
    }
    worker.engine.link().wake();
    // The first is being submitted now, and the second waits for that.
    while worker.inner.lock().tasks.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    worker.give_up_on("it hangs");
    // What the engine has not heard of can be asked again, at once.
    let ends = flights.each_ref().map(|flight| flight.outcome().end);
    assert!(matches!(ends, [Some(End::Error(_)), Some(End::Rejected(_))]), "{ends:?}");
    for _ in &flights {
        goes_on.send(()).expect("the engine waits");
    }
    assert!(worker.close(LONG));
    assert!(told.try_iter().all(|taken| taken <= 1), "an ended task went to the engine");
}
