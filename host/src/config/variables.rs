//! Variables of the environment as settings, and values that were given as text.

use toml::{Table, Value};

use super::keys::Kind;
use super::setting::{Origin, PREFIX, Setting};
use super::{env, table};

/// What the configuration variables say.
pub fn settings() -> Vec<Setting> {
    from_pairs(env::variables())
}

fn from_pairs(pairs: impl Iterator<Item = (String, String)>) -> Vec<Setting> {
    let read = |(name, text): (String, String)| {
        let mut path: Vec<_> = name.strip_prefix(PREFIX)?.split("__").map(str::to_ascii_lowercase).collect();
        if path[0] == "plugin" {
            // Ids and options are written with -, which a shell does not take in a name.
            path.iter_mut().for_each(|part| *part = part.replace('_', "-"));
        }
        let value = read(&path, &text);
        Some(Setting { path, value, origin: Origin::Environment(name) })
    };
    let mut all: Vec<_> = pairs.filter_map(read).collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// A value given as text for a key: what the key takes as text is left as it is; a list may be written `a,b`; the rest is
/// read as TOML where it is valid TOML, else it is text.
pub fn read(path: &[String], text: &str) -> Value {
    let kind = match path {
        [section, name] => table::row(section, name).map(|row| row.kind),
        // The plugin's own schema says what it means.
        [first, _, _] if first == "plugin" => Some(Kind::Text),
        _ => None,
    };
    match kind {
        Some(Kind::Text | Kind::Path | Kind::Duration | Kind::Size | Kind::Choice(_)) => text.into(),
        Some(Kind::Texts | Kind::Paths) if !text.trim_start().starts_with('[') => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Value::Array(parts.map(Value::from).collect())
        }
        _ => scalar(text),
    }
}

/// `8080` is a number, `true` a boolean, `["a"]` a list, everything else text.
fn scalar(text: &str) -> Value {
    match toml::from_str::<Table>(&format!("v = {text}")) {
        Ok(mut table) => table.remove("v").unwrap_or_else(|| Value::String(text.to_owned())),
        Err(_) => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_becomes_the_key_of_its_path() {
        let pairs = [
            ("CASCADIA__SERVER__LISTEN", ":9000"),
            ("CASCADIA__LIMITS__MAX_CONCURRENT", "4"),
            ("CASCADIA__PLUGINS__ISOLATE", "a, b"),
            ("CASCADIA__PLUGIN__OV_GENAI__CB_CACHE_SIZE", "4"),
            ("HOME", "/x"),
        ];
        let settings = from_pairs(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let read: Vec<_> = settings.iter().map(|s| format!("{} = {}", s.key(), s.value)).collect();
        let expected = [
            "limits.max_concurrent = 4",
            "plugin.ov-genai.cb-cache-size = \"4\"",
            "plugins.isolate = [\"a\", \"b\"]",
            "server.listen = \":9000\"",
        ];
        assert_eq!(read, expected);
        assert_eq!(settings[3].origin.to_string(), "environment CASCADIA__SERVER__LISTEN");
    }
}
