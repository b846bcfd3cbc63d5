//! What becomes of a running host's configuration when it is read again.

use toml::{Table, Value};

use super::keys::Reload;
use super::schema::Config;
use super::table;

/// What a reload does.
#[derive(Debug)]
pub struct Plan {
    /// What holds from now on: the new values of keys that reload, the old ones of the others.
    pub config: Config,
    /// The keys that take effect now.
    pub now: Vec<String>,
    /// The keys that were changed and take effect with the next start.
    pub restart: Vec<String>,
}

/// Compares what holds with what was read.
pub fn plan(old: &Config, new: &Config) -> Plan {
    let (old_table, mut merged) = (table_of(old), table_of(new));
    let (mut now, mut restart) = (Vec::new(), Vec::new());
    for section in table::sections().iter().filter(|s| !s.is_list()) {
        for row in section.rows {
            let was = old_table.get(section.name).and_then(|s| s.get(row.name));
            let is = merged.get(section.name).and_then(|s| s.get(row.name));
            if was == is {
                continue;
            }
            let key = format!("{}.{}", section.name, row.name);
            match row.reload {
                Reload::Live => now.push(key),
                Reload::Restart => {
                    let was = was.cloned();
                    put_back(&mut merged, section.name, row.name, was);
                    restart.push(key);
                }
            }
        }
    }
    if old.plugin != new.plugin {
        now.push("plugin".to_owned());
    }
    if old.model != new.model {
        now.push("model".to_owned());
    }
    // Made of two configurations that were valid, so it reads; the old one holds if not.
    let config = Value::Table(merged).try_into().unwrap_or_else(|_| old.clone());
    Plan { config, now, restart }
}

/// A configuration as a table. Keys that are not set are absent.
pub fn table_of(config: &Config) -> Table {
    Table::try_from(config).unwrap_or_default()
}

fn put_back(table: &mut Table, section: &str, name: &str, value: Option<Value>) {
    let Some(section) = table.get_mut(section).and_then(Value::as_table_mut) else { return };
    match value {
        Some(value) => section.insert(name.to_owned(), value),
        None => section.remove(name),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_need_a_restart_keep_their_values_and_are_named() {
        let old = Config::default();
        let mut new = old.clone();
        new.server.listen = ":9".to_owned();
        new.plugins.cache = Some("/c".into());
        new.limits.max_queued = Some(3);
        new.log.level = "debug".to_owned();
        new.plugin.entry("mock".to_owned()).or_default().insert("slots".to_owned(), 1.into());
        let plan = plan(&old, &new);
        assert_eq!(plan.restart, ["server.listen", "plugins.cache"]);
        assert_eq!(plan.now, ["limits.max_queued", "log.level", "plugin"]);
        assert_eq!(plan.config.server.listen, old.server.listen);
        assert_eq!(plan.config.plugins.cache, None);
        assert_eq!(plan.config.limits.max_queued, Some(3));
        assert_eq!(plan.config.plugin, new.plugin);
    }

    #[test]
    fn a_configuration_survives_its_way_through_a_table() {
        let mut config = Config::default();
        config.limits.max_queued = Some(7);
        config.plugins.isolate_memory = Some(super::super::units::Size(8 << 30));
        config.model.push(super::super::schema::Model { name: Some("a".to_owned()), ..Default::default() });
        let back: Config = Value::Table(table_of(&config)).try_into().expect("valid");
        assert_eq!(back, config);
    }
}
