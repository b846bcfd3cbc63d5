//! What an operator has besides the API: the service manager's socket, `doctor`, completions, the unit.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use anyhow::{Context, Result};
use cascadia_tests::host::run;
use cascadia_tests::{Host, TempDir, setup, wait};
use serde_json::Value;

const SIGHUP: i32 = 1;
const SIGTERM: i32 = 15;

fn mock() -> String {
    setup::plugin("mock").display().to_string()
}

/// The service manager's side.
struct Manager(UnixDatagram);

impl Manager {
    fn at(dir: &TempDir) -> Result<(Manager, String)> {
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok((Manager(socket), path.display().to_string()))
    }

    /// The next message that is no sign of life.
    fn next(&self) -> Result<String> {
        loop {
            let mut bytes = [0; 4096];
            let n = self.0.recv(&mut bytes).context("nothing was told")?;
            let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
            if text != "WATCHDOG=1" {
                return Ok(text);
            }
        }
    }
}

#[test]
fn the_service_manager_is_told_of_start_reload_and_end() -> Result<()> {
    let dir = TempDir::new();
    let (manager, socket) = Manager::at(&dir)?;
    let file = dir.file("host.toml", "").display().to_string();
    let mut host = Host::start_with(&["--plugin", &mock(), "--config", &file], &[("NOTIFY_SOCKET", &socket)]);
    assert_eq!(manager.next()?, "STATUS=loading models");
    assert_eq!(manager.next()?, "READY=1\nSTATUS=serving mock");
    assert_eq!(host.get("/readyz")?.status(), 200, "ready means ready");
    host.signal(SIGHUP);
    let reloading = manager.next()?;
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").context("since when")?;
    assert!(since.parse::<u64>()? > 0);
    assert_eq!(manager.next()?, "READY=1\nSTATUS=serving mock");
    dir.file("host.toml", "[");
    host.signal(SIGHUP);
    assert!(manager.next()?.starts_with("RELOADING=1"));
    assert_eq!(manager.next()?, "READY=1\nSTATUS=serving mock; the last reload was refused");
    host.signal(SIGTERM);
    assert_eq!(manager.next()?, "STOPPING=1\nSTATUS=draining");
    assert_eq!(host.ended().code(), Some(0));
    Ok(())
}

#[test]
fn the_watchdog_gets_signs_of_life_when_it_asks_for_them() -> Result<()> {
    let dir = TempDir::new();
    let (manager, socket) = Manager::at(&dir)?;
    let _host =
        Host::start_with(&["--plugin", &mock()], &[("NOTIFY_SOCKET", &socket), ("WATCHDOG_USEC", "200000")]);
    let mut alive = 0;
    while alive < 3 {
        let mut bytes = [0; 4096];
        let n = manager.0.recv(&mut bytes)?;
        alive += u32::from(&bytes[..n] == b"WATCHDOG=1");
    }
    Ok(())
}

#[test]
fn a_host_that_fails_to_start_is_never_told_ready() -> Result<()> {
    let dir = TempDir::new();
    let (manager, socket) = Manager::at(&dir)?;
    let args = ["--plugin", &mock(), "--api", "127.0.0.1:0", "--plugin-opt", "mock.fail-load=no weights"];
    let ended = cascadia_tests::host::run_with(&args, &[("NOTIFY_SOCKET", &socket)]);
    ended.complains(1, &["no weights"]);
    assert!(!ended.complaint.contains("again_in"), "nothing is tried again: {}", ended.complaint);
    manager.0.set_nonblocking(true)?;
    let mut told = Vec::new();
    while let Ok(text) = manager.next() {
        told.push(text);
    }
    assert_eq!(told, ["STATUS=loading models"]);
    Ok(())
}

/// What doctor found, by subject.
fn doctor(args: &[&str]) -> Result<(Option<i32>, Vec<Value>)> {
    let ended = run(&[&["doctor", "--json", "--api", "127.0.0.1:0"], args].concat());
    let all: Value = serde_json::from_str(&ended.output).with_context(|| ended.complaint.clone())?;
    assert_eq!(all["ok"].as_bool(), Some(ended.status.code() == Some(0)), "{all}");
    Ok((ended.status.code(), all["checks"].as_array().cloned().unwrap_or_default()))
}

/// Asserts that a line of this subject and verdict has these words.
#[track_caller]
fn has(lines: &[Value], subject: &str, verdict: &str, words: &str) {
    let fits = |l: &&Value| {
        let text = format!("{} {}", l["found"], l["way_out"]);
        l["subject"] == subject && l["verdict"] == verdict && text.contains(words)
    };
    assert!(lines.iter().any(|l| fits(&l)), "{subject}: {verdict} {words:?} is missing in {lines:#?}");
}

#[test]
fn doctor_finds_a_sound_setup_sound() -> Result<()> {
    let (status, lines) = doctor(&["--plugin", &mock()])?;
    assert_eq!(status, Some(0), "{lines:#?}");
    has(&lines, "configuration", "ok", "valid");
    has(&lines, "address", "ok", "is free");
    has(&lines, "plugin mock", "ok", "speaks this host's boundary");
    has(&lines, "model mock", "ok", "opens and finds what it needs");
    has(&lines, "devices of mock", "ok", "CPU: a processor of the mock");
    let (status, lines) = doctor(&["--plugin", &mock(), "--build"])?;
    assert_eq!(status, Some(0), "{lines:#?}");
    has(&lines, "model mock", "ok", "was built and warmed on mock in");
    Ok(())
}

#[test]
fn doctor_warns_of_a_device_that_is_not_there_and_survives_a_driver_that_is_broken() -> Result<()> {
    let (status, lines) = doctor(&["--plugin", &mock(), "--device", "AUTO:GPU,CPU"])?;
    assert_eq!(status, Some(0), "{lines:#?}");
    has(&lines, "devices of mock", "warn", "no GPU, which a model asks for");
    let two = "mock.devices=CPU: a processor; GPU.0: a card of 12 units";
    let (_, lines) = doctor(&["--plugin", &mock(), "--device", "GPU", "--plugin-opt", two])?;
    has(&lines, "devices of mock", "ok", "GPU.0: a card of 12 units");
    let (status, lines) = doctor(&["--plugin", &mock(), "--plugin-opt", "mock.devices=crash"])?;
    assert_eq!(status, Some(0), "{lines:#?}");
    has(&lines, "model mock", "ok", "opens and finds what it needs");
    has(&lines, "devices of mock", "warn", "signal 6");
    Ok(())
}

#[test]
fn doctor_names_each_fault_and_the_way_out() -> Result<()> {
    let dir = TempDir::new();
    let cut = dir.file("cut.gguf", b"GGUF\x03\0\0\0").display().to_string();
    let odd = dir.file("odd.bin", "no model").display().to_string();
    let short = dir.file("short", "short\n").display().to_string();
    std::fs::create_dir(dir.path().join("plugins"))?;
    let broken = dir.file("plugins/libbroken.so", "no library").display().to_string();
    let folder = dir.path().join("plugins").display().to_string();
    let open = dir.file("open", "a-key-that-is-long-enough\n").display().to_string();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    std::fs::set_permissions(&short, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    for (args, subject, verdict, words) in [
        (vec!["--set", "limits.max_concurrent=0"], "configuration", "fail", "at least 1"),
        (vec!["--plugin", &broken], "plugin", "fail", "no ELF header"),
        (vec!["--plugin", &mock(), "--plugin-dir", &folder], "plugin", "warn", "no ELF header"),
        (vec!["--plugin", "/nowhere/libx.so"], "plugin /nowhere/libx.so", "fail", "cannot be read"),
        (vec!["--plugin", &mock(), "--api-keys", &short], "keys", "fail", "shorter than"),
        (vec!["--plugin", &mock(), "--api-keys", &open], "server.api_keys", "warn", "chmod o-rw"),
        (vec![], "models", "fail", "--plugin"),
        (vec!["--plugin", &mock(), "--engine", "nobody"], "models", "fail", "nobody"),
        (
            vec!["--plugin", &mock(), "--model", "/nowhere/m.gguf"],
            "model m",
            "fail",
            "/nowhere/m.gguf cannot be read",
        ),
        (vec!["--plugin", &mock(), "--model", &cut], "model cut", "warn", "cut.gguf"),
        (vec!["--plugin", &mock(), "--model", &odd], "model odd", "warn", "tokenizer of its own"),
        (
            vec!["--plugin", &mock(), "--set", "server.max_connections=900000"],
            "open files",
            "warn",
            "LimitNOFILE",
        ),
        (
            vec!["--plugin", &mock(), "--plugin-opt", "mock.fail-load=no weights", "--build"],
            "model mock",
            "fail",
            "no weights",
        ),
        (
            vec!["--plugin", &mock(), "--plugin-opt", "mock.panic-in=build", "--build"],
            "model mock",
            "fail",
            "panic",
        ),
    ] {
        let (status, lines) = doctor(&args)?;
        assert_eq!(status, Some(i32::from(verdict == "fail")), "{args:?}: {lines:#?}");
        has(&lines, subject, verdict, words);
    }
    Ok(())
}

#[test]
fn doctor_knows_a_host_from_something_else_on_the_port() -> Result<()> {
    let host = Host::mock(&[]);
    let address = host.client().address.to_string();
    let found = |address: &str| -> Result<(Option<i32>, Value, Vec<Value>)> {
        let ended = run(&["doctor", "--json", "--plugin", &mock(), "--api", address]);
        let all: Value = serde_json::from_str(&ended.output)?;
        let lines = all["checks"].as_array().cloned().unwrap_or_default();
        Ok((ended.status.code(), all["beside_running_host"].clone(), lines))
    };
    let (status, beside, lines) = found(&address)?;
    has(&lines, "address", "warn", "a host answers");
    assert_eq!((status, beside), (Some(0), Value::Bool(true)), "it may be the one that is to be replaced");
    let told = run(&["doctor", "--plugin", &mock(), "--api", &address]).output;
    let last = told.lines().last().unwrap_or_default();
    assert!(last.contains("taken by a running host") && !last.contains("will serve"), "{told}");
    let wrong = run(&["doctor", "--plugin", &mock(), "--api", &address, "--model", "/nowhere/m.gguf"]);
    assert_eq!(wrong.status.code(), Some(1), "{}", wrong.output);
    let other = std::net::TcpListener::bind("127.0.0.1:0")?;
    let (status, beside, lines) = found(&other.local_addr()?.to_string())?;
    has(&lines, "address", "fail", "is taken");
    assert_eq!((status, beside), (Some(1), Value::Bool(false)));
    Ok(())
}

#[test]
fn doctor_speaks_to_people_without_colours_in_a_file() {
    let told = run(&["doctor", "--plugin", &mock(), "--api", "127.0.0.1:0"]);
    assert!(told.output.contains("ok    model mock: mock/mock opens"), "{}", told.output);
    assert!(!told.output.contains('\u{1b}'), "{}", told.output);
}

#[test]
#[ignore = "needs OpenVINO and a model; cargo xtask test has them"]
fn ov_genai_is_found_by_doctor_with_its_runtime() -> Result<()> {
    let (Some(openvino), Some(model)) = (setup::openvino(), setup::model()) else { return Ok(()) };
    let plugin = setup::plugin("ov_genai").display().to_string();
    let (model, dir) = (model.display().to_string(), openvino.display().to_string());
    let cache = format!("ov-genai.cache-dir={}", setup::compiled_models().display());
    let args = ["--plugin", &plugin, "--plugin-opt", &cache, "--model", &model, "--served-model-name", "m"];
    let (status, lines) =
        doctor(&[&args[..], &["--plugin-opt", &format!("ov-genai.openvino-dir={dir}")]].concat())?;
    assert_eq!(status, Some(0), "{lines:#?}");
    has(&lines, "model m", "ok", "OpenVINO opened");
    // The processor's name is the kernel's, and OpenVINO reads it in its own way.
    has(&lines, "devices of ov-genai", "ok", "CPU: ");
    let full = |l: &Value| {
        l["subject"] == "devices of ov-genai" && l["found"].as_str().is_some_and(|f| f.len() > 12)
    };
    assert!(lines.iter().any(full), "{lines:#?}");
    let nowhere = TempDir::new();
    let wrong = format!("ov-genai.openvino-dir={}", nowhere.path().display());
    let (status, lines) = doctor(&[&args[..], &["--plugin-opt", &wrong]].concat())?;
    assert_eq!(status, Some(1), "{lines:#?}");
    has(&lines, "model m", "fail", "libopenvino");
    Ok(())
}

#[test]
fn completions_are_printed_for_each_shell() {
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef cascadia-host"), ("fish", "complete -c cascadia-host")]
    {
        let script = run(&["completions", shell]);
        assert_eq!(script.status.code(), Some(0), "{}", script.complaint);
        for word in [word, "doctor", "max-queued"] {
            assert!(script.output.contains(word), "{shell}: {word:?} is missing");
        }
    }
    run(&["completions", "tcsh"]).complains(2, &["bash", "zsh", "fish"]);
}

#[test]
fn a_hangup_while_models_load_is_taken_and_the_host_comes_up() -> Result<()> {
    let host = Host::start(&["--plugin", &mock(), "--plugin-opt", "mock.load-delay-ms=1000"]);
    host.signal(SIGHUP);
    wait("the reload", || match host.log().contains("configuration was read again") {
        true => Ok(()),
        false => Err(host.log()),
    });
    host.ready();
    assert_eq!(host.chat("a")?.content(), "a");
    Ok(())
}

#[test]
fn the_sample_unit_calls_the_host_as_it_wants_to_be_called() -> Result<()> {
    let unit = std::fs::read_to_string(setup::root().join("dist/systemd/cascadia-host.service"))?;
    let value =
        |key: &str| unit.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default();
    assert_eq!((value("Type"), value("RestartPreventExitStatus")), ("notify", "2"));
    let mut words = value("ExecStart").split(' ');
    assert_eq!((words.next(), words.next()), (Some("/usr/lib/cascadia-host/cascadia-host"), Some("serve")));
    let help = run(&["serve", "--help"]).output;
    for flag in words.filter(|word| word.starts_with("--")) {
        assert!(help.contains(&format!("{flag} ")), "{flag} is no flag of serve");
    }
    // The host has closed its engines and connections by then, with the default of its drain.
    let shown = run(&["config", "show"]).output;
    assert!(shown.contains("server.drain_timeout = \"20s\""), "{shown}");
    assert_eq!(value("TimeoutStopSec"), "45s");
    Ok(())
}
