//! `cascadia-host plugin ...`, and the engine in plain C that strangers begin with.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cascadia_tests::host::run;
use cascadia_tests::{Host, TempDir, cc, crate_build, setup};

fn text(path: &Path) -> &str {
    path.to_str().expect("PANIC: temporary paths are text")
}

/// Compiles the example in C into `folder`.
pub(crate) fn echo_c(folder: &Path) -> Result<PathBuf> {
    c_plugin("plugins/examples/echo-c/echo.c", folder)
}

/// Compiles a plugin of one C file into `folder`.
fn c_plugin(source: &str, folder: &Path) -> Result<PathBuf> {
    let root = setup::root();
    let library = folder.join("libin_c.so");
    let flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O2",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-pthread",
    ];
    let compiled = Command::new("cc")
        .args(flags)
        .arg("-I")
        .arg(root.join("plugin-api/include"))
        .arg(root.join(source))
        .arg("-o")
        .arg(&library)
        .output()
        .context("cc runs")?;
    ensure!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Ok(library)
}

#[test]
fn list_and_describe_read_plugins_without_running_them() {
    let mock = setup::plugin("mock");
    let list = run(&["plugin", "list", "--plugin", text(&mock), "--json"]);
    assert_eq!(list.status.code(), Some(0), "{}", list.complaint);
    let found: serde_json::Value = serde_json::from_str(&list.output).expect("JSON");
    assert!(found.to_string().contains("\"mock\""), "{found}");
    let described = run(&["plugin", "describe", text(&mock)]);
    for word in ["tables match", "token-delay-ms", "scripted engine"] {
        assert!(described.output.contains(word), "{word:?} is missing in {}", described.output);
    }
    let schema = run(&["plugin", "describe", text(&mock), "--schema"]);
    let schema: serde_json::Value = serde_json::from_str(&schema.output).expect("JSON");
    assert_eq!(schema["properties"]["slots"]["type"], "integer");
}

#[test]
fn check_passes_the_mock_and_names_what_a_broken_one_does() {
    let mock = setup::plugin("mock");
    let sound = run(&["plugin", "check", text(&mock)]);
    assert_eq!(sound.status.code(), Some(0), "{}{}", sound.output, sound.complaint);
    // Each fault is found by the test that is named after it.
    for (order, test, found) in [
        (r#"{"double_finish":true}"#, "exactly one finish", "finish"),
        (r#"{"push_after_finish":true}"#, "exactly one finish", "after"),
        (r#"{"no_finish":true}"#, "exactly one finish", "no finish"),
        (r#"{"unknown_task":true}"#, "every chunk is for a task", "task"),
        (r#"{"max_tokens_ignore":true}"#, "max_tokens is kept", "tokens"),
        (r#"{"bad_logprobs":true}"#, "log-probabilities are one per token", "log-probabilit"),
        (r#"{"invalid_utf8":true}"#, "the text is UTF-8", "UTF-8"),
        (r#"{"ignore_cancel":true}"#, "a cancelled task ends soon", "cancel"),
        (r#"{"abort_in":"step"}"#, "exactly one finish", "SIGABRT"),
        (r#"{"step_error_after":1}"#, "exactly one finish", "step"),
        (r#"{"push_from_thread":true}"#, "nothing is pushed outside of a step", "from another thread"),
        (r#"{"push_in_submit":true}"#, "nothing is pushed outside of a step", "outside of step"),
        (r#"{"unknown_finish":true}"#, "the finish says why", "finish is 77"),
    ] {
        let option = format!("order={order}");
        let broken =
            run(&["plugin", "check", text(&mock), "--only", test, "--timeout", "6", "--option", &option]);
        assert_eq!(broken.status.code(), Some(1), "{order}: {}{}", broken.output, broken.complaint);
        assert!(broken.output.contains("FAIL"), "{order}: {}", broken.output);
        assert!(broken.output.contains(found), "{order}: {found:?} is not in {}", broken.output);
    }
}

#[test]
fn a_step_over_its_budget_is_told_and_no_fault() {
    let mock = setup::plugin("mock");
    let slow = r#"order={"slow_step_ms":80}"#;
    let told = run(&["plugin", "check", text(&mock), "--only", "whatever the budget", "--option", slow]);
    assert_eq!(told.status.code(), Some(0), "{}", told.output);
    assert_eq!(told.output.matches(", over it").count(), 2, "not over an hour: {}", told.output);
}

#[test]
fn check_names_prompts_and_budgets_that_an_engine_cannot_take() -> Result<()> {
    let dir = TempDir::new();
    for (define, test, found) in [
        ("HUGE_ABORTS", "a prompt of ten megabytes", "SIGABRT"),
        ("CUT_ABORTS", "a prompt cut inside a character", "SIGABRT"),
        ("LITTLE_TIME_NOTHING", "whatever the budget", "with a budget of 1 us: 1 of 1 tasks have no finish"),
    ] {
        let options = cc::Options { defines: &[define], ..cc::Options::default() };
        let broken = cc::fixture("engine.c", &dir.path().join(format!("lib{define}.so")), &options)?;
        let sound = cc::fixture("engine.c", &dir.path().join("libsound.so"), &cc::Options::default())?;
        for (library, code) in [(broken, 1), (sound, 0)] {
            let told = run(&["plugin", "check", text(&library), "--only", test, "--timeout", "12"]);
            assert_eq!(told.status.code(), Some(code), "{define}: {}{}", told.output, told.complaint);
            assert_eq!(told.output.contains("FAIL"), code == 1, "{define}: {}", told.output);
            assert_eq!(told.output.contains(found), code == 1, "{define}: {}", told.output);
        }
    }
    Ok(())
}

#[test]
fn check_notices_services_for_an_engine_that_is_gone_in_whatever_test_they_come() {
    let mock = setup::plugin("mock");
    let cycles =
        ["plugin", "check", text(&mock), "--only", "engines come and go", "--option", "stale-worker=true"];
    let broken = run(&cycles);
    assert_eq!(broken.status.code(), Some(1), "{}{}", broken.output, broken.complaint);
    let words = "meanwhile it broke a rule: no service is called for a worker whose engine was destroyed";
    assert!(broken.output.contains(words), "{}", broken.output);
}

#[test]
fn an_engine_in_plain_c_passes_check_and_serves_a_chat() -> Result<()> {
    let dir = TempDir::new();
    let library = c_plugin("plugins/examples/echo-c/echo.c", dir.path())?;
    let checked = run(&["plugin", "check", text(&library)]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.output);
    let host = Host::start(&["--plugin", text(&library)]);
    host.ready();
    let models = host.get("/v1/models")?.json();
    let model = models["data"][0]["id"].as_str().context("a model")?.to_owned();
    let body = serde_json::json!({
        "model": model, "temperature": 0, "messages": [{"role": "user", "content": "words in C"}],
    });
    assert_eq!(host.post("/v1/chat/completions", &body)?.content(), "words in C");
    Ok(())
}

/// Edits of the example in C, or of the header that it stands on, that break one rule; the test that must name it, and a
/// word of its reason.
type Breaker = (&'static [(&'static str, &'static str)], &'static str, &'static str);

const BREAKERS: [Breaker; 9] = [
    // The stop tokens are not looked at.
    (
        &[(
            "if (s->ids[s->prompt_len + i] == token)",
            "if (s->ids[s->prompt_len + i] == token && s->task == 0)",
        )],
        "a stop token ends",
        "stop token",
    ),
    // They are, and come with the answer.
    (
        &[(
            "s->chunk.stop_token = token;",
            "s->chunk.stop_token = s->token = token; s->chunk.tokens = CASCADIA_ARRAY(&s->token, 1);",
        )],
        "a stop token ends",
        "came as a token of the answer",
    ),
    (&[("s->chunk.stop_token = token;", "s->chunk.stop_token = 7;")], "a stop token ends", "names 7"),
    // Prompts are read as if their ids lay side by side.
    (
        &[("cascadia_array_u32(t->tokens, i)", "((const uint32_t *)t->tokens.ptr)[i]")],
        "tokens that lie further apart",
        "stride",
    ),
    // So are the options, of which there must be two for that.
    (
        &[
            (
                "\"options\": {",
                "\"options\": {\"other\": {\"type\": \"integer\", \"default\": 1, \"description\": \"not looked at\"},",
            ),
            (
                "OPTIONS[] = {",
                "OPTIONS[] = {CASCADIA_OPTION(\"other\", CASCADIA_OPTION_INTEGER, echo, delay_ms), ",
            ),
            (
                "cascadia_array_get(options, i, &kv, sizeof kv);",
                "kv = ((const cascadia_kv *)options.ptr)[i];",
            ),
        ],
        "options that lie further apart",
        "stride",
    ),
    // An id is taken for another that begins like it.
    (
        &[(
            "if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_LOAD_REPORT)))",
            "if (id.len >= sizeof CASCADIA_ID_LOAD_REPORT - 1 && memcmp(id.ptr, CASCADIA_ID_LOAD_REPORT, sizeof CASCADIA_ID_LOAD_REPORT - 1) == 0)",
        )],
        "an unknown extension id",
        "cascadia.load-report/11",
    ),
    (&[("    free(e->slots);\n", "")], "engines come and go", "leaves"),
    (
        &[(
            "out->kv_blocks_used = out->kv_blocks_total = out->tokens_cached = 0;",
            "out->kv_blocks_used = 5, out->kv_blocks_total = 4, out->tokens_cached = 0;",
        )],
        "no more blocks used",
        "5 blocks used of 4",
    ),
    (&[("i < e->max_tasks && !e->closed", "i < e->max_tasks")], "a closed engine takes no task", "was taken"),
];

/// The example with the header that it stands on in its text.
fn echo_c_whole() -> Result<String> {
    let root = setup::root();
    let header = std::fs::read_to_string(root.join("plugin-api/include/cascadia_sdk.h"))?;
    let echo = std::fs::read_to_string(root.join("plugins/examples/echo-c/echo.c"))?;
    let include = "#include \"cascadia_sdk.h\"\n";
    ensure!(echo.matches(include).count() == 1, "echo.c has {include:?} other than once");
    Ok(echo.replace(include, &header))
}

#[test]
fn check_names_the_rule_that_an_engine_in_c_breaks() -> Result<()> {
    let dir = TempDir::new();
    let sound = echo_c_whole()?;
    for (n, (edits, test, found)) in BREAKERS.iter().enumerate() {
        let mut source = sound.clone();
        for (from, to) in *edits {
            ensure!(source.matches(from).count() == 1, "the source has {from:?} other than once");
            source = source.replace(from, to);
        }
        let file = dir.path().join(format!("broken{n}.c"));
        std::fs::write(&file, source)?;
        let library =
            cc::library(&file, &dir.path().join(format!("libbroken{n}.so")), &cc::Options::default())?;
        let broken = run(&["plugin", "check", text(&library), "--only", test]);
        assert_eq!(broken.status.code(), Some(1), "{test}: {}{}", broken.output, broken.complaint);
        assert!(broken.output.contains("FAIL") && broken.output.contains(found), "{test}: {}", broken.output);
    }
    Ok(())
}

#[test]
fn check_fails_where_no_engine_could_be_built_without_a_model() -> Result<()> {
    let dir = TempDir::new();
    let sound = std::fs::read_to_string(setup::root().join("plugins/examples/echo-c/echo.c"))?;
    let line = "    (void)shard; /* the model is at shard->path */\n";
    ensure!(sound.matches(line).count() == 1, "echo.c has {line:?} other than once");
    let needs = "    if (shard->path.len == 0) {\n        \
                 return cascadia_fail(err, CASCADIA_CODE_MODEL_NOT_FOUND, \"no model was given\");\n    }\n";
    let source = dir.file("needs.c", sound.replace(line, needs));
    let library = cc::library(&source, &dir.path().join("libneeds.so"), &cc::Options::default())?;
    let check = ["plugin", "check", text(&library), "--only", "finish"];
    let without = run(&check);
    assert_eq!(without.status.code(), Some(1), "{}", without.output);
    let last = "the engine was not built, so most was not tested: give --model PATH";
    assert_eq!(without.output.trim_end().lines().last(), Some(last), "{}", without.output);
    let json = run(&[&check[..], &["--json"]].concat());
    assert_eq!(json.status.code(), Some(1), "{}", json.output);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json.output)?["engine_built"], false);
    let with = run(&[&check[..], &["--model", text(&source)]].concat());
    assert_eq!(with.status.code(), Some(0), "{}", with.output);
    assert!(!with.output.contains(last), "{}", with.output);
    Ok(())
}

#[test]
fn engines_that_measure_the_boundary_keep_its_contract() -> Result<()> {
    let dir = TempDir::new();
    for library in [c_plugin("benches/null-engine/null.c", dir.path())?, setup::plugin("null_engine")] {
        let checked = run(&["plugin", "check", text(&library), "--fuzz", "3"]);
        assert_eq!(checked.status.code(), Some(0), "{}", checked.output);
    }
    Ok(())
}

#[test]
fn a_new_project_in_rust_builds_by_itself_passes_check_and_serves() -> Result<()> {
    let dir = TempDir::new();
    let project = dir.path().join("my-engine");
    let made = run(&["plugin", "new", "my-engine", "--path", text(&project)]);
    assert_eq!(made.status.code(), Some(0), "{}", made.complaint);
    // Away from this workspace, without the network, and with no crate but its own. Its own test builds the library and
    // runs the check, with random sequences, by a host that is not on the PATH.
    let target = project.join("target");
    crate_build::cargo(&["test"], &project, &target)?;
    let library = project.join("target/debug/libmy_engine.so");
    let host = Host::start(&["--plugin", text(&library), "--model", "any"]);
    host.ready();
    let body = serde_json::json!({"model": "any", "messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(host.post("/v1/chat/completions", &body)?.content(), "hello");
    run(&["plugin", "new", "my-engine", "--path", text(&project)]).complains(2, &["not empty"]);
    // The library that lies there is sound; what counts is the source as it is now.
    let source = project.join("src/lib.rs");
    let sound = std::fs::read_to_string(&source)?;
    let broken = sound.replace("EngineInfo { name: \"my-engine\"", "EngineInfo { name: \"another\"");
    ensure!(sound != broken, "the source has no engine of that name");
    std::fs::write(&source, broken)?;
    let told = crate_build::cargo(&["test"], &project, &target).err().context("the test fails")?.to_string();
    assert!(told.contains("FAIL  the manifest names the engines that the code has"), "{told}");
    Ok(())
}

#[test]
fn a_new_project_in_c_builds_and_passes_check() -> Result<()> {
    let dir = TempDir::new();
    let project = dir.path().join("my-engine");
    let made = run(&["plugin", "new", "my-engine", "--lang", "c", "--path", text(&project)]);
    assert_eq!(made.status.code(), Some(0), "{}", made.complaint);
    let built = Command::new("make").current_dir(&project).output().context("make runs")?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let checked = run(&["plugin", "check", text(&project.join("libmy_engine.so"))]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.output);
    // What is there is not overwritten.
    run(&["plugin", "new", "my-engine", "--lang", "c", "--path", text(&project)])
        .complains(2, &["my-engine"]);
    Ok(())
}
