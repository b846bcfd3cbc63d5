//! The child's thread that tells the host what is not part of a task: log lines at once, series and load now and then.
//!
//! What must hold: a plugin that logs or counts never waits, whatever the host does; what does not fit is counted.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::frame::{Frame, Line};
use super::home::Home;
use super::ledger::Ledger;
use super::news;
use super::pack::Packer;
use crate::plugins::Load;
use crate::plugins::engine::Engine;
use crate::plugins::handle::EngineHandle;
use crate::plugins::register::Register;
use crate::plugins::services;
use crate::telemetry::transport::carried::Told;

/// How often series and load are told.
const EVERY: Duration = Duration::from_millis(100);
/// Lines that may wait.
const MAX_LINES: usize = 1024;

/// The teller.
pub(super) struct Teller {
    home: Home,
    ledger: Arc<Ledger>,
    engine: OnceLock<Arc<EngineHandle>>,
    lines: Mutex<Lines>,
    changed: Condvar,
    told: Mutex<Last>,
}

/// What was told last of what is told only when it has changed.
#[derive(Default)]
struct Last {
    report: Option<(Load, u64)>,
    links: Told,
}

#[derive(Default)]
struct Lines {
    waiting: VecDeque<Line>,
    lost: u64,
    /// The load should be told now.
    load: bool,
}

impl Teller {
    /// A teller with its thread.
    pub(super) fn new(home: Home) -> Arc<Teller> {
        let teller = Arc::new(Teller {
            home,
            ledger: Arc::default(),
            engine: OnceLock::new(),
            lines: Mutex::default(),
            changed: Condvar::new(),
            told: Mutex::default(),
        });
        let thread = Arc::clone(&teller);
        let run = move || {
            loop {
                {
                    let mut lines = thread.lines.lock();
                    if lines.waiting.is_empty() && !lines.load {
                        thread.changed.wait_for(&mut lines, EVERY);
                    }
                }
                thread.tell();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("teller".to_owned()).spawn(run) {
            tracing::error!(%error, "no thread to tell the host with");
        }
        teller
    }

    /// Where the plugin's series are counted.
    pub(super) fn ledger(&self) -> Arc<dyn Register> {
        Arc::<Ledger>::clone(&self.ledger)
    }

    /// Tells the engine's load from now on.
    pub(super) fn follow(&self, engine: Arc<EngineHandle>) {
        self.engine.get_or_init(|| engine);
    }

    /// A line for the host's log.
    pub(super) fn line(&self, level: tracing::Level, part: Option<&str>, span: Option<&str>, text: &str) {
        let mut lines = self.lines.lock();
        if lines.waiting.len() >= MAX_LINES {
            lines.lost += 1;
            return;
        }
        let (part, span) = (part.map(str::to_owned), span.map(str::to_owned));
        lines.waiting.push_back(Line { level: services::number(level), part, span, text: text.to_owned() });
        self.changed.notify_one();
    }

    /// The engine has become idle: a scrape should not see it busy for longer.
    pub(super) fn load_changed(&self) {
        self.lines.lock().load = true;
        self.changed.notify_one();
    }

    /// Tells what is new.
    pub(super) fn tell(&self) {
        // One teller at a time, so that lines keep their order and values are told once.
        let mut told = self.told.lock();
        let (waiting, lost) = {
            let mut lines = self.lines.lock();
            lines.load = false;
            (std::mem::take(&mut lines.waiting), std::mem::take(&mut lines.lost))
        };
        let lost = (lost > 0).then(|| Line {
            level: 2,
            text: format!("{lost} log lines were lost"),
            ..Line::default()
        });
        for line in waiting.into_iter().chain(lost) {
            self.home.send_json(Frame::Line, &line);
        }
        let mut values = Packer::default();
        for series in self.ledger.tell(&mut values) {
            self.home.send_json(Frame::Series, &series);
        }
        if !values.bytes().is_empty() {
            self.home.send(Frame::Values, values.bytes());
        }
        let mut breaches = Packer::default();
        self.ledger.tell_breaches(&mut breaches);
        if !breaches.bytes().is_empty() {
            self.home.send(Frame::Breaches, breaches.bytes());
        }
        let links = self.ledger.transport().told();
        if links != told.links {
            self.home.send_json(Frame::Links, &links);
            told.links = links;
        }
        if let Some(engine) = self.engine.get() {
            let now = (engine.load(), engine.link().heartbeats());
            let steps = engine.link().take_steps();
            if told.report != Some(now) || steps > 0 {
                let mut report = Packer::default();
                news::pack_report(&mut report, &now.0, now.1, steps);
                self.home.send(Frame::Report, report.bytes());
                told.report = Some(now);
            }
        }
    }
}
