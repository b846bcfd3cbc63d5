//! `cascadia.adapters/1`: adapters that change the answer in a way that can be seen. There are no weights: the last part
//! of an adapter's path says what it does, `upper` or `lower`.

use std::path::Path;
use std::sync::Arc;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Adapter, AdapterSpec, Adapters, Error, Progress, Result};
use parking_lot::Mutex;

use crate::engine::Mock;
use crate::script::{Item, Script, Token};

/// What an adapter does to the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Letters become capitals.
    Upper,
    /// Letters become small.
    Lower,
}

impl Style {
    fn of(path: &Path) -> Result<Style> {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("upper") => Ok(Style::Upper),
            Some("lower") => Ok(Style::Lower),
            _ => {
                let message = format!("no adapter {}; the mock has upper and lower", path.display());
                Err(Error::new(code::MODEL_NOT_FOUND, message))
            }
        }
    }

    fn byte(self, byte: u8) -> u8 {
        match self {
            Style::Upper => byte.to_ascii_uppercase(),
            Style::Lower => byte.to_ascii_lowercase(),
        }
    }

    /// The id of a byte token in this style; others stay.
    pub(crate) fn id(self, id: u32) -> u32 {
        u8::try_from(id).map_or(id, |byte| u32::from(self.byte(byte)))
    }

    fn token(self, token: &Token) -> Token {
        match &token.bytes {
            Some(bytes) => Token::of(bytes.iter().map(|byte| self.byte(*byte)).collect::<Vec<_>>()),
            None => Token { id: self.id(token.id), bytes: None },
        }
    }

    /// The item in this style.
    pub(crate) fn item(self, item: &Item) -> Item {
        match item {
            Item::Tokens(tokens) => Item::Tokens(tokens.iter().map(|token| self.token(token)).collect()),
            other => other.clone(),
        }
    }

    /// The script in this style.
    pub(crate) fn script(self, script: &Script) -> Script {
        Script(script.0.iter().map(|item| self.item(item)).collect())
    }
}

/// The adapters that are loaded; a task holds the one it has.
#[derive(Debug, Default)]
pub(crate) struct Shelf(Mutex<Vec<(AdapterSpec, Arc<Style>)>>);

impl Shelf {
    /// The adapter of that name; empty = none.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Arc<Style>>> {
        if name.is_empty() {
            return Ok(None);
        }
        let all = self.0.lock();
        match all.iter().find(|(spec, _)| spec.name == name) {
            Some((_, style)) => Ok(Some(Arc::clone(style))),
            None => Err(unknown(name)),
        }
    }
}

fn unknown(name: &str) -> Error {
    Error::new(code::MODEL_NOT_FOUND, format!("no adapter {name} is loaded"))
}

impl Adapters for Mock {
    fn load(&self, adapter: AdapterSpec, progress: &Progress) -> Result<()> {
        let style = Style::of(&adapter.path)?;
        progress.report("adapter", 1, 1)?;
        let mut all = self.shelf.0.lock();
        if adapter.name.is_empty() || all.iter().any(|(spec, _)| spec.name == adapter.name) {
            return Err(Error::config(format!("the adapter name {:?} is empty or in use", adapter.name)));
        }
        all.push((adapter, Arc::new(style)));
        Ok(())
    }

    fn unload(&self, name: &str) -> Result<()> {
        let mut all = self.shelf.0.lock();
        let at = all.iter().position(|(spec, _)| spec.name == name).ok_or_else(|| unknown(name))?;
        all.remove(at);
        Ok(())
    }

    fn list(&self) -> Vec<Adapter> {
        let tasks = |style: &Arc<Style>| u32::try_from(Arc::strong_count(style) - 1).unwrap_or(u32::MAX);
        let all = self.shelf.0.lock();
        all.iter().map(|(spec, style)| Adapter { spec: spec.clone(), rank: 0, tasks: tasks(style) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_what_an_adapter_does_and_a_name_finds_it() {
        assert_eq!(Style::of(Path::new("/models/upper")).unwrap(), Style::Upper);
        let absent = Style::of(Path::new("/models/upper.bin")).unwrap_err();
        assert_eq!(absent.code, code::MODEL_NOT_FOUND);
        let shelf = Shelf::default();
        let spec = AdapterSpec { name: "loud".into(), path: "upper".into(), scale: 1.0 };
        shelf.0.lock().push((spec, Arc::new(Style::Upper)));
        assert_eq!(shelf.find("loud").unwrap().as_deref(), Some(&Style::Upper));
        assert_eq!(shelf.find("").unwrap(), None);
        assert!(shelf.find("quiet").unwrap_err().message.contains("quiet"));
    }

    #[test]
    fn words_change_and_ids_of_bytes_with_them() {
        let items = [Item::Tokens(vec![Token::of("Ab1"), Token { id: 97, bytes: None }]), Item::Delay(3)];
        let changed: Vec<_> = items.iter().map(|item| Style::Upper.item(item)).collect();
        let expected = [Item::Tokens(vec![Token::of("AB1"), Token { id: 65, bytes: None }]), Item::Delay(3)];
        assert_eq!(changed, expected);
        assert_eq!((Style::Lower.id(65), Style::Lower.id(40_000)), (97, 40_000));
    }
}
