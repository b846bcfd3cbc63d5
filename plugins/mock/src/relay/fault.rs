//! A stage that is wrong on the wire, with a socket of its own: the host's transport would not let it.
//!
//! It greets as it should (or in another version), waits for a frame, and then answers with what no host must trust.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cascadia_plugin_api::sdk::{Error, Result as Told};
use parking_lot::Mutex;

/// Bytes of a greeting before its text, and of a frame before its dimensions.
const HELLO: usize = 24;
const HEAD: usize = 16;
/// Between two looks at whether it should end.
const LOOK: Duration = Duration::from_millis(5);

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// It greets in another version.
    Version,
    /// It closes inside a frame.
    Cut,
    /// It stops inside a frame.
    Stall,
    /// It sends what is no frame.
    Garbage,
    /// It announces more bytes than there are.
    Oversize,
}

impl Wire {
    /// The fault of that name.
    pub(super) fn read(name: &str) -> Told<Wire> {
        match name {
            "version" => Ok(Wire::Version),
            "cut" => Ok(Wire::Cut),
            "stall" => Ok(Wire::Stall),
            "garbage" => Ok(Wire::Garbage),
            "oversize" => Ok(Wire::Oversize),
            other => Err(Error::config(format!("option relay is {other:?}; the manifest lists its values"))),
        }
    }
}

/// The wrong stage. Ends when dropped.
pub(super) struct Liar {
    address: String,
    closed: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Liar {
    pub(super) fn listen(address: &str, wire: Wire) -> Told<Liar> {
        let failed = |e: std::io::Error| Error::backend(format!("cannot listen on {address}: {e}"));
        let at = if address.starts_with(':') { format!("127.0.0.1{address}") } else { address.to_owned() };
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?.to_string();
        let closed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&closed);
        let thread = super::thread("liar", move || {
            while !told.load(Ordering::Acquire) {
                if let Ok((stream, _)) = listener.accept() {
                    // The peer may leave at any point; that is its right.
                    drop(lie(&stream, wire, &told));
                } else {
                    std::thread::sleep(LOOK);
                }
            }
        })?;
        Ok(Liar { address: bound, closed, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn address(&self) -> String {
        self.address.clone()
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.lock().take() {
            super::join(thread);
        }
    }
}

fn lie(mut stream: &TcpStream, wire: Wire, closed: &AtomicBool) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LOOK))?;
    let mut hello = vec![0; HELLO];
    fill(stream, &mut hello, closed)?;
    let text = usize::from(u16::from_le_bytes([hello[12], hello[13]]));
    hello.resize(HELLO + text, 0);
    fill(stream, &mut hello[HELLO..], closed)?;
    // The word: welcome.
    hello[10] = 1;
    if wire == Wire::Version {
        hello[8] = 99;
    }
    stream.write_all(&hello)?;
    let mut head = [0; HEAD];
    fill(stream, &mut head, closed)?;
    // What is left unread at a close would make it a reset, which is another fault.
    drop(stream.read(&mut [0; 4096]));
    match wire {
        Wire::Version => {}
        Wire::Cut => return stream.write_all(&head[..HEAD - 1]),
        Wire::Stall => stream.write_all(&head[..HEAD - 1])?,
        Wire::Garbage => stream.write_all(&[0xa5; 64])?,
        Wire::Oversize => {
            head[8..].fill(0xff);
            stream.write_all(&head)?;
        }
    }
    // Held open until the peer leaves: an end would tell it what is wrong.
    let mut rest = [0; 1024];
    loop {
        fill(stream, &mut rest, closed)?;
    }
}

/// Reads all of it, unless the stage ends.
fn fill(mut stream: &TcpStream, into: &mut [u8], closed: &AtomicBool) -> Result<()> {
    let mut have = 0;
    while have < into.len() {
        match stream.read(&mut into[have..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => have += n,
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                if closed.load(Ordering::Acquire) {
                    return Err(ErrorKind::Interrupted.into());
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
