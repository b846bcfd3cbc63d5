//! Processor time, of this process and of a child.
#![expect(unsafe_code, reason = "the clocks of processes, which std does not have")]

use std::time::Duration;

/// Time that all threads of this process have run.
pub(super) fn this() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or_default()
}

/// The same of another process; none when it is gone.
pub(super) fn of(process: u32) -> Option<Duration> {
    let mut clock: libc::clockid_t = 0;
    let process = libc::pid_t::try_from(process).ok()?;
    // SAFETY: the clock's place lives through the call.
    if unsafe { libc::clock_getcpuclockid(process, &raw mut clock) } != 0 {
        return None;
    }
    read(clock)
}

fn read(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time's place lives through the call.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_know_this_process() {
        let before = this();
        let own = of(std::process::id()).expect("this process is there");
        assert!(own >= before && this() >= own, "one clock by two names");
        assert!(of(u32::MAX).is_none());
    }
}
