//! What wakes a thread that sleeps on descriptors: Linux's event descriptor.
#![expect(unsafe_code, reason = "eventfd, which std does not have")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// A bell. Ringing twice before it is heard is ringing once.
pub struct Bell(File);

impl Bell {
    /// A bell that has not rung.
    pub fn new() -> io::Result<Bell> {
        // SAFETY: no preconditions; a descriptor that is not negative is ours alone.
        unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Bell(File::from_raw_fd(fd))) }
        }
    }

    /// Rings. Never blocks: a full counter has rung already.
    pub fn ring(&self) {
        if let Err(error) = (&self.0).write_all(&1_u64.to_ne_bytes()) {
            tracing::trace!(%error, "the bell has rung already");
        }
    }

    /// Hears it: it is silent until the next ring.
    pub fn hear(&self) {
        let mut count = [0; 8];
        if let Err(error) = (&self.0).read_exact(&mut count) {
            tracing::trace!(%error, "the bell had not rung");
        }
    }

    /// What to poll.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn rings_until_heard() {
        let bell = super::Bell::new().expect("a bell");
        bell.hear();
        bell.ring();
        bell.ring();
        bell.hear();
        let mut none = [0; 8];
        assert!(std::io::Read::read(&mut &bell.0, &mut none).is_err(), "it is silent");
    }
}
