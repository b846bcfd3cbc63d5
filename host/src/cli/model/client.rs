//! One HTTP/1.1 request to a host, over TLS where its URL says so. Every wait ends with the deadline.
//!
//! It knows no proxies and no redirects.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::tls::client as tls;

/// No answer of the admin routes is near this.
const MAX_ANSWER: u64 = 16 << 20;

/// A host that listens.
#[derive(Debug, PartialEq)]
pub(in crate::cli) struct Host {
    /// `name:port`.
    authority: String,
    /// It speaks TLS.
    secure: bool,
}

/// A connection to it.
enum Line {
    Plain(TcpStream),
    Secure(Box<tls::Connection>),
}

impl Line {
    fn socket(&self) -> &TcpStream {
        match self {
            Line::Plain(socket) => socket,
            Line::Secure(line) => &line.sock,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Line::Plain(socket) => socket.write_all(bytes),
            Line::Secure(line) => line.write_all(bytes),
        }
    }

    fn read(&mut self, piece: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Line::Plain(socket) => socket.read(piece),
            Line::Secure(line) => line.read(piece),
        }
    }
}

/// What it answered.
#[derive(Debug, PartialEq)]
pub(in crate::cli) struct Answer {
    pub(in crate::cli) status: u16,
    /// Null when it has none, or none that is JSON.
    pub(in crate::cli) body: Value,
}

impl Host {
    /// From `http://NAME[:PORT]` or `https://NAME[:PORT]`, or only `NAME:PORT` or `:PORT`.
    pub(in crate::cli) fn parse(url: &str) -> Result<Host, String> {
        let (secure, rest) = match url.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, url.strip_prefix("http://").unwrap_or(url)),
        };
        let rest = rest.trim_end_matches('/');
        if rest.is_empty() || rest.contains("://") || rest.contains(['/', '@', ' ', '\r', '\n']) {
            return Err(format!("--host {url:?} is not a host; write http://127.0.0.1:8000"));
        }
        let with_name = if rest.starts_with(':') { format!("127.0.0.1{rest}") } else { rest.to_owned() };
        let has_port = with_name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let port = if secure { 443 } else { 80 };
        let authority = if has_port { with_name } else { format!("{with_name}:{port}") };
        Ok(Host { authority, secure })
    }

    /// Its name, as its certificate has it.
    fn name(&self) -> &str {
        let name = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(name, _)| name);
        name.trim_start_matches('[').trim_end_matches(']')
    }

    /// Asks and reads the whole answer. With TLS, `trusted` has the certificates to trust instead of the system's.
    pub(in crate::cli) fn ask(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
        trusted: Option<&Path>,
        patience: Duration,
    ) -> Result<Answer, String> {
        let deadline = Instant::now() + patience;
        let socket = self.connect(deadline)?;
        let mut line = match self.secure {
            true => Line::Secure(Box::new(tls::connect(self.name(), socket, trusted)?)),
            false => Line::Plain(socket),
        };
        let body = body.map(Value::to_string).unwrap_or_default();
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nuser-agent: cascadia-host\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n{key}\r\n",
            self.authority,
            body.len()
        );
        let failed = |e: std::io::Error| format!("{}: {}", self.authority, in_words(&e));
        // The first write over TLS reads too.
        let socket = line.socket();
        socket
            .set_write_timeout(left(deadline))
            .and_then(|()| socket.set_read_timeout(left(deadline)))
            .map_err(failed)?;
        line.write(head.as_bytes()).and_then(|()| line.write(body.as_bytes())).map_err(failed)?;
        let bytes = self.read(&mut line, deadline)?;
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

    fn read(&self, line: &mut Line, deadline: Instant) -> Result<Vec<u8>, String> {
        let (mut bytes, mut piece) = (Vec::new(), [0; 16 * 1024]);
        loop {
            let late = || format!("{} did not answer in time", self.authority);
            if Instant::now() >= deadline {
                return Err(late());
            }
            line.socket().set_read_timeout(left(deadline)).map_err(|e| e.to_string())?;
            match line.read(&mut piece) {
                Ok(0) => return Ok(bytes),
                Ok(n) => bytes.extend_from_slice(&piece[..n]),
                Err(e)
                    if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
                {
                    return Err(late());
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // Over TLS, an end without a word. What came is judged by its stated length.
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(bytes),
                Err(e) => return Err(format!("{}: {}", self.authority, in_words(&e))),
            }
            if bytes.len() as u64 > MAX_ANSWER {
                return Err(format!("{} answers more than {MAX_ANSWER} bytes", self.authority));
            }
        }
    }
}

/// Faults of certificates that are told by the names which the TLS library's code has for them.
const FAULTS: [(&str, &str); 4] = [
    (
        "CaUsedAsEndEntity",
        "its certificate is an authority's (CA:TRUE), and a host may not show that as its own; make it with \
         `openssl req -x509 -addext basicConstraints=critical,CA:FALSE`, or let the authority sign one for the host",
    ),
    (
        "UnknownIssuer",
        "its certificate is from an authority that is not trusted here; name a file with that authority's certificate, or \
         with the host's own where it signed itself, with --ca",
    ),
    (
        "BadSignature",
        "its certificate is not signed by the authority of that name that is trusted here; name a file with the right one's \
         certificate, or with the host's own where it signed itself, with --ca",
    ),
    (
        "UnsupportedCertVersion",
        "its certificate is of an old form (version 1); make one of version 3, with the host's name as subjectAltName",
    ),
];

/// What went wrong on a connection, with the way out where it is a certificate that many have.
fn in_words(error: &std::io::Error) -> String {
    let told = error.to_string();
    let known = FAULTS.iter().find(|(name, _)| told.contains(name));
    known.map_or(told, |(_, words)| format!("TLS: {words}"))
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
        for (url, authority, secure, name) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000", false, "127.0.0.1"),
            ("http://localhost/", "localhost:80", false, "localhost"),
            (":9000", "127.0.0.1:9000", false, "127.0.0.1"),
            ("[::1]:8000", "[::1]:8000", false, "::1"),
            ("https://there", "there:443", true, "there"),
            ("https://[::1]:8443/", "[::1]:8443", true, "::1"),
        ] {
            let host = Host::parse(url).expect(url);
            assert_eq!(
                (host.name(), &host),
                (name, &Host { authority: authority.to_owned(), secure }),
                "{url}"
            );
        }
        for bad in ["https://", "ftp://x", "http://", "http://a/b", "a b"] {
            assert!(Host::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn faults_of_certificates_are_told_in_words_with_the_way_out() {
        for (told, words) in [
            ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "CA:FALSE"),
            ("invalid peer certificate: UnknownIssuer", "with --ca"),
            ("invalid peer certificate: BadSignature", "with --ca"),
            ("invalid peer certificate: Other(OtherError(UnsupportedCertVersion(..)))", "version 3"),
        ] {
            let said = in_words(&std::io::Error::other(told));
            assert!(said.contains(words) && !said.contains("invalid peer"), "{said}");
        }
        assert_eq!(in_words(&std::io::Error::other("broken pipe")), "broken pipe");
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
