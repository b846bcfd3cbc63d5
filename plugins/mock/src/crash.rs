//! How a call goes down when a task asks for it: what a host without isolation cannot survive among it.
#![expect(unsafe_code, reason = "a bad memory access on demand")]

use cascadia_plugin_api::sdk::{Level, log};

use crate::order::Site;

/// How a call goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// It panics.
    Panic,
    /// It gives the process up.
    Abort,
    /// It reaches for memory that is not there.
    Segfault,
    /// It ends the process in good order.
    Exit,
    /// It takes memory until there is no more.
    Hog,
}

/// Crashes in the call `site` in the way asked for, if any.
pub(crate) fn crash(how: Option<Crash>, site: Site) {
    let Some(how) = how else { return };
    log(Level::Warn, "fault", "crashes as asked", &[("call", site.name())]);
    match how {
        Crash::Panic => panic!("the prompt asked for a panic in {}", site.name()),
        Crash::Abort => std::process::abort(),
        Crash::Segfault => {
            // SAFETY: none: no code lies in the first page, and the processor says so. That is what was asked for.
            let nowhere = unsafe { std::mem::transmute::<usize, extern "C" fn()>(8) };
            nowhere();
        }
        Crash::Exit =>
        {
            #[expect(clippy::disallowed_methods, reason = "a library that ends its host is what is shown")]
            std::process::exit(3)
        }
        Crash::Hog => {
            let mut held: Vec<Vec<u8>> = Vec::new();
            loop {
                // Written, so that it is really there; the allocator ends the process when it gets no more.
                held.push(vec![1; 64 << 20]);
            }
        }
    }
}
