//! `docs/METRICS.md`, made from [`super::names`].

use std::fmt::Write;

use super::labels::{
    ConnectionEnd, Direction, FinishReason, FrameKind, LinkError, LoadStage, Protocol, Reason, Restart, Side,
};
use super::names::{ALL, Family, Origin, Type};

/// The whole document.
pub fn markdown() -> String {
    let mut out = String::from(HEAD);
    for (origin, title, text) in
        [(Origin::Contract, "The metric contract", CONTRACT), (Origin::Own, "This host's own families", OWN)]
    {
        // Writing to a String cannot fail.
        write!(
            out,
            "\n## {title}\n\n{text}\n\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n"
        )
        .unwrap_or_default();
        for family in ALL.iter().filter(|f| f.origin == origin) {
            row(&mut out, family);
        }
    }
    out.push_str("\n## Label values\n\n| label | values |\n| --- | --- |\n");
    for (label, values) in [
        ("reason", list(Reason::ALL.iter().map(|v| v.name()))),
        ("finish_reason", list(FinishReason::ALL.iter().map(|v| v.name()))),
        ("kind (transport)", list(FrameKind::ALL.iter().map(|v| v.name()))),
        ("kind (plugin protocol)", list(Protocol::ALL.iter().map(|v| v.name()))),
        ("stage", list(LoadStage::ALL.iter().map(|v| v.name()))),
        ("direction", list(Direction::ALL.iter().map(|v| v.name()))),
        ("side", list(Side::ALL.iter().map(|v| v.name()))),
        ("reason (links)", list(LinkError::ALL.iter().map(|v| v.name()))),
        ("reason (connections)", list(ConnectionEnd::ALL.iter().map(|v| v.name()))),
        ("reason (restarts)", list(Restart::ALL.iter().map(|v| v.name()))),
    ] {
        writeln!(out, "| {label} | {values} |").unwrap_or_default();
    }
    out.push_str("\n## Buckets\n\n| family | upper bounds in seconds |\n| --- | --- |\n");
    for family in ALL.iter().filter(|f| f.ty == Type::Histogram) {
        let bounds: Vec<_> = family.buckets.iter().map(f64::to_string).collect();
        writeln!(out, "| `{}` | {} |", family.name, bounds.join(" ")).unwrap_or_default();
    }
    out.push_str(TAIL);
    out
}

fn row(out: &mut String, f: &Family) {
    let ty = match f.ty {
        Type::Counter => "counter",
        Type::Gauge => "gauge",
        Type::Histogram => "histogram",
    };
    writeln!(out, "| `{}` | {ty} | {} | {} |", f.name, f.labels.join(", "), f.help).unwrap_or_default();
}

fn list(values: impl Iterator<Item = &'static str>) -> String {
    values.map(|v| format!("`{v}`")).collect::<Vec<_>>().join(" ")
}

const HEAD: &str = "<!-- Made by `cargo xtask gen` from host/src/telemetry; do not edit. -->\n# Metrics\n\n\
`GET /metrics` serves all of them in the Prometheus text format 0.0.4. No key is needed.\n";

const CONTRACT: &str = "Names, types, labels and buckets are fixed. `model` is the served name. `endpoint` is a route \
template such as `/v1/cancel/:task_id`; unknown paths are `unmatched`.";

const OWN: &str = "Added by this host; they may grow.";

const TAIL: &str = r#"
## What is counted when

A request is *admitted* when it takes a slot or a queue place. Its clocks start there.

| event | client sees | `cascadia_api_rejected_total` | duration sample | other |
| --- | --- | --- | --- | --- |
| bad JSON, wrong type or value, body over `--api-max-body-mb` | 400, 413 | - | none | `cascadia_http_requests_total` has it |
| a field that the engine or this host does not support; the template refuses the messages; a running request's id | 400, 409 | - | none | |
| no messages, empty prompt | 400 | `empty_prompt` | none | |
| more prompts or choices than allowed | 400 | `multi_prompt` | none | |
| rendered prompt over the body limit | 413 | `prompt_too_large` | none | |
| prompt over the engine's window | 413 | `prompt_over_window` | none | |
| unknown model; values the engine refuses | 404, 400 | `invalid_request` | none | |
| slots and queue full; wait too long; engine's queue full | 503 | `capacity` | none | `Retry-After` |
| engine not loaded, failed, or host draining | 503 | `engine_unavailable` | none | `Retry-After` |
| engine fails to take the task | 500 | `engine_error` | none | |
| finished | 200 | - | `stop`, `length` | |
| client gone (also while queued), cancel route, client too slow | closed, or 200 with the text so far | - | `cancelled` | `cascadia_tasks_cancelled_total` |
| engine error after it took the task | error frame; 500 | - | `error` | `cascadia_tasks_failed_total` |
| shutdown | error frame; 503 | - | `teardown` | neither task counter |

Delivery is stamped when bytes are handed to the client's connection. A write with k tokens, dt after the one before,
gives k inter-token samples of dt/k; the first write with tokens is the time to first token, however many it holds. A
unary answer is stamped as its tokens are collected, and booked when its body is handed over.

## How connections end

| `reason` of `cascadia_connections_ended_total` | when |
| --- | --- |
| `closed` | nothing was owed: after an answer, be it a refusal; or nothing was asked, as by a probe of the port |
| `client_left` | the client went during an answer (over HTTP/1 also one that only ends its sending side, as `nc -N` does), or, with HTTP/2, stopped answering pings |
| `no_request` | the head of its first request did not come within `server.header_timeout` |
| `idle` | it was used, and no further request came within the same time, as of connections that a client keeps |
| `cut` | the host ended it: the client did not read its answer, or the host stopped |
| `malformed` | what came is no HTTP, or a head over its bounds |
| `tls` | there was no agreement on TLS |
| `error` | anything else, as frames of HTTP/2 that are none; the log at `debug` says what |

## Links between stages

`address` is the one that a stage was told to open or to listen at, `side` says which. The series of an address go with the
last engine that uses it; links beyond 16 addresses of an engine are counted under `other`.

| link | `cascadia_link_unfinished_frames` | rate of `cascadia_link_bytes_total` | `cascadia_link_up` |
| --- | --- | --- | --- |
| idle | 0 | 0 | 1 |
| working | 0 or 1 | above 0 | 1 |
| stalled: the peer does not read, or stopped inside a frame | 1 | 0 | 1 |
| broken | 0 | 0 | 0 |

## Differences from the contract's text

- Closed label sets (`reason`, `kind`, `finish_reason` of each served model) stand at 0 from the start, where the
  contract lets them appear with their first sample: `rate()` then sees the first increment.
- There is a queue, with its depth and its waits, before `capacity` is answered; `--max-queued 0` gives the contract's
  own behaviour.
- `status` has the value `499` for a request whose client left before a head was sent; one whose body ended early is a `400`.
- The transport families stand at 0 where no engine uses links. Beside them the `cascadia_link_` families tell a stalled
  link from an idle one; they also count bytes of frames that never became whole.
- `ov-genai` streams token by token with and without `cb`; the contract's paragraph about whole responses holds for any
  engine that delivers its answer in one chunk.

## Plugins

Series that a plugin registers are named `cascadia_plugin_<plugin>_<name>`; their meaning is in the plugin's README.
"#;

#[cfg(test)]
mod tests {
    #[test]
    fn every_family_is_in_the_reference() {
        let text = super::markdown();
        for family in super::ALL {
            assert!(text.contains(&format!("`{}`", family.name)), "{}", family.name);
        }
    }
}
