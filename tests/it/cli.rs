//! The command line: what is printed where, exit statuses, and which source of a setting wins.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use anyhow::Result;
use cascadia_tests::client::{CHAT, chat, with};
use cascadia_tests::host::{run, run_with};
use cascadia_tests::{Host, TempDir, elf, setup};
use serde_json::json;

#[test]
fn version_and_help_go_to_standard_output() {
    let version = run(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert!(version.output.starts_with("cascadia-host "), "{}", version.output);
    for args in [&["--help"][..], &["serve", "--help"]] {
        let help = run(args);
        assert_eq!((help.status.code(), help.complaint.as_str()), (Some(0), ""));
        for flag in [
            "--plugin",
            "--plugin-dir",
            "--plugin-opt",
            "--model",
            "--served-model-name",
            "--device",
            "--api",
            "--api-max-body-mb",
            "--max-concurrent",
            "--max-queued",
            "--queue-timeout",
            "--config",
            "--no-auth",
        ] {
            assert!(help.output.contains(&format!("{flag} ")), "{flag} is missing in {}", help.output);
        }
    }
}

#[test]
fn a_wrong_call_ends_with_status_2_and_names_what_is_wrong() {
    let plugin = setup::plugin("mock").display().to_string();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--plugins", "x"], &["--plugins", "--plugin"]),
        (&["sreve"], &["sreve"]),
        (&[], &["--plugin", "--plugin-dir"]),
        (&["--plugin", &plugin, "--plugin-opt", "slots"], &["ID.KEY=VALUE"]),
        (&["--plugin", &plugin, "--plugin-opt", "mock.slot=3"], &["mock.slot", "did you mean slots?"]),
        (&["--plugin", &plugin, "--plugin-opt", "mock.slots=many"], &["mock.slots", "many"]),
        (&["--plugin", &plugin, "--plugin-opt", "mock.slots=0"], &["mock.slots", "below 1"]),
        (&["--plugin", &plugin, "--plugin-opt", "mokc.slots=1"], &["mokc", "mock"]),
        (&["--plugin", &plugin, "--set", "server.lissten=:1"], &["lissten"]),
        (&["--plugin", &plugin, "--set", "limits.queue_timeout=soon"], &["soon"]),
        (&["--plugin", &plugin, "--max-concurrent", "0"], &["max_concurrent"]),
        (&["--plugin", &plugin, "--api", "nowhere"], &["nowhere"]),
        (&["--plugin", &plugin, "--engine", "other"], &["other", "mock/mock"]),
        (&["--plugin", &plugin, "--model", "a=/x", "--model", "a=/y"], &["a"]),
        (&["--config", "/nowhere/at-all.toml"], &["/nowhere/at-all.toml"]),
    ];
    for (args, words) in cases {
        let ended = run(args);
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {}", ended.complaint);
        ended.complains(2, words);
    }
}

#[test]
fn a_word_after_flags_that_is_no_command_is_told_as_such() {
    run(&["--set", "a=b", "serv"]).complains(2, &["unrecognized subcommand 'serv'", "'serve'"]);
    run(&["--set", "a=b", "serve"])
        .complains(2, &["the flags of a command go after it", "'--set <KEY=VALUE>'"]);
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error_and_a_reader_that_left_is_none() -> Result<()> {
    let plugin = setup::plugin("mock").display().to_string();
    let into = |out: Stdio, args: &[&str]| -> Result<Output> {
        let mut command = Command::new(setup::host_program());
        Ok(command.args(args).env_clear().stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).output()?)
    };
    for args in [
        &["config", "sample"][..],
        &["config", "schema"],
        &["config", "show"],
        &["plugin", "list", "--plugin", &plugin],
        &["doctor", "--plugin", &plugin, "--api", "127.0.0.1:0"],
        &["completions", "bash"],
        &["gen-docs", "errors"],
        &["--help"],
        &["--version"],
    ] {
        let ended = into(File::options().write(true).open("/dev/full")?.into(), args)?;
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {told}");
        assert!(told.contains("cannot write the output: No space left on device"), "{args:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{args:?}: {told}");
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let ended = into(writer.into(), args)?;
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!((ended.status.code(), told.as_str()), (Some(0), ""), "{args:?}");
    }
    Ok(())
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() -> Result<()> {
    let dir = TempDir::new();
    let plugin = setup::plugin("mock").display().to_string();
    let config = dir.file(
        "host.toml",
        format!(
            "plugins.load = ['{plugin}']\n[limits]\nmax_choices = 3\nmax_queued = 0\n[[model]]\nname = 'from-file'\n\
             [plugin.mock]\ncontext-length = 100\nrepeat = 2\n"
        ),
    );
    let config = config.display().to_string();
    let host = Host::start_with(
        &["--config", &config, "--plugin-opt", "mock.context-length=200"],
        &[("CASCADIA__LIMITS__MAX_CHOICES", "5"), ("CASCADIA__PLUGIN__MOCK__CONTEXT-LENGTH", "150")],
    );
    host.ready();
    let model = host.get("/v1/models")?.json()["data"][0].clone();
    assert_eq!((&model["id"], &model["max_model_len"]), (&json!("from-file"), &json!(200)));
    let body = with(chat("a"), &json!({"model": "from-file"}));
    assert_eq!(host.post(CHAT, &body)?.content(), "a a");
    let error = host.post(CHAT, &with(body, &json!({"n": 6})))?.error(400);
    assert!(error["message"].as_str().is_some_and(|m| m.contains("at most 5")), "{error}");
    Ok(())
}

#[test]
fn the_reference_of_the_metrics_is_printed_from_the_code() {
    let document = run(&["gen-docs", "metrics"]);
    assert_eq!(document.status.code(), Some(0), "{}", document.complaint);
    assert!(document.output.contains("`cascadia_generation_ttft_seconds`"), "{}", document.output);
}

#[test]
fn a_log_that_goes_to_a_file_has_no_colours_and_one_line_errors() {
    let ended = run_with(&["--plugin", "/nowhere/libx.so"], &[("RUST_BACKTRACE", "1")]);
    ended.complains(1, &["/nowhere/libx.so"]);
    assert!(!ended.complaint.contains('\u{1b}'), "{}", ended.complaint);
    assert_eq!(ended.complaint.lines().count(), 1, "{}", ended.complaint);
}

#[test]
fn options_of_a_named_plugin_are_flags_and_its_help_lists_them() {
    let plugin = setup::plugin("mock");
    let plugin = plugin.to_str().expect("PANIC: the target folder's path is text");
    let help = run(&["--plugin", plugin, "--help"]);
    assert_eq!(help.status.code(), Some(0));
    for word in ["Options of plugin mock", "--token-delay-ms", "[default: 16]", "--plugin-opt"] {
        assert!(help.output.contains(word), "{word:?} is missing in {}", help.output);
    }
    run(&["--plugin", plugin, "--slots", "many"]).complains(2, &["mock.slots", "not a whole number"]);
    run(&["--plugin", plugin, "--slotz", "1"]).complains(2, &["--slots"]);
    let host = Host::mock(&["--context-length", "777"]);
    let models = host.get("/v1/models").expect("an answer").json();
    assert_eq!(models["data"][0]["max_model_len"], 777);
}

#[test]
fn a_flag_that_could_mean_two_plugins_is_refused_naming_both() {
    let mock = setup::plugin("mock");
    let dir = TempDir::new();
    let bytes = std::fs::read(&mock).expect("PANIC: the mock is built");
    let other = dir.file("libmocb.so", elf::replaced(&bytes, "\"id\":\"mock\"", "\"id\":\"mocb\""));
    let [mock, other] = [&mock, &other].map(|path| path.to_str().expect("PANIC: these paths are text"));
    let both = ["--plugin", mock, "--plugin", other];
    let ended = run(&[&both[..], &["--slots", "3"]].concat());
    ended.complains(2, &["--slots", "mock", "mocb", "--plugin-opt mock.slots=VALUE", "mocb.slots=VALUE"]);
    assert_eq!(ended.complaint.lines().count(), 1, "{}", ended.complaint);
    let help = run(&[&both[..], &["--help"]].concat());
    assert!(help.output.contains("mock.slots") && !help.output.contains("--slots"), "{}", help.output);
    // The way out is one.
    let out = ["--plugin-opt", "mock.slots=3", "--plugin-opt", "mocb.slots=0", "--engine", "mocb/mock"];
    run(&[&both[..], &out].concat()).complains(2, &["mocb.slots", "below 1"]);
}
