//! The host's side of an engine in a child: builds it, and is the [`Engine`] that the worker drives.

use std::collections::HashSet;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::code;
use parking_lot::Mutex;

use super::Apart;
use super::bell::Bell;
use super::frame::{self, Frame, Unbuilt};
use super::news::News;
use super::pace::Pace;
use super::pack::{Packer, Unpacker};
use super::pipe::{Filled, Listen, Pipe};
use super::process::{self, Process, Start};
use super::wire;
use crate::generate::{Failure, Request};
use crate::plugins::build::{Built, Order};
use crate::plugins::engine::{Engine, Load, Next, Receiver, Taken};
use crate::plugins::error::LoadError;
use crate::plugins::failed::failure;
use crate::plugins::link::Link;
use crate::plugins::manifest::Manifest;
use crate::plugins::services;
use crate::telemetry::labels::LoadStage;

/// How long the driver sleeps when nothing comes.
const IDLE_WAIT: Duration = Duration::from_secs(5);
/// How long a build that was given up may go on before it is killed.
const GIVE_UP: Duration = Duration::from_secs(5);
/// How long a process whose socket has ended may take to end.
const LAST: Duration = Duration::from_secs(2);

/// An engine in a child.
pub(super) struct Remote {
    link: &'static Link,
    process: u32,
    bell: Arc<Bell>,
    /// Ids to cancel; sent by the driver.
    cancels: Mutex<Vec<u64>>,
    load: Mutex<Load>,
    /// Used by the driving thread alone.
    driver: Mutex<Driver>,
}

/// The child, and what was said to it.
struct Driver {
    pipe: Pipe,
    process: Process,
    bell: Arc<Bell>,
    news: News,
    /// Tasks whose submit it has not answered.
    untaken: HashSet<u64>,
    packer: Packer,
    /// The log level that it was told.
    level: tracing::Level,
    pace: Pace,
    /// The child has ended: there is no more than what was read.
    ended: bool,
    /// Its end was told: closing it has nothing to add.
    lost: bool,
    /// Why it was killed, when it was.
    killed: Option<&'static str>,
}

/// What a frame means for the one who reads it.
enum Heard {
    /// Nothing more.
    News,
    /// This, with its bytes.
    Word(Frame, std::ops::Range<usize>),
    /// Someone rang, or time is up.
    Rung,
}

/// Builds an engine of a plugin in a process of its own.
pub(in crate::plugins) fn build(
    apart: &Apart,
    manifest: &Manifest,
    order: &Order<'_>,
    link: &'static Link,
) -> Result<Built, LoadError> {
    let fault = |stage: LoadStage, message: String| LoadError::new(&manifest.id, stage, message);
    let start = Start {
        env: manifest.about.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
        level: apart.level,
        memory: apart.memory,
        image: &apart.image,
    };
    let started =
        Process::start(&start).and_then(|(process, socket)| Driver::new(process, socket, link, apart.level));
    let mut driver = started
        .map_err(|e| fault(LoadStage::Open, format!("no process of its own could be started: {e}")))?;
    let wanted = frame::Build {
        library: apart.path.clone(),
        cache: apart.cache.clone(),
        engine: order.engine.to_owned(),
        options: order.options.clone(),
        path: order.path.map(std::path::Path::to_path_buf),
        model: order.model.to_owned(),
    };
    let load = Mutex::new(Load::default());
    let crashed = |failure: Failure| LoadError {
        code: Some(code::PLUGIN_CRASHED),
        ..fault(LoadStage::Build, format!("{} while its engine was built", failure.message))
    };
    let broken = |message: String| fault(LoadStage::Build, message);
    let wanted = serde_json::to_vec(&wanted).map_err(|e| broken(e.to_string()))?;
    driver.pipe.send(Frame::Build, &wanted).map_err(|e| broken(e.to_string()))?;
    let mut given_up: Option<Instant> = None;
    loop {
        if order.give_up.load(Ordering::Relaxed) && given_up.is_none() {
            given_up = Some(Instant::now());
            driver.pipe.send(Frame::GiveUp, &[]).map_err(|e| broken(e.to_string()))?;
        }
        if given_up.is_some_and(|since| since.elapsed() > GIVE_UP) {
            driver.kill("it did not give up its build");
        }
        match driver.hear(Duration::from_millis(100), &load).map_err(crashed)? {
            Heard::Word(Frame::Built, range) => {
                let built: frame::Built = serde_json::from_slice(driver.pipe.bytes(range))
                    .map_err(|e| broken(format!("its process said what cannot be read: {e}")))?;
                let (pid, model) = (driver.process.id(), order.model);
                tracing::info!(plugin = manifest.id, model, pid, "engine runs in a process of its own");
                return Ok(Built {
                    engine: Box::new(Remote::new(driver, link, load)),
                    card: built.card,
                    proved: built.proved,
                    load: Duration::from_micros(built.load_us),
                    warmup: Duration::from_micros(built.warmup_us),
                });
            }
            Heard::Word(Frame::Unbuilt, range) => {
                let Unbuilt { plugin, stage, message, code } =
                    serde_json::from_slice(driver.pipe.bytes(range))
                        .map_err(|e| broken(format!("its process said what cannot be read: {e}")))?;
                let stage = LoadStage::of(&stage).unwrap_or(LoadStage::Build);
                return Err(LoadError { code, ..LoadError::new(plugin, stage, message) });
            }
            Heard::News | Heard::Rung | Heard::Word(..) => {}
        }
    }
}

impl Driver {
    fn new(
        process: Process,
        socket: UnixStream,
        link: &'static Link,
        level: tracing::Level,
    ) -> std::io::Result<Driver> {
        Ok(Driver {
            pipe: Pipe::new(socket)?,
            process,
            bell: Arc::new(Bell::new()?),
            news: News::new(link),
            untaken: HashSet::new(),
            packer: Packer::default(),
            level,
            pace: Pace::new(Instant::now()),
            ended: false,
            lost: false,
            killed: None,
        })
    }

    /// The next thing that happens within `most`; what the child has sent before it ended comes first.
    fn hear(&mut self, most: Duration, load: &Mutex<Load>) -> Result<Heard, Failure> {
        loop {
            if let Some((kind, range)) = self.pipe.next().map_err(|e| self.garbled(&e))? {
                let Some(kind) = Frame::of(kind) else {
                    return Err(self.garbled(&format!("a message of unknown kind {kind}")));
                };
                match self.news.take(kind, self.pipe.bytes(range.clone()), load) {
                    Ok(true) => return Ok(Heard::News),
                    Ok(false) => return Ok(Heard::Word(kind, range)),
                    Err(e) => return Err(self.garbled(&e)),
                }
            }
            let rest = self.pace.rest(Instant::now());
            if !self.ended {
                let (bell, process) = (self.bell.fd(), self.process.ended());
                let listen = if rest.is_some() { Listen::No } else { Listen::Yes };
                let woken = self.pipe.wait(bell, process, rest.unwrap_or(most), listen);
                let woken = woken.map_err(|e| self.garbled(&e))?;
                if woken.writable {
                    self.pipe.flush().map_err(|e| self.garbled(&e))?;
                }
                self.ended = woken.exited;
                if woken.rung {
                    self.bell.hear();
                    return Ok(Heard::Rung);
                }
                if rest.is_none() && !woken.readable && !woken.exited {
                    return Ok(Heard::Rung);
                }
            }
            let filled = self.pipe.fill().map_err(|e| self.garbled(&e))?;
            match (rest, &filled) {
                (Some(_), Filled::Some(came)) => self.pace.rested(Instant::now(), *came),
                (Some(_), _) => self.pace.rested(Instant::now(), 0),
                (None, _) => self.pace.woke(Instant::now()),
            }
            match filled {
                Filled::Some(_) => {}
                Filled::Nothing if !self.ended => {}
                Filled::Nothing | Filled::End => return Err(self.crashed()),
            }
        }
    }

    fn kill(&mut self, why: &'static str) {
        self.killed.get_or_insert(why);
        self.process.kill();
    }

    /// The child has ended although nobody asked it to.
    fn crashed(&mut self) -> Failure {
        self.lost = true;
        let status = self.process.status(LAST);
        let message = match self.killed {
            Some(why) => format!("the plugin's process was ended: {why}"),
            None if status.is_none() => "the plugin's process left its host".to_owned(),
            None => format!("the plugin's process {}", process::words(status)),
        };
        failure(code::PLUGIN_CRASHED, message, String::new())
    }

    /// What the child says makes no sense: its memory cannot be trusted any more.
    fn garbled(&mut self, what: &dyn std::fmt::Display) -> Failure {
        self.lost = true;
        self.kill("what it said could not be understood");
        failure(
            code::PLUGIN_CRASHED,
            format!("the plugin's process was ended: it sent {what}"),
            String::new(),
        )
    }

    /// One turn of the driver: a batch, an answer, or a reason to look around.
    fn turn(&mut self, receiver: &mut dyn Receiver, load: &Mutex<Load>) -> Result<(), Failure> {
        let Heard::Word(kind, range) = self.hear(IDLE_WAIT, load)? else { return Ok(()) };
        let bytes = self.pipe.bytes(range);
        match kind {
            Frame::Chunks => {
                let mut early = false;
                // Before it is taken, nothing can have come of a task.
                let untaken = &self.untaken;
                let read = wire::deliver(bytes, receiver, |task| early |= untaken.contains(&task));
                receiver.go_on();
                read.map_err(|e| self.garbled(&e))?;
                if early {
                    return Err(self.garbled(&"a piece of a task that it had not taken"));
                }
            }
            Frame::Taken => {
                let mut from = Unpacker::new(bytes);
                let answer = from.word().and_then(|task| Ok((task, frame::unpack_failure(&mut from)?)));
                let (task, refusal) = answer.map_err(|e| self.garbled(&e))?;
                if self.untaken.remove(&task) {
                    receiver.taken(task, refusal.map_or(Ok(()), Err));
                } else {
                    receiver.broken();
                }
            }
            Frame::Failed => {
                let said = frame::unpack_failure(&mut Unpacker::new(bytes)).map_err(|e| self.garbled(&e))?;
                let nothing = || failure(code::BACKEND, "the engine failed".to_owned(), String::new());
                return Err(said.unwrap_or_else(nothing));
            }
            _ => return Err(self.garbled(&format!("a message of kind {kind:?} out of turn"))),
        }
        Ok(())
    }

    /// Ends the engine, and then the process, within the deadline.
    fn close(&mut self, deadline: Duration, load: &Mutex<Load>) -> Result<(), Failure> {
        let millis = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        let until = Instant::now() + deadline;
        if self.lost {
            return Ok(());
        }
        if !self.ended {
            self.pipe.send(Frame::Close, &millis.to_le_bytes()).map_err(|e| self.garbled(&e))?;
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.kill("it did not close in time");
                return Err(self.crashed());
            }
            if let Heard::Word(Frame::Closed, range) = self.hear(left, load)? {
                let said = frame::unpack_failure(&mut Unpacker::new(self.pipe.bytes(range)));
                let said = said.map_err(|e| self.garbled(&e))?;
                self.process.status(left.min(LAST));
                return said.map_or(Ok(()), Err);
            }
        }
    }
}

impl Remote {
    fn new(driver: Driver, link: &'static Link, load: Mutex<Load>) -> Remote {
        let bell = Arc::clone(&driver.bell);
        link.hang(Some(Arc::clone(&bell)));
        let process = driver.process.id();
        Remote { link, process, bell, cancels: Mutex::default(), load, driver: Mutex::new(driver) }
    }
}

impl Engine for Remote {
    fn link(&self) -> &'static Link {
        self.link
    }

    fn process(&self) -> Option<u32> {
        Some(self.process)
    }

    fn submit(&self, id: u64, request: &Request) -> Result<Taken, Failure> {
        let mut driver = self.driver.lock();
        let Driver { packer, pipe, untaken, .. } = &mut *driver;
        packer.clear();
        wire::pack_request(packer, id, request);
        if packer.bytes().len() > frame::MAX {
            let message = format!("the prompt has {} tokens, too many to hand over", request.tokens.len());
            return Err(failure(code::PROMPT_TOO_LONG, message, String::new()));
        }
        let sent = pipe.send(Frame::Submit, packer.bytes());
        sent.map_err(|e| failure(code::PLUGIN_CRASHED, e.to_string(), String::new()))?;
        untaken.insert(id);
        Ok(Taken::Later)
    }

    fn step(&self, receiver: &mut dyn Receiver) -> Result<Next, Box<Failure>> {
        let mut driver = self.driver.lock();
        for id in std::mem::take(&mut *self.cancels.lock()) {
            driver.pipe.send(Frame::Cancel, &id.to_le_bytes()).map_err(|e| Box::new(driver.garbled(&e)))?;
        }
        let level = services::level();
        if level != driver.level {
            driver.level = level;
            let number = u64::from(services::number(level));
            driver
                .pipe
                .send(Frame::Level, &number.to_le_bytes())
                .map_err(|e| Box::new(driver.garbled(&e)))?;
        }
        let turned = driver.turn(receiver, &self.load);
        if let Err(failure) = &turned {
            // These never began: they are refused, and may be asked again.
            for task in std::mem::take(&mut driver.untaken) {
                receiver.taken(task, Err(failure.clone()));
            }
        }
        // The driver sleeps in here, not beside it.
        turned.map(|()| Next::More).map_err(Box::new)
    }

    fn cancel(&self, id: u64) {
        self.cancels.lock().push(id);
        self.bell.ring();
    }

    fn load(&self) -> Load {
        *self.load.lock()
    }

    fn close(&self, deadline: Duration) -> Result<(), Failure> {
        self.link.hang(None);
        let mut driver = self.driver.lock();
        // What is left of it is for the kill.
        driver.close(deadline * 3 / 5, &self.load)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.link.hang(None);
        self.driver.get_mut().news.end(&self.load);
    }
}
