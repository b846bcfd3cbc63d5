//! Links between pipeline stages: two mock engines that `plugin check` links, and stages that go wrong.

use std::path::Path;

use cascadia_tests::client::CHAT;
use cascadia_tests::host::run;
use cascadia_tests::{Host, Scrape, chat, order, setup};
use serde_json::json;

const LINKED: &str = "two linked stages answer";
const BREAKS: &str = "a peer that breaks off";
const GONE: &str = "a stage whose peer is gone";
const SILENT: &str = "a stage whose peer is silent";

fn text(path: &Path) -> &str {
    path.to_str().expect("PANIC: the target folder's path is text")
}

#[test]
fn two_engines_answer_over_links_and_outlive_broken_peers() {
    let mock = setup::plugin("mock");
    for (test, remark) in
        [(LINKED, "3 frames sent, 3 received"), (BREAKS, "7 kinds"), (GONE, "not_connected")]
    {
        let checked = run(&["plugin", "check", text(&mock), "--only", test]);
        assert_eq!(checked.status.code(), Some(0), "{}{}", checked.output, checked.complaint);
        assert!(checked.output.contains("pass"), "{}", checked.output);
        assert!(checked.output.contains(remark), "{remark:?} is not in {}", checked.output);
    }
}

/// Whatever process the engine is in, its links are series of the host, as long as they are there.
#[test]
fn links_of_an_engine_are_series_of_the_host_isolated_or_not() -> anyhow::Result<()> {
    for isolate in [&[][..], &["--isolate"]] {
        let host = Host::mock(&[isolate, &["--plugin-opt", "mock.self-link=true"]].concat());
        for words in ["over", "and over"] {
            assert_eq!(host.chat(words)?.content(), words);
        }
        // The canary and two answers went out and back, each end of the link is counted.
        let frames = |s: &Scrape| s.sum("cascadia_link_frames_total", &[("plugin", "mock")]);
        let scrape = host.until("the frames", 12.0, frames);
        for side in ["opened", "accepted"] {
            assert_eq!(scrape.sum("cascadia_link_up", &[("side", side)]), 1.0, "{isolate:?} {side}");
            for direction in ["sent", "received"] {
                let labels = [("side", side), ("direction", direction)];
                assert_eq!(scrape.sum("cascadia_link_frames_total", &labels), 3.0, "{isolate:?} {labels:?}");
                assert_eq!(scrape.sum("cascadia_link_unfinished_frames", &labels), 0.0);
                assert!(scrape.sum("cascadia_link_last_frame_timestamp_seconds", &labels) > 1e9);
            }
        }
        let tensors = |s: &Scrape| s.sum("cascadia_transport_send_seconds_count", &[]);
        host.until("the durations", 6.0, tensors);
        let bytes = host.until("the bytes", 1.0, |s| {
            let kind = [("kind", "tensor")];
            let (sent, received) =
                ("cascadia_transport_sent_bytes_total", "cascadia_transport_recv_bytes_total");
            let (sent, received) = (s.sum(sent, &kind), s.sum(received, &kind));
            if sent > 0.0 && sent == received { 1.0 } else { 0.0 }
        });
        assert_eq!(bytes.sum("cascadia_link_errors_total", &[]), 0.0);
        // An engine that is gone has no links: a crash takes them along.
        if !isolate.is_empty() {
            let broken = chat(&order("boom", &json!({"exit_in": "step"})));
            assert!(host.post(CHAT, &broken)?.status() >= 500);
            let up = |s: &Scrape| s.sum("cascadia_link_up", &[]);
            host.until("the restart", 1.0, |s| {
                s.sum("cascadia_worker_restarts_total", &[("reason", "failed")])
            });
            // Of the new engine, whose address is another one.
            let scrape = host.until("the new links", 2.0, up);
            assert_eq!(scrape.named("cascadia_link_up").len(), 2, "no series of the old ones is left");
        }
    }
    Ok(())
}

/// Each is named by its reason, in time, and neither a crash nor a hang.
#[test]
fn a_stage_that_goes_wrong_is_told_by_its_reason() {
    let mock = setup::plugin("mock");
    for (relay, test, found) in [
        ("mute", LINKED, "no frame began (deadline_exceeded)"),
        ("garbled", LINKED, "the stages answer otherwise"),
        ("once", BREAKS, "is not accepted within"),
        ("clinging", SILENT, "after close, whose deadline was 2s"),
        ("version", LINKED, "speaks version 99 of the link protocol"),
        ("cut", LINKED, "closed the link inside a frame"),
        ("stall", LINKED, "15 bytes of its header came (deadline_exceeded)"),
        ("garbage", LINKED, "what came is no frame (not_connected)"),
        ("oversize", LINKED, "over the limit of 536870912 (not_connected)"),
    ] {
        let option = format!("relay={relay}");
        let args = ["plugin", "check", text(&mock), "--only", test, "--timeout", "30", "--option", &option];
        // Where the stage shall wait too long, so that it is longer than what is allowed.
        let patience = if relay == "clinging" { "relay-timeout-ms=6000" } else { "relay-timeout-ms=1000" };
        let checked = run(&[&args[..], &["--option", patience]].concat());
        assert_eq!(checked.status.code(), Some(1), "{relay}: {}{}", checked.output, checked.complaint);
        assert!(checked.output.contains("FAIL"), "{relay}: {}", checked.output);
        assert!(checked.output.contains(found), "{relay}: {found:?} is not in {}", checked.output);
        for wrong in ["crashed", "timeout:", "panicked"] {
            assert!(!checked.output.contains(wrong), "{relay}: {}", checked.output);
        }
    }
}
