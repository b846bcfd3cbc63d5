//! Compressed bodies: requests are inflated within the limit of what they become, whole answers are deflated for those who
//! ask. Streams are never compressed: a compressor would hold them back.

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use hyper::Response;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue, VARY};

use super::Body;

/// Answers below this are not worth it, and above it would hold the runtime's thread for too long.
const WORTH: std::ops::Range<usize> = 1 << 10..1 << 20;
/// So much is inflated at a time.
const PART: usize = 64 << 10;

/// Appends what a compressed body becomes to `out`; false when that is over `limit` bytes, or when `grow` refused the room
/// for so many more.
pub(super) fn inflate(
    body: &[u8],
    limit: u64,
    out: &mut Vec<u8>,
    mut grow: impl FnMut(u64) -> bool,
) -> std::io::Result<bool> {
    let mut unpacked = MultiGzDecoder::new(body).take(limit.saturating_add(1));
    let mut part = vec![0; PART.min(body.len().saturating_mul(8))];
    loop {
        let n = unpacked.read(&mut part)?;
        if n == 0 {
            return Ok(out.len() as u64 <= limit);
        }
        if !grow(n as u64) {
            return Ok(false);
        }
        out.extend_from_slice(&part[..n]);
    }
}

/// Whether the client takes gzip.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let text = headers.get(ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).unwrap_or_default();
    text.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let refused = parts.any(|q| matches!(q, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        name.eq_ignore_ascii_case("gzip") && !refused
    })
}

/// Deflates a whole answer.
pub fn deflate(response: &mut Response<Body>) {
    let Body::Full(bytes) = response.body() else { return };
    if !WORTH.contains(&bytes.len()) || response.headers().contains_key(CONTENT_ENCODING) {
        return;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    // Writing to a vector cannot fail; if it did, the answer stays as it is.
    let Ok(packed) = encoder.write_all(bytes).and_then(|()| encoder.finish()) else { return };
    *response.body_mut() = Body::Full(Bytes::from(packed));
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(VARY, HeaderValue::from_static("accept-encoding"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).expect("written");
        encoder.finish().expect("finished")
    }

    #[test]
    fn a_bomb_ends_at_the_limit() {
        let bomb = packed(&vec![0; 10 << 20]);
        assert!(bomb.len() < 20_000);
        let inflate = |body: &[u8], limit: u64, room: u64| {
            let (mut out, mut left) = (Vec::new(), room);
            let grow = |n: u64| left.checked_sub(n).map(|rest| left = rest).is_some();
            super::inflate(body, limit, &mut out, grow).map(|fits| fits.then_some(out.len()))
        };
        assert_eq!(inflate(&bomb, 1 << 20, u64::MAX).expect("gzip"), None);
        assert_eq!(inflate(&bomb, 10 << 20, 9 << 20).expect("gzip"), None);
        assert_eq!(inflate(&bomb, 10 << 20, 10 << 20).expect("gzip"), Some(10 << 20));
        assert!(inflate(b"no gzip", 100, 100).is_err());
        let cut = packed(b"some text that is cut");
        assert!(inflate(&cut[..cut.len() - 9], 100, 100).is_err());
    }

    #[test]
    fn what_clients_take_is_read() {
        for (value, wanted) in [
            ("gzip, deflate", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(is_wanted(&headers), wanted, "{value}");
        }
    }
}
