//! Who is compared, and one of them running.
//!
//! Holds: [`Subject::start`] returns one that has answered once; the time until then is its load time. All compute with as many
//! threads, and have room for as many and as long generations.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cascadia_tests::{TempDir, setup};

use super::library::Library;
use super::steps::Steps;
use super::volley::{self, Events, Volley, request};
use super::words::Prompt;
use crate::peers::group::Group;
use crate::peers::launch::{LLAMA, Port};
use crate::peers::probe;

/// Tokens of the longest prompt and its answer, rounded up: what llama.cpp's server sets aside for each stream.
const ROOM: usize = 1280;
/// The plugins' default, which the library's own process gets too.
const BATCHED: usize = 256;
/// Guesses of a step for each generation, which is the plugin's default too.
const GUESSES: usize = 5;
/// How long a start may take: a model is compiled in the first of them.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(20);
/// One that has used no more of a look's time is at rest.
const REST: f64 = 0.05;
const LOOK: Duration = Duration::from_millis(100);
/// How long it may work on after its last answer.
const AFTERWORK: Duration = Duration::from_secs(20);
const MODEL: &str = "measured";

/// Who.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The host with `--cb`.
    Batch,
    /// The host without it: one generation at a time.
    Single,
    /// The host with our own batching over OpenVINO.
    Runtime,
    /// The same, computing and caching in f32.
    Exact,
    /// That one with guesses out of the text so far.
    Lookup,
    /// That one with the guesses of a second copy of the model: no draft costs more for each guess.
    Draft,
    /// OpenVINO GenAI in process.
    Library,
    /// llama.cpp's server.
    Llama,
}

impl Who {
    /// For people and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Who::Batch => "host --cb",
            Who::Single => "host",
            Who::Runtime => "ov-runtime",
            Who::Exact => "exact",
            Who::Lookup => "exact, lookup",
            Who::Draft => "exact, draft",
            Who::Library => "library in process",
            Who::Llama => "llama.cpp server",
        }
    }

    /// The environment that it needs, as the command that installs it names it.
    pub(crate) fn package(self) -> Option<&'static str> {
        match self {
            Who::Batch | Who::Single | Who::Runtime | Who::Exact | Who::Lookup | Who::Draft => None,
            Who::Library => Some("openvino"),
            Who::Llama => Some("llama.cpp"),
        }
    }

    /// Ours, whose threads have names that say whose they are.
    pub(crate) fn is_host(self) -> bool {
        self.package().is_none()
    }

    /// Whether its engine is our own, which tells of its steps.
    fn is_runtime(self) -> bool {
        matches!(self, Who::Runtime | Who::Exact | Who::Lookup | Who::Draft)
    }

    /// Most tokens of an event: those that one step gives a generation.
    fn together(self) -> usize {
        if matches!(self, Who::Lookup | Who::Draft) { GUESSES + 1 } else { 1 }
    }
}

/// What all are started with.
pub(crate) struct Stock {
    /// The GGUF file.
    pub(crate) model: PathBuf,
    /// Where the plugin keeps what it compiles of it. The library opens that.
    pub(crate) cache: PathBuf,
    pub(crate) threads: usize,
    /// Most generations at once.
    pub(crate) width: fn(Who) -> usize,
    /// The interpreter of each environment.
    pub(crate) pythons: BTreeMap<String, PathBuf>,
}

impl Stock {
    fn host(&self, who: Who, port: &Port) -> Command {
        let mut command = Command::new(setup::host_program());
        command.env_clear().args(["--api", &port.address.to_string(), "--log-format", "json"]);
        let (library, engine) =
            if who.is_runtime() { ("ov_runtime", "ov-runtime") } else { ("ov_genai", "ov-genai") };
        let width = (self.width)(who);
        command.arg("--plugin").arg(setup::plugin(library)).arg("--model").arg(&self.model);
        command.args(["--served-model-name", MODEL]);
        if who == Who::Batch {
            command.arg("--cb");
        }
        if who != Who::Single {
            command.args(["--max-concurrent", &width.to_string()]);
        }
        let mut options = vec![
            format!("cb-max-num-seqs={width}"),
            format!("cb-max-batched-tokens={BATCHED}"),
            format!("cache-dir={}", self.cache.display()),
            format!("properties=INFERENCE_NUM_THREADS={}", self.threads),
        ];
        options.extend(self.more(who));
        command.args(options.iter().flat_map(|o| ["--plugin-opt".to_owned(), format!("{engine}.{o}")]));
        command
    }

    /// What our own engine is told beside that.
    fn more(&self, who: Who) -> Vec<String> {
        let guesses = match who {
            Who::Exact => return vec!["profile=exact".to_owned()],
            Who::Lookup => "cb-prompt-lookup=true".to_owned(),
            Who::Draft => format!("draft-model={}", self.model.display()),
            _ => return Vec::new(),
        };
        vec!["profile=exact".to_owned(), guesses, format!("num-assistant-tokens={GUESSES}")]
    }

    /// The folder that the plugin compiled.
    fn compiled(&self) -> Result<PathBuf> {
        let entries = fs::read_dir(&self.cache).with_context(|| format!("list {}", self.cache.display()))?;
        let folders = entries.flatten().map(|entry| entry.path());
        let mut found = folders.filter(|path| path.join("openvino_model.xml").is_file());
        found.next().context("the plugin has compiled no model; the host must run before the library")
    }

    fn python(&self, who: Who, home: &Path) -> Result<Command> {
        let python = who.package().and_then(|package| self.pythons.get(package));
        let mut command = Command::new(python.context("it is not installed")?);
        command.env_clear().env("HOME", home).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        Ok(command)
    }
}

/// How it is talked to.
enum Talk {
    /// With so many events before the first token.
    Http(SocketAddr, u64),
    Pipe(Library),
}

/// A running one; killed when dropped.
pub(crate) struct Subject {
    pub(crate) who: Who,
    pub(crate) group: Group,
    talk: Talk,
    /// From the start of its process to the end of its first answer, of one token.
    pub(crate) load: Duration,
    _dir: TempDir,
}

impl Subject {
    /// Starts it and takes the first answer.
    pub(crate) fn start(who: Who, stock: &Stock, prompt: &Prompt) -> Result<Subject> {
        let (dir, port, begun) = (TempDir::new(), Port::free()?, Instant::now());
        let (mut group, talk) = match who {
            Who::Batch | Who::Single | Who::Runtime | Who::Exact | Who::Lookup | Who::Draft => {
                (Group::start(stock.host(who, &port), dir.path(), "host")?, Talk::Http(port.address, 0))
            }
            Who::Llama => {
                let mut command = stock.python(who, dir.path())?;
                command.args(["-c", LLAMA]).arg(&stock.model);
                let (streams, threads) = ((stock.width)(who).to_string(), stock.threads.to_string());
                command.args([&streams, &ROOM.to_string(), &threads, &port.text()]);
                (Group::start(command, dir.path(), "server")?, Talk::Http(port.address, 0))
            }
            Who::Library => {
                let mut command = stock.python(who, dir.path())?;
                command.args(["-c", Library::SCRIPT]).arg(stock.compiled()?);
                command.args([stock.threads, (stock.width)(who), BATCHED].map(|n| n.to_string()));
                let (group, input, output) = Group::talk(command, dir.path(), "library")?;
                (group, Talk::Pipe(Library::new(input, output)?))
            }
        };
        let until = begun + PATIENCE;
        let talk = match talk {
            Talk::Http(address, _) => Talk::Http(address, first(address, prompt, until, &mut group)?),
            Talk::Pipe(mut library) => {
                let opened =
                    library.open(PATIENCE).and_then(|()| library.fly(std::slice::from_ref(prompt), 1));
                if let Err(error) = opened {
                    group.check()?;
                    return Err(error);
                }
                Talk::Pipe(library)
            }
        };
        Ok(Subject { who, group, talk, load: begun.elapsed(), _dir: dir })
    }

    /// All prompts at once, so many tokens each.
    pub(crate) fn fly(&mut self, prompts: &[Prompt], tokens: usize) -> Result<Volley> {
        match &mut self.talk {
            Talk::Http(address, before) => {
                let requests: Vec<_> = prompts.iter().map(|prompt| request(MODEL, prompt, tokens)).collect();
                let events = Events { before: *before, together: self.who.together() };
                volley::fly(*address, &requests, events, tokens)
            }
            Talk::Pipe(library) => library.fly(prompts, tokens),
        }
    }

    /// What the engine has told of its steps so far, if it does.
    pub(crate) fn steps(&self) -> Result<Option<Steps>> {
        match self.talk {
            Talk::Http(address, _) if self.who.is_runtime() => Steps::of(address).map(Some),
            _ => Ok(None),
        }
    }

    /// Waits until it computes no more. A server may work on behind its last answer, and would then take the processor
    /// from whoever is next.
    pub(crate) fn rest(&self) -> Result<()> {
        let until = Instant::now() + AFTERWORK;
        loop {
            let before = self.group.cpu()?;
            std::thread::sleep(LOOK);
            let used = self.group.cpu()?.saturating_sub(before);
            if used.as_secs_f64() < REST * LOOK.as_secs_f64() {
                return Ok(());
            }
            ensure!(Instant::now() < until, "it still computes {AFTERWORK:?} after its last answer");
        }
    }

    /// Asks for one token and compares the prompt's length with what the server counted.
    pub(crate) fn counts(&self, prompt: &Prompt) -> Result<()> {
        let Talk::Http(address, _) = self.talk else { return Ok(()) };
        let body = probe::fetch(address, &request(MODEL, prompt, 1), Instant::now() + PATIENCE)?;
        let counted = volley::usage(&body, "prompt_tokens")?;
        ensure!(counted == prompt.ids.len() as u64, "{} tokens in a prompt of {counted}", prompt.ids.len());
        Ok(())
    }
}

/// Events before the first token of the first answer, of one token.
fn first(address: SocketAddr, prompt: &Prompt, until: Instant, group: &mut Group) -> Result<u64> {
    let asked = request(MODEL, prompt, 1);
    loop {
        let refused = match probe::fetch(address, &asked, until).and_then(|body| probe::look(&body)) {
            Ok((shape, _)) => return Ok(shape.before),
            Err(refused) => refused,
        };
        group.check()?;
        if Instant::now() + PAUSE > until {
            return Err(refused).with_context(|| format!("no whole answer within {PATIENCE:?}"));
        }
        std::thread::sleep(PAUSE);
    }
}
