//! The built host as a child process: started on a free port, watched by its log, its API and its metrics, killed when
//! dropped.

use std::fs::File;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::client::{CHAT, Client, chat, with};
use crate::footprint::Footprint;
use crate::scrape::Scrape;
use crate::temp::TempDir;
use crate::wait::{DEADLINE, wait_for};
use crate::{setup, sys, wait};

/// A running host.
#[derive(Debug)]
pub struct Host {
    child: Child,
    client: Client,
    log: PathBuf,
    _dir: TempDir,
}

/// What a host that ended at once has left.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub output: String,
    /// What it wrote to standard error.
    pub complaint: String,
}

impl Ended {
    /// Asserts the exit status, and that the complaint has all these words.
    ///
    /// # Panics
    /// When it is otherwise.
    #[track_caller]
    pub fn complains(&self, code: i32, words: &[&str]) {
        assert_eq!(self.status.code(), Some(code), "{}{}", self.output, self.complaint);
        for word in words {
            assert!(self.complaint.contains(word), "{word:?} is missing in {}", self.complaint);
        }
        assert!(!self.complaint.contains("panicked"), "{}", self.complaint);
    }
}

/// Runs the host's program to its end.
#[track_caller]
pub fn run(args: &[&str]) -> Ended {
    run_with(args, &[])
}

/// The same with variables in its environment.
#[track_caller]
pub fn run_with(args: &[&str], environment: &[(&str, &str)]) -> Ended {
    let dir = TempDir::new();
    let (out, err) = (dir.file("out", ""), dir.file("err", ""));
    let create = |path| File::create(path).expect("PANIC: tests may write temporary files");
    let mut command = Command::new(setup::host_program());
    command.args(args).env_clear().envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(create(&out)).stderr(create(&err));
    sys::die_with_parent(&mut command);
    let mut child = Reaped(command.spawn().expect("PANIC: the host's program runs"));
    let read = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let status = wait("the host to end by itself", || match child.0.try_wait() {
        Ok(Some(status)) => Ok(status),
        other => Err(format!("{other:?}, and it said {}", read(&err))),
    });
    Ended { status, output: read(&out), complaint: read(&err) }
}

/// Kills what is still running when a wait gives up.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

fn end(child: &mut Child) {
    // Both fail only for a child that has ended and was waited for.
    let _ended = child.kill();
    let _reaped = child.wait();
}

impl Host {
    /// A host with the mock engine and these flags, ready.
    #[track_caller]
    pub fn mock(args: &[&str]) -> Host {
        let plugin = setup::plugin("mock");
        let plugin = plugin.to_str().expect("PANIC: the target folder's path is text");
        let host = Host::start(&[&["--plugin", plugin], args].concat());
        host.ready();
        host
    }

    /// A host with these flags, listening.
    #[track_caller]
    pub fn start(args: &[&str]) -> Host {
        Host::start_with(args, &[])
    }

    /// The same with variables in its environment, which is empty otherwise.
    #[track_caller]
    pub fn start_with(args: &[&str], environment: &[(&str, &str)]) -> Host {
        // Most tests look at what is told on the way.
        let level: &[&str] = if args.contains(&"--log-level") { &[] } else { &["--log-level", "debug"] };
        Host::begin(&[level, args].concat(), environment)
    }

    /// A host whose log level is its configuration's.
    #[track_caller]
    pub fn start_bare(args: &[&str]) -> Host {
        Host::begin(args, &[])
    }

    /// A host whose address is its configuration's too.
    #[track_caller]
    pub fn start_anywhere(args: &[&str]) -> Host {
        Host::spawn(&[&["--log-format", "json"], args].concat(), &[])
    }

    #[track_caller]
    fn begin(args: &[&str], environment: &[(&str, &str)]) -> Host {
        Host::spawn(&[&["--api", "127.0.0.1:0", "--log-format", "json"], args].concat(), environment)
    }

    #[track_caller]
    fn spawn(args: &[&str], environment: &[(&str, &str)]) -> Host {
        Host::spawn_as(args, environment, |_| {})
    }

    /// As [`Host::start_with`], with a last word on how the process is started.
    #[track_caller]
    pub fn start_as(args: &[&str], environment: &[(&str, &str)], last: impl FnOnce(&mut Command)) -> Host {
        let fixed = ["--api", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug"];
        Host::spawn_as(&[&fixed, args].concat(), environment, last)
    }

    #[track_caller]
    fn spawn_as(args: &[&str], environment: &[(&str, &str)], last: impl FnOnce(&mut Command)) -> Host {
        let dir = TempDir::new();
        let log = dir.path().join("log");
        let file = File::create(&log).expect("PANIC: tests may write temporary files");
        let mut command = Command::new(setup::host_program());
        command.args(args);
        command.env_clear().envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        sys::die_with_parent(&mut command);
        last(&mut command);
        let child = command.spawn().expect("PANIC: the host's program runs");
        // Its address is not known yet; made first so that it is killed whatever happens.
        let client = Client { address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut host = Host { child, client, log, _dir: dir };
        host.client.address = host.bound();
        host
    }

    /// The address in its log.
    #[track_caller]
    fn bound(&mut self) -> SocketAddr {
        wait("the host to listen", || {
            let line = self.log_lines().into_iter().find(|line| line["message"] == "listening");
            let address = line.and_then(|line| line["address"].as_str().and_then(|text| text.parse().ok()));
            match (address, self.child.try_wait()) {
                (Some(address), _) => Ok(address),
                (None, Ok(None)) => Err("a host that does not listen yet".to_owned()),
                (None, ended) => panic!("the host ended: {ended:?}\n{}", self.log()),
            }
        })
    }

    /// Waits until it is ready.
    #[track_caller]
    pub fn ready(&self) {
        self.ready_within(DEADLINE);
    }

    /// The same where a model is compiled first.
    #[track_caller]
    pub fn ready_within(&self, deadline: Duration) {
        wait_for(deadline, "the host to be ready", || match self.client.get("/readyz") {
            Ok(answer) if answer.status() == 200 => Ok(()),
            Ok(answer) => Err(answer.text()),
            Err(e) => Err(format!("{e:#}")),
        });
    }

    /// Waits until that model answers, while others of this host may be down for good; what it said.
    #[track_caller]
    pub fn answered(&self, model: &str, prompt: &str) -> String {
        let body = with(chat(prompt), &serde_json::json!({"model": model}));
        wait(&format!("{model} to answer"), || match self.client.post(CHAT, &body) {
            Ok(answer) if answer.status() == 200 => Ok(answer.content()),
            Ok(answer) => Err(answer.text()),
            Err(e) => Err(format!("{e:#}")),
        })
    }

    /// A client of it, for other threads.
    pub fn client(&self) -> Client {
        self.client
    }

    /// Its metrics now.
    ///
    /// # Panics
    /// When they cannot be read.
    #[track_caller]
    pub fn scrape(&self) -> Scrape {
        let answer = self.client.get("/metrics").unwrap_or_else(|e| panic!("metrics: {e:#}"));
        assert_eq!(answer.status(), 200);
        Scrape::parse(&answer.text()).unwrap_or_else(|e| panic!("metrics: {e:#}"))
    }

    /// Waits until `found` of its metrics is `value`; answers the metrics.
    #[track_caller]
    pub fn until(&self, what: &str, value: f64, found: impl Fn(&Scrape) -> f64) -> Scrape {
        wait(&format!("{what} to be {value}"), || {
            let scrape = self.scrape();
            let now = found(&scrape);
            if (now - value).abs() < 1e-9 { Ok(scrape) } else { Err(now.to_string()) }
        })
    }

    /// Waits until nothing is going on; answers the metrics.
    #[track_caller]
    pub fn quiet(&self) -> Scrape {
        const GAUGES: [&str; 6] = [
            "cascadia_inflight_tasks",
            "cascadia_queue_depth",
            "cascadia_request_body_bytes",
            "cascadia_engine_requests_running",
            "cascadia_engine_requests_waiting",
            "cascadia_engine_kv_cache_usage_ratio",
        ];
        wait("the host to be quiet", || {
            let scrape = self.scrape();
            let busy: Vec<_> = GAUGES
                .map(|name| (name, scrape.sum(name, &[])))
                .into_iter()
                .filter(|(_, v)| *v != 0.0)
                .collect();
            if busy.is_empty() { Ok(scrape) } else { Err(format!("{busy:?}")) }
        })
    }

    /// Waits until so many generations are admitted and not over.
    #[track_caller]
    pub fn inflight(&self, n: u32) -> Scrape {
        self.until("cascadia_inflight_tasks", n.into(), |s| s.value("cascadia_inflight_tasks", &[]))
    }

    /// Waits until the engine generates so many.
    #[track_caller]
    pub fn running(&self, n: u32) -> Scrape {
        self.until("cascadia_engine_requests_running", n.into(), |s| {
            s.sum("cascadia_engine_requests_running", &[])
        })
    }

    /// Waits until so many wait for a slot.
    #[track_caller]
    pub fn queued(&self, n: u32) -> Scrape {
        self.until("cascadia_queue_depth", n.into(), |s| s.value("cascadia_queue_depth", &[]))
    }

    /// Sends it a signal.
    pub fn signal(&self, number: i32) {
        sys::signal(&self.child, number);
    }

    /// Waits for its end; answers the exit status.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        wait("the host to end", || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            other => Err(format!("{other:?}")),
        })
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Everything it has logged.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Its log as objects; what is none is left out.
    pub fn log_lines(&self) -> Vec<Value> {
        self.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Number of its threads.
    pub fn threads(&self) -> usize {
        self.footprint().threads
    }

    /// What it holds now.
    pub fn footprint(&self) -> Footprint {
        Footprint::of(self.child.id())
    }
}

impl Deref for Host {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        end(&mut self.child);
        let log = self.log();
        // Test runners show it when the test failed.
        let lines: Vec<_> = log.lines().collect();
        for line in &lines[lines.len().saturating_sub(40)..] {
            setup::say(line);
        }
    }
}
