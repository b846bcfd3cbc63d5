//! A real Prometheus that scrapes a host every second, and promtool.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::client::Client;
use crate::temp::TempDir;
use crate::{setup, sys, wait};

/// Seconds between two scrapes.
pub const INTERVAL: f64 = 1.0;

/// A running Prometheus; killed when dropped.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    client: Client,
    log: PathBuf,
    _dir: TempDir,
}

/// One series of a query's answer.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Prometheus {
    /// Starts the one in `folder` on a free port, to scrape `target`.
    #[track_caller]
    pub fn start(folder: &Path, target: SocketAddr) -> Prometheus {
        let dir = TempDir::new();
        let config = dir.file(
            "prometheus.yml",
            format!(
                "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n  - job_name: cascadia\n    \
                 static_configs:\n      - targets: [\"{target}\"]\n"
            ),
        );
        let log = dir.file("log", "");
        let mut command = Command::new(folder.join("prometheus"));
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("PANIC: tests may write temporary files"));
        sys::die_with_parent(&mut command);
        let child = command.spawn().expect("PANIC: prometheus runs");
        let client = Client { address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut prometheus = Prometheus { child, client, log, _dir: dir };
        prometheus.client.address = prometheus.bound();
        wait("Prometheus to be ready", || match prometheus.client.get("/-/ready") {
            Ok(answer) if answer.status() == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        });
        prometheus
    }

    #[track_caller]
    fn bound(&mut self) -> SocketAddr {
        wait("Prometheus to listen", || {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let line = log.lines().find(|l| l.contains("msg=\"Listening on\""));
            let address =
                line.and_then(|l| l.split("address=").nth(1)?.split_whitespace().next()?.parse().ok());
            match (address, self.child.try_wait()) {
                (Some(address), _) => Ok(address),
                (None, Ok(None)) => Err("one that does not listen yet".to_owned()),
                (None, ended) => panic!("Prometheus ended: {ended:?}\n{log}"),
            }
        })
    }

    /// The answer to an instant query at that time, seconds since 1970.
    pub fn query(&self, query: &str, at: Option<f64>) -> Result<Vec<Found>> {
        let mut path = format!("/api/v1/query?query={}", escape(query));
        if let Some(at) = at {
            path.push_str(&format!("&time={at:.3}"));
        }
        let answer = self.client.get(&path)?;
        ensure!(answer.status() == 200, "{query}: {}", answer.text());
        let body: Value = serde_json::from_slice(&answer.body)?;
        ensure!(body["status"] == "success", "{query}: {body}");
        let results = body["data"]["result"].as_array().with_context(|| format!("{query}: {body}"))?;
        results
            .iter()
            .map(|result| {
                let labels = result["metric"].as_object().context("labels")?;
                let labels =
                    labels.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()));
                let value = result["value"][1].as_str().context("value")?;
                Ok(Found { labels: labels.collect(), value: value.parse()? })
            })
            .collect()
    }

    /// The value of a query that gives one series.
    pub fn value(&self, query: &str, at: Option<f64>) -> Result<f64> {
        let found = self.query(query, at)?;
        ensure!(found.len() == 1, "{query} gives {found:?}");
        Ok(found[0].value)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Both fail only for a child that has ended and was waited for.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        for line in std::fs::read_to_string(&self.log).unwrap_or_default().lines() {
            setup::say(line);
        }
    }
}

/// What `promtool check metrics` says about an exposition; empty when it is clean.
pub fn check(folder: &Path, exposition: &[u8]) -> Result<String> {
    let mut command = Command::new(folder.join("promtool"));
    command.args(["check", "metrics"]).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::die_with_parent(&mut command);
    let mut child = command.spawn().context("promtool runs")?;
    child.stdin.take().context("its input")?.write_all(exposition)?;
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    ensure!(output.status.success() == said.is_empty(), "{}: {said}", output.status);
    Ok(said)
}

fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, b| {
        if b.is_ascii_alphanumeric() {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
        out
    })
}
