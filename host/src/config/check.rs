//! Finds everything that is wrong with what was given, before anything is made of it: unknown keys, with the one that was
//! meant, and values of another kind.

use toml::{Table, Value};

use super::keys::{Row, refuses_option};
use super::nearest::nearest;
use super::schema::Model;
use super::setting::{Origin, Setting, variable};
use super::table;

/// Everything that is wrong with a setting by itself, one line each.
pub fn problems(setting: &Setting) -> Vec<String> {
    of(setting).iter().map(|what| told(&setting.origin, what)).collect()
}

/// A problem with the place where it can be mended.
pub fn told(origin: &Origin, what: &str) -> String {
    match origin {
        Origin::Default => what.to_owned(),
        Origin::File(path, None) => format!("{}: {what}", path.display()),
        Origin::File(path, Some(line)) => format!("{}:{line}: {what}", path.display()),
        // The variable is named like the key; what is wrong with it names it already where it is unknown.
        Origin::Environment(name) if what.starts_with(name.as_str()) => what.to_owned(),
        Origin::Environment(name) => format!("{name}: {what}"),
        Origin::Flag(name) => format!("{name}: {what}"),
    }
}

fn of(setting: &Setting) -> Vec<String> {
    let parts: Vec<&str> = setting.path.iter().map(String::as_str).collect();
    match parts[..] {
        ["model"] => models(&setting.value),
        ["model", "*", name] => Model::ROWS
            .iter()
            .filter(|row| row.name == name)
            .filter_map(|row| kind(row, "model", &setting.value))
            .collect(),
        ["model", _] => {
            vec!["model is a list; write --model NAME=PATH, or [[model]] in a configuration file".to_owned()]
        }
        ["plugin", id, option] if !id.is_empty() && !option.is_empty() => {
            let problem = refuses_option(&setting.value);
            problem.map(|problem| format!("plugin.{id}.{option}: {problem}")).into_iter().collect()
        }
        ["plugin", id] if meant(setting).is_none() => {
            vec![format!("plugin.{id} is a section, not a value; write its options under [plugin.{id}]")]
        }
        [section, name] if let Some(row) = table::row(section, name) => {
            kind(row, section, &setting.value).into_iter().collect()
        }
        [section] if table::sections().iter().any(|s| s.name == section) || section == "plugin" => {
            vec![format!("{section} is a section, not a value; write its keys under [{section}]")]
        }
        _ => vec![unknown(setting)],
    }
}

fn kind(row: &Row, section: &str, value: &Value) -> Option<String> {
    row.kind.refuses(value).map(|problem| format!("{section}.{}: {problem}", row.name))
}

fn models(value: &Value) -> Vec<String> {
    let Some(list) = value.as_array() else {
        let given = if value.is_table() { "[model]" } else { value.type_str() };
        return vec![format!("model is a list; write [[model]], not {given}")];
    };
    let one = |(at, model): (usize, &Value)| match model.as_table() {
        None => vec![format!("model[{at}] is not a table; write [[model]]")],
        Some(table) => of_model(at, table),
    };
    list.iter().enumerate().flat_map(one).collect()
}

fn of_model(at: usize, table: &Table) -> Vec<String> {
    let each = |(name, value): (&String, &Value)| match model_row(name) {
        Some(row) => row.kind.refuses(value).map(|problem| format!("model[{at}].{name}: {problem}")),
        None => {
            let meant = meant_of_model(name);
            let way = meant.map_or_else(
                || format!("there are {}", names(Model::ROWS)),
                |m| format!("did you mean {m}?"),
            );
            Some(format!("model[{at}].{name} is unknown; {way}"))
        }
    };
    table.iter().filter_map(each).collect()
}

fn model_row(name: &str) -> Option<&'static Row> {
    Model::ROWS.iter().find(|row| row.name == name)
}

fn meant_of_model(name: &str) -> Option<&'static str> {
    nearest(name, Model::ROWS.iter().map(|row| row.name))
}

fn names(rows: &[Row]) -> String {
    rows.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

/// What can be read of a list of models, each in its place; nothing of what is no list.
pub fn readable_models(value: Value) -> Option<Value> {
    let Value::Array(list) = value else { return None };
    let one = |model: Value| match model {
        Value::Table(table) => Value::Table(readable_model(table)),
        _ => Value::Table(Table::new()),
    };
    Some(Value::Array(list.into_iter().map(one).collect()))
}

fn readable_model(mut table: Table) -> Table {
    let reads =
        |name: &str, value: &Value| model_row(name).is_some_and(|row| row.kind.refuses(value).is_none());
    // Whose options these are is not known when the engine is not.
    let stray = |(name, value): (&String, &Value)| {
        !reads(name, value) && (name == "engine" || meant_of_model(name) == Some("engine"))
    };
    let strays = table.iter().any(stray);
    table.retain(|name, value| reads(name, value) && !(strays && ["options", "device"].contains(&name)));
    table
}

/// The key that was meant by one that is unknown. Whose options are wrong, the plugin's own schema says.
pub fn meant(setting: &Setting) -> Option<String> {
    if setting.path.len() > 2 && setting.path[0] == "plugin" {
        return None;
    }
    let mut all = table::paths();
    all.retain(|path| !path.starts_with("model."));
    // The right name in the wrong section is meant more often than a name that looks like it.
    let last = setting.path.last().map(String::as_str).unwrap_or_default();
    let elsewhere = all.iter().find(|path| path.split_once('.').is_some_and(|(_, name)| name == last));
    let key = setting.key();
    elsewhere.map(String::as_str).or_else(|| nearest(&key, all.iter().map(String::as_str))).map(str::to_owned)
}

/// The key is unknown: the nearest one, in the words in which this one was given, or all that could have been meant.
fn unknown(setting: &Setting) -> String {
    let given_as = match &setting.origin {
        Origin::Environment(name) => name.clone(),
        _ => setting.key(),
    };
    let section = setting.path.first().map(String::as_str).unwrap_or_default();
    let own = table::sections().into_iter().find(|s| s.name == section && !s.is_list());
    let sections = || table::sections().map(|s| s.name).join(", ");
    let way = match (&setting.origin, meant(setting), own) {
        (Origin::Environment(_), Some(meant), _) => format!("did you mean {}?", variable(&meant)),
        (_, Some(meant), _) => format!("did you mean {meant}?"),
        (_, None, Some(own)) => format!("in {section} there are {}", names(own.rows)),
        (_, None, None) if section == "plugin" => "an option of a plugin is plugin.ID.OPTION".to_owned(),
        (Origin::Environment(_), None, None) => {
            format!("CASCADIA__SECTION__KEY sets a key of {}, plugin", sections())
        }
        (_, None, None) => format!("there are the sections {}, plugin", sections()),
    };
    format!("{given_as} is unknown; {way}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(path: &str, value: impl Into<Value>, origin: Origin) -> Setting {
        Setting { path: path.split('.').map(str::to_owned).collect(), value: value.into(), origin }
    }

    fn first(setting: Setting) -> String {
        problems(&setting).into_iter().next().unwrap_or_default()
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_one_that_was_meant() {
        let file = || Origin::File("/f.toml".into(), Some(3));
        let set = || Origin::Flag("--set".to_owned());
        let variable = |name: &str| Origin::Environment(name.to_owned());
        for (setting, expected) in [
            (
                given("server.lissten", "x", file()),
                "/f.toml:3: server.lissten is unknown; did you mean server.listen?",
            ),
            (
                given("srever.listen", "x", set()),
                "--set: srever.listen is unknown; did you mean server.listen?",
            ),
            (
                given("server.max_queued", 1, set()),
                "--set: server.max_queued is unknown; did you mean limits.max_queued?",
            ),
            (
                given("server.listn", "x", variable("CASCADIA__SERVER__LISTN")),
                "CASCADIA__SERVER__LISTN is unknown; did you mean CASCADIA__SERVER__LISTEN?",
            ),
        ] {
            assert_eq!(first(setting), expected);
        }
        let far = first(given("wholly.different.matter", 1, set()));
        assert!(far.contains("there are the sections server, limits"), "{far}");
    }

    #[test]
    fn an_unknown_key_of_a_section_is_answered_with_the_keys_of_that_section() {
        let told = first(given("server.foo", 1, Origin::File("/f.toml".into(), Some(2))));
        assert!(
            told.starts_with("/f.toml:2: server.foo is unknown; in server there are listen, no_auth,"),
            "{told}"
        );
        assert!(!told.contains("sections") && !told.contains("max_queued"), "{told}");
        let told = first(given("log.foo", 1, Origin::Environment("CASCADIA__LOG__FOO".to_owned())));
        assert_eq!(told, "CASCADIA__LOG__FOO is unknown; in log there are level, format");
        let told = first(given("plugin.mock.slots.more", 1, Origin::Flag("--set".to_owned())));
        assert!(told.ends_with("is unknown; an option of a plugin is plugin.ID.OPTION"), "{told}");
    }

    #[test]
    fn models_are_checked_key_by_key() {
        let table: Table =
            toml::from_str("[[model]]\nnmae = 'a'\npath = 1\n[[model]]\noptions = {slots = [1]}")
                .expect("valid");
        let all = problems(&given("model", table["model"].clone(), Origin::Default));
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].contains("model[0].nmae is unknown; did you mean name?"), "{all:?}");
        assert!(all[1].contains("model[0].path: 1 is not text"), "{all:?}");
        assert!(all[2].contains("model[1].options: slots"), "{all:?}");
    }

    #[test]
    fn a_section_is_no_value() {
        assert!(first(given("server", 5, Origin::Default)).contains("[server]"));
        assert!(first(given("plugin.mock", 5, Origin::Default)).contains("[plugin.mock]"));
        let flag = first(given("model.name", "a", Origin::Flag("--set".to_owned())));
        assert!(flag.starts_with("--set: model is a list; write --model NAME=PATH"), "{flag}");
    }
}
