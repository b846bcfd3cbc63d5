//! One crate, one door: certain names stand in certain places of the host only; pure modules name no outside world.

use super::Finding;
use super::policy::Policy;
use super::source::{Mention, Module};

pub(super) fn check(policy: &Policy, modules: &[Module]) -> Vec<Finding> {
    let mut found = Vec::new();
    for module in modules {
        for door in &policy.doors {
            if door.places.iter().any(|place| is_in(module, place)) {
                continue;
            }
            for (line, name) in named(module, &door.names) {
                let text =
                    format!("{name} is used in {} only; ask them for what you need", door.places.join(", "));
                found.push(Finding::breach(&module.file, line, text));
            }
        }
        for pure in &policy.pure {
            let inside = pure.modules.iter().any(|place| is_in(module, place));
            if !inside || pure.except.iter().any(|place| is_in(module, place)) {
                continue;
            }
            for (line, name) in named(module, &pure.names) {
                let text =
                    format!("{} is pure and must not name {name}; let the caller pass it", module.path[0]);
                found.push(Finding::breach(&module.file, line, text));
            }
        }
    }
    found
}

/// "prompt" is prompt.rs and prompt/*; "prompt/template" is prompt/template.rs and below.
fn is_in(module: &Module, place: &str) -> bool {
    let own = module.path.join("/");
    own == place || own.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'))
}

fn named<'a>(module: &'a Module, names: &'a [String]) -> impl Iterator<Item = (usize, &'a str)> {
    names.iter().flat_map(|name| {
        let lines: Vec<usize> = if name == "unsafe" {
            module.unsafes.clone()
        } else {
            module
                .mentions
                .iter()
                .filter(|mention: &&Mention| mention.is_below(name))
                .map(|m| m.line)
                .collect()
        };
        lines.into_iter().map(move |line| (line, name.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::Text;
    use super::*;
    use std::path::Path;

    fn findings(name: &str, text: &str) -> Vec<String> {
        let policy = Policy::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidy.toml")).unwrap();
        let texts = [Text { name: format!("host/src/{name}"), text: text.to_owned() }];
        let found = check(&policy, &Module::all("host/src", &texts));
        found.into_iter().map(|one| format!("{} {}", one.line, one.text)).collect()
    }

    #[test]
    fn each_door_is_closed_elsewhere_and_open_in_its_place() {
        for (text, open, closed) in [
            ("use clap::Parser;", "cli.rs", "app.rs"),
            ("use hyper::Request;", "api/routes.rs", "sched.rs"),
            ("use http_body_util::Full;", "http/stream.rs", "telemetry.rs"),
            ("use prometheus::Registry;", "telemetry/registry.rs", "sched/admit.rs"),
            ("use minijinja::Environment;", "prompt/template.rs", "prompt/detok.rs"),
            ("use tokenizers::Tokenizer;", "prompt/tokenizer.rs", "generate.rs"),
            ("use libloading::Library;", "plugins/load.rs", "models.rs"),
            ("fn f() { unsafe { g() } }", "plugins/handle.rs", "app.rs"),
            ("fn f() { std::env::args() }", "main.rs", "config/schema.rs"),
            ("use std::{env, fs};", "config/env.rs", "config.rs"),
        ] {
            assert_eq!(findings(open, text), [""; 0], "{text} in {open}");
            assert_eq!(findings(closed, text).len(), 1, "{text} in {closed}");
        }
    }

    #[test]
    fn pure_modules_name_no_clock_file_or_runtime() {
        let text = "use std::time::{Duration, Instant};\nuse std::fs;\nuse tokio::sync::mpsc;";
        let found = findings("generate/stop.rs", text);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|one| one.contains("generate is pure")));
        assert_eq!(findings("prompt/source.rs", "use std::fs;"), [""; 0]);
        assert_eq!(findings("sched.rs", text), [""; 0]);
    }
}
