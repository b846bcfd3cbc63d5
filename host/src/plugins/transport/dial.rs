//! The way to a peer: tried until it is there, then greeted.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use super::address::Address;
use super::greeting::{Greeting, Silence, say};
use super::hello::{self, Hello, Word};
use super::listener::Guest;
use super::socket::{Stream, Wish, connect, wait};
use super::until::{Patience, Until};
use super::{Error, Limits, Result};

/// Between two attempts: the first pause, and the longest.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);

/// What a caller may do in between.
pub(super) trait Waiting {
    /// Nobody wants the link any more.
    fn is_gone(&self) -> bool;
    /// Waits until then, or until nobody wants the link any more.
    fn pause(&self, until: Instant);
}

/// A greeted connection to the peer at `address`.
pub(super) fn dial(
    address: &Address,
    purpose: &str,
    until: Until,
    limits: &Limits,
    waiting: &dyn Waiting,
) -> Result<Guest> {
    if purpose.len() > hello::MAX_TEXT {
        return Err(Error::long_purpose(purpose.len()));
    }
    let patience = Patience::new(until);
    let mut pause = FIRST;
    loop {
        let gone = || waiting.is_gone();
        let met = match connect(address, patience.end(), &gone) {
            Ok(stream) => match greet(stream, address, purpose, &patience, limits, waiting)? {
                Ok(guest) => return Ok(guest),
                Err(met) => met,
            },
            Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => {
                return Err(Error::Lost(format!("{address} cannot be reached: {e}")));
            }
            Err(e) => e.to_string(),
        };
        if waiting.is_gone() {
            return Err(Error::worker_closed());
        }
        if patience.is_over() {
            return Err(Error::Lost(format!("{address} cannot be reached: {met}")));
        }
        waiting.pause(patience.end().min(Instant::now() + pause));
        pause = (pause * 2).min(LONGEST);
    }
}

/// Says hello and waits for the answer. The inner error is a peer that went away, and may come back.
fn greet(
    stream: Stream,
    address: &Address,
    purpose: &str,
    patience: &Patience,
    limits: &Limits,
    waiting: &dyn Waiting,
) -> Result<std::result::Result<Guest, String>> {
    let hello = Hello { word: Word::Hello, largest: limits.tensor, text: purpose.to_owned() };
    if let Err(e) = say(&stream, &hello, patience.end()) {
        return Ok(Err(e.to_string()));
    }
    let mut greeting = Greeting::new();
    loop {
        match greeting.pull(&stream) {
            Ok(Some(Hello { word: Word::Welcome, largest, .. })) => return Ok(Ok(Guest { stream, largest })),
            Ok(Some(Hello { word: Word::Refused, text, .. })) => {
                // Its words go into a line of ours.
                let text = text.replace(char::is_control, " ");
                return Err(Error::Rejected(format!("{address} refused this stage: {text}")));
            }
            Ok(Some(Hello { word: Word::Hello, .. })) => {
                return Err(Error::Rejected(format!(
                    "{address} is no listener of a stage: it opened a link itself"
                )));
            }
            Ok(None) if waiting.is_gone() => return Err(Error::worker_closed()),
            Ok(None) if patience.is_over() => {
                return Err(Error::Deadline(format!("{address} is there, and did not accept in time")));
            }
            Ok(None) => wait(&stream, Wish::Read, patience.end()).map_err(|e| Error::Lost(e.to_string()))?,
            Err(Silence::Left) => return Ok(Err("it closed the connection without an answer".to_owned())),
            Err(Silence::Failed(e)) => return Ok(Err(e.to_string())),
            Err(Silence::Against(fault)) => {
                return Err(Error::Rejected(format!("{address} was refused: {fault}")));
            }
        }
    }
}
