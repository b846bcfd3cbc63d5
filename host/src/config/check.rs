//! Finds everything that is wrong with what was given, before anything is made of it: unknown keys, with the one that was
//! meant, and values of another kind.

use toml::{Table, Value};

use super::keys::{Row, refuses_option};
use super::nearest::nearest;
use super::schema::Model;
use super::setting::{Origin, Setting, variable};
use super::table;

/// Everything that is wrong with these settings, one line each.
pub fn problems(settings: &[Setting]) -> Vec<String> {
    settings
        .iter()
        .flat_map(|setting| of(setting).into_iter().map(|what| told(&setting.origin, &what)))
        .collect()
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
        ["plugin", id, option] if !id.is_empty() && !option.is_empty() => {
            let problem = refuses_option(&setting.value);
            problem.map(|problem| format!("plugin.{id}.{option}: {problem}")).into_iter().collect()
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
        return vec![format!("model is a list; write [[model]], not {}", value.type_str())];
    };
    let one = |(at, model): (usize, &Value)| match model.as_table() {
        None => vec![format!("model[{at}] is not a table; write [[model]]")],
        Some(table) => of_model(at, table),
    };
    list.iter().enumerate().flat_map(one).collect()
}

fn of_model(at: usize, table: &Table) -> Vec<String> {
    let each = |(name, value): (&String, &Value)| match Model::ROWS.iter().find(|row| row.name == name) {
        Some(row) => row.kind.refuses(value).map(|problem| format!("model[{at}].{name}: {problem}")),
        None => {
            let meant = nearest(name, Model::ROWS.iter().map(|row| row.name));
            let all = || Model::ROWS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ");
            let way = meant.map_or_else(|| format!("there are {}", all()), |m| format!("did you mean {m}?"));
            Some(format!("model[{at}].{name} is unknown; {way}"))
        }
    };
    table.iter().filter_map(each).collect()
}

/// The key is unknown: the nearest one, in the words in which this one was given.
fn unknown(setting: &Setting) -> String {
    let key = setting.key();
    let mut all = table::paths();
    all.retain(|path| !path.starts_with("model."));
    // The right name in the wrong section is meant more often than a name that looks like it.
    let last = setting.path.last().map(String::as_str).unwrap_or_default();
    let elsewhere = all.iter().find(|path| path.split_once('.').is_some_and(|(_, name)| name == last));
    let meant = elsewhere.map(String::as_str).or_else(|| nearest(&key, all.iter().map(String::as_str)));
    let sections = || table::sections().map(|s| s.name).join(", ");
    match (&setting.origin, meant) {
        (Origin::Environment(name), Some(meant)) => {
            format!("{name} is unknown; did you mean {}?", variable(meant))
        }
        (Origin::Environment(name), None) => {
            format!("{name} is unknown; CASCADIA__SECTION__KEY sets a key of {}, plugin", sections())
        }
        (_, Some(meant)) => format!("{key} is unknown; did you mean {meant}?"),
        (_, None) => format!("{key} is unknown; there are the sections {}, plugin", sections()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(path: &str, value: impl Into<Value>, origin: Origin) -> Setting {
        Setting { path: path.split('.').map(str::to_owned).collect(), value: value.into(), origin }
    }

    fn first(setting: Setting) -> String {
        problems(&[setting]).into_iter().next().unwrap_or_default()
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
    fn models_are_checked_key_by_key() {
        let table: Table =
            toml::from_str("[[model]]\nnmae = 'a'\npath = 1\n[[model]]\noptions = {slots = [1]}")
                .expect("valid");
        let all = problems(&[given("model", table["model"].clone(), Origin::Default)]);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].contains("model[0].nmae is unknown; did you mean name?"), "{all:?}");
        assert!(all[1].contains("model[0].path: 1 is not text"), "{all:?}");
        assert!(all[2].contains("model[1].options: slots"), "{all:?}");
    }

    #[test]
    fn a_section_is_no_value() {
        assert!(first(given("server", 5, Origin::Default)).contains("[server]"));
        assert!(first(given("plugin.mock", 5, Origin::Default)).contains("plugin.mock is unknown"));
    }
}
