//! What the blocking calls (load, build, warm-up, close) can be told to do: take long, fail, panic.

use std::time::Duration;

use cascadia_plugin_api::sdk::{Error, Level, Progress, Result, log};

use crate::options::Options;

/// Panics if the option `panic-in` names this call.
pub(crate) fn panic_if(options: &Options, call: &str) {
    if options.panic_in == call {
        log(Level::Warn, "fault", "panics as asked", &[("call", call)]);
        panic!("the option panic-in asked for a panic in {call}");
    }
}

/// Fails with the message, if there is one.
pub(crate) fn fail_if(message: &str) -> Result<()> {
    if message.is_empty() { Ok(()) } else { Err(Error::backend(message)) }
}

/// Spends the time of a long call, saying how it goes on; an error when the host wants it to end.
pub(crate) fn spend(ms: u64, phase: &str, progress: &Progress) -> Result<()> {
    const SLICE: u64 = 10;
    let mut done = 0;
    while done < ms {
        progress.report(phase, done, ms)?;
        let slice = SLICE.min(ms - done);
        std::thread::sleep(Duration::from_millis(slice));
        done += slice;
    }
    progress.report(phase, ms, ms)
}
