//! `cargo xtask serve`: builds, starts the host with a small real model, asks it one question, and stays with it.
//!
//! Holds: the host never outlives us unseen: Ctrl-C reaches both, we wait for the host's drain and end with its
//! status; a SIGTERM to us is handed on. Knows the host's flags and HTTP answers, nothing else of it.

mod ask;
mod signal;

use crate::compile::{self, Profile};
use crate::fetch::{self, Artefact};
use crate::place::Place;
use crate::proc;
use anyhow::{Context, Result, bail, ensure};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

const QUESTION: &str = "What is the capital of France?";
const LISTEN: &str = "127.0.0.1:8000";
/// A cold disk and two cores load the small model in seconds; a user's own model may take minutes.
const READY: Duration = Duration::from_secs(600);
const STOP: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn serve(place: &Place, once: bool, words: &[String]) -> Result<ExitCode> {
    let arguments = arguments(place, words);
    let address = address(&listen(words))?;
    let mut wanted = vec![Artefact::Openvino];
    if arguments.iter().any(|word| *word == place.gguf().display().to_string()) {
        wanted.push(Artefact::Model);
    }
    fetch::need(place, &wanted)?;
    compile::all(place, Profile::Release)?;
    // Else a stranger's answers would pass for our host's.
    ensure!(!ask::listens(&address), "something already listens on {address}; stop it or add -- --api :PORT");

    let mut command = Command::new(Profile::Release.folder(place).join("cascadia-host"));
    command.args(arguments);
    signal::catch();
    let child = command.spawn().map_err(|error| proc::missing(&command, error))?;
    let mut host = Host { child };
    match converse(&mut host, &address)? {
        Some(status) => ended(status),
        None if once => {
            host.signal("TERM")?;
            let status = host.wait_until(Instant::now() + STOP)?;
            let status =
                status.with_context(|| format!("the host did not stop within {STOP:?} of SIGTERM"))?;
            ended(status)
        }
        None => {
            println!("Serving on http://{address} until Ctrl-C.");
            ended(host.wait()?)
        }
    }
}

/// Waits for the host, asks and prints. Returns the host's status if it ended first.
fn converse(host: &mut Host, address: &str) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + READY;
    loop {
        if let Some(status) = host.poll()? {
            return Ok(Some(status));
        }
        if ask::is_ready(address) {
            break;
        }
        if Instant::now() > deadline {
            bail!(
                "http://{address}/readyz was not 200 within {READY:?}; the host's log above says what it waits for"
            );
        }
        std::thread::sleep(PAUSE);
    }
    let model = ask::first_model(address)?;
    let answer = ask::chat(address, &model, QUESTION)?;
    println!("\nQ: {QUESTION}\nA: {answer}\n\nGo on with:\n{}\n", ask::curl(address, &model));
    Ok(None)
}

fn ended(status: ExitStatus) -> Result<ExitCode> {
    match status.code() {
        Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        None => bail!("the host ended with {status}"),
    }
}

/// The child, killed if we leave by an error before it ended.
struct Host {
    child: Child,
}

impl Host {
    fn poll(&mut self) -> Result<Option<ExitStatus>> {
        if let Some(name) = signal::to_hand_on() {
            self.signal(name)?;
        }
        self.child.try_wait().context("wait for the host")
    }

    fn wait(&mut self) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.poll()? {
                return Ok(status);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn wait_until(&mut self, deadline: Instant) -> Result<Option<ExitStatus>> {
        while Instant::now() < deadline {
            if let Some(status) = self.poll()? {
                return Ok(Some(status));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(None)
    }

    fn signal(&self, name: &str) -> Result<()> {
        proc::run(Command::new("sh").args([
            "-c",
            "kill -s \"$0\" \"$1\"",
            name,
            &self.child.id().to_string(),
        ]))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Nothing is left to do about a child that cannot be killed; the error that brought us here is reported.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// Our own flags, unless the user gave theirs, followed by the user's words.
fn arguments(place: &Place, words: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    if value(words, "--config").is_none() {
        if value(words, "--plugin").is_none() {
            all.extend(["--plugin".to_owned(), "libov_genai.so".to_owned()]);
            if value(words, "--model").is_none() && value(words, "--profile").is_none() {
                // A model as small as ours says one thing or another by the rounding of the default precision.
                all.extend(["--plugin-opt".to_owned(), "ov-genai.profile=exact".to_owned()]);
            }
        }
        if value(words, "--model").is_none() {
            all.extend(["--model".to_owned(), place.gguf().display().to_string()]);
            if value(words, "--served-model-name").is_none() {
                all.extend(["--served-model-name".to_owned(), "smollm2".to_owned()]);
            }
        }
    }
    all.extend_from_slice(words);
    all
}

/// Where the host will listen, as far as the command line and the environment say.
fn listen(words: &[String]) -> String {
    let set =
        words.iter().rev().find_map(|word| word.split_once("server.listen=").map(|(_, address)| address));
    let told = set.or_else(|| value(words, "--api")).map(str::to_owned);
    told.or_else(|| proc::environment("CASCADIA__SERVER__LISTEN")).unwrap_or_else(|| LISTEN.to_owned())
}

/// The last value of a flag, written `--flag value` or `--flag=value`.
fn value<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    let mut found = None;
    for (at, word) in words.iter().enumerate() {
        if word == flag {
            found = Some(words.get(at + 1).map_or("", String::as_str));
        } else if let Some(rest) = word.strip_prefix(flag).and_then(|rest| rest.strip_prefix('=')) {
            found = Some(rest);
        }
    }
    found
}

/// Where to reach a host that listens on `listen`: a wildcard is reached on loopback, a bare port too.
fn address(listen: &str) -> Result<String> {
    let (host, port) = listen.rsplit_once(':').unwrap_or(("", listen));
    match port.parse::<u16>() {
        Err(_) => bail!("--api {listen} names no port; write HOST:PORT or :PORT"),
        Ok(0) => bail!("--api {listen} lets the system choose a port, which serve cannot know; name one"),
        Ok(_) => {}
    }
    Ok(match host {
        "" | "0.0.0.0" => format!("127.0.0.1:{port}"),
        "[::]" => format!("[::1]:{port}"),
        host => format!("{host}:{port}"),
    })
}

#[cfg(test)]
mod tests;
