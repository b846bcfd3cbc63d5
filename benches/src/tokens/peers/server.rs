//! Who is compared, and how each is started: as its makers say, quiet, on loopback, with as many threads and as much room as
//! ours has.
//!
//! Holds: [`Server::start`] returns a server that has given one whole answer to the very request that will be measured, or
//! says in time why not.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cascadia_tests::{TempDir, setup};

use super::group::Group;
use super::{probe, tiny};
use crate::generator::{Shape, request};
use crate::subject::{self, Manner, Subject};
use crate::system;

/// How long a start and the first answer may take together. Python's packages are read from a cold disk in it.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);
/// Threads that a real engine computes with.
const THREADS: &str = "2";
/// Tokens of a prompt and its answer, rounded up: what llama.cpp's server sets aside for each stream.
const ROOM: usize = 128;
/// Started by its package, which has no program: model, streams, threads, port.
const LLAMA: &str = "\
import sys, threading, xllamacpp
model, streams, room, threads, port = sys.argv[1], *map(int, sys.argv[2:])
params = xllamacpp.CommonParams()
params.model.path = model
params.n_parallel, params.n_ctx = streams, streams * room
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.port, params.verbosity = port, 1
server = xllamacpp.Server(params)
threading.Event().wait()
";

/// Who.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The anchor with sockets alone, which is also what the routers route to.
    Bare,
    /// The host with the mock.
    Host,
    /// The host with OpenVINO GenAI.
    Engine,
    Llama,
    Dynamo,
    Smg,
    Sglang,
}

impl Who {
    /// For people and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Who::Bare => "bare writer",
            Who::Host => "host + mock",
            Who::Engine => "host + ov-genai",
            Who::Llama => "llama.cpp server",
            Who::Dynamo => "dynamo + mocker",
            Who::Smg => "smg",
            Who::Sglang => "sglang-router",
        }
    }

    /// Whose figure is the one to hold against ours: a router's alone, everyone else's with the engine behind it.
    pub(crate) fn is_router(self) -> bool {
        matches!(self, Who::Smg | Who::Sglang)
    }

    /// The environment that it needs, as the command that installs it names it.
    pub(crate) fn package(self) -> Option<&'static str> {
        match self {
            Who::Bare | Who::Host | Who::Engine => None,
            Who::Llama => Some("llama.cpp"),
            Who::Dynamo => Some("dynamo"),
            Who::Smg => Some("smg"),
            Who::Sglang => Some("sglang-router"),
        }
    }
}

/// What is loaded where there is an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    /// Nothing: tokens are made up.
    None,
    /// [`tiny`].
    Tiny,
    /// The small real one.
    Real,
}

impl Model {
    /// What the request says beyond what all say.
    fn extra(self) -> &'static str {
        match self {
            Model::None => "",
            Model::Tiny => r#","temperature":0"#,
            Model::Real => r#","temperature":0,"ignore_eos":true"#,
        }
    }
}

/// What was installed, and the files that servers read.
pub(crate) struct Stock {
    /// The interpreter of each environment.
    pub(crate) pythons: BTreeMap<String, PathBuf>,
    /// The real model's file.
    pub(crate) real: Option<PathBuf>,
    dir: TempDir,
}

impl Stock {
    /// Writes the tiny model.
    pub(crate) fn new(pythons: BTreeMap<String, PathBuf>, real: Option<PathBuf>) -> Result<Stock> {
        let dir = TempDir::new();
        tiny::gguf(&dir.path().join("tiny.gguf"))?;
        tiny::folder(&dir.path().join("tiny"))?;
        Ok(Stock { pythons, real, dir })
    }

    fn gguf(&self, model: Model) -> Result<PathBuf> {
        match model {
            Model::Real => self.real.clone().context("no real model was named"),
            Model::None | Model::Tiny => Ok(self.dir.path().join("tiny.gguf")),
        }
    }

    /// A command of an environment, with nothing of ours around it.
    fn python(&self, package: &str, home: &Path) -> Result<Command> {
        let python = self.pythons.get(package).with_context(|| format!("{package} is not installed"))?;
        let mut command = Command::new(python);
        command.env_clear().env("HOME", home).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        Ok(command)
    }
}

enum Part {
    Ours(Subject),
    Theirs(Group),
}

impl Part {
    fn cpu(&self) -> Result<Duration> {
        match self {
            Part::Ours(subject) => Ok(system::cpu(subject.process())?),
            Part::Theirs(group) => group.cpu(),
        }
    }

    fn resident(&self) -> Result<f64> {
        match self {
            Part::Ours(subject) => Ok(system::resident(subject.process()).0),
            Part::Theirs(group) => group.resident(),
        }
    }
}

/// A running one; killed when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// What a client sends.
    pub(crate) request: Vec<u8>,
    /// What it gets.
    pub(crate) shape: Shape,
    /// What the client talks to, then what stands behind it.
    parts: Vec<Part>,
    _dir: TempDir,
}

impl Server {
    /// Starts it and takes the first answer.
    pub(crate) fn start(who: Who, model: Model, manner: &Manner, stock: &Stock) -> Result<Server> {
        let dir = TempDir::new();
        let port = Port::free()?;
        let mut parts = Vec::new();
        let mut start = |command: Command, name: &str| -> Result<()> {
            parts.push(Part::Theirs(Group::start(command, dir.path(), name)?));
            Ok(())
        };
        let mut address = port.address;
        match who {
            Who::Bare | Who::Host => {
                let who = if who == Who::Bare { subject::Who::Bare } else { subject::Who::Host };
                let subject = Subject::start(who, manner)?;
                address = subject.address;
                parts.push(Part::Ours(subject));
            }
            Who::Engine => start(engine(&stock.gguf(model)?, manner, &port), "host")?,
            Who::Llama => start(llama(stock, model, manner, &port, dir.path())?, "server")?,
            Who::Dynamo => {
                let [front, mocker] = dynamo(stock, manner, &port, dir.path())?;
                start(front, "frontend")?;
                start(mocker, "mocker")?;
            }
            Who::Smg | Who::Sglang => {
                let upstream = Subject::start(subject::Who::Bare, manner)?;
                start(router(who, stock, upstream.address, &port, dir.path())?, "router")?;
                parts.push(Part::Ours(upstream));
            }
        }
        let name = if who == Who::Host { "mock" } else { "tiny" };
        let request = request(name, manner.tokens, model.extra());
        let (shape, said) = first(address, &request, &mut parts)?;
        judge(model, manner, shape, &said)?;
        let shape = Shape { exact: model != Model::Real, ..shape };
        Ok(Server { address, request, shape, parts, _dir: dir })
    }

    /// Processor time so far: of the part that the client talks to, and of all.
    pub(crate) fn cpu(&self) -> Result<[Duration; 2]> {
        let times = self.parts.iter().map(Part::cpu).collect::<Result<Vec<_>>>()?;
        Ok([times[0], times.iter().sum()])
    }

    /// Resident memory in KiB, of the same two.
    pub(crate) fn resident(&self) -> Result<[f64; 2]> {
        let sizes = self.parts.iter().map(Part::resident).collect::<Result<Vec<_>>>()?;
        Ok([sizes[0], sizes.iter().sum()])
    }
}

/// The first whole answer, and what it looks like.
fn first(address: SocketAddr, request: &[u8], parts: &mut [Part]) -> Result<(Shape, String)> {
    let until = Instant::now() + PATIENCE;
    loop {
        let refused = match probe::ask(address, request, until) {
            Ok(found) => return Ok(found),
            Err(refused) => refused,
        };
        for part in &mut *parts {
            if let Part::Theirs(group) = part {
                group.check()?;
            }
        }
        if Instant::now() > until {
            return Err(refused).with_context(|| format!("no whole answer within {PATIENCE:?}"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// A figure a token needs an event a token; and on the same file all must say the same.
fn judge(model: Model, manner: &Manner, shape: Shape, said: &str) -> Result<()> {
    let asked = u64::from(manner.tokens);
    // A real text may have a character of two tokens.
    let least = if model == Model::Real { asked - asked / 10 } else { asked };
    let counted = (least..=asked).contains(&shape.tokens);
    ensure!(counted, "{} events with text for {asked} tokens: {said:?}", shape.tokens);
    let expected = tiny::SAID.repeat(manner.tokens as usize);
    ensure!(model != Model::Tiny || said == expected, "the tiny model should not say {said:?}");
    Ok(())
}

/// A port that was free a moment ago. Nobody else asks for ports here while the bench runs.
struct Port {
    address: SocketAddr,
}

impl Port {
    fn free() -> Result<Port> {
        Ok(Port { address: TcpListener::bind("127.0.0.1:0")?.local_addr()? })
    }

    fn text(&self) -> String {
        self.address.port().to_string()
    }
}

fn engine(model: &Path, manner: &Manner, port: &Port) -> Command {
    let streams = manner.streams.to_string();
    let mut command = Command::new(setup::host_program());
    command.env_clear().args(["--api", &port.address.to_string(), "--log-format", "json", "--cb"]);
    command.arg("--plugin").arg(setup::plugin("ov_genai")).arg("--model").arg(model);
    command.args(["--served-model-name", "tiny", "--max-concurrent", &streams]);
    command.args(["--plugin-opt", &format!("ov-genai.cb-max-num-seqs={streams}")]);
    command.args(["--plugin-opt", &format!("ov-genai.properties=INFERENCE_NUM_THREADS={THREADS}")]);
    command
}

fn llama(stock: &Stock, model: Model, manner: &Manner, port: &Port, home: &Path) -> Result<Command> {
    let mut command = stock.python("llama.cpp", home)?;
    command.args(["-c", LLAMA]).arg(stock.gguf(model)?);
    command.args([&manner.streams.to_string(), &ROOM.to_string(), THREADS, &port.text()]);
    Ok(command)
}

fn dynamo(stock: &Stock, manner: &Manner, port: &Port, home: &Path) -> Result<[Command; 2]> {
    let part = |module: &str| -> Result<Command> {
        let mut command = stock.python("dynamo", home)?;
        command.args(["-m", module, "--discovery-backend", "file", "--request-plane", "tcp"]);
        command.args(["--event-plane", "zmq"]);
        command.env("DYN_FILE_KV", home.join("discovery")).env("DYN_LOG", "warn").env("HF_HUB_OFFLINE", "1");
        Ok(command)
    };
    let mut front = part("dynamo.frontend")?;
    front.args(["--http-host", "127.0.0.1", "--http-port", &port.text()]);
    let mut mocker = part("dynamo.mocker")?;
    mocker.args(["--model-name", "tiny", "--speedup-ratio", "1000000"]);
    mocker.args(["--max-num-seqs", &manner.streams.max(16).to_string()]);
    mocker.arg("--model-path").arg(stock.dir.path().join("tiny"));
    Ok([front, mocker])
}

fn router(who: Who, stock: &Stock, to: SocketAddr, port: &Port, home: &Path) -> Result<Command> {
    let (package, words): (_, &[&str]) = match who {
        Who::Smg => ("smg", &["-m", "smg", "launch"]),
        _ => ("sglang-router", &["-m", "sglang_router.launch_router"]),
    };
    let mut command = stock.python(package, home)?;
    command.args(words).args(["--host", "127.0.0.1", "--port", &port.text(), "--log-level", "warn"]);
    command.args(["--worker-urls", &format!("http://{to}"), "--policy", "round_robin"]);
    command.args(["--prometheus-host", "127.0.0.1", "--prometheus-port", &Port::free()?.text()]);
    Ok(command)
}
