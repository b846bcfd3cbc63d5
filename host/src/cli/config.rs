//! `cascadia-host config …`: what holds and who said so, what is wrong with a file, and what there is to say.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use toml::Value;

use super::flags::ServeFlags;
use super::{USAGE, complain, say, sources};
use crate::config::setting::{Origin, Setting};
use crate::config::sources::{Resolved, of_file};
use crate::config::{reference, reload, table};
use crate::plugins::configured::{self, manifests};
use crate::plugins::manifest::Manifest;

/// The commands.
#[derive(Subcommand)]
pub(super) enum Command {
    /// Show every key with the value that `serve` would use with these flags.
    Show(Box<Show>),
    /// Say everything that is wrong with configuration files. Exit status 1 if anything is.
    Check {
        /// The files.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a JSON Schema of the configuration.
    Schema,
    /// Print a configuration file to begin with: every key, as a comment.
    Sample,
}

/// What to show.
#[derive(Args)]
pub(super) struct Show {
    #[command(flatten)]
    serve: ServeFlags,
    /// Say who set each value: its default, a file, a variable or a flag.
    #[arg(long)]
    origin: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs a command; answers the exit status.
pub(super) fn run(command: &Command, plugin_options: Vec<Setting>) -> i32 {
    match command {
        Command::Show(flags) => match show(flags, plugin_options) {
            Ok(()) => 0,
            Err(problem) => complain(&problem, USAGE),
        },
        Command::Check { files, json } => check(files, *json),
        Command::Schema => {
            say(&format!("{:#}", reference::schema()));
            0
        }
        Command::Sample => {
            say(reference::sample().trim_end());
            0
        }
    }
}

/// A key as it is shown.
struct Line {
    key: String,
    value: Option<Value>,
    origin: Origin,
}

fn show(flags: &Show, plugin_options: Vec<Setting>) -> Result<(), String> {
    let sources = sources(&flags.serve, plugin_options)?;
    let resolved = configured::resolve(&sources).map_err(|e| e.to_string())?;
    let lines = lines(&resolved, &manifests(&resolved));
    if flags.json {
        let all: Vec<_> = lines
            .iter()
            .map(|l| match flags.origin {
                true => json!({"key": l.key, "value": l.value, "origin": origin(&l.origin)}),
                false => json!({"key": l.key, "value": l.value}),
            })
            .collect();
        say(&format!("{:#}", json!(all)));
        return Ok(());
    }
    let text = |l: &Line| match &l.value {
        Some(value) => format!("{} = {value}", l.key),
        None => format!("# {} is not set", l.key),
    };
    for line in &lines {
        match flags.origin {
            true => say(&format!("{:<44}  # {}", text(line), line.origin)),
            false => say(&text(line)),
        }
    }
    Ok(())
}

fn origin(origin: &Origin) -> serde_json::Value {
    match origin {
        Origin::Default => json!({"source": "default"}),
        Origin::File(path, line) => json!({"source": "file", "file": path, "line": line}),
        Origin::Environment(name) => json!({"source": "environment", "name": name}),
        Origin::Flag(name) => json!({"source": "flag", "name": name}),
    }
}

/// Every key, in the order of the documents; then models and options of plugins, secrets hidden.
fn lines(resolved: &Resolved, manifests: &[Manifest]) -> Vec<Line> {
    let values = reload::table_of(&resolved.config);
    let mut lines = Vec::new();
    for section in table::sections().iter().filter(|s| !s.is_list()) {
        for row in section.rows {
            lines.push(Line {
                key: format!("{}.{}", section.name, row.name),
                value: values.get(section.name).and_then(|s| s.get(row.name)).cloned(),
                origin: resolved.origin(&[section.name, row.name]).clone(),
            });
        }
    }
    for (id, options) in &resolved.config.plugin {
        for (name, value) in options {
            lines.push(Line {
                key: format!("plugin.{id}.{name}"),
                value: Some(shown(value, name, manifests.iter().filter(|m| m.id == *id))),
                origin: resolved.origin(&["plugin", id, name]).clone(),
            });
        }
    }
    for (at, model) in values.get("model").and_then(Value::as_array).into_iter().flatten().enumerate() {
        for (name, value) in model.as_table().into_iter().flatten() {
            let value = match value {
                Value::Table(options) if options.is_empty() => continue,
                Value::Table(options) => {
                    let hide = |(n, v): (&String, &Value)| (n.clone(), shown(v, n, manifests.iter()));
                    Value::Table(options.iter().map(hide).collect())
                }
                other => other.clone(),
            };
            let own = resolved.origin(&["model", name]);
            let origin = if *own == Origin::Default { resolved.origin(&["model"]) } else { own };
            lines.push(Line {
                key: format!("model[{at}].{name}"),
                value: Some(value),
                origin: origin.clone(),
            });
        }
    }
    lines
}

/// An option's value, unless a plugin says that it is secret, or nobody can say.
fn shown<'a>(value: &Value, name: &str, plugins: impl Iterator<Item = &'a Manifest>) -> Value {
    let known: Vec<_> = plugins.filter_map(|m| m.about.options.get(name)).collect();
    match known.is_empty() || known.iter().any(|spec| spec.secret) {
        true => "***".into(),
        false => value.clone(),
    }
}

fn check(files: &[PathBuf], as_json: bool) -> i32 {
    let (mut told, mut wrong) = (Vec::new(), false);
    for path in files {
        if let Err(error) = std::fs::File::open(path) {
            return complain(&format!("{} cannot be read: {error}", path.display()), USAGE);
        }
        let reading = of_file(path);
        let mut problems = reading.problems.clone();
        problems.extend(configured::problems(&reading));
        wrong |= !problems.is_empty();
        if as_json {
            told.push(json!({"file": path, "valid": problems.is_empty(), "problems": problems}));
        } else if problems.is_empty() {
            say(&format!("{}: valid", path.display()));
        } else {
            problems.iter().for_each(|problem| say(problem));
        }
    }
    if as_json {
        say(&format!("{:#}", json!(told)));
    }
    i32::from(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_options_that_nobody_knows_are_not_shown() {
        let text = r#"{"manifest":1,"id":"p","version":"1","abi":[1,0],"tables":{},"about":{"options":
            {"token":{"type":"string","secret":true},"slots":{"type":"integer"}}}}"#;
        let plugin = crate::plugins::manifest::read(text.as_bytes()).expect("valid");
        let show = |name: &str| shown(&"v".into(), name, std::iter::once(&plugin));
        assert_eq!(show("slots").as_str(), Some("v"));
        assert_eq!(show("token").as_str(), Some("***"));
        assert_eq!(show("unheard-of").as_str(), Some("***"));
    }
}
