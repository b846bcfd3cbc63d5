//! The harness of the integration tests: starts the built host with real plugins and talks to it over real sockets.
//!
//! What must hold: a test leaves no process behind; every wait has a deadline and says what it waited for; nothing
//! sleeps in place of a condition. It knows the host from outside only: its flags, its API, its metrics, its exit.

pub mod boundary;
pub mod cc;
pub mod client;
pub mod crate_build;
pub mod dice;
pub mod elf;
pub mod footprint;
pub mod host;
pub mod http;
pub mod prom;
pub mod scrape;
pub mod setup;
pub mod sse;
pub mod sys;
pub mod temp;
pub mod two;
pub mod wait;

pub use client::{Call, Client, Stream, chat, completion, order};
pub use dice::Dice;
pub use host::Host;
pub use scrape::Scrape;
pub use sse::Told;
pub use temp::TempDir;
pub use wait::wait;
