//! From a borrowed row of logits to a token: the choice, its log-probability and the likeliest alternatives.
//!
//! ```text
//! row ─▶ adjust (bias, penalties, bans, mask; in a copy) ─▶ choose (greedy, or filters and a draw) ─▶ Choice
//!  └───────────────────────────── logprob (of the row as it came) ──────────────────────────────────────┘
//! ```
//!
//! A [`Sampler`] is what one sequence needs: its [`Settings`] and what it has counted. A [`Scratch`] is what one thread
//! needs: room, and the passes over a row for this processor. Rows are lent and never changed.
//!
//! What holds:
//! - The same row, settings and answer so far give the same token on the same machine. Random numbers are a function of (seed, index in
//!   the answer), one per token, so that neither the batch nor speculation, preemption or a migration changes an answer.
//! - Of equal logits the lowest id wins, whatever the processor.
//! - A row that is not a number, or leaves nothing to choose, is an [`Error`] and never a token.
//! - Log-probabilities are those of the row as the model gave it, before bias, penalties, mask and temperature, so that those of the
//!   prompt and of the answer mean the same. OpenVINO GenAI and, unless told otherwise, vLLM report the same.
//! - A repetition penalty is about tokens of prompt and answer, frequency and presence penalties about the answer alone.
//!
//! It knows no engine, no plugin, no clock and no thread.

mod adjust;
mod choose;
mod draw;
mod history;
mod kernels;
mod logprob;
mod nucleus;
mod order;
mod row;
mod sampler;
mod scratch;
mod settings;
mod top;
mod typical;

pub use logprob::{Alternative, Scored, score};
pub use sampler::{Choice, Row, Sampler};
pub use scratch::{Error, Kernel, Scratch};
pub use settings::{MAX_ALTERNATIVES, Refused, Settings};
