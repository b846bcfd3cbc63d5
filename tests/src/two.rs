//! HTTP/2 by hand, frame by frame, for what no sound client does. Heads are written without compression; of heads that
//! come only the status is read.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// A server that is silent for so long hangs.
const SILENCE: Duration = Duration::from_secs(30);
/// What such a connection begins with.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub const DATA: u8 = 0;
/// A head.
pub const HEADERS: u8 = 1;
/// The end of one stream.
pub const RESET: u8 = 3;
/// Settings.
pub const SETTINGS: u8 = 4;
/// Whether the other side is there.
pub const PING: u8 = 6;
/// The end of the connection.
pub const GO_AWAY: u8 = 7;
/// Flow control.
pub const WINDOW: u8 = 8;
/// More of a head.
pub const CONTINUATION: u8 = 9;

/// The last frame of a stream.
pub const END_STREAM: u8 = 1;
/// The last frame of a head.
pub const END_HEADERS: u8 = 4;

/// A frame.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// The first number in its bytes: the reason of a reset.
    pub fn code(&self) -> Option<u32> {
        self.bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// The status of a head whose first field is one of the common ones.
    pub fn status(&self) -> Option<u16> {
        match self.bytes.first()? {
            0x88 => Some(200),
            0x8c => Some(400),
            0x8d => Some(404),
            0x8e => Some(500),
            // A status that is written out, with or without an entry in the table.
            0x08 | 0x48 => {
                let (length, text) = self.bytes[1..].split_first()?;
                let text = text.get(..usize::from(length & 0x7f))?;
                if length & 0x80 == 0 { std::str::from_utf8(text).ok()?.parse().ok() } else { digits(text) }
            }
            _ => None,
        }
    }
}

/// Three digits in HPACK's Huffman code: 0 to 2 have five bits, 3 to 9 have six.
fn digits(text: &[u8]) -> Option<u16> {
    let bits = text.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mut left = text.len() * 8;
    let mut take = |n: usize| {
        left = left.checked_sub(n)?;
        u16::try_from(bits >> left & ((1 << n) - 1)).ok()
    };
    let mut number = 0;
    for _ in 0..3 {
        let digit = match take(5)? {
            short @ 0..=2 => short,
            long @ 12..=15 => (long << 1 | take(1)?) - 22,
            _ => return None,
        };
        number = number * 10 + digit;
    }
    Some(number)
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("PANIC: frames of a test are short").to_be_bytes();
    let mut out = vec![length[1], length[2], length[3], kind, flags];
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(bytes);
    out
}

/// A head as a block of fields: method, path, and more fields.
pub fn head(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    head_for("localhost", method, path, more)
}

/// As [`head`], for that host.
pub fn head_for(host: &str, method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let own = [(":method", method), (":scheme", "http"), (":path", path), (":authority", host)];
    for (name, value) in own.iter().chain(more) {
        field(name, value, &mut out);
    }
    out
}

/// A field that is written out.
pub fn field(name: &str, value: &str, out: &mut Vec<u8>) {
    out.push(0);
    for text in [name, value] {
        length(text.len(), out);
        out.extend_from_slice(text.as_bytes());
    }
}

/// A length with a prefix of seven bits.
fn length(mut n: usize, out: &mut Vec<u8>) {
    if n < 127 {
        return out.push(u8::try_from(n).expect("PANIC: below 127"));
    }
    out.push(127);
    n -= 127;
    while n >= 128 {
        out.push(u8::try_from(n % 128).expect("PANIC: below 128") | 128);
        n /= 128;
    }
    out.push(u8::try_from(n).expect("PANIC: below 128"));
}

/// A connection.
#[derive(Debug)]
pub struct Two {
    /// The socket, for what has no method here.
    pub socket: TcpStream,
}

impl Two {
    /// A connection with its preface, empty settings, and room for all that may come.
    pub fn open(address: SocketAddr) -> Result<Two> {
        let mut socket = TcpStream::connect(address).context("connect")?;
        socket.set_read_timeout(Some(SILENCE))?;
        socket.set_write_timeout(Some(SILENCE))?;
        socket.set_nodelay(true)?;
        socket.write_all(PREFACE)?;
        socket.write_all(&frame(SETTINGS, 0, 0, &[]))?;
        socket.write_all(&frame(WINDOW, 0, 0, &(1_u32 << 30).to_be_bytes()))?;
        Ok(Two { socket })
    }

    /// Sends bytes; false when the other side has ended the connection.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// The next frame; none at the end of the connection.
    pub fn frame(&mut self) -> Result<Option<Frame>> {
        let mut head = [0; 9];
        match self.socket.read_exact(&mut head) {
            Ok(()) => {}
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset
                ) =>
            {
                return Ok(None);
            }
            Err(e) => return Err(e).context("a frame's head"),
        }
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut bytes = vec![0; usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)];
        self.socket.read_exact(&mut bytes).context("a frame's bytes")?;
        ensure!(bytes.len() <= 1 << 20, "a frame of {} bytes", bytes.len());
        Ok(Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), bytes }))
    }

    /// Reads to the end of the connection; the frames.
    pub fn rest(&mut self) -> Result<Vec<Frame>> {
        let mut frames = Vec::new();
        while let Some(frame) = self.frame()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    /// As [`Two::rest`], of a connection that may also go on in silence.
    pub fn rest_or_silence(&mut self, silence: Duration) -> Result<Vec<Frame>> {
        self.socket.set_read_timeout(Some(silence))?;
        let mut frames = Vec::new();
        loop {
            match self.frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return Ok(frames),
                Err(e) if e.downcast_ref::<std::io::Error>().is_some_and(is_silence) => return Ok(frames),
                Err(e) => return Err(e),
            }
        }
    }
}

fn is_silence(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_head_is_read_in_each_of_its_forms() {
        let head = |bytes: &[u8]| Frame { kind: HEADERS, flags: 0, stream: 1, bytes: bytes.to_vec() };
        assert_eq!(head(&[0x88, 1, 2]).status(), Some(200));
        assert_eq!(head(b"\x08\x03431").status(), Some(431));
        assert_eq!(head(&[72, 131, 105, 144, 255]).status(), Some(431));
        assert_eq!(head(&[72, 131]).status(), None);
        assert_eq!(head(&[0x82]).status(), None);
    }
}
