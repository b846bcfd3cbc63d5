//! `docs/ERRORS.md`, made from [`super::codes`].

use std::fmt::Write;

use super::codes::{Code, Kind};

/// The whole document.
pub fn markdown() -> String {
    let mut out = String::from(HEAD);
    for code in Code::ALL {
        let (retry, reason) = (retry(*code), code.reason().map_or("-", |reason| reason.name()));
        // Writing to a String cannot fail.
        writeln!(
            out,
            "| `{}` | {} | `{}` | {} | {retry} | {reason} |",
            code.name(),
            code.status(),
            code.kind().name(),
            code.meaning().trim(),
        )
        .unwrap_or_default();
    }
    out.push_str(TAIL);
    out
}

/// Whether asking again may help.
fn retry(code: Code) -> &'static str {
    match code.kind() {
        Kind::Unavailable => "yes, after `Retry-After`",
        Kind::Server => "perhaps",
        Kind::InvalidRequest if matches!(code, Code::RequestTimeout | Code::DuplicateRequest) => "yes",
        Kind::InvalidRequest | Kind::Authentication => "no",
    }
}

const HEAD: &str = "<!-- Made by `cargo xtask gen` from host/src/error/codes.rs; do not edit. -->\n\n\
# Errors\n\n\
Every refusal and every failure has one body, whatever the path:\n\n\
```json\n\
{\"error\": {\"message\": \"...\", \"type\": \"...\", \"param\": \"... or null\", \"code\": \"...\"}}\n\
```\n\n\
The message names the value at fault and the way out. In a stream that has begun the same object is one event, then \
`[DONE]`, and no choice has a finish reason.\n\n\
What is not even HTTP has no such body: a head that cannot be read is a bare 400, one that is too long a bare 431 (414 for \
its path), and the connection ends. It counts as `malformed` in `cascadia_connections_ended_total`, and the log tells it at `debug`.\n\n\
| code | status | type | when | ask again | counted in `cascadia_api_rejected_total` as |\n\
| --- | --- | --- | --- | --- | --- |\n";

const TAIL: &str =
    "\nA rejection moves no duration and no time to first token. Each code is provoked by a test.\n";
