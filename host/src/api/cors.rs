//! Which web pages may call the API from a browser. By default those that are served from this machine.

use hyper::Response;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, HeaderMap,
    HeaderValue, ORIGIN, VARY,
};

use super::guard::name_of;
use crate::config::schema::is_loopback;
use crate::http::{Body, respond};

/// The page's origin, where it may call.
pub fn allowed(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    let text = origin.to_str().ok()?;
    let named = origins.iter().any(|o| o == "*" || o.eq_ignore_ascii_case(text));
    (named || (origins.is_empty() && is_local(text))).then(|| origin.clone())
}

/// A page of a server on this machine.
fn is_local(origin: &str) -> bool {
    let Some((_, host)) = origin.split_once("://") else { return false };
    let host = name_of(host);
    host == "localhost" || host.ends_with(".localhost") || host.parse().is_ok_and(is_loopback)
}

/// The answer to `OPTIONS` of a path that takes these methods.
pub fn preflight(allow: &str, headers: &HeaderMap) -> Response<Body> {
    let mut response = respond::empty(204);
    let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let answer = response.headers_mut();
    if let Ok(allow) = HeaderValue::from_str(allow) {
        answer.insert(ALLOW, allow);
    }
    answer.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE, OPTIONS"));
    // What the page wants to send is what its own code sends; the keys decide, not the names of headers.
    answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.unwrap_or(HeaderValue::from_static("*")));
    answer.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Lets the page read the answer.
pub fn mark(response: &mut Response<Body>, origin: Option<HeaderValue>) {
    let headers = response.headers_mut();
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id, retry-after"));
    }
    headers.append(VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(origins: &[&str], origin: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, HeaderValue::from_str(origin).expect("a header"));
        let origins: Vec<String> = origins.iter().map(|o| (*o).to_owned()).collect();
        allowed(&origins, &headers).is_some()
    }

    #[test]
    fn pages_of_this_machine_may_call_unless_others_are_named() {
        for local in
            ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080", "http://app.localhost"]
        {
            assert!(may(&[], local), "{local}");
        }
        for other in ["https://evil.example", "http://localhost.evil.example", "null", "http://10.0.0.1"] {
            assert!(!may(&[], other), "{other}");
        }
        assert!(may(&["https://my.app"], "https://my.app"));
        assert!(!may(&["https://my.app"], "http://localhost:3000"));
        assert!(may(&["*"], "https://evil.example"));
    }
}
