//! Who is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;
use crate::generate::assemble::Detokenize;
use crate::generate::{Bare, More};
use crate::sched::Unread;
use crate::telemetry::metrics::Metrics;

struct Nothing;
impl Detokenize for Nothing {
    fn push(&mut self, _: u32, _: &mut Vec<u8>) -> bool {
        true
    }
}
impl Consumer for Nothing {
    fn write(&mut self, _: Event<'_>, _: &mut Outbox) {}
}

#[derive(Default)]
struct Woken(AtomicUsize);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_waits_for_a_slot_takes_no_wake_from_who_waits_for_the_answer() {
    let assembler = Assembler::new(Box::new(Nothing), Vec::new(), 1);
    let mode = Mode::Collect { limit: 100 };
    let flight = Flight::new(1, mode, assembler, Box::new(Nothing), CancellationToken::new());
    let (reader, entering): (Arc<Woken>, Arc<Woken>) = Default::default();
    let (read, enter) = (Waker::from(Arc::clone(&reader)), Waker::from(Arc::clone(&entering)));
    assert!(flight.poll_end(&mut Context::from_waker(&read)).is_pending());
    assert!(flight.poll_given_up(&mut Context::from_waker(&enter)).is_pending());
    assert!(flight.end(End::Stop));
    assert_eq!((reader.0.load(Ordering::Relaxed), entering.0.load(Ordering::Relaxed)), (1, 1));
}

/// A consumer that shows texts and nothing else.
struct Texts;
impl Consumer for Texts {
    fn write(&mut self, event: Event<'_>, out: &mut Outbox) {
        if let Event::Text { text, .. } = event {
            out.text(text.as_bytes());
        }
    }
}

/// A stream, and a reader that counts how often it was woken.
fn stream() -> (Flight, Arc<Woken>, Waker) {
    stream_of(Assembler::new(Box::new(Nothing), Vec::new(), 1), Box::new(Texts))
}

fn stream_of(assembler: Assembler, consumer: Box<dyn Consumer>) -> (Flight, Arc<Woken>, Waker) {
    let (unread, flood) = (Arc::new(Unread::new(Arc::new(Metrics::new()))), Arc::default());
    let (limit, patience, most) = (1 << 20, Duration::from_secs(60), 1 << 30);
    let mode = Mode::Stream { limit, patience, unread, most, flood, framing: Box::new(Bare) };
    let flight = Flight::new(1, mode, assembler, consumer, CancellationToken::new());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    (flight, woken, waker)
}

/// The engine gives `text` at that moment, and with it the end.
fn give(flight: &Flight, text: &str, now: Instant, finish: Option<Finish>) {
    let (mut wakers, more) = (Vec::new(), More { finish, ..More::NONE.clone() });
    let piece = Piece { tokens: &[1], bytes: text.as_bytes(), more: &more };
    assert_eq!(flight.deliver(piece, now.into(), &mut wakers, || {}), After::Nothing);
    wakers.into_iter().for_each(Waker::wake);
}

/// What a reader gets; none where it waits.
fn read(flight: &Flight, waker: &Waker, patient: bool) -> Option<(String, bool)> {
    match flight.poll_ready(&Context::from_waker(waker), patient) {
        Poll::Ready(ready) => Some((String::from_utf8(ready.bytes).expect("text"), ready.flood)),
        Poll::Pending => None,
    }
}

#[test]
fn a_reader_of_a_flood_is_woken_by_its_end_alone_and_has_all_of_it() {
    let (flight, woken, waker) = stream();
    let (mut now, wakes) = (Instant::now(), || woken.0.load(Ordering::Relaxed));
    let mut next = |text, finish| {
        now += Duration::from_micros(10);
        give(&flight, text, now, finish);
    };
    assert_eq!(read(&flight, &waker, false), None);
    next("a", None);
    assert_eq!(wakes(), 1, "the first is no flood yet");
    next("b", None);
    next("c", None);
    assert_eq!(read(&flight, &waker, false), Some(("abc".to_owned(), true)));
    next("d", None);
    assert_eq!(read(&flight, &waker, true), None, "a patient reader waits for more");
    next("e", None);
    assert_eq!(wakes(), 1, "it looks again by itself");
    next("f", Some(Finish::Stop));
    assert_eq!((wakes(), read(&flight, &waker, true)), (2, Some(("def".to_owned(), true))));
}

#[test]
fn a_reader_of_an_engine_that_takes_its_time_is_woken_by_every_piece() {
    let (flight, woken, waker) = stream();
    let mut now = Instant::now();
    for count in 1..=4 {
        assert_eq!(read(&flight, &waker, false), None);
        now += Duration::from_millis(1);
        give(&flight, "a", now, None);
        assert_eq!(woken.0.load(Ordering::Relaxed), count);
        assert_eq!(read(&flight, &waker, false), Some(("a".to_owned(), false)));
    }
}

/// As [`Texts`], and says so.
struct Passes;
impl Consumer for Passes {
    fn write(&mut self, event: Event<'_>, out: &mut Outbox) {
        Texts.write(event, out);
    }

    fn passes(&self) -> bool {
        true
    }
}

#[test]
fn a_piece_leaves_a_flight_alike_on_the_short_way_and_on_the_long_one() {
    let pieces: [&[u8]; 9] =
        [b"a", "é".as_bytes(), b"\xc3", b"\xa9b", b"", b"\xff", b"c", "😀".as_bytes(), &[b'd'; 20_000]];
    let (stops, most) = (["EN".to_owned()], 50);
    for stops in [&stops[..0], &stops[..]] {
        let read = |consumer: Box<dyn Consumer>| {
            let assembler = Assembler::new(Box::new(Nothing), stops.to_vec(), 1);
            let (flight, _, waker) = stream_of(assembler, consumer);
            let (mut now, mut told) = (Instant::now(), Vec::new());
            for at in 0..most {
                now += Duration::from_micros(100 * (at as u64 % 7));
                let (piece, mut wakers) = (pieces[at * at % pieces.len()], Vec::new());
                let piece = Piece { tokens: &[1, 2], bytes: piece, more: More::NONE };
                let after = flight.deliver(piece, now.into(), &mut wakers, || {});
                let state = flight.state.lock();
                told.push((after, wakers.len(), state.out.waits(), state.tokens, state.counted));
                drop(state);
                told.push((After::Nothing, 0, flight.outcome().usage.completion as usize, 0, 0));
                if at % 5 == 0 {
                    let had = flight.poll_ready(&Context::from_waker(&waker), false);
                    let (bytes, tokens) = if let Poll::Ready(ready) = had {
                        (ready.bytes, ready.tokens)
                    } else {
                        (Vec::new(), 0)
                    };
                    told.push((
                        After::Nothing,
                        1,
                        bytes.len(),
                        tokens,
                        bytes.iter().map(|b| *b as usize).sum(),
                    ));
                }
            }
            told
        };
        assert_eq!(read(Box::new(Passes)), read(Box::new(Texts)), "{stops:?}");
    }
}
