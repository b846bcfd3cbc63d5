//! What a configuration says to plugins, held against the manifests of those whose files are here. Runs none of their code.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

use super::manifest::Manifest;
use super::{find, load, options};
use crate::config::check::told;
use crate::config::env;
use crate::config::sources::{Problems, Reading, Resolved, Sources};

/// The configuration of a start.
///
/// # Errors
/// Everything that is wrong with it. The options of plugins are looked at when something else is wrong: of a configuration that
/// can be read, the start says what it does not like in them.
pub fn resolve(sources: &Sources) -> Result<Resolved, Problems> {
    let mut reading = sources.read();
    if !reading.problems.is_empty() {
        let more = problems(&reading);
        reading.problems.extend(more);
    }
    reading.whole()
}

/// What is wrong with the options of plugins whose files are here. Of the others their own start will tell.
pub fn problems(reading: &Reading) -> Vec<String> {
    let resolved = &reading.resolved;
    let (config, manifests) = (&resolved.config, manifests(resolved));
    let wrong = |plugin: &Manifest, name: &String, value: &Value| {
        let given = BTreeMap::from([(name.clone(), value.clone())]);
        options::check(&plugin.id, &plugin.about.options, &given).err().unwrap_or_default()
    };
    let mut problems = Vec::new();
    for (id, given) in &config.plugin {
        let Some(plugin) = manifests.iter().find(|m| m.id == *id) else { continue };
        for (name, value) in given {
            let place = resolved.origin(&["plugin", id, name]);
            problems.extend(wrong(plugin, name, value).iter().map(|what| told(place, what)));
        }
    }
    // A plugin that could not be read of may be a second one.
    let only = if reading.knows("plugins") && manifests.len() == 1 { manifests.first() } else { None };
    for model in &config.model {
        let plugin = match model.engine.as_deref().map(|engine| engine.split('/').next().unwrap_or_default())
        {
            None => only,
            Some(id) => manifests.iter().find(|m| m.id == id),
        };
        let Some(plugin) = plugin else { continue };
        let mut given = model.options.clone();
        given.extend(model.device.as_deref().map(|device| ("device".to_owned(), device.into())));
        let place = resolved.origin(&["model"]);
        for (name, value) in &given {
            problems.extend(wrong(plugin, name, value).iter().map(|what| told(place, what)));
        }
    }
    // What a manifest itself has wrong is found with each option.
    let mut known = BTreeSet::new();
    problems.retain(|problem| known.insert(problem.clone()));
    problems
}

/// What the plugins that would be loaded say of themselves. What is wrong with one is for `serve` and `doctor` to say.
pub fn manifests(resolved: &Resolved) -> Vec<Manifest> {
    let plugins = &resolved.config.plugins;
    let executable = env::executable().unwrap_or_default();
    let named = plugins.load.iter().filter_map(|name| find::one(name, &plugins.dirs, &executable).ok());
    let lying = plugins.dirs.iter().flat_map(|dir| find::all(dir).unwrap_or_default());
    named.chain(lying).filter_map(|path| Some(load::inspect(&path).ok()?.manifest)).collect()
}
