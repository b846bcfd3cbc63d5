//! `cascadia-host model …`: asks a running host for its models, over its admin routes; compiles and checks model files.

pub(super) mod client;
mod files;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{USAGE, complain, say};
use crate::config::units::Span;
use client::{Answer, Host};

/// The commands.
#[derive(Subcommand)]
pub(super) enum Command {
    /// List the models of a running host and how each stands.
    List(At),
    /// Load a model into a running host.
    Load(Box<Load>),
    /// Let a model of a running host go: it takes no new requests and closes when those it has are over.
    Unload(Unload),
    /// Compile a GGUF file or a folder with safetensors to OpenVINO's format. Needs no OpenVINO.
    Compile(files::Compile),
    /// Say what a model file, a folder with safetensors or a compiled model is.
    Inspect(files::Inspect),
    /// Compare all files of a compiled model with the digests in its manifest.
    Verify(files::Verify),
}

/// Which host, and how to answer.
#[derive(Args)]
pub(super) struct At {
    /// Where the host listens; https:// where it speaks TLS.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    host: String,
    /// File with the administrator's key, when the host asks for one; its first line that is no comment.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// PEM file with the certificates to trust for https://, instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl At {
    fn key(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.key_file else { return Ok(None) };
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|e| format!("--key-file {shown} cannot be read: {e}"))?;
        let mut keys = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        match keys.find(|key| !key.is_empty()) {
            Some(key) if key.bytes().all(|b| b.is_ascii_graphic()) => Ok(Some(key.to_owned())),
            _ => Err(format!("--key-file {shown} has no key")),
        }
    }
}

/// How long to wait for the end.
#[derive(Args)]
pub(super) struct Wait {
    /// Wait until it is done.
    #[arg(long)]
    wait: bool,
    /// How long to wait at most.
    #[arg(long, value_name = "TIME", default_value = "5m", requires = "wait")]
    timeout: Span,
}

/// What to load.
#[derive(Args)]
pub(super) struct Load {
    /// Name that clients will use.
    #[arg(value_name = "NAME")]
    name: String,
    /// File or folder, as the host sees it; some engines need none.
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Engine, when the host's plugins bring several: PLUGIN or PLUGIN/ENGINE.
    #[arg(long, value_name = "ID")]
    engine: Option<String>,
    /// Device for the engine, as the engine names it.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Option of the engine for this model. Repeatable.
    #[arg(long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    at: At,
}

/// What to let go.
#[derive(Args)]
pub(super) struct Unload {
    /// Name of the model.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    at: At,
}

/// An answer is due at once, but the host may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

impl Wait {
    fn query(&self) -> String {
        if self.wait { format!("?wait=true&timeout={}", self.timeout) } else { String::new() }
    }

    /// A little more than the host waits, so that its own words are heard.
    fn patience(&self) -> Duration {
        if self.wait { self.timeout.0 + PATIENCE } else { PATIENCE }
    }
}

/// Runs a command; answers the exit status.
pub(super) fn run(command: &Command) -> i32 {
    match command {
        Command::List(at) => ask(at, "GET", "/admin/v1/models", None, PATIENCE, table),
        Command::Load(load) => match body(load) {
            Err(problem) => complain(&problem, USAGE),
            Ok(body) => {
                let path = format!("/admin/v1/models{}", load.wait.query());
                ask(&load.at, "POST", &path, Some(&body), load.wait.patience(), line)
            }
        },
        Command::Unload(unload) => {
            let path = format!("/admin/v1/models/{}{}", encode(&unload.name), unload.wait.query());
            ask(&unload.at, "DELETE", &path, None, unload.wait.patience(), line)
        }
        Command::Compile(flags) => files::compile(flags),
        Command::Inspect(flags) => files::inspect(flags),
        Command::Verify(flags) => files::verify(flags),
    }
}

fn body(load: &Load) -> Result<Value, String> {
    let mut options = BTreeMap::new();
    for text in &load.options {
        let (key, value) =
            text.split_once('=').ok_or_else(|| format!("--option {text:?} is not KEY=VALUE"))?;
        options.insert(key, value);
    }
    let mut body = Map::from_iter([("name".to_owned(), json!(load.name))]);
    for (key, value) in [("path", &load.path), ("engine", &load.engine), ("device", &load.device)] {
        if let Some(value) = value {
            body.insert(key.to_owned(), json!(value));
        }
    }
    if !options.is_empty() {
        body.insert("options".to_owned(), json!(options));
    }
    Ok(Value::Object(body))
}

fn ask(
    at: &At,
    method: &str,
    path: &str,
    body: Option<&Value>,
    patience: Duration,
    show: fn(&Value) -> String,
) -> i32 {
    let host = match Host::parse(&at.host) {
        Ok(host) => host,
        Err(problem) => return complain(&problem, USAGE),
    };
    let key = match at.key() {
        Ok(key) => key,
        Err(problem) => return complain(&problem, USAGE),
    };
    let Answer { status, body } =
        match host.ask(method, path, key.as_deref(), body, at.ca.as_deref(), patience) {
            Ok(answer) => answer,
            Err(problem) => return complain(&problem, 1),
        };
    if at.json {
        say(&format!("{body:#}"));
    } else if (200..300).contains(&status) {
        say(&show(&body));
    } else {
        let words = body["error"]["message"].as_str().unwrap_or("and gave no reason");
        return complain(&format!("the host refused with status {status}: {words}"), 1);
    }
    i32::from(!(200..300).contains(&status))
}

fn line(model: &Value) -> String {
    let text = |key: &str| model[key].as_str().unwrap_or_default();
    let name = if text("name").is_empty() { "(no name yet)" } else { text("name") };
    let reason = if text("reason").is_empty() { String::new() } else { format!("  {}", text("reason")) };
    let rest: Vec<_> = ["engine", "device", "path"].map(text).into_iter().filter(|t| !t.is_empty()).collect();
    format!("{name}  {}  {}{reason}", text("state"), rest.join("  ")).trim_end().to_owned()
}

fn table(body: &Value) -> String {
    let models = body["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    match models {
        [] => "no models".to_owned(),
        some => some.iter().map(line).collect::<Vec<_>>().join("\n"),
    }
}

/// Percent-encodes what a path may not hold.
fn encode(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_slashes_stay_one_part_of_the_path() {
        assert_eq!(encode("org/model-7b.Q4_K"), "org%2Fmodel-7b.Q4_K");
    }

    #[test]
    fn a_model_is_a_line() {
        let model =
            json!({"name": "a", "state": "failed", "reason": "no file", "engine": "p/e", "path": null});
        assert_eq!(line(&model), "a  failed  p/e  no file");
        assert_eq!(table(&json!({"models": []})), "no models");
    }
}
