//! `plugin describe`: the manifest for a person, as JSON, or as a JSON Schema of the options.
//!
//! Reads leniently: a plugin that this host refuses is described all the same, with the reason at the end.

use std::fmt::Write;
use std::path::Path;

use cascadia_plugin_api::lock;
use clap::Args;
use serde_json::{Map, Value, json};

use super::{library, say};
use crate::plugins::manifest::{Kind, Manifest, Spec, other_drafts};
use crate::plugins::{load, precheck};

/// What to describe, and how.
#[derive(Args)]
pub(in crate::cli) struct Flags {
    /// The plugin: a path with a /, or a name.
    #[arg(value_name = "LIB")]
    library: String,
    /// Print the manifest as it is.
    #[arg(long, conflicts_with = "schema")]
    json: bool,
    /// Print a JSON Schema of the options.
    #[arg(long)]
    schema: bool,
}

pub(super) fn run(flags: &Flags) -> Result<i32, String> {
    let path = library(&flags.library, &[])?;
    let refused = load::inspect(&path).err();
    let section = precheck::check(&path).map_err(|e| e.to_string())?.0.manifest;
    let Some(section) = section else {
        return Err(refused.map(|e| e.to_string()).unwrap_or_default());
    };
    let unreadable = |e: serde_json::Error| format!("{}: its manifest is not readable: {e}", path.display());
    if flags.json {
        let value: Value = serde_json::from_slice(&section).map_err(unreadable)?;
        say(&serde_json::to_string_pretty(&value).map_err(unreadable)?);
        return Ok(0);
    }
    let manifest: Manifest = serde_json::from_slice(&section).map_err(unreadable)?;
    if flags.schema {
        say(&serde_json::to_string_pretty(&schema(&manifest)).map_err(unreadable)?);
    } else {
        let verdict = match refused {
            None => "this host can load it".to_owned(),
            Some(error) => format!("this host refuses it: {}", error.message),
        };
        say(&text(&manifest, &path, &verdict));
    }
    Ok(0)
}

fn text(m: &Manifest, path: &Path, verdict: &str) -> String {
    let mut out = format!("{} {}\n", m.id, m.version);
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            // Writing to a String cannot fail.
            writeln!(out, "  {name:<12} {value}").unwrap_or_default();
        }
    };
    line("file", &path.display().to_string());
    line("about", &m.about.description);
    line("licence", &m.about.license);
    line("boundary", &format!("{}.{}; {}", m.abi.0, m.abi.1, tables(m)));
    for engine in &m.about.engines {
        line("engine", &format!("{}: {}", engine.name, engine.description));
    }
    line("requires", &m.about.requires.join(", "));
    line("uses", &m.about.uses.join(", "));
    for (name, value) in &m.about.env {
        line("environment", &format!("{name}={value}"));
    }
    line("verdict", verdict);
    if !m.about.options.is_empty() {
        writeln!(out, "\noptions, as --plugin-opt {}.NAME=VALUE", m.id).unwrap_or_default();
        for (name, spec) in &m.about.options {
            writeln!(out, "  {name}  {}", rules(spec)).unwrap_or_default();
            if !spec.description.is_empty() {
                writeln!(out, "      {}", spec.description).unwrap_or_default();
            }
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Whether the tables that both sides know are the same draft.
fn tables(m: &Manifest) -> String {
    let known = lock::hashes().filter(|(name, _)| m.tables.contains_key(*name)).count();
    let differ = other_drafts(m);
    match (known, differ.as_slice()) {
        (0, _) => "it names no table that this host knows".to_owned(),
        (n, []) => format!("all {n} tables match this host's"),
        (n, differ) => format!("{} of {n} tables are another draft: {}", differ.len(), differ.join(", ")),
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Boolean => "boolean",
    }
}

/// Type, default and bounds of an option in words.
fn rules(spec: &Spec) -> String {
    let mut rules = kind(spec.kind).to_owned();
    let mut add = |text: String| {
        rules.push_str(", ");
        rules.push_str(&text);
    };
    if let Some(choices) = &spec.choices {
        let all: Vec<_> = choices.iter().map(ToString::to_string).collect();
        add(format!("one of {}", all.join(" ")));
    }
    match (spec.minimum, spec.maximum) {
        (Some(min), Some(max)) => add(format!("{min} to {max}")),
        (Some(min), None) => add(format!("at least {min}")),
        (None, Some(max)) => add(format!("at most {max}")),
        (None, None) => {}
    }
    match &spec.default {
        Some(default) if !spec.secret => add(format!("default {default}")),
        _ => {}
    }
    if spec.secret {
        add("secret".to_owned());
    }
    rules
}

/// The options as a JSON Schema.
fn schema(m: &Manifest) -> Value {
    let mut properties = Map::new();
    for (name, spec) in &m.about.options {
        let mut rule = Map::new();
        rule.insert("type".into(), kind(spec.kind).into());
        let parts = [
            ("description", (!spec.description.is_empty()).then(|| spec.description.clone().into())),
            ("default", spec.default.clone().filter(|_| !spec.secret)),
            ("enum", spec.choices.clone().map(Value::Array)),
            ("minimum", spec.minimum.map(number)),
            ("maximum", spec.maximum.map(number)),
            ("writeOnly", spec.secret.then_some(Value::Bool(true))),
        ];
        rule.extend(parts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        properties.insert(name.clone(), Value::Object(rule));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("options of {} {}", m.id, m.version),
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

/// A bound; whole numbers without their point.
fn number(n: f64) -> Value {
    if n.fract() == 0.0 && n.abs() < 1e15 { json!(n as i64) } else { json!(n) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(tables: &str) -> Manifest {
        let text = format!(
            r#"{{"manifest":1,"id":"x","version":"1.2.3","abi":[1,0],"tables":{{{tables}}},"about":{{
                "engines":[{{"name":"x","description":"one"}}],"options":{{
                "slots":{{"type":"integer","default":4,"minimum":1,"description":"how many"}},
                "key":{{"type":"string","default":"hush","secret":true}}}}}}}}"#
        );
        serde_json::from_str(&text).expect("valid")
    }

    #[test]
    fn options_become_a_schema_and_secrets_stay_out() {
        let schema = schema(&manifest(""));
        assert_eq!(
            schema["properties"]["slots"],
            json!({"type": "integer", "description": "how many", "default": 4, "minimum": 1})
        );
        assert_eq!(schema["properties"]["key"], json!({"type": "string", "writeOnly": true}));
        assert!(!text(&manifest(""), Path::new("/x"), "").contains("hush"));
    }

    #[test]
    fn another_draft_is_named_by_its_table() {
        let (name, hash) = lock::hashes().next().expect("there are tables");
        assert!(tables(&manifest(&format!("\"{name}\":\"{hash}\""))).contains("all 1 tables match"));
        assert!(tables(&manifest(&format!("\"{name}\":\"0\""))).ends_with(name));
    }
}
