//! The only place that reads or sets the process's environment.
#![expect(clippy::disallowed_methods, reason = "this is the place the ban points to")]

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

/// Every variable whose name and value are text.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
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
