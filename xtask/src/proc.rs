//! Other programs: started in one way, their absence explained in one way.
//!
//! Holds: a program that is missing is named together with what to install; a failed one with its arguments.

use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// The cargo that runs us, in the repository's root.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(environment("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// The one place where this tool reads its environment. Empty counts as unset.
#[expect(clippy::disallowed_methods, reason = "xtask's own door to the environment")]
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Runs to the end with our own terminal; an exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| missing(command, error))?;
    check(command, status)
}

/// Runs to the end and returns what it wrote to stdout; stderr stays our own.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| missing(command, error))?;
    check(command, output.status)?;
    String::from_utf8(output.stdout).with_context(|| format!("output of {} is not UTF-8", shown(command)))
}

/// True if the program is there and ends with 0; what it says is not shown.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// Runs to the end, passes both streams through as they come, and returns the lines as well.
pub(crate) fn tee(command: &mut Command) -> Result<(ExitStatus, Vec<String>)> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| missing(command, error))?;
    let stdout = child.stdout.take().context("a piped stdout")?;
    let stderr = child.stderr.take().context("a piped stderr")?;
    let mut lines = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let other = scope.spawn(|| pass(stderr, std::io::stderr()));
        lines = pass(stdout, std::io::stdout())?;
        lines.extend(other.join().map_err(|_| anyhow!("the thread that reads stderr panicked"))??);
        Ok(())
    })?;
    Ok((child.wait().context("wait for a child")?, lines))
}

fn pass(from: impl Read, mut to: impl Write) -> Result<Vec<String>> {
    let mut from = BufReader::new(from);
    let mut lines = Vec::new();
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).context("read a child's output")? > 0 {
        to.write_all(&line).context("pass a child's output on")?;
        lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
    Ok(lines)
}

fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if status.success() { Ok(()) } else { bail!("{} ended with {status}", shown(command)) }
}

/// The program and its first words: enough to recognise a command, short enough for one line.
fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![name.to_string_lossy()];
    words.extend(command.get_args().take(4).map(|word| word.to_string_lossy()));
    words.join(" ")
}

pub(crate) fn missing(command: &Command, error: std::io::Error) -> anyhow::Error {
    let program = command.get_program().to_string_lossy().into_owned();
    if error.kind() != ErrorKind::NotFound {
        return anyhow!(error).context(format!("start {program}"));
    }
    match package(&program) {
        Some(package) => {
            anyhow!("{program} is not installed; on Debian or Ubuntu: apt-get install {package}")
        }
        None => anyhow!("{program} is not there; install it or build it first"),
    }
}

fn package(program: &str) -> Option<&'static str> {
    Some(match program {
        "g++" => "g++",
        "cc" => "gcc",
        "python3" => "python3 python3-pip python3-venv",
        "sha256sum" => "coreutils",
        "tar" => "tar gzip",
        "dpkg" => "dpkg",
        "kill" => "procps",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_what_to_install() {
        let error = std::io::Error::from(ErrorKind::NotFound);
        let said = missing(&Command::new("g++"), error).to_string();
        assert_eq!(said, "g++ is not installed; on Debian or Ubuntu: apt-get install g++");
        let said = run(&mut Command::new("./no-such-program")).unwrap_err().to_string();
        assert!(said.contains("no-such-program is not there"), "{said}");
    }

    #[test]
    fn a_failed_program_is_named_with_its_words_and_status() {
        let said = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err().to_string();
        assert_eq!(said, "sh -c exit 3 ended with exit status: 3");
    }

    #[test]
    fn tee_returns_the_lines_of_both_streams() {
        let (status, lines) = tee(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 1"])).unwrap();
        assert_eq!((status.code(), lines), (Some(1), vec!["one".to_owned(), "two".to_owned()]));
    }
}
