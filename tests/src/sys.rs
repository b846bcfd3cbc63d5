//! What std does not offer: signals to a child, rude ends of a connection. The only place with `unsafe`.
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
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = libc::socklen_t::try_from(size_of_val(&linger)).expect("PANIC: the structure is small");
    // SAFETY: the value is the structure of this option, alive for the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            std::ptr::from_ref(&linger).cast(),
            size,
        )
    };
    assert_eq!(done, 0, "linger: {}", std::io::Error::last_os_error());
    drop(socket);
}

/// Sends a signal to a process that is not our child.
pub fn signal_id(pid: u32, number: i32) {
    let pid = i32::try_from(pid).expect("PANIC: process ids fit");
    // SAFETY: no memory is involved.
    let done = unsafe { libc::kill(pid, number) };
    assert_eq!(done, 0, "signal {number} to {pid}: {}", std::io::Error::last_os_error());
}
