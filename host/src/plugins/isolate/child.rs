//! `cascadia-host plugin-run`: the child of an isolated plugin. It opens the plugin, builds one engine and drives it.
//!
//! Three threads: this one reads what the host says and never waits for anything else; the engine's thread builds, submits
//! and steps; the teller sends the log, the series and the load. Only the engine's thread may be stopped by a host that does
//! not read, and then only in a push.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::code;
use parking_lot::Mutex;

use super::frame::{self, Frame, HEAD, MAX};
use super::home::Home;
use super::pack::{Packer, Unpacker};
use super::teller::Teller;
use super::{process, wire};
use crate::plugins::build::{self, Order};
use crate::plugins::engine::{Engine, Next};
use crate::plugins::failed::Failed;
use crate::plugins::handle::EngineHandle;
use crate::plugins::link::Link;
use crate::plugins::{LoadError, leave, load, services};
use crate::telemetry::logs;

/// An idle engine is asked again after this long, woken or not.
const IDLE_WAIT: Duration = Duration::from_secs(5);

/// What the child was started with.
#[derive(Debug)]
pub struct Call {
    /// Process id of the host.
    pub parent: u32,
    /// Most detailed log level.
    pub level: tracing::Level,
    /// Bound on the address space, in bytes.
    pub memory: Option<u64>,
}

/// What the reader and the engine's thread share.
struct Shared {
    home: Home,
    link: OnceLock<&'static Link>,
    engine: OnceLock<Arc<EngineHandle>>,
    mailbox: Mutex<Vec<Vec<u8>>>,
    give_up: AtomicBool,
    closing: AtomicBool,
    /// How long the engine may take to close, in milliseconds.
    patience: AtomicU64,
}

/// Runs until the host closes the engine, or ends. Answers the exit status.
pub fn run(call: &Call) -> i32 {
    let given = match process::settle(call.parent, call.memory) {
        Ok(given) => given,
        Err(error) => return complain(&format!("cannot be the child of a host: {error}")),
    };
    let reader = given.socket;
    let Ok(writer) = reader.try_clone() else { return complain("its socket cannot be used by two threads") };
    let home = Home::new(writer);
    let teller = Teller::new(home.clone());
    let lines = Arc::clone(&teller);
    let write = move |line: &logs::Line<'_>| {
        lines.line(
            line.level,
            (line.target == "plugin").then_some(line.part).flatten(),
            line.span,
            line.text,
        );
    };
    logs::forward(call.level, Box::new(write));
    services::start(teller.ledger(), call.level);
    let shared = Arc::new(Shared {
        home,
        link: OnceLock::new(),
        engine: OnceLock::new(),
        mailbox: Mutex::default(),
        give_up: AtomicBool::new(false),
        closing: AtomicBool::new(false),
        patience: AtomicU64::new(1000),
    });
    read(reader, given.image, &shared, &teller)
}

/// Takes the host's frames until there are no more: then the host is gone.
fn read(mut from: UnixStream, image: File, shared: &Arc<Shared>, teller: &Arc<Teller>) -> i32 {
    let mut image = Some(image);
    let mut frame = Vec::new();
    loop {
        let Some(kind) = next(&mut from, &mut frame) else { return 0 };
        match kind {
            Frame::Build => {
                let (Ok(wanted), Some(image)) = (serde_json::from_slice(&frame), image.take()) else {
                    return 1;
                };
                let (shared, teller) = (Arc::clone(shared), Arc::clone(teller));
                let engine = move || leave(engine(&wanted, image, &shared, &teller));
                if std::thread::Builder::new().name("engine".to_owned()).spawn(engine).is_err() {
                    return 1;
                }
            }
            Frame::Submit => {
                if let (Some(link), Some(task)) = (shared.link.get(), wire::task_id(&frame)) {
                    // Lent before the engine has it, so that a cancel that comes next finds it.
                    link.lend(task);
                    shared.mailbox.lock().push(std::mem::take(&mut frame));
                    link.wake();
                }
            }
            Frame::Cancel => {
                let task = Unpacker::new(&frame).word();
                if let (Ok(task), Some(engine)) = (task, shared.engine.get()) {
                    engine.cancel(task);
                }
            }
            Frame::Level => {
                let number = Unpacker::new(&frame).word().ok().and_then(|n| u32::try_from(n).ok());
                if let Some(level) = number.map(services::named) {
                    logs::set_level(level);
                    services::set_level(level);
                }
            }
            Frame::GiveUp => shared.give_up.store(true, Ordering::Relaxed),
            Frame::Close => {
                let patience = Unpacker::new(&frame).word().unwrap_or(0);
                shared.patience.store(patience, Ordering::Relaxed);
                shared.closing.store(true, Ordering::Release);
                if let Some(link) = shared.link.get() {
                    link.wake();
                }
            }
            _ => return 1,
        }
    }
}

/// The next frame's kind, its bytes in `frame`; none when the host is gone.
fn next(from: &mut UnixStream, frame: &mut Vec<u8>) -> Option<Frame> {
    let mut head = [0; HEAD];
    from.read_exact(&mut head).ok()?;
    let [a, b, c, d, e, f, g, h] = head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let padded = Some(length).filter(|n| *n <= MAX)?.next_multiple_of(8);
    frame.clear();
    frame.resize(padded, 0);
    from.read_exact(frame).ok()?;
    frame.truncate(length);
    Frame::of(u32::from_le_bytes([e, f, g, h]))
}

/// The engine's thread. Answers the exit status.
fn engine(wanted: &frame::Build, image: File, shared: &Shared, teller: &Arc<Teller>) -> i32 {
    let home = &shared.home;
    let built = match build(wanted, image, shared) {
        Ok(built) => built,
        Err(LoadError { plugin, stage, message, code, .. }) => {
            teller.tell();
            let stage = stage.name().to_owned();
            home.send_json(Frame::Unbuilt, &frame::Unbuilt { plugin, stage, message, code });
            return 0;
        }
    };
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (load_us, warmup_us) = (micros(built.load), micros(built.warmup));
    let engine = Arc::new(built.engine);
    if shared.engine.set(Arc::clone(&engine)).is_err() {
        return 1;
    }
    teller.follow(Arc::clone(&engine));
    let answer = frame::Built { card: built.card, load_us, warmup_us, proved: built.proved };
    home.send_json(Frame::Built, &answer);
    drive(&engine, shared, teller);
    let deadline = Duration::from_millis(shared.patience.load(Ordering::Relaxed));
    let mut answer = Packer::default();
    frame::pack_answer(&mut answer, engine.end(deadline));
    teller.tell();
    home.send(Frame::Closed, answer.bytes());
    0
}

fn build(
    wanted: &frame::Build,
    mut image: File,
    shared: &Shared,
) -> Result<build::Built<EngineHandle>, LoadError> {
    let mut bytes = Vec::new();
    let read = std::io::Seek::rewind(&mut image).and_then(|()| image.read_to_end(&mut bytes));
    read.map_err(|e| {
        let message = format!("its bytes did not arrive: {e}");
        LoadError::file(&wanted.library, crate::telemetry::labels::LoadStage::Open, message)
    })?;
    let mut candidate = load::inspect_image(&wanted.library, bytes)?;
    candidate.cache.clone_from(&wanted.cache);
    let library = Arc::new(load::open(candidate)?);
    let link = Link::new(&library.manifest.id);
    shared.link.get_or_init(|| link);
    let order = Order {
        engine: &wanted.engine,
        options: &wanted.options,
        path: wanted.path.as_deref(),
        model: &wanted.model,
        give_up: &shared.give_up,
        stop_before_weights: None,
    };
    build::build(&library, &order, link)
}

fn drive(engine: &EngineHandle, shared: &Shared, teller: &Teller) {
    let link = engine.link();
    let closing = || shared.closing.load(Ordering::Acquire);
    let mut push = wire::Push::new(&shared.home, link, &shared.closing);
    while !closing() {
        let seen = link.epoch();
        for frame in std::mem::take(&mut *shared.mailbox.lock()) {
            submit(&frame, engine, &shared.home);
        }
        let stepped = match link.fault() {
            Some(reason) => Err(Box::new((code::BACKEND, Failed::saying(&reason)))),
            None => engine.step_chunks(&mut push),
        };
        match stepped {
            Ok(next) => {
                let longest = Instant::now() + IDLE_WAIT;
                match next {
                    Next::More => {}
                    Next::Idle => {
                        teller.load_changed();
                        link.wait(seen, longest);
                    }
                    Next::Until(at) => link.wait(seen, at.min(longest)),
                }
            }
            Err(failed) => {
                let mut answer = Packer::default();
                frame::pack_answer(&mut answer, Err(*failed));
                teller.tell();
                shared.home.send(Frame::Failed, answer.bytes());
                while !closing() {
                    let seen = link.epoch();
                    if !closing() {
                        link.wait(seen, Instant::now() + IDLE_WAIT);
                    }
                }
            }
        }
    }
}

fn submit(frame: &[u8], engine: &EngineHandle, home: &Home) {
    let Ok(unpacked) = wire::unpack_task(frame) else {
        tracing::error!("a task could not be read");
        return;
    };
    let link = engine.link();
    let (task, answer) = unpacked.submit(engine);
    let (taken, cancelled) = (answer.is_ok(), link.is_raised(task));
    let mut said = Packer::default();
    said.word(task);
    frame::pack_answer(&mut said, answer);
    home.send(Frame::Taken, said.bytes());
    if !taken {
        link.forget(task);
    } else if cancelled {
        engine.cancel(task);
    }
}

#[expect(clippy::print_stderr, reason = "there is no log yet")]
fn complain(message: &str) -> i32 {
    eprintln!("cascadia-host plugin-run: {message}");
    1
}
