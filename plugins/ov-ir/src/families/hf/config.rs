//! Reads the keys of a configuration; a key of the wrong type is an error and not a default.

use std::path::Path;

use serde_json::Value;

use crate::error::Error;
use crate::families::MAX_SIZE;

/// A configuration, or the text part of one.
pub(super) struct Config<'a> {
    /// Its file, for messages.
    pub(super) path: &'a Path,
    pub(super) json: &'a Value,
}

impl<'a> Config<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(Value::as_str)
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).and_then(Value::as_bool)
    }

    pub(super) fn missing(&self, key: &str) -> Error {
        Error::damaged(self.path, format!("has no usable {key}; take the config.json of the original model"))
    }

    pub(super) fn number(&self, key: &str, limit: u64) -> Result<Option<u64>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().filter(|n| *n <= limit) {
            Some(n) => Ok(Some(n)),
            None => Err(Error::damaged(
                self.path,
                format!(
                    "{key} is {value}, no whole number up to {limit}; take the config.json of the original model"
                ),
            )),
        }
    }

    pub(super) fn optional(&self, key: &str) -> Result<Option<usize>, Error> {
        Ok(self.number(key, MAX_SIZE)?.map(|n| n as usize))
    }

    pub(super) fn size(&self, key: &str) -> Result<usize, Error> {
        self.optional(key)?.filter(|n| *n > 0).ok_or_else(|| self.missing(key))
    }

    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64().filter(|x| x.is_finite()) {
            Some(x) => Ok(Some(x)),
            None => Err(Error::damaged(
                self.path,
                format!("{key} is {value}, no finite number; take the config.json of the original model"),
            )),
        }
    }

    /// The rope parameters of a kind of layer, or of all layers.
    pub(super) fn rope_object(&self, kind: &str) -> Option<&'a Value> {
        let all = self.get("rope_parameters")?;
        match all.get(kind) {
            Some(own) => Some(own),
            None if all.get("rope_type").is_some() || all.get("rope_theta").is_some() => Some(all),
            None => None,
        }
    }

    pub(super) fn rope_parameter(&self, key: &str) -> Option<f64> {
        self.get("rope_parameters")?.get(key)?.as_f64()
    }
}
