//! Who is measured: the host as it is shipped, and the anchors. Each runs as a process of its own, started anew.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cascadia_tests::{TempDir, setup, sys};

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The host with the mock, at the default log level.
    Host,
    /// The same with a line a request in its log.
    Logged,
    /// The anchor with hyper.
    Hyper,
    /// The anchor with sockets alone.
    Bare,
}

impl Who {
    /// For people and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Who::Host => "host",
            Who::Logged => "host, request log",
            Who::Hyper => "hyper writer",
            Who::Bare => "bare writer",
        }
    }
}

/// How it answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Streams at once.
    pub(crate) streams: usize,
    /// Tokens of an answer.
    pub(crate) tokens: u32,
    /// Microseconds between two tokens; 0 is as fast as it goes.
    pub(crate) pace_us: u64,
    /// The mock stops after the first token of each stream.
    pub(crate) idle: bool,
}

/// A running one; killed when dropped.
pub(crate) struct Subject {
    child: Child,
    pub(crate) address: SocketAddr,
    /// From the start of its process to the first good answer of its readiness.
    pub(crate) ready: Duration,
    _dir: TempDir,
}

impl Subject {
    /// Starts it and waits until it serves.
    pub(crate) fn start(who: Who, manner: &Manner) -> Result<Subject> {
        match who {
            Who::Host => Subject::host("info", manner),
            Who::Logged => Subject::host("debug", manner),
            Who::Hyper => Subject::anchor("hyper", manner),
            Who::Bare => Subject::anchor("bare", manner),
        }
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    fn host(level: &str, manner: &Manner) -> Result<Subject> {
        let dir = TempDir::new();
        // Nobody else asks for ports here while the bench runs.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(setup::host_program());
        let log = dir.path().join("log");
        command.args(["--api", &address.to_string(), "--log-level", level, "--log-format", "json"]);
        command.arg("--plugin").arg(setup::plugin("mock")).args(options(manner));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(log)?).env_clear();
        sys::die_with_parent(&mut command);
        let begun = Instant::now();
        let child = command.spawn().context("start the host")?;
        let mut subject = Subject { child, address, ready: Duration::ZERO, _dir: dir };
        while !subject.is_ready() {
            ensure!(begun.elapsed() < PATIENCE, "the host is not ready after {PATIENCE:?}");
            if let Some(status) = subject.child.try_wait()? {
                bail!("the host ended with {status}");
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        subject.ready = begun.elapsed();
        Ok(subject)
    }

    fn is_ready(&self) -> bool {
        let Ok(mut socket) = TcpStream::connect(self.address) else { return false };
        let asked = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let mut answer = Vec::new();
        socket.write_all(asked).is_ok()
            && socket.read_to_end(&mut answer).is_ok()
            && answer.starts_with(b"HTTP/1.1 200")
    }

    fn anchor(kind: &str, manner: &Manner) -> Result<Subject> {
        let program: PathBuf = setup::bin_dir().join("cascadia-anchor");
        let mut command = Command::new(&program);
        command.args([kind, &manner.tokens.to_string(), &manner.pace_us.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).env_clear();
        sys::die_with_parent(&mut command);
        let begun = Instant::now();
        let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a piped stdout")?).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("the anchor said {line:?}"))?;
        Ok(Subject { child, address, ready: begun.elapsed(), _dir: TempDir::new() })
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // Both fail only for a child that has ended and was waited for.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The host's flags: room for all streams, everything else as it comes.
fn options(manner: &Manner) -> Vec<String> {
    let streams = manner.streams.to_string();
    let mut flags: Vec<String> = ["--max-concurrent", &streams].map(str::to_owned).into();
    let mut mock = |key: &str, value: &str| {
        flags.extend(["--plugin-opt".to_owned(), format!("mock.{key}={value}")]);
    };
    mock("slots", &streams);
    mock("repeat", "1000000");
    mock("token-delay-us", &manner.pace_us.to_string());
    if manner.idle {
        mock("order", r#"{"stall_after":1}"#);
    }
    let connections = manner.streams + 100;
    flags.extend(["--set".to_owned(), format!("server.max_connections={connections}")]);
    flags
}
