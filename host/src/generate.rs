//! The neutral vocabulary of a generation: what every API maps to and every engine maps from.
//!
//! Pure: no clock, no I/O, no runtime. Knows neither the wire types of an API nor the tables of a plugin.

pub mod assemble;
pub mod end;
pub mod outbox;
pub mod piece;
pub mod request;
pub mod score;
pub mod stop;
pub mod utf8;

use std::borrow::Cow;

pub use assemble::Assembler;
pub use end::{Cause, End};
pub use outbox::Outbox;
pub use piece::{Failure, Finish, Kind, Logprobs, More, Piece};
pub use request::{Bias, Request, Sampling};
pub use score::Scored;

/// What happens in a generation, in order: any number of texts, then one end.
#[derive(Debug, PartialEq)]
pub enum Event<'a> {
    /// Text that may be shown; `tokens` are the generated tokens it stands for, with any that gave no text so far.
    Text {
        /// Whole characters; empty only where log-probabilities come without any.
        text: &'a str,
        /// Generated tokens since the last event.
        tokens: u32,
        /// Log-probabilities of the tokens whose text begins in `text`, where they were asked for.
        scores: &'a [Scored],
    },
    /// Log-probability of each prompt token, the first not a number. At most once, before any text.
    Prompt(&'a [f32]),
    /// Nothing follows.
    End {
        /// How it ended.
        end: &'a End,
        /// The counts of the whole generation.
        usage: Usage,
    },
}

/// Token counts of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Of these, taken from a prefix cache, where the engine says so.
    pub cached: Option<u32>,
    /// Tokens generated, with those that a stop string cut off.
    pub completion: u32,
}

/// Makes of events what an API sends or collects.
pub trait Consumer: Send {
    /// Appends what comes of the event to `out`. Called with a lock held: must be quick and never block.
    fn write(&mut self, event: Event<'_>, out: &mut Outbox);

    /// Whether it makes of a text without log-probabilities, from now on, what [`Outbox::text`] does and nothing else: such a text need
    /// not be given to it.
    fn passes(&self) -> bool {
        false
    }
}

/// What a text looks like when it leaves.
pub trait Framing: Send + Sync {
    /// What stands before a text and behind it.
    fn around(&self) -> (&[u8], &[u8]);

    /// What stands between two texts: what is behind the one, then what is before the other.
    fn between(&self) -> &[u8];

    /// The text as it stands between them. It is whole characters.
    fn within<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]>;
}

/// A text as it is.
pub struct Bare;

impl Framing for Bare {
    fn around(&self) -> (&[u8], &[u8]) {
        (&[], &[])
    }

    fn between(&self) -> &[u8] {
        &[]
    }

    fn within<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(text)
    }
}
