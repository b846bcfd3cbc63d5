//! What stands around every request: its id, its HTTP metrics, and the check of the host it was sent to.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hyper::header::{HOST, HeaderMap};
use hyper::http::uri::Authority;
use hyper::{Uri, Version};

use super::Api;
use crate::error::{ApiError, Code};
use crate::http::respond::REQUEST_ID;
use crate::telemetry::metrics::Metrics;

/// The status booked for a request whose client left before there was an answer.
const CLIENT_LEFT: u16 = 499;

/// Books one HTTP request, answered or not.
pub struct HttpGuard {
    metrics: Arc<Metrics>,
    label: &'static str,
    begun: Instant,
    status: u16,
}

impl HttpGuard {
    /// A request to the route of that label has begun.
    pub fn new(metrics: Arc<Metrics>, label: &'static str, begun: Instant) -> HttpGuard {
        HttpGuard { metrics, label, begun, status: CLIENT_LEFT }
    }

    /// How long it has taken so far, in milliseconds.
    pub fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Its head is on the way.
    pub fn answered(mut self, status: u16) {
        self.status = status;
    }
}

impl Drop for HttpGuard {
    fn drop(&mut self) {
        self.metrics.http(self.label, self.status, self.begun.elapsed().as_secs_f64());
    }
}

/// A request's id: the client's own where it sent a usable one, else ours. Clones are the same.
#[derive(Debug, Clone)]
pub struct RequestId(Arc<Id>);

#[derive(Debug)]
struct Id {
    /// Of the header, or made here.
    text: String,
    chosen: bool,
    /// Of the body.
    named: OnceLock<String>,
}

/// The name of [`REQUEST_ID`].
const HEADER_ID: &str = "x-request-id";
/// Names the id in a body, as some servers have it.
pub const BODY_ID: &str = "request_id";

impl RequestId {
    /// The id that the headers name, or a new one.
    pub fn of(headers: &HeaderMap) -> RequestId {
        let header = headers.get(REQUEST_ID).and_then(|v| v.to_str().ok()).filter(|id| is_usable(id));
        let (text, chosen) =
            header.map_or_else(|| (format!("req-{}", random_hex()), false), |id| (id.to_owned(), true));
        RequestId(Arc::new(Id { text, chosen, named: OnceLock::new() }))
    }

    /// The body names it too: the request's id where the headers named none, else a second one to cancel by, since
    /// headers may be a proxy's. False for what cannot be an id.
    pub fn name(&self, id: &str) -> bool {
        is_usable(id) && self.0.named.set(id.to_owned()).is_ok()
    }

    /// The id that is told.
    pub fn text(&self) -> &str {
        let Id { text, chosen, named } = &*self.0;
        named.get().filter(|_| !chosen).unwrap_or(text)
    }

    /// The ids that the client chose, by each of which it may cancel, and where it did.
    pub fn chosen(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Id { text, chosen, named } = &*self.0;
        let header = chosen.then_some((HEADER_ID, text.as_str()));
        let body = named.get().filter(|id| !chosen || *id != text).map(|id| (BODY_ID, id.as_str()));
        header.into_iter().chain(body)
    }
}

fn is_usable(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

/// 128 bits as hex that nobody can guess: a keyed hash of a counter, the keys from the system's random numbers.
pub fn random_hex() -> String {
    static KEYS: OnceLock<(RandomState, RandomState)> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Two states of one thread share a key but for a step; hashing different values keeps the halves apart.
    let (a, b) = KEYS.get_or_init(|| (RandomState::new(), RandomState::new()));
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    // By hand: the formatter takes ten times as long, twice in every request.
    let bytes = [a.hash_one((0_u8, n)), b.hash_one((1_u8, n))].map(u64::to_be_bytes);
    let mut text = String::with_capacity(32);
    for byte in bytes.iter().flatten() {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}

/// A request of HTTP/1.1 names its host, and none names two (RFC 9112, section 3.2).
pub fn host_given(version: Version, headers: &HeaderMap) -> Result<(), ApiError> {
    let hosts = headers.get_all(HOST).iter().count();
    if hosts == 1 || (hosts == 0 && version != Version::HTTP_11) {
        return Ok(());
    }
    let message = format!("the request has {hosts} Host headers; send one");
    Err(ApiError::new(Code::InvalidValue, message).param("host"))
}

/// On loopback the request must be for a loopback name or an allowed one: a web page that rebinds its own name to
/// 127.0.0.1 must not reach the API from a browser.
pub fn host_allowed(api: &Api, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    if api.loopback { host_known(api, uri, headers) } else { Ok(()) }
}

/// Whether each name that the request is for is a loopback name or an allowed one: the Host header's, and that of its target, which
/// HTTP/2 has instead (`:authority`) and HTTP/1 may have too.
pub fn host_known(api: &Api, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let header = headers.get(HOST).map(|v| v.to_str().unwrap_or("?"));
    let target = uri.authority().map(Authority::as_str);
    header.into_iter().chain(target).try_for_each(|host| name_known(api, host))
}

fn name_known(api: &Api, host: &str) -> Result<(), ApiError> {
    let host = name_of(host);
    let is_loopback = host == "localhost"
        || host.ends_with(".localhost")
        || host.parse().is_ok_and(crate::config::schema::is_loopback);
    if is_loopback || api.config().server.allowed_hosts.iter().any(|h| h.eq_ignore_ascii_case(&host)) {
        return Ok(());
    }
    let host: String = host.chars().take(100).collect();
    let message =
        format!("host {host:?} is not served here; use localhost, or add it to server.allowed_hosts");
    Err(ApiError::new(Code::HostNotAllowed, message))
}

/// Whether this may stand behind a name.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
}

/// The name in a Host header, without port and brackets.
pub(super) fn name_of(host: &str) -> String {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').filter(|(_, port)| is_port(port)).map_or(host, |(v6, _)| v6),
        None => host.rfind(':').filter(|at| is_port(&host[*at..])).map_or(host, |at| &host[..at]),
    };
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_do_not_repeat() {
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| random_hex()).collect();
        assert_eq!(ids.len(), 10_000);
        let hex = |id: &String| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(ids.iter().all(hex));
    }

    #[test]
    fn only_printable_short_client_ids_are_taken() {
        let id = |value: &str| {
            let mut headers = HeaderMap::new();
            if let Ok(value) = hyper::header::HeaderValue::from_str(value) {
                headers.insert(REQUEST_ID, value);
            }
            RequestId::of(&headers)
        };
        assert!(id("my-id_1").0.chosen);
        assert!(!id("with space").0.chosen);
        assert!(!id(&"x".repeat(129)).0.chosen);
        assert!(!id("").0.chosen);
    }

    #[test]
    fn host_names_are_read_with_and_without_port() {
        for (host, name) in [
            ("LocalHost:80", "localhost"),
            ("[::1]:8000", "::1"),
            ("127.0.0.1", "127.0.0.1"),
            ("a.b.", "a.b"),
        ] {
            assert_eq!(name_of(host), name);
        }
    }
}
