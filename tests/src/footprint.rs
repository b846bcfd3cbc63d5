//! What a process holds, as the kernel tells it.

/// Threads, descriptors and memory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Its threads.
    pub threads: usize,
    /// Its open files and sockets.
    pub descriptors: usize,
    /// Memory that is really there, in KiB.
    pub resident: u64,
    /// The most that ever was.
    pub peak: u64,
}

impl Footprint {
    /// That of a process.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn of(pid: u32) -> Footprint {
        let count = |what: &str| {
            let path = format!("/proc/{pid}/{what}");
            std::fs::read_dir(&path).unwrap_or_else(|e| panic!("{path}: {e}")).count()
        };
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let memory = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
            number.unwrap_or_else(|| panic!("{name} in {status}"))
        };
        Footprint {
            threads: count("task"),
            descriptors: count("fd"),
            resident: memory("VmRSS:"),
            peak: memory("VmHWM:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_process_has_all_of_it() {
        let own = Footprint::of(std::process::id());
        assert!(own.threads >= 1 && own.descriptors >= 3, "{own:?}");
        assert!(own.resident > 0 && own.peak >= own.resident, "{own:?}");
    }
}
