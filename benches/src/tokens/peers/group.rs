//! A server that somebody else wrote: started in a process group of its own, which is killed as a whole.
//!
//! Holds: its environment is ours to choose (no proxies, no credentials), its output goes to a file, and nothing of it lives
//! longer than the [`Group`]. Its processor time is that of all its processes.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cascadia_tests::sys;

use crate::system::{cpu, kill_group, resident};

/// Lines of its output that are told when it ends by itself.
const TOLD: usize = 4;

/// The processes of one server.
pub(crate) struct Group {
    child: Child,
    log: PathBuf,
}

impl Group {
    /// Starts `command`, whose home and output are in `dir`.
    pub(crate) fn start(mut command: Command, dir: &Path, name: &str) -> Result<Group> {
        let (log, out) = log(dir, name)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        Group::spawn(command, dir, name, log)
    }

    /// The same for one that is talked to over its input and output.
    pub(crate) fn talk(
        mut command: Command,
        dir: &Path,
        name: &str,
    ) -> Result<(Group, ChildStdin, ChildStdout)> {
        let (log, out) = log(dir, name)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(out);
        let mut group = Group::spawn(command, dir, name, log)?;
        let ends = group.child.stdin.take().zip(group.child.stdout.take());
        let (input, output) = ends.context("a piped input and output")?;
        Ok((group, input, output))
    }

    fn spawn(mut command: Command, dir: &Path, name: &str, log: PathBuf) -> Result<Group> {
        command.current_dir(dir).process_group(0);
        sys::die_with_parent(&mut command);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Group { child, log })
    }

    /// The process that was started.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// An error with its last words if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        bail!("it ended with {status}: {}", lines[lines.len().saturating_sub(TOLD)..].join(" | "))
    }

    /// User and system time of its processes. What one that has ended used is not in it.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let clocks = self.members()?.into_iter().filter_map(|process| cpu(process).ok());
        Ok(clocks.sum())
    }

    /// Resident memory of its processes in KiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        Ok(self.members()?.into_iter().map(|process| resident(process).0).sum())
    }

    fn members(&self) -> Result<Vec<u32>> {
        let processes = std::fs::read_dir("/proc").context("list processes")?.flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(ids.filter(|id| group_of(*id) == Some(self.child.id())).collect())
    }
}

fn log(dir: &Path, name: &str) -> Result<(PathBuf, File)> {
    let log = dir.join(name);
    let out = File::create(&log).with_context(|| format!("make {}", log.display()))?;
    Ok((log, out))
}

/// The third word behind the name, which may hold anything.
fn group_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

impl Drop for Group {
    fn drop(&mut self) {
        // Both fail only where nothing of it is left.
        let _ended = kill_group(self.child.id());
        let _reaped = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use cascadia_tests::TempDir;

    use super::*;

    fn shell(script: &str, dir: &TempDir) -> Group {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Group::start(command, dir.path(), "log").expect("a shell")
    }

    fn until(mut what: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !what() {
            assert!(Instant::now() < until, "nothing came of it in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_group_dies_with_its_grandchildren() {
        let dir = TempDir::new();
        let group = shell("sleep 600 & sleep 600 & wait", &dir);
        until(|| group.members().expect("a list").len() == 3);
        let members = group.members().expect("a list");
        drop(group);
        until(|| members.iter().all(|id| group_of(*id) != Some(members[0])));
    }

    #[test]
    fn the_work_of_all_processes_counts() {
        let dir = TempDir::new();
        let group = shell("(i=0; while [ $i -lt 2000000 ]; do i=$((i+1)); done) & wait", &dir);
        until(|| group.cpu().expect("clocks") > Duration::from_millis(50));
        assert!(group.resident().expect("memory") > 0.0);
    }

    #[test]
    fn one_that_ends_is_told_with_its_last_words() {
        let dir = TempDir::new();
        let mut group = shell("echo no such model >&2; exit 3", &dir);
        until(|| group.child.try_wait().expect("a child").is_some());
        let said = group.check().expect_err("it has ended").to_string();
        assert!(said.contains("status: 3") && said.contains("no such model"), "{said}");
    }
}
