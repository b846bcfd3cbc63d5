//! Links between pipeline stages: two mock engines that `plugin check` links, and stages that go wrong.

use std::path::Path;

use cascadia_tests::host::run;
use cascadia_tests::setup;

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
