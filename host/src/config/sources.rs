//! Where the configuration comes from, and what it adds up to.
//!
//! What must hold: reading it again gives what a restart would get, so that a reload and a restart agree; everything
//! wrong is told at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

/// What could be read of a configuration, and everything that is wrong with the rest.
#[derive(Debug)]
pub struct Reading {
    /// A value that could not be read is as if nobody had given it.
    pub resolved: Resolved,
    /// One line each.
    pub problems: Vec<String>,
    unread: Unread,
}

/// What was meant to be given and is not known.
#[derive(Debug, Default)]
struct Unread {
    /// A file: any key that nobody else gives may stand there.
    file: bool,
    keys: BTreeSet<String>,
}

impl Reading {
    /// The configuration, when nothing is wrong with it.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn whole(self) -> Result<Resolved, Problems> {
        if self.problems.is_empty() { Ok(self.resolved) } else { Err(Problems(self.problems)) }
    }

    /// Whether every key of a section that was given could be read.
    pub fn knows(&self, section: &str) -> bool {
        let of_section = |key: &String| key.split('.').next() == Some(section);
        !self.unread.file && !self.unread.keys.iter().any(of_section)
    }
}

impl Sources {
    /// Reads all of them.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn resolve(&self) -> Result<Resolved, Problems> {
        self.read().whole()
    }

    /// Reads what can be read of all of them.
    pub fn read(&self) -> Reading {
        let file = self.file.as_ref().map_or_else(|| Ok(Vec::new()), |path| file::read(path));
        let (mut settings, problem) = match file {
            Ok(settings) => (settings, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        settings.extend(variables::settings());
        settings.extend(self.flags.iter().cloned());
        read(settings, problem)
    }
}

/// What a file alone adds up to.
pub fn of_file(path: &Path) -> Reading {
    match file::read(path) {
        Ok(settings) => read(settings, None),
        Err(problem) => read(Vec::new(), Some(problem)),
    }
}

/// What settings add up to; later ones win.
///
/// # Errors
/// Everything that is wrong.
#[cfg(test)]
pub fn merge(settings: Vec<Setting>) -> Result<Resolved, Problems> {
    read(settings, None).whole()
}

/// What can be read of settings; later ones win. `file` is why those of a file are missing.
fn read(settings: Vec<Setting>, file: Option<String>) -> Reading {
    let mut unread = Unread { file: file.is_some(), ..Unread::default() };
    let mut problems = Vec::from_iter(file);
    let mut root = Table::new();
    let mut origins = BTreeMap::new();
    for setting in settings {
        let wrong = check::problems(&setting);
        let (key, refused) = (setting.key(), !wrong.is_empty());
        problems.extend(wrong);
        // What this key says from here on is known, or not at all: what it replaces does not hold either way.
        if refused {
            unread.keys.extend(check::meant(&setting));
            unread.keys.insert(key);
        } else {
            unread.keys.remove(&key);
        }
        let Setting { path, value, origin } = setting;
        let value = match (refused, path.as_slice()) {
            (false, _) => Some(value),
            (true, [list]) if list == "model" => check::readable_models(value),
            (true, _) => None,
        };
        let Some(value) = value else {
            remove(&mut root, &path);
            origins.remove(&path);
            continue;
        };
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
    // What was checked key by key can be read as a whole; if not, it is told in serde's words.
    let config = Value::Table(root).try_into().unwrap_or_else(|e: toml::de::Error| {
        problems.push(e.message().trim().replace('\n', " "));
        Config::default()
    });
    let resolved = Resolved { config, origins };
    let known = |key: &str| match resolved.origin(&key.split('.').collect::<Vec<_>>()) {
        Origin::Default => !unread.file && !unread.keys.contains(key),
        _ => !unread.keys.contains(key),
    };
    let place = |(key, what): (&str, String)| {
        let path: Vec<_> = key.split('.').collect();
        match resolved.origin(&path) {
            // A flag says what it sets, and the message names the key.
            Origin::Default | Origin::Flag(_) => what,
            origin => check::told(origin, &what),
        }
    };
    problems.extend(resolved.config.problems_among(&known).into_iter().map(place));
    Reading { resolved, problems, unread }
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

/// Takes the value at a path away.
fn remove(table: &mut Table, path: &[String]) {
    match path {
        [] => {}
        [last] => drop(table.remove(last)),
        [first, rest @ ..] => {
            if let Some(Value::Table(inner)) = table.get_mut(first) {
                remove(inner, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn values_that_cannot_be_read_hide_nothing_that_is_wrong_with_others() {
        let text = "[server]\ndrain_timeout = '99999h'\nlisten = 'nowhere'\ntls_cert = 'c'\nmax_connections = 0\n\
                    max_body_mb = 0\nheader_timeout = '1ms'\n[limits]\nmax_concurrent = 0\nmax_choices = 0\n\
                    [plugins]\nmax_generations = 5000000000\n[log]\nformat = 'xml'\nlevel = 'loud'\n\
                    [[model]]\nname = 'a'\nnmae = 'b'\n[[model]]\nname = 'a'\n";
        let Problems(all) = resolve(text, &[]).expect_err("wrong");
        for part in [
            "drain_timeout: ",
            "log.format: ",
            "model[0].nmae is unknown",
            "server.listen \"nowhere\"",
            "server.tls_cert and server.tls_key go together",
            "log.level \"loud\"",
            "max_body_mb is 0",
            "max_connections is 0",
            "max_concurrent is 0",
            "max_choices is 0",
            "max_generations is 5000000000; it may be at most 100000",
            "header_timeout is 1ms",
            "two models are named a",
        ] {
            assert!(all.iter().any(|problem| problem.contains(part)), "{part} is missing in {all:#?}");
        }
        assert_eq!(all.len(), 13, "{all:#?}");
    }

    #[test]
    fn what_could_not_be_read_is_not_held_against_what_could() {
        for text in [
            "server.listen = '0.0.0.0:80'\nserver.no_auth = 'yes'",
            "server.listen = '0.0.0.0:80'\nserver.no_auht = true",
            "server.listen = '0.0.0.0:80'\nserver.api_keys = 5",
            "server.tls_cert = 'c'\nserver.tls_key = 5",
            "server.tls_cert = 'c'\nserver.tls_kye = 'k'",
            "server.max_bodies_mb = 10\nserver.max_body_mb = '4'",
            "server.max_bodies_mb = 10\nserver.max_body_mb = 9999",
            "server.max_body_mb = 99999999",
            "limits.max_concurrent = 99999999",
            "server.max_bodies_mb = 0",
            "model = 5",
            "[model]\nname = 'a'\npath = 'b'",
        ] {
            let Problems(all) = resolve(text, &[]).expect_err(text);
            assert_eq!(all.len(), 1, "{text}: {all:#?}");
        }
        // A value that is replaced is no fault of its own, whatever replaces it.
        let flag = [Setting::flag("--set", &["limits", "max_concurrent"], "x".into())];
        let Problems(all) = resolve("limits.max_concurrent = 0", &flag).expect_err("no number");
        assert!(all.len() == 1 && all[0].starts_with("--set: "), "{all:?}");
    }

    #[test]
    fn flags_are_looked_at_although_the_file_cannot_be_read() {
        let flags = vec![
            Setting::flag("--set", &["limits", "max_choices"], 0.into()),
            Setting::flag("--set", &["server", "lissten"], "x".into()),
            // The other half may stand in the file.
            Setting::flag("--tls-cert", &["server", "tls_cert"], "c".into()),
            Setting::flag("--api", &["server", "listen"], "0.0.0.0:80".into()),
        ];
        let reading = Sources { file: Some("/nowhere.toml".into()), flags }.read();
        let all = &reading.problems;
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].starts_with("/nowhere.toml cannot be read"), "{all:?}");
        assert!(!reading.knows("plugins"));
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
