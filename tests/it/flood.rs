//! More of everything than any client needs: connections, bytes, resets, frames. Each flood ends with the host as it was
//! before: gauges at zero, permits free, threads, descriptors and memory near their start, no panic in the log.
//!
//! The long versions are ignored. They are run by
//! `cargo nextest run -p cascadia-tests --run-ignored ignored-only flood`, and take some minutes.

mod bodies;
mod connections;
mod invalid;
mod readers;
mod rounds;
mod two;

use anyhow::Result;
use cascadia_tests::client::{CHAT, Stream, chat, order, streamed};
use cascadia_tests::footprint::Footprint;
use cascadia_tests::{Host, setup, sys, wait};
use serde_json::json;

/// Generations that a host of these tests runs at once.
const SLOTS: u32 = 16;
/// Memory that may stay with the allocator after a flood, in KiB.
const KEPT: u64 = 96 << 10;

/// A chat that holds its slot after one token.
fn held() -> serde_json::Value {
    streamed(chat(&order("a b", &json!({"stall_after": 1}))))
}

/// A host that has answered once, and what it holds then.
#[track_caller]
fn begin(args: &[&str]) -> (Host, Footprint) {
    let host = Host::mock(args);
    let before = settled(&host);
    (host, before)
}

/// What a host holds that has answered once.
#[track_caller]
fn settled(host: &Host) -> Footprint {
    for body in [chat("warm up"), streamed(chat("warm up"))] {
        assert_eq!(host.post(CHAT, &body).expect("PANIC: a fresh host answers").status(), 200);
    }
    host.quiet();
    host.footprint()
}

/// Whether this process may have so many descriptors; says so where it may not, and the test is then left out.
fn has_descriptors(wanted: u64) -> bool {
    let may = sys::descriptors(wanted);
    if !may {
        setup::say(&format!(
            "left out: {wanted} descriptors are over this process's hard limit (ulimit -Hn)"
        ));
    }
    may
}

/// Asserts that the flood has left nothing behind, and that every slot can be used.
#[track_caller]
fn is_calm(host: &Host, before: Footprint) -> Result<()> {
    host.quiet();
    assert_eq!(host.chat("and now")?.content(), "and now");
    let streams: Vec<Stream> = (0..SLOTS).map(|_| host.stream(CHAT, &held())).collect::<Result<_>>()?;
    host.running(SLOTS);
    drop(streams);
    host.quiet();
    // The connection that asks is one more; a blocking thread may have come and not gone yet.
    wait("descriptors, threads and memory to be as before", || {
        let now = host.footprint();
        let near = now.descriptors <= before.descriptors + 8
            && now.threads <= before.threads + 4
            && now.resident <= before.resident + KEPT;
        if near { Ok(()) } else { Err(format!("{now:?}, before {before:?}")) }
    });
    let log = host.log();
    assert!(!log.contains("panicked"), "a panic in the log");
    Ok(())
}

/// Asserts that the most memory that ever was there is at most so many KiB over the start.
#[track_caller]
fn peak_within(host: &Host, before: Footprint, kib: u64) {
    let now = host.footprint();
    assert!(now.peak <= before.resident + kib, "{now:?}, before {before:?}, allowed {kib} KiB more");
}
