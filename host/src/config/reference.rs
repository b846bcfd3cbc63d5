//! The documents made from [`super::table`]: `docs/CONFIG.md`, the JSON Schema, the sample file.

use std::fmt::Write;

use serde_json::{Map, json};
use toml::Value;

use super::keys::{Kind, Row};
use super::reload::table_of;
use super::schema::Config;
use super::setting::variable;
use super::table::{self, PLUGIN, Section};

const HEAD: &str = "<!-- Made by `cargo xtask gen` from host/src/config/schema.rs; do not edit. -->
# Configuration

A value comes from its default, a file (`--config FILE`, TOML), the environment, or a flag; the later wins.
`cascadia-host config show --origin` tells which. Every key can be a variable (`server.listen` is
`CASCADIA__SERVER__LISTEN`, `plugin.ov-genai.cb` is `CASCADIA__PLUGIN__OV_GENAI__CB`) and a flag
(`--set server.listen=:9000`). `cascadia-host config sample` prints a file to begin with, `config check FILE` says
everything that is wrong with one, `config schema` prints a JSON Schema.

SIGHUP reads file, environment and flags again. Keys marked `reload` then take effect; a change of one marked `restart`
is named in a warning and waits for the next start. A configuration with a fault changes nothing.
";

/// `docs/CONFIG.md`.
pub fn markdown() -> String {
    let mut out = String::from(HEAD);
    let defaults = table_of(&Config::default());
    for section in table::sections() {
        let name =
            if section.is_list() { format!("[[{}]]", section.name) } else { format!("[{}]", section.name) };
        // Writing to a String cannot fail.
        write!(out, "\n## `{name}`\n\n{}\n\n", section.about).unwrap_or_default();
        out.push_str("| key | value | default | takes effect | meaning |\n| --- | --- | --- | --- | --- |\n");
        for row in section.rows {
            let default =
                default(&defaults, &section, row).map_or_else(|| "–".to_owned(), |v| format!("`{v}`"));
            let (kind, effect, doc) = (row.kind.describe(), row.reload.name(), row.doc.trim());
            writeln!(out, "| `{}` | {kind} | {default} | {effect} | {doc} |", row.name).unwrap_or_default();
        }
        if section.is_list() {
            write!(out, "\n## `[plugin.ID]`\n\n{PLUGIN} They `reload`.\n").unwrap_or_default();
        }
    }
    out
}

/// The default of a key, as TOML; none where it is not set.
fn default(defaults: &toml::Table, section: &Section, row: &Row) -> Option<Value> {
    defaults.get(section.name)?.get(row.name).cloned()
}

/// The JSON Schema of the tree.
pub fn schema() -> serde_json::Value {
    let defaults = table_of(&Config::default());
    let mut properties = Map::new();
    for section in table::sections() {
        let rows: Map<_, _> = section
            .rows
            .iter()
            .map(|row| (row.name.to_owned(), property(row, default(&defaults, &section, row))))
            .collect();
        let table = json!({"type": "object", "description": section.about, "properties": rows, "additionalProperties": false});
        let whole = match section.is_list() {
            true => json!({"type": "array", "description": section.about, "items": table}),
            false => table,
        };
        properties.insert(section.name.to_owned(), whole);
        if section.is_list() {
            let options = json!({"type": "object", "additionalProperties": option()});
            properties.insert(
                "plugin".to_owned(),
                json!({"type": "object", "description": PLUGIN, "x-takes-effect": "reload", "additionalProperties": options}),
            );
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of cascadia-host",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

fn option() -> serde_json::Value {
    json!({"type": ["string", "number", "boolean"]})
}

fn property(row: &Row, default: Option<Value>) -> serde_json::Value {
    let mut shape = match row.kind {
        Kind::Text | Kind::Path => json!({"type": "string"}),
        Kind::Boolean => json!({"type": "boolean"}),
        Kind::Integer => json!({"type": "integer", "minimum": 0}),
        Kind::Duration => json!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}),
        Kind::Size => json!({"type": "string", "pattern": "^[0-9]+(KiB|MiB|GiB)$"}),
        Kind::Texts | Kind::Paths => json!({"type": "array", "items": {"type": "string"}}),
        Kind::Choice(words) => json!({"enum": words}),
        Kind::Options => json!({"type": "object", "additionalProperties": option()}),
    };
    shape["description"] = row.doc.trim().into();
    shape["x-takes-effect"] = row.reload.name().into();
    // A table of TOML values is one of JSON too.
    if let Some(default) = default.and_then(|value| serde_json::to_value(value).ok()) {
        shape["default"] = default;
    }
    shape
}

/// A file in which every key stands with its default, as a comment.
pub fn sample() -> String {
    let mut out = String::from(
        "# Configuration of cascadia-host. Every line with a key is a comment: take the # away to set it.\n\
         # (reload) takes effect with SIGHUP, (restart) with the next start.\n",
    );
    let defaults = table_of(&Config::default());
    for section in table::sections() {
        out.push('\n');
        comment(&mut out, section.about);
        let (open, close) = if section.is_list() { ("#[[", "]]") } else { ("[", "]") };
        writeln!(out, "{open}{}{close}", section.name).unwrap_or_default();
        for row in section.rows {
            let value = default(&defaults, &section, row).unwrap_or_else(|| example(&section, row));
            comment(&mut out, &format!("{} ({})", row.doc.trim(), row.reload.name()));
            writeln!(out, "#{} = {value}", row.name).unwrap_or_default();
        }
        if section.is_list() {
            out.push('\n');
            comment(&mut out, PLUGIN);
            out.push_str("#[plugin.mock]\n#token-delay-ms = 20\n");
        }
    }
    writeln!(out, "\n# Each key is a variable too: server.listen is {}.", variable("server.listen"))
        .unwrap_or_default();
    out
}

/// What stands in the sample for a key that has no default.
fn example(section: &Section, row: &Row) -> Value {
    match (section.name, row.name) {
        ("model", "name") => "smollm2".into(),
        ("model", "path") => "/var/lib/cascadia-host/smollm2.gguf".into(),
        ("model", "engine") => "ov-genai".into(),
        ("model", "device") => "CPU".into(),
        ("model", "options") => {
            Value::Table(toml::Table::from_iter([("cb".to_owned(), Value::Boolean(true))]))
        }
        ("server", "max_bodies_mb") => 256.into(),
        ("limits", "max_queued") => 32.into(),
        _ => match row.kind {
            Kind::Size => "64GiB".into(),
            Kind::Path if section.name == "server" => format!("/etc/cascadia-host/{}", row.name).into(),
            Kind::Path => format!("/var/cache/cascadia-host/{}", row.name).into(),
            Kind::Integer => 1.into(),
            _ => "".into(),
        },
    }
}

/// Lines of at most 118 characters.
fn comment(out: &mut String, text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + word.len() > 116 {
            writeln!(out, "#{line}").unwrap_or_default();
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(out, "#{line}").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{file, sources};
    use super::*;

    #[test]
    fn every_key_is_in_every_document() {
        let (document, sample, schema) = (markdown(), sample(), schema());
        for section in table::sections() {
            for row in section.rows {
                let key = format!("{}.{}", section.name, row.name);
                assert!(document.contains(&format!("| `{}` |", row.name)), "{key}");
                assert!(sample.contains(&format!("\n#{} = ", row.name)), "{key}");
                let of = &schema["properties"][section.name];
                let of = if section.is_list() { &of["items"] } else { of };
                let property = &of["properties"][row.name];
                assert_eq!(property["description"], row.doc.trim(), "{key}");
                assert_eq!(property["x-takes-effect"], row.reload.name(), "{key}");
            }
        }
        assert!(schema["properties"]["plugin"]["description"].is_string());
    }

    #[test]
    fn the_schema_covers_exactly_the_tree() {
        let table = table_of(&Config::default());
        let schema = schema();
        let known = schema["properties"].as_object().expect("an object");
        assert_eq!(known.len(), 6);
        for (section, values) in &table {
            for name in values.as_table().into_iter().flat_map(toml::Table::keys) {
                assert!(known[section.as_str()]["properties"].get(name).is_some(), "{section}.{name}");
            }
        }
    }

    #[test]
    fn the_sample_is_the_defaults_and_stays_valid_when_every_line_is_taken() {
        let read = |text: &str| {
            let settings = file::parse(Path::new("/sample.toml"), text).expect("TOML");
            sources::merge(settings).unwrap_or_else(|e| panic!("{e}"))
        };
        assert_eq!(read(&sample()).config, Config::default());
        let taken: Vec<_> = sample()
            .lines()
            .map(|line| {
                line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned()
            })
            .collect();
        let all = read(&taken.join("\n")).config;
        assert_eq!(all.model.len(), 1);
        assert_eq!(all.limits.max_queued, Some(32));
        assert_eq!(all.server.max_connections, Config::default().server.max_connections);
    }
}
