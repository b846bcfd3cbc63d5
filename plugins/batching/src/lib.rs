//! Continuous batching with paged blocks, for any engine: which rows a model computes next, in which blocks their keys
//! and values lie, and which blocks can be used again.
//!
//! ```text
//! add, cancel ─▶ Scheduler: waiting ─ plan ─▶ Batch ─▶ (model) ─▶ outcomes ─▶ commit
//!                    │                                    └ failed ─▶ abandon
//!                    └ store: pool of blocks + prefix index ─▶ Log (events, read by others)
//! ```
//!
//! What an engine's loop does, on one thread:
//!
//! ```text
//! scheduler.add(entry)?                                    // Refused: say so to the client
//! while let Some(batch) = scheduler.plan(now, &mut drafts) {
//!     run batch.copies, then the model on the arrays       // failed: scheduler.abandon(), and try again or cancel
//!     for part in &batch.parts { outcomes.push(..) }       // from the rows part.sampled() of the logits
//!     scheduler.commit(&outcomes)?;
//! }
//! ```
//!
//! Around `plan`: [`Scheduler::expired`] and [`Scheduler::admitted`] tell what the plan ended and let in. What must hold:
//! a block that more than one sequence holds, or that the index names, is never written; the blocks held are those that
//! live sequences and states on their way ([`Scheduler::reserve`]) reach. No clock, no threads, no files: the time is passed in, and only [`Log`] may be asked from
//! elsewhere. It knows neither models nor plugins.

mod batch;
mod blocks;
mod drafts;
mod entry;
mod events;
mod limits;
mod load;
mod prefix;
mod scheduler;
mod sequence;
mod store;

pub use batch::{Batch, BlockCopy, Mismatch, Outcome, Part};
pub use drafts::{Drafts, NoDrafts};
pub use entry::{Entry, Id, Refused, Scope};
pub use events::{Change, Event, Log};
pub use limits::{Impossible, Limits};
pub use load::{Admitted, Load};
pub use scheduler::{Decoding, Scheduler, State, Ticket};
