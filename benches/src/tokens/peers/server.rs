//! Who is compared, and one of them running.
//!
//! Holds: [`Server::start`] returns a server that has given one whole answer to the very request that will be measured, or
//! says in time why not.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cascadia_tests::TempDir;

use super::group::Group;
use super::launch::{Port, Stock, dynamo, engine, llama, router};
use super::{probe, tiny};
use crate::generator::{Shape, request};
use crate::subject::{self, Manner, Subject};
use crate::system;

/// How long a start and the first answer may take together. Python's packages are read from a cold disk in it.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

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
            Who::Engine => start(engine(stock, model, manner, &port)?, "host")?,
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
        let name = match who {
            Who::Host => "mock",
            // It has no model of that name; what a worker without a name for its model serves is called so.
            Who::Smg => "unknown",
            _ => "tiny",
        };
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
        if Instant::now() + PAUSE > until {
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
