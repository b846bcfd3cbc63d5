//! What a test's process tells the one that started it: lines `note TEXT` on the way, then one with the verdict.
//!
//! They go through descriptor 0, a pipe: standard output belongs to the test of what a plugin does with it. In the
//! process of the command itself there is no pipe, and notes go nowhere.
#![expect(unsafe_code, reason = "asks the kernel to end this process with its parent")]

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use parking_lot::Mutex;

use super::{Plan, Verdict, here};

static PIPE: Mutex<Option<File>> = Mutex::new(None);

/// Says what is being done; of a crash or a hang the last note is told.
pub(super) fn note(text: &str) {
    say("note", text);
}

fn say(word: &str, text: &str) {
    if let Some(pipe) = PIPE.lock().as_mut() {
        // The reader may be gone; then nobody wants to know.
        drop(writeln!(pipe, "{word} {}", text.replace('\n', " ")));
    }
}

/// Runs one test as the process that [`super::alone`] started.
pub(super) fn child(plan: &Plan, name: &str) {
    // SAFETY: two settings of this process; no memory is involved. Without a core file a wanted crash is quick.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
    }
    *PIPE.lock() = std::io::stdin().as_fd().try_clone_to_owned().ok().map(File::from);
    match here(plan, name) {
        Verdict::Passed(text) => say("pass", &text),
        Verdict::Failed(text) => say("fail", &text),
        Verdict::Skipped(text) => say("skip", &text),
    }
}
