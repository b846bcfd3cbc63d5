//! The only place that reads or sets the process's environment.
#![expect(clippy::disallowed_methods, reason = "this is the place the ban points to")]

use toml::{Table, Value};

use super::keys::{self, Kind};
use super::setting::{Origin, PREFIX, Setting};

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

/// The socket of the service manager that started this process, when it wants to be told.
pub fn notify_socket() -> Option<std::ffi::OsString> {
    std::env::var_os("NOTIFY_SOCKET").filter(|v| !v.is_empty())
}

/// How often the service manager wants a sign of life of this process.
pub fn watchdog() -> Option<std::time::Duration> {
    let number = |name| std::env::var_os(name)?.to_str()?.parse::<u64>().ok();
    let mine = std::env::var_os("WATCHDOG_PID").is_none()
        || number("WATCHDOG_PID") == Some(u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|n| mine && *n > 0).map(std::time::Duration::from_micros)
}

/// What the configuration variables say.
pub fn settings() -> Vec<Setting> {
    from_pairs(std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))))
}

fn from_pairs(pairs: impl Iterator<Item = (String, String)>) -> Vec<Setting> {
    let read = |(name, text): (String, String)| {
        let mut path: Vec<_> = name.strip_prefix(PREFIX)?.split("__").map(str::to_ascii_lowercase).collect();
        if path[0] == "plugin" {
            // Ids and options are written with -, which a shell does not take in a name.
            path.iter_mut().for_each(|part| *part = part.replace('_', "-"));
        }
        let value = read(&path, &text);
        Some(Setting { path, value, origin: Origin::Environment(name) })
    };
    let mut all: Vec<_> = pairs.filter_map(read).collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// A value given as text for a key: what the key takes as text is left as it is; a list may be written `a,b`; the rest is
/// read as TOML where it is valid TOML, else it is text.
pub fn read(path: &[String], text: &str) -> Value {
    let kind = match path {
        [section, name] => keys::row(section, name).map(|row| row.kind),
        // The plugin's own schema says what it means.
        [first, _, _] if first == "plugin" => Some(Kind::Text),
        _ => None,
    };
    match kind {
        Some(Kind::Text | Kind::Path | Kind::Duration | Kind::Size | Kind::Choice(_)) => text.into(),
        Some(Kind::Texts | Kind::Paths) if !text.trim_start().starts_with('[') => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Value::Array(parts.map(Value::from).collect())
        }
        _ => scalar(text),
    }
}

/// `8080` is a number, `true` a boolean, `["a"]` a list, everything else text.
fn scalar(text: &str) -> Value {
    match toml::from_str::<Table>(&format!("v = {text}")) {
        Ok(mut table) => table.remove("v").unwrap_or_else(|| Value::String(text.to_owned())),
        Err(_) => Value::String(text.to_owned()),
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
            ("CASCADIA__PLUGINS__ISOLATE", "a, b"),
            ("CASCADIA__PLUGIN__OV_GENAI__CB_CACHE_SIZE", "4"),
            ("HOME", "/x"),
        ];
        let settings = from_pairs(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let read: Vec<_> = settings.iter().map(|s| format!("{} = {}", s.key(), s.value)).collect();
        let expected = [
            "limits.max_concurrent = 4",
            "plugin.ov-genai.cb-cache-size = \"4\"",
            "plugins.isolate = [\"a\", \"b\"]",
            "server.listen = \":9000\"",
        ];
        assert_eq!(read, expected);
        assert_eq!(settings[3].origin.to_string(), "environment CASCADIA__SERVER__LISTEN");
    }
}
