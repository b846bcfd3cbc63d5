//! Runs one test in a process of its own: the same executable once more, with a deadline.
//!
//! What must hold: whatever the plugin does, this returns soon after the deadline and leaves no process behind.
#![expect(unsafe_code, reason = "ends the process group of a test")]

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{Plan, Verdict, note};

/// Runs one test as the process that [`run`] started; its verdict goes to the parent.
pub fn child(plan: &Plan, name: &str) {
    note::child(plan, name);
}

/// The verdict of the process `executable arguments…`, which must end in [`child`].
pub fn run(
    executable: &Path,
    arguments: &[OsString],
    environment: &BTreeMap<String, String>,
    timeout: Duration,
) -> Verdict {
    let failed = |e: std::io::Error| Verdict::Failed(format!("the test's process did not start: {e}"));
    let (notes, pipe) = match std::io::pipe() {
        Ok(ends) => ends,
        Err(e) => return failed(e),
    };
    let child = Command::new(executable)
        .args(arguments)
        .envs(environment)
        .env("RUST_BACKTRACE", "0")
        .stdin(pipe)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    match child {
        Ok(child) => follow(child, notes, timeout),
        Err(e) => failed(e),
    }
}

fn follow(mut child: Child, notes: impl Read + Send, timeout: Duration) -> Verdict {
    let errors = child.stderr.take();
    std::thread::scope(|scope| {
        let told = scope.spawn(|| Told::read(notes));
        let errors = scope.spawn(|| errors.map(last_lines).unwrap_or_default());
        let status = wait(&mut child, timeout);
        // What the test left behind would keep the pipes open.
        end_group(&child);
        let told = told.join().unwrap_or_default();
        let errors = errors.join().unwrap_or_default();
        told.verdict.unwrap_or_else(|| Verdict::Failed(died(status, timeout, &told.note, &errors)))
    })
}

/// The status, or nothing when it had to be killed.
fn wait(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            _ => {
                end_group(child);
                // It was killed; what its status is does not matter.
                drop(child.wait());
                return None;
            }
        }
    }
}

fn end_group(child: &Child) {
    let Ok(pid) = i32::try_from(child.id()) else { return };
    // SAFETY: a signal to the group that the child was made the head of.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
}

fn died(status: Option<ExitStatus>, timeout: Duration, note: &str, errors: &str) -> String {
    let how = match status {
        None => format!("timeout: still running after {} s", timeout.as_secs()),
        Some(status) => match status.signal() {
            Some(number) => format!("crashed: {}", signal(number)),
            None => format!("left the process with status {}", status.code().unwrap_or(-1)),
        },
    };
    let during = if note.is_empty() { String::new() } else { format!(", in {note}") };
    let said = if errors.is_empty() { String::new() } else { format!("; it said: {errors}") };
    format!("{how}{during}{said}")
}

fn signal(number: i32) -> String {
    let name = match number {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGTERM => "SIGTERM",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[derive(Default)]
struct Told {
    note: String,
    verdict: Option<Verdict>,
}

impl Told {
    fn read(pipe: impl Read) -> Told {
        let mut told = Told::default();
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let (word, text) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "pass" => told.verdict = Some(Verdict::Passed(text.to_owned())),
                "fail" => told.verdict = Some(Verdict::Failed(text.to_owned())),
                "skip" => told.verdict = Some(Verdict::Skipped(text.to_owned())),
                _ => text.clone_into(&mut told.note),
            }
        }
        told
    }
}

/// The last lines of what was written, joined; read to the end, so that the writer never waits.
fn last_lines(from: impl Read) -> String {
    let mut lines = VecDeque::new();
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if !text.is_empty() {
            lines.push_back(text.chars().take(200).collect::<String>());
        }
        if lines.len() > 3 {
            lines.pop_front();
        }
    }
    lines.into_iter().collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> Verdict {
        run(Path::new("/bin/sh"), &["-c".into(), script.into()], &BTreeMap::new(), timeout)
    }

    #[test]
    fn a_verdict_a_crash_and_a_hang_are_told_apart() {
        let second = Duration::from_secs(20);
        let told = shell("echo 'note on the way' >&0; echo 'pass in 3 ms' >&0", second);
        assert_eq!(told, Verdict::Passed("in 3 ms".into()));
        let Verdict::Failed(crash) = shell("echo 'note step' >&0; echo oh >&2; kill -ABRT $$", second) else {
            panic!("a crash is a failure")
        };
        assert_eq!(crash, "crashed: SIGABRT, in step; it said: oh");
        let begun = Instant::now();
        let Verdict::Failed(hang) = shell("echo 'note submit' >&0; sleep 60", Duration::from_millis(200))
        else {
            panic!("a hang is a failure")
        };
        assert!(hang.starts_with("timeout:") && hang.ends_with("in submit"), "{hang}");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn what_a_test_leaves_behind_ends_with_it() {
        let begun = Instant::now();
        let told = shell("sleep 60 & echo 'pass ' >&0", Duration::from_secs(20));
        assert_eq!(told, Verdict::Passed(String::new()));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
