//! Reads a configuration file into settings that know their lines.

use std::collections::HashMap;
use std::path::Path;

use toml::de::DeTable;
use toml::{Table, Value};

use super::setting::{Origin, Setting};

/// The settings of a file.
///
/// # Errors
/// One line that names the file: it cannot be read, or is not TOML.
pub fn read(path: &Path) -> Result<Vec<Setting>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("{shown} cannot be read: {e}"))?;
    parse(path, &text)
}

/// The settings of a file with this text.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<Setting>, String> {
    let table: Table = toml::from_str(text).map_err(|e| fault(path, text, &e))?;
    let mut lines = HashMap::new();
    if let Ok(spanned) = DeTable::parse(text) {
        note_lines(text, spanned.get_ref(), &[], &mut lines);
    }
    let mut settings = Vec::new();
    flatten(table, &mut Vec::new(), &mut |path_of, value| {
        let origin = Origin::File(path.to_path_buf(), lines.get(path_of).copied());
        settings.push(Setting { path: path_of.to_vec(), value, origin });
    });
    // In the order in which someone reads the file.
    settings.sort_by_key(|setting| lines.get(&setting.path).copied());
    Ok(settings)
}

/// What is wrong in a file with this text, in one line that names it and its line.
pub fn fault(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| format!(":{}", line_of(text, span.start))).unwrap_or_default();
    format!("{}{line}: {}", path.display(), error.message().trim().replace('\n', " "))
}

/// Walks down to what a key holds. The options of a plugin are keys; those of a model belong to its list, also where that was
/// written as one table.
fn flatten(table: Table, at: &mut Vec<String>, found: &mut impl FnMut(&[String], Value)) {
    for (name, value) in table {
        at.push(name);
        let deepest = match at[0].as_str() {
            "plugin" => 3,
            "model" => 1,
            _ => 2,
        };
        match value {
            Value::Table(inner) if at.len() < deepest && !inner.is_empty() => flatten(inner, at, found),
            // An empty section says nothing.
            Value::Table(inner) if at.len() < deepest && inner.is_empty() => {}
            value => found(at, value),
        }
        at.pop();
    }
}

fn note_lines(text: &str, table: &DeTable<'_>, at: &[String], lines: &mut HashMap<Vec<String>, usize>) {
    for (name, value) in table {
        let mut path = at.to_vec();
        path.push(name.get_ref().to_string());
        lines.insert(path.clone(), line_of(text, name.span().start));
        if let toml::de::DeValue::Table(inner) = value.get_ref() {
            note_lines(text, inner, &path, lines);
        }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_know_their_lines() {
        let text = "[server]\nlisten = ':1'\n\n[plugin.mock]\nslots = 2\n[[model]]\nname = 'a'\n";
        let settings = parse(Path::new("/f.toml"), text).expect("valid");
        let told: Vec<_> = settings.iter().map(|s| format!("{} {}", s.key(), s.origin)).collect();
        assert_eq!(
            told,
            ["server.listen file /f.toml:2", "plugin.mock.slots file /f.toml:5", "model file /f.toml:6"]
        );
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        let error = parse(Path::new("/f.toml"), "[server]\nlisten = \n").expect_err("no value");
        assert!(error.starts_with("/f.toml:2: "), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
