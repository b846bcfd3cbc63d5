//! The commands that start each server, as its makers say: quiet, on loopback, with as many threads and as much room as ours
//! has.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use cascadia_tests::{TempDir, setup};

use super::server::{Model, Who};
use super::tiny;
use crate::subject::Manner;

/// Tokens of a prompt and its answer, rounded up: what llama.cpp's server sets aside for each stream.
const ROOM: usize = 128;
/// Started by its package, which has no program: model, streams, threads, port.
pub(crate) const LLAMA: &str = "\
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

/// What was installed, and the files that servers read.
pub(crate) struct Stock {
    /// The interpreter of each environment.
    pub(crate) pythons: BTreeMap<String, PathBuf>,
    /// The real model's file.
    pub(crate) real: Option<PathBuf>,
    /// Threads that a real engine computes with.
    threads: String,
    dir: TempDir,
}

impl Stock {
    /// Writes the tiny model.
    pub(crate) fn new(
        pythons: BTreeMap<String, PathBuf>,
        real: Option<PathBuf>,
        threads: usize,
    ) -> Result<Stock> {
        let dir = TempDir::new();
        tiny::gguf(&dir.path().join("tiny.gguf"))?;
        tiny::folder(&dir.path().join("tiny"))?;
        Ok(Stock { pythons, real, threads: threads.to_string(), dir })
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

/// A port that was free a moment ago. Nobody else asks for ports here while the bench runs.
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
}

impl Port {
    pub(crate) fn free() -> Result<Port> {
        Ok(Port { address: TcpListener::bind("127.0.0.1:0")?.local_addr()? })
    }

    pub(crate) fn text(&self) -> String {
        self.address.port().to_string()
    }
}

pub(super) fn engine(stock: &Stock, model: Model, manner: &Manner, port: &Port) -> Result<Command> {
    let streams = manner.streams.to_string();
    let mut command = Command::new(setup::host_program());
    command.env_clear().args(["--api", &port.address.to_string(), "--log-format", "json", "--cb"]);
    command.arg("--plugin").arg(setup::plugin("ov_genai")).arg("--model").arg(stock.gguf(model)?);
    command.args(["--served-model-name", "tiny", "--max-concurrent", &streams]);
    command.args(["--plugin-opt", &format!("ov-genai.cb-max-num-seqs={streams}")]);
    command.args(["--plugin-opt", &format!("ov-genai.properties=INFERENCE_NUM_THREADS={}", stock.threads)]);
    // Its environment is empty, so it knows no cache folder of its own.
    command.arg("--plugin-opt").arg(format!("ov-genai.cache-dir={}", stock.dir.path().join("ir").display()));
    Ok(command)
}

pub(super) fn llama(
    stock: &Stock,
    model: Model,
    manner: &Manner,
    port: &Port,
    home: &Path,
) -> Result<Command> {
    let mut command = stock.python("llama.cpp", home)?;
    command.args(["-c", LLAMA]).arg(stock.gguf(model)?);
    command.args([&manner.streams.to_string(), &ROOM.to_string(), &stock.threads, &port.text()]);
    Ok(command)
}

pub(super) fn dynamo(stock: &Stock, manner: &Manner, port: &Port, home: &Path) -> Result<[Command; 2]> {
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

pub(super) fn router(who: Who, stock: &Stock, to: SocketAddr, port: &Port, home: &Path) -> Result<Command> {
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
