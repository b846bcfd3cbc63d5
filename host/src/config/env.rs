//! The only place that reads or sets the process's environment.
#![expect(clippy::disallowed_methods, reason = "this is the place the ban points to")]

use toml::{Table, Value};

/// Prefix of configuration variables: `CASCADIA__SERVER__LISTEN` is the key `server.listen`. The double underscore
/// keeps clear of `CASCADIA_PORT=tcp://...`, which orchestrators set for a service of that name.
pub const PREFIX: &str = "CASCADIA__";

/// Whether a variable is set and not empty.
pub fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|v| !v.is_empty())
}

/// Whether a variable has that value.
pub fn is(name: &str, value: &str) -> bool {
    std::env::var_os(name).is_some_and(|v| v == value)
}

/// The command line; what is not UTF-8 in it is marked and will be refused where it is used.
pub fn arguments() -> Vec<String> {
    std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// Where the host may keep what outlives a run: what the service manager gave, or the user's own place for state.
pub fn state_folder() -> Option<std::path::PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(std::path::PathBuf::from);
    let given = set("STATE_DIRECTORY").and_then(|dirs| std::env::split_paths(&dirs).next());
    let users = || set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    given.or_else(|| Some(users()?.join("cascadia-host"))).filter(|folder| folder.is_absolute())
}

/// The file of the running program.
pub fn executable() -> std::io::Result<std::path::PathBuf> {
    std::env::current_exe()
}

/// The configuration variables as a table; values are read as TOML where they are valid TOML, else as text.
pub fn table() -> Table {
    from_pairs(std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))))
}

fn from_pairs(pairs: impl Iterator<Item = (String, String)>) -> Table {
    let mut root = Table::new();
    for (name, value) in pairs {
        if let Some(path) = name.strip_prefix(PREFIX) {
            let parts: Vec<_> = path.split("__").map(str::to_ascii_lowercase).collect();
            insert(&mut root, &parts, scalar(&value));
        }
    }
    root
}

/// `8080` is a number, `true` a boolean, `["a"]` a list, everything else text.
pub fn scalar(text: &str) -> Value {
    match toml::from_str::<Table>(&format!("v = {text}")) {
        Ok(mut table) => table.remove("v").unwrap_or_else(|| Value::String(text.to_owned())),
        Err(_) => Value::String(text.to_owned()),
    }
}

/// Puts a value at a path, making tables on the way. A scalar in the way is replaced.
pub fn insert(table: &mut Table, path: &[String], value: Value) {
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

/// Sets a variable for a plugin.
///
/// # Errors
/// The name, when it is none that can be set.
pub fn set_before_threads(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
        return Err(format!("{name:?} is not a variable that can be set"));
    }
    #[expect(unsafe_code, reason = "the environment may only change while the process has one thread")]
    // SAFETY: `main` calls this before it starts the runtime or any other thread.
    unsafe {
        std::env::set_var(name, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_becomes_the_key_of_its_path() {
        let pairs = [
            ("CASCADIA__SERVER__LISTEN", ":9000"),
            ("CASCADIA__LIMITS__MAX_CONCURRENT", "4"),
            ("HOME", "/x"),
        ];
        let table = from_pairs(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let expected: Table =
            toml::from_str("server.listen = ':9000'\nlimits.max_concurrent = 4").expect("valid");
        assert_eq!(table, expected);
    }
}
