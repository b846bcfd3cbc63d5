//! Entries for fuzzing: what the child of an isolated plugin may send, whole frames and their stream of bytes.
#![expect(unsafe_code, reason = "reads what an unpacked task views")]

use std::io::Write;
use std::os::unix::net::UnixStream;

use super::frame::{Build, Built, Frame, Line, Series, Unbuilt, unpack_failure};
use super::ledger::{Ledger, Mirror};
use super::news;
use super::pack::{Packer, Unpacker};
use super::pipe::{Filled, Pipe};
use super::wire;
use crate::generate::{Failure, Piece};
use crate::plugins::Receiver;
use crate::plugins::register::Register;
use crate::telemetry::transport::carried;

/// A stream of bytes as one side gets it, cut into pieces of these lengths; each whole frame is read as its kind says.
pub fn stream(bytes: &[u8], cuts: &[u8]) {
    let Ok((here, mut there)) = UnixStream::pair() else { return };
    let mut pipe = Pipe::new(here).expect("PANIC: a new socket can be made not to block");
    let (mut taken, mut rest, mut cuts) = (0, bytes, cuts.iter().cycle());
    let mut side = Side::default();
    loop {
        let n = rest.len().min(1 + usize::from(*cuts.next().unwrap_or(&255)) * 16);
        let (part, left) = rest.split_at(n);
        rest = left;
        there.write_all(part).expect("PANIC: what was sent is read at once");
        while matches!(pipe.fill().expect("PANIC: both ends are open"), Filled::Some(_)) {}
        loop {
            match pipe.next() {
                Ok(Some((kind, range))) => {
                    taken += super::frame::HEAD + range.len();
                    side.frame(kind, pipe.bytes(range));
                }
                Ok(None) => break,
                // Too long: whoever sent it is given up.
                Err(_) => return,
            }
        }
        assert!(taken <= bytes.len(), "{taken} bytes of frames came out of {}", bytes.len());
        if rest.is_empty() {
            return;
        }
    }
}

/// What a side remembers between frames.
#[derive(Default)]
struct Side {
    mirror: Mirror,
    ledger: Ledger,
    links: carried::Mirror,
}

impl Side {
    /// One frame, read as both sides would. Wrong ones are errors; nothing else may happen.
    fn frame(&mut self, kind: u32, bytes: &[u8]) {
        match Frame::of(kind) {
            Some(Frame::Submit) => submit(bytes),
            Some(Frame::Chunks) => {
                let mut seen = Seen::default();
                // Wrong ones are told from sound ones in the middle; what came before it was delivered.
                let whole = wire::deliver(bytes, &mut seen, |_| {}).is_ok();
                assert!(!whole || seen.bytes <= bytes.len(), "{} bytes out of {}", seen.bytes, bytes.len());
            }
            Some(Frame::Build) => drop(serde_json::from_slice::<Build>(bytes)),
            Some(Frame::Built) => drop(serde_json::from_slice::<Built>(bytes)),
            Some(Frame::Unbuilt) => drop(serde_json::from_slice::<Unbuilt>(bytes)),
            Some(Frame::Line) => drop(serde_json::from_slice::<Line>(bytes)),
            Some(Frame::Series) => {
                if let Ok(series) = serde_json::from_slice::<Series>(bytes) {
                    drop(self.mirror.series("p", series, &self.ledger));
                }
            }
            Some(Frame::Links) => {
                if let Ok(told) = serde_json::from_slice(bytes) {
                    self.links.take("p", told, self.ledger.transport());
                }
            }
            Some(Frame::Values) => drop(self.mirror.values(bytes, &self.ledger)),
            Some(Frame::Report) => drop(news::unpack_report(bytes)),
            Some(Frame::Taken | Frame::Failed | Frame::Closed) => {
                drop(unpack_failure(&mut Unpacker::new(bytes)));
            }
            Some(Frame::Cancel | Frame::GiveUp | Frame::Close | Frame::Level | Frame::Breaches) | None => {}
        }
    }
}

/// A task that can be read can be sent on, and is the same length then.
fn submit(bytes: &[u8]) {
    let Ok(unpacked) = wire::unpack_task(bytes) else { return };
    let mut again = Packer::default();
    // SAFETY: the task views the frame, which is alive.
    unsafe { wire::pack_task(&mut again, &unpacked.task()) };
    assert!(again.bytes().len() <= bytes.len().next_multiple_of(8));
    let second = wire::unpack_task(again.bytes());
    assert!(second.is_ok(), "what was packed is whole");
}

/// Reads everything that a chunk shows.
#[derive(Default)]
struct Seen {
    bytes: usize,
}

impl Receiver for Seen {
    fn piece(&mut self, _: u64, piece: Piece<'_>) {
        let numbers =
            piece.tokens.len() + piece.more.logprobs.chosen.len() + piece.more.logprobs.top_ids.len();
        let numbers = numbers + piece.more.logprobs.top.len() + piece.more.prompt_logprobs.len();
        self.bytes += piece.bytes.len() + 4 * numbers;
        // Each byte is looked at, so that a view beyond the frame is seen by a sanitizer.
        let sum: u64 = piece.bytes.iter().map(|b| u64::from(*b)).sum();
        let ids: u64 = piece.tokens.iter().chain(piece.more.logprobs.top_ids).map(|n| u64::from(*n)).sum();
        std::hint::black_box(sum.wrapping_add(ids));
    }

    fn taken(&mut self, _: u64, _: Result<(), Failure>) {}

    fn go_on(&mut self) -> bool {
        true
    }

    fn broken(&mut self) {}
}
