//! Tries a model's engine in a process of its own: the same command once more, for one model, with a deadline.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::say;
use crate::config::{Config, env};
use crate::fleet::choose::choose;
use crate::fleet::probe::{Depth, Found};
use crate::telemetry::logs;
use crate::telemetry::metrics::Metrics;

/// How long a plugin may take to find its libraries.
const RUNTIME: Duration = Duration::from_secs(60);
/// How long an engine may take to come up.
const WHOLE: Duration = Duration::from_secs(1800);

/// What came of it.
pub(super) enum Tried {
    Well {
        /// Full name of the device, where known.
        device: String,
        took_ms: u64,
        /// What the plugin told the operator on the way.
        said: Vec<String>,
        /// The devices that its libraries find, where that was asked: `NAME: FULL NAME`.
        devices: Vec<String>,
    },
    Failed(String),
}

/// The child: tries the model and prints what came of it as JSON.
pub(super) fn child(config: &Config, name: &str, depth: Depth) -> i32 {
    logs::start(tracing::Level::INFO, logs::Format::Json);
    let tried = tried(config, name, depth);
    say(&match &tried {
        Ok(Found { device, took }) => {
            json!({"device": device, "took_ms": took.as_millis() as u64}).to_string()
        }
        Err(error) => json!({"error": error}).to_string(),
    });
    i32::from(tried.is_err())
}

fn tried(config: &Config, name: &str, depth: Depth) -> Result<Found, String> {
    let executable = env::executable().map_err(|e| format!("own path is not known: {e}"))?;
    // This process is the plugin's own already.
    let mut config = config.clone();
    config.plugins.isolate.clear();
    let config = &config;
    let chosen = choose(config, &executable, &Metrics::new()).map_err(|fault| fault.message)?;
    for (variable, value) in chosen.environment(config) {
        env::set_before_threads(variable, value)?;
    }
    chosen.probe(name, depth, config)
}

/// Starts the child for the model of that name, with the flags of this process.
pub(super) fn run(executable: &Path, name: &str, depth: Depth) -> Tried {
    let limit = if depth == Depth::Whole { WHOLE } else { RUNTIME };
    let child = Command::new(executable)
        .args(env::arguments().into_iter().skip(1))
        .args(["--probe", name])
        .args((depth == Depth::Devices).then_some("--probe-devices"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    match child {
        Ok(child) => follow(child, limit),
        Err(error) => Tried::Failed(format!("the process to try it in did not start: {error}")),
    }
}

fn follow(mut child: Child, limit: Duration) -> Tried {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (status, out, err) = std::thread::scope(|scope| {
        let out = scope.spawn(|| text(out));
        let err = scope.spawn(|| text(err));
        let status = wait(&mut child, limit);
        (status, out.join().unwrap_or_default(), err.join().unwrap_or_default())
    });
    let answer: Value = out.lines().last().and_then(|l| serde_json::from_str(l).ok()).unwrap_or(Value::Null);
    if let Some(error) = answer["error"].as_str() {
        return Tried::Failed(error.to_owned());
    }
    match (status, answer["took_ms"].as_u64()) {
        (Some(status), Some(took_ms)) if status.success() => {
            let device = answer["device"].as_str().unwrap_or_default().to_owned();
            Tried::Well { device, took_ms, said: said(&err, false), devices: said(&err, true) }
        }
        (None, _) => Tried::Failed(format!("its engine was not done after {limit:?}")),
        (Some(status), _) => {
            let last = err.lines().last().unwrap_or_default();
            let how = status.signal().map_or_else(|| status.to_string(), |n| format!("signal {n}"));
            Tried::Failed(format!(
                "its plugin ended the process it was tried in: {how}; the last it said: {last}"
            ))
        }
    }
}

/// The plugin's own lines among those of the log: the ones that name devices, or the others.
fn said(log: &str, of_devices: bool) -> Vec<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let own = lines.filter(|line| line["target"] == "plugin" && line["level"] != "DEBUG");
    let meant = own.filter(|line| (line["part"] == "devices") == of_devices);
    meant
        .filter_map(|line| line["message"].as_str().map(str::to_owned))
        .take(if of_devices { 64 } else { 8 })
        .collect()
}

fn text(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // Bounded: what a plugin writes is its own affair. What could not be read is missing in the answer.
    let read = from.map(|from| from.take(1 << 20).read_to_end(&mut bytes));
    drop(read);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The status, or nothing when it had to be killed.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                // Both fail only for a child that has ended by now.
                drop(child.kill());
                drop(child.wait());
                return None;
            }
        }
    }
}
