//! One HTTP/1.1 request to a host on this machine. Every wait ends with the deadline.
//!
//! It knows no TLS, no proxies and no redirects: the admin routes answer on this machine only.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No answer of the admin routes is near this.
const MAX_ANSWER: u64 = 16 << 20;

/// A host that listens.
#[derive(Debug, PartialEq)]
pub(in crate::cli) struct Host {
    /// `name:port`.
    authority: String,
}

/// What it answered.
#[derive(Debug, PartialEq)]
pub(in crate::cli) struct Answer {
    pub(in crate::cli) status: u16,
    /// Null when it has none, or none that is JSON.
    pub(in crate::cli) body: Value,
}

impl Host {
    /// From `http://NAME[:PORT]`, or only `NAME:PORT` or `:PORT`.
    pub(in crate::cli) fn parse(url: &str) -> Result<Host, String> {
        let rest = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
        if rest.is_empty() || rest.contains("://") || rest.contains(['/', '@', ' ', '\r', '\n']) {
            return Err(format!("--host {url:?} is not a host; write http://127.0.0.1:8000"));
        }
        let with_name = if rest.starts_with(':') { format!("127.0.0.1{rest}") } else { rest.to_owned() };
        let has_port = with_name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { with_name } else { format!("{with_name}:80") };
        Ok(Host { authority })
    }

    /// Asks and reads the whole answer.
    pub(in crate::cli) fn ask(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Answer, String> {
        let deadline = Instant::now() + patience;
        let mut socket = self.connect(deadline)?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nuser-agent: cascadia-host\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n{key}\r\n",
            self.authority,
            body.len()
        );
        let failed = |e: std::io::Error| format!("{}: {e}", self.authority);
        socket.set_write_timeout(left(deadline)).map_err(failed)?;
        socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(body.as_bytes())).map_err(failed)?;
        let bytes = self.read(&mut socket, deadline)?;
        answer(&bytes).ok_or_else(|| format!("{} does not answer as a cascadia-host does", self.authority))
    }

    fn connect(&self, deadline: Instant) -> Result<TcpStream, String> {
        let not =
            |e: std::io::Error| format!("no host answers at {}: {e}; name it with --host", self.authority);
        let addresses: Vec<SocketAddr> = self.authority.to_socket_addrs().map_err(not)?.collect();
        let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
        for address in addresses {
            match TcpStream::connect_timeout(&address, left(deadline).unwrap_or(LEAST)) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(not(last))
    }

    fn read(&self, socket: &mut TcpStream, deadline: Instant) -> Result<Vec<u8>, String> {
        let (mut bytes, mut piece) = (Vec::new(), [0; 16 * 1024]);
        loop {
            let late = || format!("{} did not answer in time", self.authority);
            if Instant::now() >= deadline {
                return Err(late());
            }
            socket.set_read_timeout(left(deadline)).map_err(|e| e.to_string())?;
            match socket.read(&mut piece) {
                Ok(0) => return Ok(bytes),
                Ok(n) => bytes.extend_from_slice(&piece[..n]),
                Err(e)
                    if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
                {
                    return Err(late());
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("{}: {e}", self.authority)),
            }
            if bytes.len() as u64 > MAX_ANSWER {
                return Err(format!("{} answers more than {MAX_ANSWER} bytes", self.authority));
            }
        }
    }
}

/// A timeout of zero would mean none.
const LEAST: Duration = Duration::from_millis(1);

fn left(deadline: Instant) -> Option<Duration> {
    Some(deadline.saturating_duration_since(Instant::now()).max(LEAST))
}

/// Reads an answer that ended with its connection. The host states the length of what is no stream.
fn answer(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let stated = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    let body = &bytes[end + 4..];
    if stated.is_some_and(|length| body.len() < length) {
        return None;
    }
    Some(Answer { status, body: serde_json::from_slice(body).unwrap_or(Value::Null) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_urls_or_addresses() {
        for (url, authority) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000"),
            ("http://localhost/", "localhost:80"),
            (":9000", "127.0.0.1:9000"),
            ("[::1]:8000", "[::1]:8000"),
        ] {
            assert_eq!(Host::parse(url), Ok(Host { authority: authority.to_owned() }), "{url}");
        }
        for bad in ["https://x", "http://", "http://a/b", "a b"] {
            assert!(Host::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let whole = b"HTTP/1.1 202 Accepted\r\nContent-Length: 9\r\n\r\n{\"a\": 1} ";
        assert_eq!(answer(whole).map(|a| (a.status, a.body["a"].clone())), Some((202, 1.into())));
        for bad in [&whole[..whole.len() - 1], b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 20", b""] {
            assert_eq!(answer(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
