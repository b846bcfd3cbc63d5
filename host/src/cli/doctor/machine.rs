//! The machine's side: the port, the open files, who may write what the host reads, devices.

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::Line;
use crate::api::keys::Keys;
use crate::cli::model::client::Host;
use crate::config::schema::is_loopback;
use crate::config::{Config, env};

/// Descriptors besides connections: libraries, models, logs, the runtime's own.
const OTHER_FILES: u64 = 128;

pub(super) fn lines(config: &Config, file: Option<&Path>) -> Vec<Line> {
    let mut lines = Vec::new();
    lines.extend(file.map(private));
    lines.extend(keys(config));
    lines.extend(port(config));
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    lines.push(open_files(config.server.max_connections as u64, soft_limit(&limits)));
    lines.push(state());
    lines
}

/// A file that decides what the host runs must not be open to changes by others.
fn private(path: &Path) -> Line {
    let subject = "configuration file";
    let shown = path.display();
    match path.metadata() {
        Err(error) => Line::fault(subject, format!("{shown} cannot be read: {error}")),
        Ok(meta) if meta.mode() & 0o022 != 0 => {
            let who = if meta.mode() & 0o002 != 0 { "everybody" } else { "its group" };
            let found = format!("{shown} may be written by {who}, and it names code to run");
            Line::warn(subject, found, format!("run chmod go-w {shown}"))
        }
        Ok(_) => Line::ok(subject, format!("{shown} may be written by its owner only")),
    }
}

/// Files with secrets: keys must be such, and none of them for everybody to read.
fn keys(config: &Config) -> Vec<Line> {
    let server = &config.server;
    let mut lines: Vec<_> =
        Keys::read(server).err().map(|error| Line::fault("keys", error)).into_iter().collect();
    for (key, file) in
        [("api_keys", &server.api_keys), ("admin_keys", &server.admin_keys), ("tls_key", &server.tls_key)]
    {
        let Some(path) = file else { continue };
        let (subject, shown) = (format!("server.{key}"), path.display());
        lines.push(match std::fs::File::open(path).and_then(|file| file.metadata()) {
            Err(error) => Line::fault(subject, format!("{shown} cannot be read: {error}")),
            Ok(meta) if meta.mode() & 0o006 != 0 => {
                let found = format!("every user of this machine may read or write {shown}");
                Line::warn(subject, found, format!("run chmod o-rw {shown}"))
            }
            Ok(_) => Line::ok(subject, format!("{shown} is not open to every user")),
        });
    }
    lines
}

fn port(config: &Config) -> Vec<Line> {
    let Ok(address) = config.address() else { return Vec::new() };
    let subject = "address";
    let mut lines = Vec::new();
    lines.push(match TcpListener::bind(address) {
        Ok(_) => Line::ok(subject, format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let host = Host::parse(&address.to_string()).ok();
            let answer =
                host.and_then(|h| h.ask("GET", "/livez", None, None, None, Duration::from_secs(3)).ok());
            match answer.is_some_and(|a| a.body["status"] == "ok") {
                true => Line {
                    beside: true,
                    ..Line::warn(
                        subject,
                        format!("a host answers at {address} already"),
                        "a second one needs another --api",
                    )
                },
                false => Line::fail(subject, format!("{address} is taken"), "choose another with --api"),
            }
        }
        Err(error) => Line::fail(subject, format!("{address}: {error}"), "choose another with --api"),
    });
    if !is_loopback(address.ip()) && config.server.no_auth {
        lines.push(Line::warn(
            "access",
            format!("{address} can be reached by others, and clients need no key"),
            "put something in front that checks them",
        ));
    }
    lines
}

/// The soft limit of open files; none means there is none.
fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn open_files(connections: u64, limit: Option<u64>) -> Line {
    let (subject, wanted) = ("open files", connections + OTHER_FILES);
    match limit {
        Some(limit) if limit < wanted => Line::warn(
            subject,
            format!("at most {limit}, and server.max_connections is {connections}"),
            format!("raise ulimit -n (LimitNOFILE=) to {wanted}, or lower server.max_connections"),
        ),
        Some(limit) => Line::ok(subject, format!("at most {limit}, enough for {connections} connections")),
        None => Line::ok(subject, "no limit"),
    }
}

/// The folder for the note of which plugins ran in a run that ended without a word.
fn state() -> Line {
    let subject = "state folder";
    let Some(folder) = env::state_folder() else {
        return Line::warn(
            subject,
            "there is none, so a run that a plugin ended leaves no note",
            "set XDG_STATE_HOME or HOME, or StateDirectory= in the unit",
        );
    };
    // The first of its parents that is there decides.
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    match writable(there) {
        true => Line::ok(subject, folder.display().to_string()),
        false => Line::warn(
            subject,
            format!("{} cannot be written", folder.display()),
            "set XDG_STATE_HOME to a folder that can",
        ),
    }
}

/// Whether this user may make files in a folder. Asks without making one: a nameless file is never seen.
fn writable(folder: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    let nameless = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(folder);
    match nameless {
        Ok(_) => true,
        // A file system without such files; the host's own attempt will tell.
        Err(error) => error.raw_os_error() == Some(libc::EOPNOTSUPP),
    }
}

/// What is to be said about a model's device, when there is something.
pub(super) fn device(subject: &str, device: &str) -> Option<Line> {
    let (gpus, npus) = (nodes("/dev/dri", "renderD"), nodes("/dev/accel", "accel"));
    for (name, found, folder) in [("GPU", &gpus, "/dev/dri"), ("NPU", &npus, "/dev/accel")] {
        if !asks(device, name) {
            continue;
        }
        if found.is_empty() {
            let found = format!("{device} is asked for, and {folder} has no device");
            return Some(Line::warn(
                subject,
                found,
                format!("install the {name}'s driver, or choose --device CPU"),
            ));
        }
        let usable = |path: &&String| OpenOptions::new().read(true).write(true).open(path).is_ok();
        if !found.iter().any(|path| usable(&path)) {
            let found = format!("{device} is asked for, and {} may not be used", found.join(", "));
            return Some(Line::warn(subject, found, "add the user to the group of that file (render)"));
        }
    }
    let others: Vec<_> = gpus.into_iter().chain(npus).collect();
    (asks(device, "CPU") && !others.is_empty()).then(|| {
        let found = format!("runs on the CPU, and this machine has {}", others.join(", "));
        Line::warn(subject, found, "choose another with --device, if that is not meant")
    })
}

/// Whether an engine's device option names that kind of device.
pub(super) fn asks(device: &str, name: &str) -> bool {
    device.split([',', ':', '.']).any(|part| part.eq_ignore_ascii_case(name))
}

/// Device files of a folder.
pub(super) fn nodes(folder: &str, prefix: &str) -> Vec<String> {
    let entries = Path::new(folder).read_dir().into_iter().flatten().flatten();
    let named = entries.filter(|e| e.file_name().to_string_lossy().starts_with(prefix));
    let mut all: Vec<_> = named.map(|e| e.path().display().to_string()).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn open_files_are_held_against_the_connections() {
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(soft_limit(limits), Some(1024));
        assert_eq!(soft_limit("Max open files  unlimited unlimited files"), None);
        let line = open_files(4096, Some(1024));
        assert_eq!(line.verdict, Verdict::Warn);
        assert!(line.way_out.is_some_and(|way| way.contains("4224")));
        assert_eq!(open_files(512, Some(1024)).verdict, Verdict::Ok);
        assert_eq!(open_files(512, None).verdict, Verdict::Ok);
    }

    #[test]
    fn a_file_that_others_may_write_is_told_with_the_way_out() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("cascadia-doctor-{}", std::process::id()));
        std::fs::write(&path, "").expect("written");
        for (mode, verdict) in [(0o600, Verdict::Ok), (0o664, Verdict::Warn), (0o606, Verdict::Warn)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(private(&path).verdict, verdict, "{mode:o}");
        }
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(private(&path).verdict, Verdict::Fail);
    }

    #[test]
    fn a_device_that_cannot_be_there_is_told() {
        // Wherever this runs, no machine has both of no GPU and a GPU.
        let line = device("model", "NPU");
        let there = !nodes("/dev/accel", "accel").is_empty();
        assert_eq!(line.is_none_or(|line| line.found.contains("may not be used")), there);
    }
}
