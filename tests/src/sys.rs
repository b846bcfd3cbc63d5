//! What std does not offer: signals to a child, rude ends of a connection, resource limits. With `boundary.rs` the only place with `unsafe`.
#![expect(unsafe_code, reason = "calls libc")]

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Sends a signal to a child that has not been waited for.
pub fn signal(child: &Child, number: i32) {
    let pid = i32::try_from(child.id()).expect("PANIC: process ids fit");
    // SAFETY: no memory is involved; the child is ours and not reaped, so the number is still its own.
    let done = unsafe { libc::kill(pid, number) };
    assert_eq!(done, 0, "signal {number} to {pid}: {}", std::io::Error::last_os_error());
}

/// The child is killed when the thread that started it ends: a test that is killed leaves nothing behind.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
}

/// Closes the connection with a reset instead of a farewell.
pub fn reset(socket: TcpStream) {
    option(&socket, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 });
    drop(socket);
}

/// Lets the socket hold so many bytes that nobody has read, about.
pub fn receive_buffer(socket: &TcpStream, bytes: i32) {
    option(socket, libc::SO_RCVBUF, &bytes);
}

fn option<T>(socket: &TcpStream, name: libc::c_int, value: &T) {
    let size = libc::socklen_t::try_from(size_of::<T>()).expect("PANIC: the structure is small");
    // SAFETY: the value is the structure of this option, alive for the call.
    let done = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, size)
    };
    assert_eq!(done, 0, "option {name}: {}", std::io::Error::last_os_error());
}

/// Lets this process have so many descriptors; false when its hard limit does not.
pub fn descriptors(wanted: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is this call's, alive for its length.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(read, 0, "getrlimit: {}", std::io::Error::last_os_error());
    if limit.rlim_cur >= wanted {
        return true;
    }
    limit.rlim_cur = wanted.min(limit.rlim_max);
    // SAFETY: as above.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    done == 0 && limit.rlim_cur >= wanted
}

/// The child begins with a soft limit of so many descriptors, as many systems start their services.
pub fn begin_with_descriptors(command: &mut Command, soft: u64) {
    // SAFETY: both calls are async-signal-safe; the structure is the closure's own.
    unsafe {
        command.pre_exec(move || {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            limit.rlim_cur = soft;
            match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
}

/// Sends a signal to a process that is not our child.
pub fn signal_id(pid: u32, number: i32) {
    let pid = i32::try_from(pid).expect("PANIC: process ids fit");
    // SAFETY: no memory is involved.
    let done = unsafe { libc::kill(pid, number) };
    assert_eq!(done, 0, "signal {number} to {pid}: {}", std::io::Error::last_os_error());
}
