//! Where the configuration comes from, and what it adds up to.
//!
//! What must hold: reading it again gives what a restart would get, so that a reload and a restart agree; everything
//! wrong is told at once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml::{Table, Value};

use super::schema::Config;
use super::setting::{Origin, Setting};
use super::{check, file, variables};

/// What stays to be read again: the file, and what the command line said. The environment is asked each time.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file.
    pub file: Option<PathBuf>,
    /// What the flags say.
    pub flags: Vec<Setting>,
}

/// A configuration, and who set each of its keys.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The configuration.
    pub config: Config,
    origins: BTreeMap<Vec<String>, Origin>,
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<String>);

impl std::fmt::Display for Problems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "configuration: {}", self.0.join("; "))
    }
}

impl std::error::Error for Problems {}

impl Resolved {
    /// Who set a key.
    pub fn origin(&self, path: &[&str]) -> &Origin {
        self.origins.iter().find(|(key, _)| *key == path).map_or(&Origin::Default, |(_, origin)| origin)
    }
}

impl Sources {
    /// Reads all of them.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn resolve(&self) -> Result<Resolved, Problems> {
        let mut settings = match &self.file {
            None => Vec::new(),
            Some(path) => file::read(path).map_err(|problem| Problems(vec![problem]))?,
        };
        settings.extend(variables::settings());
        settings.extend(self.flags.iter().cloned());
        merge(settings)
    }
}

/// What settings add up to; later ones win.
///
/// # Errors
/// Everything that is wrong.
pub fn merge(settings: Vec<Setting>) -> Result<Resolved, Problems> {
    let mut problems = check::problems(&settings);
    let mut root = Table::new();
    let mut origins = BTreeMap::new();
    for Setting { path, value, origin } in settings {
        if let [list, any, name] = &path[..]
            && (list.as_str(), any.as_str()) == ("model", "*")
        {
            problems.extend(of_single_model(&mut root, name, value).map(|p| check::told(&origin, &p)));
            origins.insert(vec!["model".to_owned(), name.clone()], origin);
            continue;
        }
        insert(&mut root, &path, value);
        origins.insert(path, origin);
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    // What was checked key by key can be read as a whole; if not, it is told in serde's words.
    let read: Result<Config, toml::de::Error> = Value::Table(root).try_into();
    let config = read.map_err(|e| Problems(vec![e.message().trim().replace('\n', " ")]))?;
    let resolved = Resolved { config, origins };
    let wrong = resolved.config.problems();
    if wrong.is_empty() {
        return Ok(resolved);
    }
    let place = |(key, what): (&str, String)| {
        let path: Vec<_> = key.split('.').collect();
        match resolved.origin(&path) {
            // A flag says what it sets, and the message names the key.
            Origin::Default | Origin::Flag(_) => what,
            origin => check::told(origin, &what),
        }
    };
    Err(Problems(wrong.into_iter().map(place).collect()))
}

/// Sets a key of the one model there is, or makes one.
fn of_single_model(root: &mut Table, name: &str, value: Value) -> Option<String> {
    let models = root.entry("model").or_insert_with(|| Value::Array(Vec::new())).as_array_mut()?;
    if models.is_empty() {
        models.push(Value::Table(Table::new()));
    }
    match models.as_mut_slice() {
        [Value::Table(model)] => {
            model.insert(name.to_owned(), value);
            None
        }
        _ => Some(
            "goes with one model, and there are more; write --model NAME=PATH,engine=ID, or use a configuration file"
                .to_owned(),
        ),
    }
}

/// Puts a value at a path, making tables on the way. A scalar in the way is replaced.
fn insert(table: &mut Table, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => {
            table.insert(last.clone(), value);
        }
        [first, rest @ ..] => {
            let slot = table.entry(first.clone()).or_insert_with(|| Value::Table(Table::new()));
            if !slot.is_table() {
                *slot = Value::Table(Table::new());
            }
            if let Value::Table(inner) = slot {
                insert(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn file(text: &str) -> Vec<Setting> {
        super::file::parse(Path::new("/f.toml"), text).expect("valid")
    }

    fn resolve(text: &str, flags: &[Setting]) -> Result<Resolved, Problems> {
        merge([file(text), flags.to_vec()].concat())
    }

    #[test]
    fn later_settings_win_key_by_key_and_the_winner_is_known() {
        let text = "[server]\nlisten = '127.0.0.1:1'\nmax_body_mb = 4\n[plugin.mock]\nslots = 2";
        let flags = [
            Setting::flag("--api", &["server", "listen"], ":2".into()),
            Setting::flag("--plugin-opt", &["plugin", "mock", "script"], "x".into()),
        ];
        let resolved = resolve(text, &flags).expect("valid");
        assert_eq!(resolved.config.server.listen, ":2");
        assert_eq!(resolved.config.server.max_body_mb, 4);
        assert_eq!(resolved.config.plugin["mock"].len(), 2);
        for (path, origin) in [
            (&["server", "listen"][..], "flag --api"),
            (&["server", "max_body_mb"], "file /f.toml:3"),
            (&["server", "no_auth"], "default"),
            (&["plugin", "mock", "slots"], "file /f.toml:5"),
            (&["plugin", "mock", "script"], "flag --plugin-opt"),
        ] {
            assert_eq!(resolved.origin(path).to_string(), origin, "{path:?}");
        }
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        let text = "[server]\nlissten = 'x'\nmax_body_mb = 'many'\n[limits]\nqueue_timeout = 'soon'\n";
        let Problems(all) = resolve(text, &[]).expect_err("three problems");
        assert_eq!(all.len(), 3, "{all:?}");
        let text = "server.listen = 'nowhere'\nlimits.max_concurrent = 0\nlog.level = 'loud'";
        let Problems(all) = resolve(text, &[]).expect_err("three problems");
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[2].starts_with("/f.toml:2: limits.max_concurrent is 0"), "{all:?}");
    }

    #[test]
    fn values_out_of_bounds_are_refused_by_the_name_of_their_key() {
        for (bad, good) in [
            ("server.listen = '0.0.0.0:80'", "server.listen = '0.0.0.0:80'\nserver.no_auth = true"),
            ("server.max_body_mb = 4097", "server.max_body_mb = 4096"),
            ("server.max_bodies_mb = 63", "server.max_bodies_mb = 64"),
            ("server.max_connections = 0", "server.max_connections = 1"),
            ("server.header_timeout = '0s'", "server.header_timeout = '10ms'"),
            ("server.body_timeout = '9ms'", "server.body_timeout = '1h'"),
            ("limits.max_concurrent = 100001", "limits.max_concurrent = 100000"),
            ("limits.max_queued = 1000001", "limits.max_queued = 0"),
            ("limits.stream_buffer_kb = 0", "limits.stream_buffer_kb = 1"),
            ("limits.slow_client_timeout = '0s'", "limits.slow_client_timeout = '1s'"),
            ("limits.max_unread_mb = 0", "limits.max_unread_mb = 1"),
            ("limits.max_choices = 0", "limits.max_choices = 1"),
            ("limits.stall_timeout = '0s'", "limits.stall_timeout = '1s'"),
            ("plugins.max_generations = 0", "plugins.max_generations = 1"),
            ("log.level = 'loud'", "log.level = 'trace'"),
        ] {
            let key = bad.split(' ').next().unwrap_or_default();
            let Problems(all) = resolve(bad, &[]).expect_err(bad);
            assert!(all.len() == 1 && all[0].contains(key), "{all:?}");
            resolve(good, &[]).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
    }

    #[test]
    fn each_key_refuses_a_value_of_another_kind_by_its_name() {
        for section in super::super::table::sections() {
            for row in section.rows {
                // No key takes a date.
                let open =
                    if section.is_list() { "[[model]]".to_owned() } else { format!("[{}]", section.name) };
                let text = format!("{open}\n{} = 1979-05-27", row.name);
                let Problems(all) = resolve(&text, &[]).expect_err(&text);
                assert!(all.len() == 1 && all[0].contains(&format!(".{}: ", row.name)), "{all:?}");
            }
        }
    }

    #[test]
    fn flags_for_the_model_go_with_one_model_only() {
        let device = [Setting::flag("--device", &["model", "*", "device"], "GPU".into())];
        let one = resolve("[[model]]\npath = '/m'", &device).expect("valid");
        assert_eq!(one.config.model[0].device.as_deref(), Some("GPU"));
        assert_eq!(resolve("", &device).expect("valid").config.model.len(), 1);
        let Problems(two) = resolve("[[model]]\nname='a'\n[[model]]\nname='b'", &device).expect_err("two");
        assert!(two[0].starts_with("--device: goes with one model"), "{two:?}");
    }

    #[test]
    fn two_models_of_one_name_and_odd_names_are_refused() {
        let Problems(all) =
            resolve("[[model]]\nname='a'\n[[model]]\nname='a'\n[[model]]\nname='a b'", &[]).expect_err("bad");
        assert_eq!(all.len(), 2, "{all:?}");
    }
}
