//! Options as the host hands them over: texts that it has checked against the manifest's types and ranges.

use cascadia_plugin_api::sdk::{Error, Result};

/// `true` or `false`.
///
/// # Errors
/// It is neither.
pub fn flag(key: &str, value: &str) -> Result<bool> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(Error::config(format!("{key} is {other:?}, which is neither true nor false"))),
    }
}

/// A number of any type.
///
/// # Errors
/// It is none, or not in the type's range.
pub fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T> {
    value
        .parse()
        .map_err(|_| Error::config(format!("{key} is {value:?}, which is not a number in its range")))
}

/// Device properties: `KEY=VALUE`, separated by semicolons.
///
/// # Errors
/// An entry has no key or no value.
pub fn properties(text: &str) -> Result<Vec<(String, String)>> {
    let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| match entry.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(Error::config(format!(
                "properties has {entry:?}; write KEY=VALUE, separated by semicolons"
            ))),
        })
        .collect()
}
