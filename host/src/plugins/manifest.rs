//! Reads a plugin's manifest and decides whether this host can speak with it, before any of its code runs.

use std::collections::BTreeMap;

use cascadia_plugin_api::abi::entry::ABI_MAJOR;
use cascadia_plugin_api::abi::ids;
use cascadia_plugin_api::frozen;
use serde::Deserialize;

/// A plugin's manifest.
#[derive(Debug, Clone, Deserialize)]
pub struct Manifest {
    /// Format; 1.
    pub manifest: u32,
    /// The plugin's id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// Major and minor of the boundary it was built for.
    pub abi: (u32, u32),
    /// Hash of each table it was built with.
    pub tables: BTreeMap<String, String>,
    /// The author's part.
    pub about: About,
}

/// The author's part of a manifest. Unknown keys are for newer hosts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct About {
    /// One line for people.
    pub description: String,
    /// SPDX expression.
    pub license: String,
    /// Engines in the library.
    pub engines: Vec<Engine>,
    /// Host services it cannot do without.
    pub requires: Vec<String>,
    /// Host services it uses where they are.
    pub uses: Vec<String>,
    /// Its options.
    pub options: BTreeMap<String, Spec>,
    /// Variables that must be set before the process has threads.
    pub env: BTreeMap<String, String>,
}

/// One engine of a plugin.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Engine {
    /// Name within the plugin.
    pub name: String,
    /// One line for people.
    pub description: String,
}

/// Type of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Any text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
}

/// One option: a subset of JSON Schema.
#[derive(Debug, Clone, Deserialize)]
pub struct Spec {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// One sentence.
    #[serde(default)]
    pub description: String,
    /// Used when nothing is given; without one the plugin gets nothing.
    #[serde(default)]
    pub default: Option<serde_json::Value>,
    /// The values it may have.
    #[serde(default, rename = "enum")]
    pub choices: Option<Vec<serde_json::Value>>,
    /// Smallest value of a number.
    #[serde(default)]
    pub minimum: Option<f64>,
    /// Largest value of a number.
    #[serde(default)]
    pub maximum: Option<f64>,
    /// Never shown.
    #[serde(default)]
    pub secret: bool,
}

/// Services that this host lends.
pub const SERVICES: &[&str] = &[
    ids::HOST_LOG,
    ids::HOST_METRICS,
    ids::HOST_CLOCK,
    ids::HOST_CANCEL,
    ids::HOST_WAKE,
    ids::HOST_HEARTBEAT,
    ids::HOST_DLOPEN,
    ids::HOST_TRACE,
    ids::HOST_FAULT,
    ids::HOST_TRANSPORT,
];

/// Reads the section's bytes; the answer to `Err` is one line.
pub fn read(bytes: &[u8]) -> Result<Manifest, String> {
    let manifest: Manifest =
        serde_json::from_slice(bytes).map_err(|e| format!("its manifest is not readable: {e}"))?;
    if manifest.manifest != cascadia_plugin_api::manifest::FORMAT {
        return Err(format!("its manifest has format {}, this host reads 1", manifest.manifest));
    }
    let valid = |name: &str| {
        !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    if !valid(&manifest.id) {
        return Err(format!("its id {:?} is not made of a-z, 0-9 and -", manifest.id));
    }
    if let Some(engine) = manifest.about.engines.iter().find(|e| !valid(&e.name)) {
        return Err(format!("its engine {:?} is not made of a-z, 0-9 and -", engine.name));
    }
    compatible(&manifest)?;
    Ok(manifest)
}

/// The tables that both know and that are not the same: drafts, for a frozen table is known by its name alone.
pub fn other_drafts(m: &Manifest) -> Vec<&'static str> {
    frozen::drafts_unlike(|table| m.tables.get(table).cloned())
}

fn compatible(m: &Manifest) -> Result<(), String> {
    if m.abi.0 != ABI_MAJOR {
        return Err(format!("speaks ABI {}.{}, this host speaks {ABI_MAJOR}.x", m.abi.0, m.abi.1));
    }
    if let [table, ..] = other_drafts(m)[..] {
        return Err(format!("was built with another draft of table {table}; rebuild it for this host"));
    }
    match m.about.requires.iter().find(|id| !SERVICES.contains(&id.as_str())) {
        None => Ok(()),
        Some(missing) => {
            let stem = missing.rsplit_once('/').map_or(missing.as_str(), |(stem, _)| stem);
            let near: Vec<_> = SERVICES.iter().filter(|s| s.starts_with(stem)).copied().collect();
            let offer = if near.is_empty() { "nothing of that name".to_owned() } else { near.join(", ") };
            Err(format!("needs host service {missing}, this host offers {offer}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(id: &str, abi: &str, tables: &str, about: &str) -> String {
        format!(
            r#"{{"manifest":1,"id":"{id}","version":"1.0.0","abi":{abi},"tables":{{{tables}}},"about":{about}}}"#
        )
    }

    #[test]
    fn each_incompatibility_is_one_line_that_names_it() {
        let cases = [
            (manifest("x", "[2,0]", "", "{}"), "speaks ABI 2.0, this host speaks 1.x"),
            (
                manifest("x", "[1,0]", r#""cascadia_chunk":"00""#, "{}"),
                "another draft of table cascadia_chunk",
            ),
            (
                manifest("x", "[1,0]", "", r#"{"requires":["cascadia.host.log/2"]}"#),
                "needs host service cascadia.host.log/2, this host offers cascadia.host.log/1",
            ),
            (manifest("../x", "[1,0]", "", "{}"), "its id \"../x\""),
            ("{".to_owned(), "not readable"),
        ];
        for (text, expected) in cases {
            let error = read(text.as_bytes()).expect_err(expected);
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn tables_this_host_does_not_know_are_no_obstacle() {
        read(manifest("x", "[1,9]", r#""cascadia_future":"00""#, "{}").as_bytes()).expect("compatible");
    }
}
