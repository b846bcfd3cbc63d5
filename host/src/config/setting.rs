//! One value that someone gave, and who.

use std::path::PathBuf;

use toml::Value;

/// Prefix of configuration variables: `CASCADIA__SERVER__LISTEN` is the key `server.listen`. The double underscore
/// keeps clear of `CASCADIA_PORT=tcp://...`, which orchestrators set for a service of that name.
pub const PREFIX: &str = "CASCADIA__";

/// Who gave a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody: it is the default.
    Default,
    /// A file, at this line where it is known.
    File(PathBuf, Option<usize>),
    /// A variable of the environment.
    Environment(String),
    /// A flag, as `--api` or `--set`.
    Flag(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path, None) => write!(f, "file {}", path.display()),
            Origin::File(path, Some(line)) => write!(f, "file {}:{line}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A value for a key.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The key: `["server", "listen"]`. `["model"]` is the whole list, `["model", "*", NAME]` a key of the one model
    /// there is.
    pub path: Vec<String>,
    /// What it is set to.
    pub value: Value,
    /// Who set it.
    pub origin: Origin,
}

impl Setting {
    /// A value that a flag gives.
    pub fn flag(name: &str, path: &[&str], value: Value) -> Setting {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        Setting { path, value, origin: Origin::Flag(name.to_owned()) }
    }

    /// The key as people write it.
    pub fn key(&self) -> String {
        self.path.join(".")
    }
}

/// The variable that stands for a key.
pub fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "__").replace('-', "_").to_ascii_uppercase())
}
