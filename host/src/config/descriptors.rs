//! How many files and sockets the process may have open: raised at the start as far as its configuration can use.
#![expect(unsafe_code, reason = "resource limits, which std does not have")]

/// What the host needs beside its clients' connections: libraries, links between stages, children, logs.
const OWN: u64 = 1024;

/// The bounds after [`raise`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// What the configuration can use.
    pub wanted: u64,
    /// What the process had.
    pub before: u64,
    /// What it has.
    pub now: u64,
}

impl Descriptors {
    /// Whether all connections that the configuration allows can be open at once.
    pub fn suffice(&self) -> bool {
        self.now >= self.wanted
    }
}

/// Raises the process's own bound for so many connections, as far as the system lets it; never lowers it. Not simply to
/// the most: some systems have a bound of a thousand million, and programs that close "all descriptors" then take minutes.
///
/// # Errors
/// What the system said.
pub fn raise(connections: usize) -> std::io::Result<Descriptors> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is this call's, alive for its length.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let wanted = target(connections, limit.rlim_cur, limit.rlim_max);
    let before = std::mem::replace(&mut limit.rlim_cur, wanted);
    // SAFETY: as above.
    if wanted != before && unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(Descriptors { wanted: needed(connections), before, now: wanted })
}

fn needed(connections: usize) -> u64 {
    (connections as u64).saturating_add(OWN)
}

fn target(connections: usize, soft: u64, hard: u64) -> u64 {
    needed(connections).min(hard).max(soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_raised_to_the_need_and_never_lowered() {
        assert_eq!(target(4096, 1024, 1 << 20), 5120);
        assert_eq!(target(4096, 1024, 4096), 4096);
        assert_eq!(target(4096, 20_000, 20_000), 20_000);
        assert_eq!(target(usize::MAX, 1024, u64::MAX), u64::MAX);
    }

    #[test]
    fn raising_twice_changes_nothing_more() {
        let first = raise(64).expect("own limits are readable");
        let second = raise(64).expect("own limits are readable");
        assert_eq!((second.before, second.now), (first.now, first.now));
    }
}
