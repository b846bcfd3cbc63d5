//! What std does not offer: readiness of many sockets, and the processor clock of another process. The only place of the
//! benches with `unsafe`.
#![expect(unsafe_code, reason = "calls libc")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Tells which sockets can be read.
#[derive(Debug)]
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poll {
    /// Of no sockets yet.
    pub(crate) fn new() -> io::Result<Poll> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so it is ours alone.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Poll { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; 256] })
    }

    /// Follows a socket under that number, until it is closed.
    pub(crate) fn add(&self, socket: &impl AsRawFd, number: usize) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number as u64 };
        // SAFETY: both descriptors are open, and the event lives for the call.
        let done = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, socket.as_raw_fd(), &raw mut event)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits until one can be read, at most so long; leaves their numbers in `ready`.
    pub(crate) fn wait(&mut self, most: Duration, ready: &mut Vec<usize>) -> io::Result<()> {
        ready.clear();
        let millis = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
        let room = i32::try_from(self.events.len()).unwrap_or(i32::MAX);
        // SAFETY: the events are a live array of that many.
        let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), self.events.as_mut_ptr(), room, millis) };
        let Ok(n) = usize::try_from(n) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        };
        ready.extend(self.events[..n].iter().map(|event| event.u64 as usize));
        Ok(())
    }
}

/// User and system time that all threads of a process have used, in nanosecond steps.
pub(crate) fn cpu(process: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(process).map_err(io::Error::other)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the place for the answer lives for the call.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the same.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let nanos = u32::try_from(time.tv_nsec).map_err(io::Error::other)?;
    Ok(Duration::new(u64::try_from(time.tv_sec).map_err(io::Error::other)?, nanos))
}

/// The machine's load average, as the kernel writes it.
pub(crate) fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

/// Kills every process of a group.
pub(crate) fn kill_group(group: u32) -> io::Result<()> {
    let group = libc::pid_t::try_from(group).map_err(io::Error::other)?;
    // SAFETY: no memory is involved.
    if unsafe { libc::killpg(group, libc::SIGKILL) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Resident memory of a process in KiB: all of it, and what is no file's.
pub(crate) fn resident(process: u32) -> (f64, f64) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|text| text.trim().split(' ').next()?.parse().ok()).unwrap_or(0.0)
    };
    (of("VmRSS:"), of("RssAnon:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_clock_and_memory() {
        let own = std::process::id();
        assert!(cpu(own).expect("own clock") > Duration::ZERO);
        let (all, anonymous) = resident(own);
        assert!(all > anonymous && anonymous > 0.0);
        assert!(cpu(u32::MAX).is_err());
    }

    #[test]
    fn a_socket_with_bytes_is_ready() {
        use std::io::Write;
        let (mut here, there) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut poll = Poll::new().expect("epoll");
        poll.add(&there, 7).expect("added");
        let mut ready = vec![1];
        poll.wait(Duration::ZERO, &mut ready).expect("a look");
        assert!(ready.is_empty());
        here.write_all(b"x").expect("written");
        poll.wait(Duration::from_secs(10), &mut ready).expect("a wait");
        assert_eq!(ready, [7]);
    }
}
