//! `cascadia-host doctor`: whether `serve` with the same flags would come up here, and what to do where not.
//!
//! What must hold: nothing is changed, no model is served, and a plugin's code runs in a child process only.

mod devices;
mod machine;
mod models;
mod probe;

use clap::Args;
use serde_json::{Value, json};

use super::flags::ServeFlags;
use super::{colour, say, sources};
use crate::config::Config;
use crate::config::setting::Setting;
use crate::config::sources::Problems;
use crate::fleet::probe::Depth;
use crate::plugins::configured;

/// What to look at.
#[derive(Args)]
pub(super) struct Flags {
    #[command(flatten)]
    serve: ServeFlags,
    /// Build and warm each model's engine too, in a process of its own: as much time and memory as a start takes.
    #[arg(long)]
    build: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Try the engine of this model and say what came of it; the command starts itself with it.
    #[arg(long, hide = true, value_name = "NAME")]
    probe: Option<String>,
    /// With --probe: tell the devices and stop there.
    #[arg(long, hide = true, requires = "probe")]
    probe_devices: bool,
}

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One line of the answer.
#[derive(Debug)]
struct Line {
    subject: String,
    verdict: Verdict,
    /// What was found.
    found: String,
    /// What to do about it.
    way_out: Option<String>,
    /// A host runs where this one would: a start fails as long as it does, and comes up in its place.
    beside: bool,
}

impl Line {
    fn ok(subject: impl Into<String>, found: impl Into<String>) -> Line {
        Line {
            subject: subject.into(),
            verdict: Verdict::Ok,
            found: found.into(),
            way_out: None,
            beside: false,
        }
    }

    fn warn(subject: impl Into<String>, found: impl Into<String>, way_out: impl Into<String>) -> Line {
        Line { verdict: Verdict::Warn, way_out: Some(way_out.into()), ..Line::ok(subject, found) }
    }

    fn fail(subject: impl Into<String>, found: impl Into<String>, way_out: impl Into<String>) -> Line {
        Line { verdict: Verdict::Fail, ..Line::warn(subject, found, way_out) }
    }

    /// A failure whose text says the way out itself, as all errors here do.
    fn fault(subject: impl Into<String>, error: impl Into<String>) -> Line {
        Line { verdict: Verdict::Fail, way_out: None, ..Line::ok(subject, error) }
    }
}

/// Runs the command; answers the exit status.
pub(super) fn run(flags: &Flags, plugin_options: Vec<Setting>) -> i32 {
    let sources = match sources(&flags.serve, plugin_options) {
        Ok(sources) => sources,
        Err(problem) => return super::complain(&problem, super::USAGE),
    };
    let resolved = match configured::resolve(&sources) {
        Ok(resolved) => resolved,
        Err(Problems(all)) => {
            let lines = all.into_iter().map(|problem| Line::fault("configuration", problem)).collect();
            return print(lines, flags.json);
        }
    };
    let config = resolved.config;
    if let Some(name) = &flags.probe {
        let depth = match (flags.probe_devices, flags.build) {
            (true, _) => Depth::Devices,
            (false, true) => Depth::Whole,
            (false, false) => Depth::Runtime,
        };
        return probe::child(&config, name, depth);
    }
    let mut lines = vec![Line::ok("configuration", described(&config, sources.file.as_deref()))];
    lines.extend(machine::lines(&config, sources.file.as_deref()));
    lines.extend(models::lines(&config, flags.build));
    print(lines, flags.json)
}

fn described(config: &Config, file: Option<&std::path::Path>) -> String {
    let from = file.map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    format!("valid ({from}; {} models)", config.model.len())
}

fn print(lines: Vec<Line>, as_json: bool) -> i32 {
    let count = |verdict: Verdict| lines.iter().filter(|line| line.verdict == verdict).count();
    let (warned, failed) = (count(Verdict::Warn), count(Verdict::Fail));
    let beside = lines.iter().any(|line| line.beside);
    if as_json {
        let checks: Vec<Value> = lines.iter().map(object).collect();
        say(&format!(
            "{:#}",
            json!({"ok": failed == 0, "beside_running_host": beside, "warnings": warned, "failures": failed,
                   "checks": checks})
        ));
    } else {
        for line in &lines {
            say(&text(line));
        }
        say(&verdict(failed, warned, beside));
    }
    // Most who look have a host running there, and mean to put this one in its place: that alone is no failure.
    i32::from(failed > 0)
}

fn verdict(failed: usize, warned: usize, beside: bool) -> String {
    match (failed, warned) {
        (0, 0) => "all is well".to_owned(),
        (0, n) if beside => format!(
            "the address is taken by a running host: a start with these flags fails until that one is stopped or another \
             --api is given; nothing else is in its way; warnings: {n}"
        ),
        (0, n) => format!("it will serve; warnings: {n}"),
        (n, _) => format!("it will not serve as asked; failures: {n}"),
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "fail",
    }
}

fn object(line: &Line) -> Value {
    json!({"subject": line.subject, "verdict": word(line.verdict), "found": line.found, "way_out": line.way_out})
}

fn text(line: &Line) -> String {
    let ansi = match line.verdict {
        Verdict::Ok => "32",
        Verdict::Warn => "33",
        Verdict::Fail => "31",
    };
    let way_out = line.way_out.as_ref().map(|way| format!("; {way}")).unwrap_or_default();
    let verdict = format!("{:<4}", word(line.verdict));
    format!("{}  {}: {}{way_out}", colour(&verdict, ansi), line.subject, line.found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_ends_with_status_1_and_a_warning_does_not() {
        let ok = || Line::ok("a", "there");
        assert_eq!(print(vec![ok(), Line::warn("b", "small", "raise it")], true), 0);
        assert_eq!(print(vec![ok(), Line::fault("c", "gone")], true), 1);
    }

    #[test]
    fn beside_a_running_host_nobody_is_told_that_it_will_serve() {
        assert_eq!(verdict(0, 0, false), "all is well");
        assert!(verdict(0, 1, false).starts_with("it will serve"));
        assert!(verdict(1, 1, true).starts_with("it will not serve as asked"));
        let beside = verdict(0, 1, true);
        assert!(
            beside.contains("fails until that one is stopped") && !beside.contains("will serve"),
            "{beside}"
        );
        let line = Line { beside: true, ..Line::warn("address", "a host answers", "stop it") };
        assert_eq!(print(vec![line], true), 0);
    }

    #[test]
    fn a_line_says_what_was_found_and_the_way_out() {
        // Tests do not write to a terminal, so there is no colour.
        assert_eq!(text(&Line::warn("files", "few", "raise it")), "warn  files: few; raise it");
        assert_eq!(object(&Line::ok("a", "b"))["way_out"], Value::Null);
    }
}
