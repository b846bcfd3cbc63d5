//! Tells the service manager how the host is doing: the datagrams of `sd_notify(3)`.
//!
//! What must hold: a host that nobody watches, or whose manager does not listen, runs the same. Nothing here blocks.

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager, when one listens.
pub struct Manager(Option<(UnixDatagram, SocketAddr)>);

impl Manager {
    /// The one at this address: a path, or `@name` for one of Linux's abstract names.
    pub fn at(address: Option<OsString>) -> Manager {
        let Some(address) = address else { return Manager(None) };
        match reach(&address) {
            Ok(reached) => Manager(Some(reached)),
            Err(error) => {
                tracing::warn!(%error, address = %address.display(), "the service manager cannot be told anything");
                Manager(None)
            }
        }
    }

    /// Whether one listens.
    pub fn listens(&self) -> bool {
        self.0.is_some()
    }

    /// Everything is up; `status` is a line for people.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", line(status)));
    }

    /// Only a line for people.
    pub fn status(&self, status: &str) {
        self.tell(&format!("STATUS={}", line(status)));
    }

    /// The configuration is read again, since this time of the monotonic clock in microseconds; [`Manager::ready`] ends it.
    pub fn reloading(&self, now_us: u64) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
    }

    /// The host ends.
    pub fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={}", line(status)));
    }

    /// A sign of life.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, state: &str) {
        if let Some((socket, manager)) = &self.0
            && let Err(error) = socket.send_to_addr(state.as_bytes(), manager)
        {
            tracing::debug!(%error, "the service manager was not told");
        }
    }
}

fn reach(address: &OsStr) -> std::io::Result<(UnixDatagram, SocketAddr)> {
    let bytes = address.as_bytes();
    let manager = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, manager))
}

fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_address_are_reached_and_lines_stay_lines() {
        let path = std::env::temp_dir().join(format!("cascadia-notify-{}", std::process::id()));
        let name = format!("cascadia-notify-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).expect("a name");
        let sockets = [
            (UnixDatagram::bind(&path).expect("a socket"), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_name).expect("a socket"), OsString::from(format!("@{name}"))),
        ];
        for (socket, address) in sockets {
            let manager = Manager::at(Some(address));
            manager.ready("two\nlines");
            let mut bytes = [0; 100];
            let n = socket.recv(&mut bytes).expect("a datagram");
            assert_eq!(&bytes[..n], b"READY=1\nSTATUS=two lines");
        }
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn a_manager_that_does_not_listen_changes_nothing() {
        Manager::at(None).ready("x");
        Manager::at(Some("/nowhere/at/all".into())).ready("x");
    }
}
