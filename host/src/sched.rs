//! From admission to the end of a generation: slots and queue, the engine's thread, the owner object.
//!
//! Three lifetimes, three types. A [`Permit`] is a slot: it lives as long as the engine may work on the task. A [`Flight`]
//! is shared by the engine's thread and the client's side. A [`Generation`] belongs to the client's side alone and books
//! what came of it, exactly once, in its drop.

pub mod admit;
pub mod flight;
pub mod flood;
pub mod generation;
pub mod moment;
pub mod roster;
pub mod unread;
pub mod worker;

pub use admit::{Gate, Permit};
pub use flight::Flight;
pub use flood::Flood;
pub use generation::Generation;
pub use moment::Moment;
pub use roster::Roster;
pub use unread::Unread;
pub use worker::Worker;
