//! Frames over a Unix socket that never blocks, and the wait for whatever comes first. One place for this system's polling.
//!
//! What must hold: memory grows with bytes that came, never with a length that was told.
#![expect(unsafe_code, reason = "poll, which std does not have")]

use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::frame::{Frame, HEAD, MAX};

/// Read at once.
const PART: usize = 64 << 10;

/// What reading gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// So many bytes.
    Some(usize),
    /// Nothing for now.
    Nothing,
    /// The other side has ended.
    End,
}

/// Whether what comes from the other side ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listen {
    Yes,
    /// The stream is left alone.
    No,
}

/// What a wait ended with; several may be true.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Woken {
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Someone rang the bell.
    pub(super) rung: bool,
    /// The process has ended.
    pub(super) exited: bool,
}

/// A stream's frames.
pub(super) struct Pipe {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// What of the buffer holds bytes that were not taken yet.
    held: Range<usize>,
    outbox: Vec<u8>,
    sent: usize,
}

impl Pipe {
    pub(super) fn new(stream: UnixStream) -> io::Result<Pipe> {
        stream.set_nonblocking(true)?;
        Ok(Pipe { stream, buffer: vec![0; PART], held: 0..0, outbox: Vec::new(), sent: 0 })
    }

    /// Puts a frame into the outbox and sends what the socket takes.
    pub(super) fn send(&mut self, kind: Frame, bytes: &[u8]) -> io::Result<()> {
        self.outbox.extend_from_slice(&head(kind, bytes.len())?);
        self.outbox.extend_from_slice(bytes);
        self.outbox.resize(self.outbox.len().next_multiple_of(8), 0);
        self.flush()
    }

    /// Sends what the socket takes. That nobody is there to take it shows when reading.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.outbox.len() {
            match self.stream.write(&self.outbox[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => break,
                Err(e) => return Err(e),
            }
        }
        self.outbox.clear();
        self.sent = 0;
        Ok(())
    }

    /// The next whole frame: its kind and where its bytes are.
    pub(super) fn next(&mut self) -> io::Result<Option<(u32, Range<usize>)>> {
        let held = &self.buffer[self.held.clone()];
        let Some((head, rest)) = held.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [a, b, c, d, e, f, g, h] = *head;
        let (length, kind) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]));
        if length > MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("a frame of {length} bytes")));
        }
        let padded = length.next_multiple_of(8);
        if rest.len() < padded {
            return Ok(None);
        }
        let start = self.held.start + HEAD;
        self.held.start = start + padded;
        Ok(Some((kind, start..start + length)))
    }

    /// Bytes of a frame, until the next [`Pipe::fill`].
    pub(super) fn bytes(&self, frame: Range<usize>) -> &[u8] {
        &self.buffer[frame]
    }

    /// Reads what there is.
    pub(super) fn fill(&mut self) -> io::Result<Filled> {
        if self.held.start > 0 {
            self.buffer.copy_within(self.held.clone(), 0);
            self.held = 0..self.held.len();
        }
        if self.buffer.len() - self.held.end < PART / 2 {
            self.buffer.resize(self.buffer.len() + PART.max(self.held.len()), 0);
        } else if self.held.is_empty() && self.buffer.len() > PART {
            self.buffer.truncate(PART);
            self.buffer.shrink_to_fit();
        }
        loop {
            return match self.stream.read(&mut self.buffer[self.held.end..]) {
                Ok(0) => Ok(Filled::End),
                Ok(n) => {
                    self.held.end += n;
                    Ok(Filled::Some(n))
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(Filled::Nothing),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(Filled::End),
                Err(e) => Err(e),
            };
        }
    }

    /// Waits until there is something to read, where that is listened for, room for what waits to be sent, the bell or the
    /// end of the process.
    pub(super) fn wait(
        &self,
        bell: RawFd,
        process: BorrowedFd<'_>,
        most: Duration,
        listen: Listen,
    ) -> io::Result<Woken> {
        let out = if self.sent < self.outbox.len() { libc::POLLOUT } else { 0 };
        let stream = if listen == Listen::Yes { self.stream.as_raw_fd() } else { -1 };
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut polled = [
            entry(stream, libc::POLLIN | out),
            entry(bell, libc::POLLIN),
            entry(process.as_raw_fd(), libc::POLLIN),
        ];
        let most = libc::timespec {
            tv_sec: libc::time_t::try_from(most.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(most.subsec_nanos()),
        };
        // SAFETY: the array is as long as told; it and the time live through the call. No mask of signals is given.
        let n = unsafe {
            libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &raw const most, std::ptr::null())
        };
        if n < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == ErrorKind::Interrupted { Ok(Woken::default()) } else { Err(error) };
        }
        let [stream, bell, process] = polled;
        Ok(Woken {
            readable: stream.revents & !libc::POLLOUT != 0,
            writable: stream.revents & libc::POLLOUT != 0,
            rung: bell.revents != 0,
            exited: process.revents != 0,
        })
    }
}

/// The bytes before a frame's own; an error when it is too long.
pub(super) fn head(kind: Frame, length: usize) -> io::Result<[u8; HEAD]> {
    let length = u32::try_from(length).ok().filter(|n| *n as usize <= MAX);
    let length = length.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the frame is too long"))?;
    let ([a, b, c, d], [e, f, g, h]) = (length.to_le_bytes(), (kind as u32).to_le_bytes());
    Ok([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Pipe, UnixStream) {
        let (here, there) = UnixStream::pair().expect("a pair");
        (Pipe::new(here).expect("a pipe"), there)
    }

    #[test]
    fn frames_come_out_whole_however_they_arrive() {
        let (mut pipe, mut there) = pair();
        let mut sent = Vec::new();
        for (kind, text) in [(Frame::Line, "one"), (Frame::Chunks, "exactly8"), (Frame::Closed, "")] {
            sent.extend_from_slice(&head(kind, text.len()).expect("short"));
            sent.extend_from_slice(text.as_bytes());
            sent.resize(sent.len().next_multiple_of(8), 0);
        }
        let mut got = Vec::new();
        for byte in sent {
            there.write_all(&[byte]).expect("sent");
            assert_eq!(pipe.fill().expect("read"), Filled::Some(1));
            while let Some((kind, range)) = pipe.next().expect("sound") {
                got.push((Frame::of(kind), String::from_utf8_lossy(pipe.bytes(range)).into_owned()));
            }
        }
        let expected = [(Frame::Line, "one"), (Frame::Chunks, "exactly8"), (Frame::Closed, "")];
        assert_eq!(got, expected.map(|(kind, text)| (Some(kind), text.to_owned())));
        assert_eq!(pipe.fill().expect("read"), Filled::Nothing);
        drop(there);
        assert_eq!(pipe.fill().expect("read"), Filled::End);
    }

    #[test]
    fn a_told_length_beyond_the_bound_is_refused() {
        let (mut pipe, mut there) = pair();
        there.write_all(&[0xff; 8]).expect("sent");
        pipe.fill().expect("read");
        assert!(pipe.next().is_err());
    }

    #[test]
    fn sending_to_one_who_does_not_read_does_not_block() {
        let (mut pipe, mut there) = pair();
        let big = vec![7; 8 << 20];
        pipe.send(Frame::Submit, &big).expect("kept");
        let mut got = 0;
        let mut part = vec![0; 1 << 20];
        while got < big.len() + HEAD {
            pipe.flush().expect("sent");
            got += there.read(&mut part).expect("read");
        }
        assert_eq!(got, big.len() + HEAD);
    }
}
