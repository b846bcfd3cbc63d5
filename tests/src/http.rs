//! HTTP/1.1 by hand, on one socket: small enough to be rude with.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::sys;

/// A server that is silent for so long hangs.
const SILENCE: Duration = Duration::from_secs(60);

/// A request's bytes.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request without a body.
    pub fn new(method: &str, path: &str) -> Request {
        Request { method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    /// A POST of JSON.
    pub fn post(path: &str, body: &serde_json::Value) -> Request {
        Request::new("POST", path).body(body.to_string()).header("content-type", "application/json")
    }

    /// Whether its answer has no body, whatever the head says.
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// With this body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    /// With one more header; a `host` header replaces ours.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What is sent for it to a server at `address`.
    pub fn bytes(&self, address: SocketAddr) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let has = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !has("host") {
            head.push_str(&format!("host: {address}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !has("content-length") && (self.method == "POST" || !self.body.is_empty()) {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// An answer's status and headers.
#[derive(Debug, Clone)]
pub struct Head {
    /// Its status.
    pub status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

/// How a body is delimited, and how far it is read.
#[derive(Debug)]
enum Rest {
    Length(u64),
    /// Between two chunks.
    Chunked,
    /// So many bytes of a chunk are to come.
    Chunk(usize),
    UntilClose,
    Over,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    peer: SocketAddr,
    /// Received and not used.
    buffer: Vec<u8>,
    rest: Rest,
}

impl Connection {
    /// A new connection.
    pub fn open(peer: SocketAddr) -> Result<Connection> {
        let socket = TcpStream::connect(peer).with_context(|| format!("connect to {peer}"))?;
        socket.set_read_timeout(Some(SILENCE))?;
        socket.set_write_timeout(Some(SILENCE))?;
        socket.set_nodelay(true)?;
        Ok(Connection { socket, peer, buffer: Vec::new(), rest: Rest::Over })
    }

    /// Waits so long for a piece of an answer.
    pub fn waits(&self, patience: Duration) -> Result<()> {
        Ok(self.socket.set_read_timeout(Some(patience))?)
    }

    /// Its socket, to set what it holds.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends a request.
    pub fn send(&mut self, request: &Request) -> Result<()> {
        self.send_bytes(&request.bytes(self.peer))
    }

    /// Sends anything. A server may answer and close before it has read all of it: then the answer is what counts.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        match self.socket.write_all(bytes) {
            Err(e) if !is_reset(&e) => Err(e).context("send"),
            _ => Ok(()),
        }
    }

    /// Sends anything, to a server that reads it or at least does not refuse it.
    pub fn send_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes).context("send")
    }

    /// Says that no more will be sent; answers can still come.
    pub fn no_more(&mut self) -> Result<()> {
        match self.socket.shutdown(std::net::Shutdown::Write) {
            // The other side has ended it already.
            Err(e) if e.kind() == std::io::ErrorKind::NotConnected => Ok(()),
            other => other.context("shut down"),
        }
    }

    /// The head of the next answer; none when the other side ends the connection instead.
    pub fn next_head(&mut self) -> Result<Option<Head>> {
        while self.buffer.is_empty() {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(e) if e.downcast_ref::<std::io::Error>().is_some_and(is_reset) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        self.head().map(Some)
    }

    /// The head of the next answer.
    pub fn head(&mut self) -> Result<Head> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            ensure!(self.fill()?, "closed before an answer; got {:?}", String::from_utf8_lossy(&self.buffer));
        };
        let text =
            String::from_utf8(self.buffer.drain(..end + 4).collect()).context("the head is no text")?;
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().and_then(|l| l.strip_prefix("HTTP/1.1 ")).and_then(|l| l.get(..3));
        let status =
            status.and_then(|s| s.parse().ok()).with_context(|| format!("status line of {text:?}"))?;
        let headers = lines
            .map(|line| {
                let (name, value) = line.split_once(':').with_context(|| format!("header {line:?}"))?;
                Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
            })
            .collect::<Result<Vec<_>>>()?;
        let head = Head { status, headers };
        self.rest = match (head.header("transfer-encoding"), head.header("content-length")) {
            // No content has no body, whatever else its head says.
            (None, _) if status == 204 => Rest::Over,
            (Some("chunked"), None) => Rest::Chunked,
            (None, Some(n)) => Rest::Length(n.parse().with_context(|| format!("content-length {n:?}"))?),
            (None, None) => Rest::UntilClose,
            both => bail!("a body cannot be both: {both:?}"),
        };
        Ok(head)
    }

    /// Answers to HEAD have no body, whatever their head says.
    pub fn no_body(&mut self) {
        self.rest = Rest::Over;
    }

    /// Appends the next piece of the body. False at its proper end; an improper one is an error.
    pub fn piece(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        match self.rest {
            Rest::Over | Rest::Length(0) => {
                self.rest = Rest::Over;
                Ok(false)
            }
            Rest::Length(left) => {
                if self.buffer.is_empty() {
                    ensure!(self.fill()?, "closed with {left} bytes of the body to come");
                }
                let n = self.buffer.len().min(usize::try_from(left)?);
                out.extend(self.buffer.drain(..n));
                self.rest = Rest::Length(left - n as u64);
                Ok(true)
            }
            Rest::UntilClose => {
                out.append(&mut self.buffer);
                if self.fill()? {
                    return Ok(true);
                }
                self.rest = Rest::Over;
                Ok(false)
            }
            Rest::Chunked => self.chunk(out),
            Rest::Chunk(left) => self.of_chunk(left, out),
        }
    }

    /// The whole rest of the body.
    pub fn body(&mut self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        while self.piece(&mut out)? {}
        Ok(out)
    }

    /// Waits for the other side to close. Bytes that come instead are an error.
    pub fn closed(&mut self) -> Result<()> {
        ensure!(self.buffer.is_empty(), "more came: {:?}", String::from_utf8_lossy(&self.buffer));
        match self.fill() {
            Ok(false) => Ok(()),
            Ok(true) => bail!("more came: {:?}", String::from_utf8_lossy(&self.buffer)),
            Err(e) if e.downcast_ref::<std::io::Error>().is_some_and(is_reset) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The socket, for what has no method here. Bytes that were received and not used are lost.
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        sys::reset(self.socket);
    }

    /// The next chunk's size; appends what is there of it.
    fn chunk(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let line = loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                break at;
            }
            ensure!(self.fill()?, "closed between two chunks of the body");
        };
        let size = std::str::from_utf8(&self.buffer[..line])?.to_owned();
        let size = usize::from_str_radix(size.trim(), 16).with_context(|| format!("chunk size {size:?}"))?;
        self.buffer.drain(..line + 2);
        if size > 0 {
            return self.of_chunk(size, out);
        }
        while self.buffer.len() < 2 {
            ensure!(self.fill()?, "closed before the end of the last chunk");
        }
        self.buffer.drain(..2);
        self.rest = Rest::Over;
        Ok(false)
    }

    /// What is there of a chunk of which `left` bytes are to come.
    fn of_chunk(&mut self, left: usize, out: &mut Vec<u8>) -> Result<bool> {
        if self.buffer.is_empty() {
            ensure!(self.fill()?, "closed with {left} bytes of a chunk to come");
        }
        let n = left.min(self.buffer.len());
        out.extend(self.buffer.drain(..n));
        self.rest = Rest::Chunk(left - n);
        if n == left {
            while self.buffer.len() < 2 {
                ensure!(self.fill()?, "closed at the end of a chunk");
            }
            self.buffer.drain(..2);
            self.rest = Rest::Chunked;
        }
        Ok(true)
    }

    /// Reads what is there. False when the other side has closed.
    fn fill(&mut self) -> Result<bool> {
        let mut bytes = [0; 16 * 1024];
        let n = match self.socket.read(&mut bytes) {
            Ok(n) => n,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                bail!("nothing came for {:?}", self.socket.read_timeout()?.unwrap_or_default())
            }
            Err(e) => return Err(e).context("receive"),
        };
        self.buffer.extend_from_slice(&bytes[..n]);
        Ok(n > 0)
    }
}

/// Whether the other side reset the connection.
fn is_reset(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|w| w == what)
}
