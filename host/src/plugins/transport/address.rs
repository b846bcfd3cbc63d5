//! Where a stage listens or a peer is found, as text says it. Pure: names are not looked up here.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// The longest path that a Unix socket's address takes, without its NUL.
const MAX_PATH: usize = 107;

/// An address as it was given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Address {
    /// A name or an IP address without brackets, and a port.
    Tcp(String, u16),
    /// The file of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads `host:port`, `[v6]:port`, `:port` (this machine) or `unix:/path`; the error is one line.
    pub(super) fn parse(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') || path.len() > MAX_PATH || path.contains('\0') {
                return Err(format!(
                    "address {text:?} needs a full path of at most {MAX_PATH} bytes after unix:"
                ));
            }
            return Ok(Address::Unix(PathBuf::from(path)));
        }
        let malformed = || format!("address {text:?} is neither host:port nor unix:/path");
        let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
        // Digits only: "+1" is a number to the parser of Rust.
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let port: u16 = port.parse().ok().filter(|_| digits).ok_or_else(malformed)?;
        let host = match host.strip_prefix('[') {
            Some(v6) => v6.strip_suffix(']').filter(|v6| v6.contains(':')).ok_or_else(malformed)?,
            None if host.contains(':') => {
                return Err(format!("{}; put an IPv6 address in brackets", malformed()));
            }
            None if host.is_empty() => "127.0.0.1",
            None => host,
        };
        let sound = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'%');
        if host.is_empty() || host.len() > 253 || !host.bytes().all(sound) {
            return Err(malformed());
        }
        Ok(Address::Tcp(host.to_owned(), port))
    }

    /// Whether it is certain that only this machine is meant.
    pub(super) fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(host, _) => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_and_written_back() {
        for (text, written) in [
            ("127.0.0.1:7000", "127.0.0.1:7000"),
            (":0", "127.0.0.1:0"),
            ("[::1]:9", "[::1]:9"),
            ("stage-1.example:65535", "stage-1.example:65535"),
            ("unix:/run/stage 1.sock", "unix:/run/stage 1.sock"),
        ] {
            let address = Address::parse(text).expect(text);
            assert_eq!(address.to_string(), written);
            assert_eq!(Address::parse(written).as_ref(), Ok(&address));
        }
    }

    #[test]
    fn what_is_no_address_is_named() {
        let long = format!("unix:/{}", "x".repeat(200));
        for text in [
            "",
            ":",
            "host",
            "host:",
            "host:65536",
            "host:+1",
            "::1:9",
            "[::1]",
            "[]:1",
            "[x]:1",
            "a b:1",
            "unix:",
            "unix:relative",
            "h\n:1",
            "unix:/a\0b",
            &long,
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        let local = |text: &str| Address::parse(text).expect(text).is_local();
        assert!(
            local(":1")
                && local("[::1]:1")
                && local("localhost:1")
                && local("unix:/x")
                && local("127.9.9.9:1")
        );
        assert!(!local("0.0.0.0:1") && !local("[::]:1") && !local("10.0.0.1:1") && !local("name:1"));
    }
}
