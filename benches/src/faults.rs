//! What goes wrong: one thread a model draws faults, commits them, and waits until the model serves again.
//!
//! Holds: a fault that requests may feel is written down as trouble before it is committed, and as over when the model has
//! answered. Upgrades, broken files and overwrites are no trouble: nobody may feel them. Engines fail at most every
//! [`APART`], since a host that sees five failures in a minute leaves an engine alone.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cascadia_tests::client::{CHAT, Client, chat, order, with};
use cascadia_tests::{Dice, Scrape, sys};
use serde_json::{Value, json};

use crate::books::Books;
use crate::vitals;

const APART: Duration = Duration::from_secs(20);
/// How long anything may take; the machine may be slow and busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than the host waits before it reads a file that has changed.
const QUIET: Duration = Duration::from_millis(1200);

/// A model and the one who breaks it.
pub(crate) struct Breaker<'a> {
    pub(crate) client: Client,
    pub(crate) host: u32,
    pub(crate) model: &'a str,
    /// Its plugin's file, in a folder of its own.
    pub(crate) file: PathBuf,
    pub(crate) library: &'a [u8],
    pub(crate) isolated: bool,
    pub(crate) dice: Dice,
    pub(crate) books: &'a Books,
    /// Sizes of versions, so that no two are the same.
    pub(crate) versions: &'a AtomicU64,
}

impl Breaker<'_> {
    /// Breaks the model until it is over. The last fault is mended before it returns.
    pub(crate) fn run(mut self, over: &AtomicBool) {
        let mut failed: Option<Instant> = None;
        while !over.load(Ordering::Relaxed) {
            let may_fail = failed.is_none_or(|at| at.elapsed() > APART);
            let (name, done) = match self.dice.roll(if may_fail { 16 } else { 8 }) {
                0..4 => ("upgrade", self.upgrade()),
                4..6 => ("broken file", self.broken_file()),
                6 => ("overwrite in place", self.overwrite()),
                7 => ("removal and return", self.removal()),
                _ => {
                    failed = Some(Instant::now());
                    self.crash()
                }
            };
            self.books.count(&format!("fault: {name}"));
            if let Err(error) = done {
                self.books.fault(format!("{name} of {}: {error:#}", self.model));
                // Whatever state it is in, one that serves comes next.
                self.books.trouble(self.model);
                if let Err(error) = self.drop_version().and_then(|()| self.serves()) {
                    self.books.fault(format!("{} did not come back: {error:#}", self.model));
                    return;
                }
                self.books.over(self.model);
            }
            let rest = Duration::from_millis(200 + self.dice.roll(1500));
            std::thread::sleep(rest);
        }
    }

    /// A newer version takes over, and nobody feels it.
    pub(crate) fn upgrade(&mut self) -> Result<()> {
        let before = self.upgrades()?;
        self.drop_version()?;
        self.until("the upgrade", |breaker| Ok(breaker.upgrades()? > before))
    }

    fn upgrades(&self) -> Result<f64> {
        let labels = [("model", self.model), ("reason", "upgraded")];
        Ok(self.scrape()?.sum("cascadia_worker_restarts_total", &labels))
    }

    /// A file that is none, or half of one, changes nothing.
    fn broken_file(&mut self) -> Result<()> {
        let bytes = match self.dice.roll(3) {
            0 => b"this is no library".to_vec(),
            1 => Vec::new(),
            _ => self.library[..self.library.len() / 2].to_vec(),
        };
        self.place(&bytes)?;
        std::thread::sleep(QUIET);
        self.answers()?;
        self.upgrade()
    }

    /// What a careless copy does: the same file with other content.
    fn overwrite(&mut self) -> Result<()> {
        fs::write(&self.file, vec![0_u8; self.library.len()])?;
        std::thread::sleep(Duration::from_millis(self.dice.roll(1500)));
        self.answers()?;
        self.upgrade()
    }

    fn removal(&mut self) -> Result<()> {
        self.books.trouble(self.model);
        fs::remove_file(&self.file)?;
        self.until("the model to be gone", |breaker| {
            let models = breaker.client.get("/v1/models")?.json();
            let there = models["data"].as_array().into_iter().flatten().any(|m| m["id"] == breaker.model);
            Ok(!there)
        })?;
        std::thread::sleep(Duration::from_millis(self.dice.roll(1000)));
        self.drop_version()?;
        self.serves()?;
        self.books.over(self.model);
        Ok(())
    }

    /// The engine fails, by the engine's own fault or by a signal.
    fn crash(&mut self) -> (&'static str, Result<()>) {
        let by = |overrides: Value| Cause::Order(overrides);
        // The last four are for processes only.
        let (name, cause) = match self.dice.roll(if self.isolated { 8 } else { 4 }) {
            0 => ("panic in step", by(json!({"panic_in": "step"}))),
            1 => ("panic after tokens", by(json!({"panic_after": 1}))),
            2 => ("step error", by(json!({"step_error_after": 1}))),
            3 => ("stall", by(json!({"slow_step_ms": 5000, "no_beat": true}))),
            4 => ("segfault", by(json!({"segfault_in": "step"}))),
            5 => ("exit", by(json!({"exit_in": "step"}))),
            6 => ("SIGKILL", Cause::Signal(libc::SIGKILL)),
            _ => ("SIGSTOP", Cause::Signal(libc::SIGSTOP)),
        };
        (name, self.fail(&cause))
    }

    fn fail(&self, cause: &Cause) -> Result<()> {
        self.books.trouble(self.model);
        let before = self.failures()?;
        match cause {
            Cause::Signal(number) => {
                let child = vitals::child_of(self.host, &self.file).context("it has no process to signal")?;
                sys::signal_id(child, *number);
            }
            Cause::Order(overrides) => {
                let body = with(chat(&order("w w w", overrides)), &json!({"model": self.model}));
                let answer = self.client.post(CHAT, &body)?;
                ensure!(answer.status() >= 500, "the engine was to fail and answered {}", answer.text());
            }
        }
        self.until("the engine to be built anew", |breaker| Ok(breaker.failures()? > before))?;
        self.serves()?;
        self.books.over(self.model);
        Ok(())
    }

    /// Engines of the model that were built anew because they failed.
    fn failures(&self) -> Result<f64> {
        let scrape = self.scrape()?;
        let of = |reason| {
            scrape.sum("cascadia_worker_restarts_total", &[("model", self.model), ("reason", reason)])
        };
        Ok(of("failed") + of("stalled"))
    }

    fn scrape(&self) -> Result<Scrape> {
        Scrape::parse(&self.client.get("/metrics")?.text())
    }

    /// One question that must be answered.
    fn answers(&self) -> Result<()> {
        let answer = self.client.post(CHAT, &with(chat("still there"), &json!({"model": self.model})))?;
        ensure!(answer.status() == 200, "status {}: {}", answer.status(), answer.text());
        Ok(())
    }

    /// Waits until it answers.
    pub(crate) fn serves(&self) -> Result<()> {
        self.until("an answer", |breaker| Ok(breaker.answers().is_ok()))
    }

    /// Puts a version there that was not there before.
    pub(crate) fn drop_version(&self) -> Result<()> {
        let padding = self.versions.fetch_add(1, Ordering::Relaxed);
        let mut bytes = self.library.to_vec();
        bytes.resize(bytes.len() + usize::try_from(padding)? % 4096 + 1, 0);
        bytes.extend_from_slice(&padding.to_le_bytes());
        self.place(&bytes)
    }

    /// As a careful copy does: whole, then under its name.
    fn place(&self, bytes: &[u8]) -> Result<()> {
        let part = self.file.with_file_name(".part");
        fs::write(&part, bytes)?;
        Ok(fs::rename(part, &self.file)?)
    }

    fn until(&self, what: &str, found: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if found(self)? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("waited {} s for {what}", PATIENCE.as_secs())
    }
}

enum Cause {
    Signal(i32),
    Order(Value),
}
