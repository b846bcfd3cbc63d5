//! A flood as a reader has it, with its timers.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{LONG, Nothing, resting};
use crate::generate::{Assembler, Bare, Consumer, End, Event, More, Outbox, Piece, Usage};
use crate::http::stream::{Stream, Tail};
use crate::sched::flight::Mode;
use crate::sched::{Flight, Generation, Unread, Worker};

/// Shows texts; one of them holds the flight for long, as an engine's thread does that lost its core.
struct Texts;

const HELD: &str = "held";

impl Consumer for Texts {
    fn write(&mut self, event: Event<'_>, out: &mut Outbox) {
        if let Event::Text { text, .. } = event {
            if text == HELD {
                std::thread::sleep(Duration::from_millis(40));
            }
            out.text(text.as_bytes());
        }
    }
}

struct NoTail;

impl Tail for NoTail {
    fn write(&self, _: &[(End, Usage)], _: &mut Vec<u8>) {}
}

fn stream(worker: &Worker, limit: usize) -> Arc<Flight> {
    let (unread, flood) = (Arc::new(Unread::new(worker.metrics())), worker.flood());
    let mode = Mode::Stream { limit, patience: LONG, unread, most: 1 << 30, flood, framing: Box::new(Bare) };
    let assembler = Assembler::new(Box::new(Nothing), Vec::new(), 1);
    Arc::new(Flight::new(worker.task_id(), mode, assembler, Box::new(Texts), CancellationToken::new()))
}

fn give(flight: &Flight, text: &str, now: Instant) {
    let (piece, mut wakers) = (Piece { tokens: &[1], bytes: text.as_bytes(), more: More::NONE }, Vec::new());
    flight.deliver(piece, now.into(), &mut wakers, || {});
    wakers.into_iter().for_each(Waker::wake);
}

/// Enough to be a flood.
fn flood(flight: &Flight, texts: [&str; 3]) {
    let begun = Instant::now();
    for (at, text) in (1..).zip(texts) {
        give(flight, text, begun + Duration::from_micros(10 * at));
    }
}

#[test]
fn a_patient_reader_that_was_held_up_beyond_its_timer_asks_again() {
    let (worker, _told) = resting();
    let flight = stream(&worker, 1 << 20);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    // Somebody who looks after the timers while the reader is held up.
    runtime.spawn(async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let reader = {
        let (worker, flight) = (Arc::clone(&worker), Arc::clone(&flight));
        runtime.spawn(async move {
            let generation = Generation::admit(Arc::clone(&flight), worker, "r".to_owned());
            let mut stream = Stream::new(vec![generation], Box::new(NoTail), Vec::new(), false);
            flood(&flight, ["a", "b", "c"]);
            let mut first = true;
            std::future::poll_fn(|cx| {
                if std::mem::take(&mut first) {
                    let had = stream.poll_bytes(cx);
                    assert!(matches!(had, Poll::Ready(Some(bytes)) if &bytes[..] == b"abc"));
                    let flight = Arc::clone(&flight);
                    std::thread::spawn(move || give(&flight, HELD, Instant::now()));
                    std::thread::sleep(Duration::from_millis(1));
                }
                stream.poll_bytes(cx)
            })
            .await
        })
    };
    let begun = Instant::now();
    let next = runtime.block_on(reader).expect("no panic").expect("bytes");
    assert_eq!(&next[..], HELD.as_bytes());
    assert!(begun.elapsed() < Duration::from_secs(10), "the silence, which is 15 s, ended it");
    assert!(worker.close(LONG));
}

#[test]
fn a_reader_with_little_room_is_woken_before_it_is_full() {
    let (worker, _told) = resting();
    let limit = 1024;
    let flight = stream(&worker, limit);
    flood(&flight, ["a", "b", "c"]);
    let cx = Context::from_waker(Waker::noop());
    assert!(matches!(flight.poll_ready(&cx, false), Poll::Ready(ready) if ready.flood));
    assert!(flight.poll_ready(&cx, true).is_pending());
    give(&flight, &"x".repeat(limit / 2), Instant::now());
    assert!(flight.poll_ready(&cx, true).is_ready(), "what is half of its room does not wait");
    assert!(worker.close(LONG));
}
