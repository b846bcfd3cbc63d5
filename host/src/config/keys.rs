//! What is said of a key besides its value: meaning, kind of value, whether it reloads.
//!
//! `schema.rs` declares each key once, in a [`section!`]; `table.rs` makes one table of them. A key without a doc comment, or without the word that says when it takes effect, does
//! not compile.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::units::{Size, Span};

/// When a changed value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// With SIGHUP.
    Live,
    /// With the next start.
    Restart,
}

impl Reload {
    /// The word in documents.
    pub fn name(self) -> &'static str {
        match self {
            Reload::Live => "reload",
            Reload::Restart => "restart",
        }
    }
}

/// What kind of value a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A whole number that is not negative.
    Integer,
    /// A duration with its unit.
    Duration,
    /// A size with its unit.
    Size,
    /// A file or folder.
    Path,
    /// A list of texts.
    Texts,
    /// A list of files or folders.
    Paths,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A table of names with text, number or boolean values.
    Options,
}

impl Kind {
    /// What a reader of the documents is told.
    pub fn describe(self) -> String {
        match self {
            Kind::Text => "text".to_owned(),
            Kind::Boolean => "`true` or `false`".to_owned(),
            Kind::Integer => "whole number".to_owned(),
            Kind::Duration => "duration: `250ms`, `30s`, `5m`, `1h`".to_owned(),
            Kind::Size => "size: `512MiB`, `8GiB`".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::Texts => "list of texts".to_owned(),
            Kind::Paths => "list of paths".to_owned(),
            Kind::Choice(words) => words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(" or "),
            Kind::Options => "table of options".to_owned(),
        }
    }

    /// Why a value is not of this kind.
    pub fn refuses(self, value: &toml::Value) -> Option<String> {
        use toml::Value;
        let text = value.as_str();
        let texts = || value.as_array().is_some_and(|all| all.iter().all(Value::is_str));
        match self {
            Kind::Text | Kind::Path => {
                text.is_none().then(|| format!("{value} is not text; put it in quotes"))
            }
            Kind::Boolean => (!value.is_bool()).then(|| format!("{value} is neither true nor false")),
            Kind::Integer => match value.as_integer() {
                Some(n) if n >= 0 => None,
                Some(n) => Some(format!("{n} is negative")),
                None => Some(format!("{value} is not a whole number")),
            },
            Kind::Duration => match text {
                Some(text) => text.parse::<Span>().err(),
                None => {
                    Some(format!("{value} is not a duration; write \"250ms\", \"30s\", \"5m\" or \"1h\""))
                }
            },
            Kind::Size => match text {
                Some(text) => text.parse::<Size>().err(),
                None => Some(format!("{value} is not a size; write \"512MiB\" or \"8GiB\"")),
            },
            Kind::Texts | Kind::Paths => (!texts()).then(|| format!("{value} is not a list of texts")),
            Kind::Choice(words) => {
                let known = text.is_some_and(|text| words.contains(&text));
                (!known).then(|| format!("{value} is none of {}", words.join(", ")))
            }
            Kind::Options => match value.as_table() {
                None => Some(format!("{value} is not a table of options")),
                Some(table) => table.iter().find_map(|(name, value)| {
                    refuses_option(value).map(|problem| format!("{name}: {problem}"))
                }),
            },
        }
    }
}

/// Why a value cannot be an option of a plugin, whichever it is.
pub fn refuses_option(value: &toml::Value) -> Option<String> {
    use toml::Value;
    let scalar = matches!(value, Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_));
    (!scalar).then(|| format!("{value} is neither text nor a number nor a boolean"))
}

/// The kind of value that a type reads.
pub trait Typed {
    /// That kind.
    const KIND: Kind;
}

macro_rules! typed {
    ($($ty:ty = $kind:expr;)*) => { $(impl Typed for $ty { const KIND: Kind = $kind; })* };
}

typed! {
    String = Kind::Text;
    bool = Kind::Boolean;
    u32 = Kind::Integer;
    u64 = Kind::Integer;
    usize = Kind::Integer;
    Span = Kind::Duration;
    Size = Kind::Size;
    PathBuf = Kind::Path;
    Vec<String> = Kind::Texts;
    Vec<PathBuf> = Kind::Paths;
    BTreeMap<String, toml::Value> = Kind::Options;
    crate::telemetry::logs::Format = Kind::Choice(&["text", "json"]);
}

impl<T: Typed> Typed for Option<T> {
    const KIND: Kind = T::KIND;
}

/// A key within its section.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// When a change takes effect.
    pub reload: Reload,
}

/// Declares a section: its struct, its defaults and its rows.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident {
            $($(#[doc = $doc:literal])+ $reload:ident $key:ident: $ty:ty = $default:expr,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $key: $ty,)+
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($key: $default,)+ }
            }
        }

        impl $name {
            /// What the section is about.
            pub const ABOUT: &'static str = concat!($($about),+);

            /// Its keys.
            pub const ROWS: &'static [crate::config::keys::Row] = &[$(crate::config::keys::Row {
                name: stringify!($key),
                doc: concat!($($doc),+),
                kind: <$ty as crate::config::keys::Typed>::KIND,
                reload: crate::config::keys::Reload::$reload,
            }),+];
        }
    };
}
pub(super) use section;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_another_kind_are_refused_with_the_way_out() {
        for (kind, good, bad) in [
            (Kind::Text, "'a'", "1"),
            (Kind::Boolean, "true", "'true'"),
            (Kind::Integer, "0", "-1"),
            (Kind::Integer, "7", "'7'"),
            (Kind::Duration, "'5m'", "5"),
            (Kind::Size, "'8GiB'", "'8GB'"),
            (Kind::Paths, "['/a']", "'/a'"),
            (Kind::Choice(&["text", "json"]), "'json'", "'xml'"),
            (Kind::Options, "{a = 1}", "{a = [1]}"),
        ] {
            let value = |text: &str| {
                let mut table: toml::Table = toml::from_str(&format!("v = {text}")).expect("valid");
                table.remove("v").expect("there")
            };
            assert_eq!(kind.refuses(&value(good)), None, "{kind:?}");
            assert!(kind.refuses(&value(bad)).is_some(), "{kind:?} takes {bad}");
        }
    }
}
