//! Waiting for a condition, with a deadline and a word about what was missing.

use std::time::{Duration, Instant};

/// The machine may be slow and busy; a deadline is there to end a test that hangs, not to measure.
pub const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// Asks until the answer is there. `probe` says in its error what it found instead.
///
/// # Panics
/// When the deadline has passed.
#[track_caller]
pub fn wait<T>(what: &str, probe: impl FnMut() -> Result<T, String>) -> T {
    wait_for(DEADLINE, what, probe)
}

/// As [`wait`], with another deadline.
#[track_caller]
pub fn wait_for<T>(deadline: Duration, what: &str, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match probe() {
            Ok(found) => return found,
            Err(found) if begun.elapsed() > deadline => {
                panic!("waited {deadline:?} for {what}; the last look found {found}")
            }
            Err(_) => std::thread::sleep(POLL),
        }
    }
}
