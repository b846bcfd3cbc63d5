//! Every key in one table: the checks, the reference, the JSON Schema and the sample file are made from it.

use super::keys::Row;
use super::schema::{Limits, Log, Model, Plugins, Server};

/// A section of the tree.
#[derive(Debug)]
pub struct Section {
    /// Its name; `model` is a list of such tables.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Its keys.
    pub rows: &'static [Row],
}

impl Section {
    /// Whether it is a list of tables.
    pub fn is_list(&self) -> bool {
        self.name == "model"
    }
}

/// What `plugin.ID.OPTION` is; the options themselves are each plugin's own.
pub const PLUGIN: &str = "Options of each plugin, by its id: `[plugin.ov-genai]`. Checked against the plugin's own \
schema, which `cascadia-host plugin describe` shows. A model whose options changed is built anew beside the one that \
serves.";

/// Every section, in the order of the documents.
pub fn sections() -> [Section; 5] {
    [
        Section { name: "server", about: Server::ABOUT.trim(), rows: Server::ROWS },
        Section { name: "limits", about: Limits::ABOUT.trim(), rows: Limits::ROWS },
        Section { name: "plugins", about: Plugins::ABOUT.trim(), rows: Plugins::ROWS },
        Section { name: "model", about: Model::ABOUT.trim(), rows: Model::ROWS },
        Section { name: "log", about: Log::ABOUT.trim(), rows: Log::ROWS },
    ]
}

/// The row of a key outside of `model` and `plugin`.
pub fn row(section: &str, name: &str) -> Option<&'static Row> {
    let section = sections().into_iter().find(|s| s.name == section && !s.is_list())?;
    section.rows.iter().find(|row| row.name == name)
}

/// Every key as `section.name`; those of a model as `model.name`.
pub fn paths() -> Vec<String> {
    let each =
        |s: Section| s.rows.iter().map(move |row| format!("{}.{}", s.name, row.name)).collect::<Vec<_>>();
    sections().into_iter().flat_map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described_in_a_sentence() {
        for section in sections() {
            for row in section.rows {
                let doc = row.doc.trim();
                assert!(doc.len() > 10 && doc.ends_with('.'), "{}.{}: {doc:?}", section.name, row.name);
            }
        }
    }
}
