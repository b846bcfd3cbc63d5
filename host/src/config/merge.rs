//! Lays one table over another, and turns the result into the configuration.

use toml::{Table, Value};

use super::schema::Config;

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("read configuration {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("configuration {path}: {message}")]
    Syntax {
        /// The file.
        path: String,
        /// Where and why.
        message: String,
    },
    /// A key is unknown or has a value it cannot take.
    #[error("configuration: {0}")]
    Invalid(String),
}

/// Lays `top` over `base`: tables key by key, everything else as a whole.
pub fn overlay(base: &mut Table, top: Table) {
    for (key, value) in top {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(more)) => overlay(inner, more),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Reads a configuration file.
pub fn file(path: &std::path::Path) -> Result<Table, Error> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: shown.clone(), source })?;
    toml::from_str(&text)
        .map_err(|e| Error::Syntax { path: shown, message: e.to_string().trim().replace('\n', " ") })
}

/// The configuration that the layers, lowest first, add up to.
pub fn resolve(layers: impl IntoIterator<Item = Table>) -> Result<Config, Error> {
    let mut merged = Table::new();
    for layer in layers {
        overlay(&mut merged, layer);
    }
    let config: Config = Value::Table(merged)
        .try_into()
        .map_err(|e: toml::de::Error| Error::Invalid(e.to_string().trim().replace('\n', " ")))?;
    let problems = config.problems();
    if problems.is_empty() { Ok(config) } else { Err(Error::Invalid(problems.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        toml::from_str(text).expect("valid")
    }

    #[test]
    fn later_layers_win_key_by_key() {
        let file = table("[server]\nlisten = '127.0.0.1:1'\nmax_body_mb = 4\n[plugin.mock]\nslots = 2");
        let flags = table("[server]\nlisten = ':2'\n[plugin.mock]\nscript = 'x'");
        let config = resolve([file, flags]).expect("valid");
        assert_eq!(config.server.listen, ":2");
        assert_eq!(config.server.max_body_mb, 4);
        assert_eq!(config.plugin["mock"].len(), 2);
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused_by_name() {
        for (text, named) in [
            ("[server]\nlissten = 'x'", "lissten"),
            ("[server]\nlisten = 'nowhere'", "nowhere"),
            ("[limits]\nmax_concurrent = 0", "max_concurrent"),
            ("[limits]\nqueue_timeout = 'soon'", "soon"),
        ] {
            let error = resolve([table(text)]).expect_err(text).to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
