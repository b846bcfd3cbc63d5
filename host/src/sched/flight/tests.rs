//! Who is woken.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;
use crate::generate::assemble::Detokenize;

struct Nothing;
impl Detokenize for Nothing {
    fn push(&mut self, _: u32, _: &mut Vec<u8>) -> bool {
        true
    }
}
impl Consumer for Nothing {
    fn write(&mut self, _: Event<'_>, _: &mut Vec<u8>) {}
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
