//! Plugins: finding, checking, opening and calling them, here or in a process of their own. The only place with `unsafe`,
//! libloading and abi_stable.
//!
//! What must hold: nothing of a plugin runs before its file, its manifest and its options were checked; a library is
//! never closed; types of the boundary end here, beyond this module only `generate` types travel.

pub mod bench;
pub mod breach;
pub mod build;
pub mod check;
pub mod code;
pub mod configured;
mod copy;
pub mod elf;
pub mod engine;
pub mod error;
mod failed;
pub mod find;
mod handle;
pub mod heap;
mod instance;
pub mod isolate;
pub mod link;
pub mod load;
pub mod manifest;
pub mod opened;
pub mod options;
pub mod precheck;
pub mod proof;
mod receive;
mod register;
pub mod services;
mod spans;
mod steps;
mod strict;
pub mod template;
pub mod transport;
mod words;

pub use build::{Built, Card};
pub use engine::{Engine, Load, Next, Receiver, Taken};
pub use error::LoadError;
pub use link::Link;
pub use opened::Opened;

/// Ends the process without running anything more: what plugins have opened may have threads and destructors that do not
/// go together.
pub fn leave(code: i32) -> ! {
    // SAFETY: ends the process; nothing runs after it.
    #[expect(unsafe_code, reason = "std has no exit without destructors")]
    unsafe {
        libc::_exit(code)
    }
}
