//! What came of a peer's greeting so far, over a connection that may be slow, silent or a stranger's.

use std::io::{self, ErrorKind, IoSlice};
use std::time::Instant;

use super::hello::{self, Hello};
use super::socket::{Stream, Wish, wait};

/// A greeting on its way.
pub(super) struct Greeting {
    bytes: Vec<u8>,
}

/// Why there will be none.
#[derive(Debug)]
pub(super) enum Silence {
    /// The peer went away.
    Left,
    /// The connection failed.
    Failed(io::Error),
    /// What it says is no greeting.
    Against(hello::Fault),
}

impl Greeting {
    pub(super) fn new() -> Greeting {
        Greeting { bytes: Vec::new() }
    }

    /// Reads what is there, and never beyond the greeting: what follows is a frame.
    pub(super) fn pull(&mut self, stream: &Stream) -> Result<Option<Hello>, Silence> {
        loop {
            let needed = match Hello::read(&self.bytes).map_err(Silence::Against)? {
                Ok(hello) => return Ok(Some(hello)),
                Err(needed) => needed,
            };
            let have = self.bytes.len();
            self.bytes.resize(needed, 0);
            let got = stream.read(&mut self.bytes[have..]);
            self.bytes.truncate(have + *got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) => return Err(Silence::Left),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(Silence::Failed(e)),
            }
        }
    }
}

/// Says a greeting, which a fresh connection has room for.
pub(super) fn say(stream: &Stream, hello: &Hello, until: Instant) -> io::Result<()> {
    let bytes = hello.bytes();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match stream.write(&[IoSlice::new(rest)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => rest = &rest[n..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                wait(stream, Wish::Write, until)?
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
