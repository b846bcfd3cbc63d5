//! The configuration: who set what, what is wrong with it, several plugins and models from one file.

use anyhow::Result;
use cascadia_tests::client::{CHAT, chat, with};
use cascadia_tests::host::{run, run_with};
use cascadia_tests::{Host, TempDir, elf, setup};
use serde_json::{Value, json};

/// The mock's library.
pub(crate) fn mock() -> String {
    setup::plugin("mock").display().to_string()
}

/// What a model answers to these words.
pub(crate) fn says(host: &Host, model: &str, words: &str) -> Result<String> {
    Ok(host.post(CHAT, &with(chat(words), &json!({"model": model})))?.content())
}

/// The models that are up.
pub(crate) fn served(host: &Host) -> Result<Vec<String>> {
    let models = host.get("/v1/models")?.json();
    let names = models["data"].as_array().into_iter().flatten().filter_map(|m| m["id"].as_str());
    Ok(names.map(str::to_owned).collect())
}

#[test]
fn show_names_who_set_each_value() {
    let dir = TempDir::new();
    let file = dir.file("host.toml", "[limits]\nmax_choices = 3\nmax_queued = 0\n[plugin.mock]\nslots = 2\n");
    let file = file.display().to_string();
    let environment = [("CASCADIA__LIMITS__MAX_CHOICES", "5"), ("CASCADIA__PLUGIN__MOCK__MAX_WAITING", "7")];
    let args = ["config", "show", "--origin", "--config", &file, "--plugin", &mock(), "--repeat", "2"];
    let shown = run_with(&[&args[..], &["--set", "log.level=debug"]].concat(), &environment);
    assert_eq!(shown.status.code(), Some(0), "{}", shown.complaint);
    for (line, origin) in [
        ("server.listen = \"127.0.0.1:8000\"", "default".to_owned()),
        ("limits.max_queued = 0", format!("file {file}:3")),
        ("limits.max_choices = 5", "environment CASCADIA__LIMITS__MAX_CHOICES".to_owned()),
        ("log.level = \"debug\"", "flag --set".to_owned()),
        ("plugin.mock.slots = 2", format!("file {file}:5")),
        ("plugin.mock.max-waiting = \"7\"", "environment CASCADIA__PLUGIN__MOCK__MAX_WAITING".to_owned()),
        ("plugin.mock.repeat = \"2\"", "flag --repeat".to_owned()),
    ] {
        let found = shown
            .output
            .lines()
            .find(|l| l.starts_with(line))
            .unwrap_or_else(|| panic!("{line}: {}", shown.output));
        assert!(found.ends_with(&format!("# {origin}")), "{found}");
    }
    let shown = run(&[&args[..], &["--json"]].concat());
    let all: Value = serde_json::from_str(&shown.output).expect("JSON");
    let of = |key: &str| {
        all.as_array().into_iter().flatten().find(|l| l["key"] == key).cloned().unwrap_or_default()
    };
    assert_eq!(of("limits.max_choices")["origin"], json!({"source": "file", "file": file, "line": 2}));
    assert_eq!(of("plugin.mock.repeat")["origin"], json!({"source": "flag", "name": "--repeat"}));
    assert_eq!(of("limits.queue_timeout")["value"], "30s");
}

#[test]
fn options_that_no_plugin_explains_are_shown_as_stars() {
    let shown = run(&["config", "show", "--set", "plugin.stranger.token=hush"]);
    assert!(shown.output.contains("plugin.stranger.token = \"***\""), "{}", shown.output);
    assert!(!shown.output.contains("hush"), "{}", shown.output);
}

#[test]
fn check_tells_everything_wrong_at_once() -> Result<()> {
    let dir = TempDir::new();
    let text = "[server]\nlissten = 'x'\nmax_body_mb = 'many'\n[limits]\nqueue_timeout = 'soon'\n[[model]]\nnmae = 'a'\n";
    let bad = dir.file("bad.toml", text).display().to_string();
    let good = dir.file("good.toml", "limits.max_choices = 3").display().to_string();
    let told = run(&["config", "check", &good, &bad]);
    assert_eq!(told.status.code(), Some(1), "{}", told.complaint);
    let expected = [
        format!("{good}: valid"),
        format!("{bad}:2: server.lissten is unknown; did you mean server.listen?"),
        format!("{bad}:3: server.max_body_mb: \"many\" is not a whole number"),
        format!("{bad}:5: limits.queue_timeout: \"soon\" is not a duration; write 250ms, 30s, 5m or 1h"),
        format!("{bad}:6: model[0].nmae is unknown; did you mean name?"),
    ];
    assert_eq!(told.output.lines().collect::<Vec<_>>(), expected);
    let told = run(&["config", "check", "--json", &bad]);
    let all: Value = serde_json::from_str(&told.output)?;
    assert_eq!((&all[0]["valid"], all[0]["problems"].as_array().map(Vec::len)), (&json!(false), Some(4)));
    assert_eq!(run(&["config", "check", &good]).status.code(), Some(0));
    run(&["config", "check", "/nowhere.toml"]).complains(2, &["/nowhere.toml", "cannot be read"]);
    let broken = dir.file("broken.toml", "[server\n").display().to_string();
    let told = run(&["config", "check", &broken]);
    assert_eq!(told.status.code(), Some(1));
    assert!(told.output.contains(&format!("{broken}:1: ")), "{}", told.output);
    Ok(())
}

#[test]
fn what_is_wrong_in_one_place_hides_nothing_in_another() -> Result<()> {
    let dir = TempDir::new();
    let text = format!(
        "plugins.load = [{:?}]\n[server]\nfoo = 1\ndrain_timeout = '99999h'\nlisten = 'nowhere'\n[log]\nlevel = 'loud'\n\
         [plugin.mock]\ntoken-delay-mss = 3\n[[model]]\nname = 'a'\noptions = {{ slots = 'many' }}\n",
        mock()
    );
    let bad = dir.file("bad.toml", text).display().to_string();
    let words = [
        "bad.toml:3: server.foo is unknown; in server there are listen, no_auth,",
        "bad.toml:4: server.drain_timeout: ",
        "bad.toml:5: server.listen \"nowhere\" is not an address",
        "bad.toml:7: log.level \"loud\" is none of",
        "bad.toml:9: option mock.token-delay-mss is unknown; did you mean token-delay-ms?",
        "bad.toml:10: option mock.slots: \"many\" is not a whole number",
    ];
    let told = run(&["config", "check", &bad]);
    assert_eq!(told.status.code(), Some(1), "{}", told.complaint);
    assert_eq!(told.output.lines().count(), words.len(), "{}", told.output);
    for word in words {
        assert!(told.output.contains(word), "{word:?} is missing in {}", told.output);
    }
    for command in [&["serve"][..], &["config", "show"]] {
        run(&[command, &["--config", &bad]].concat()).complains(2, &words);
    }
    let doctor = run(&["doctor", "--config", &bad]);
    assert!(words.iter().all(|word| doctor.output.contains(word)), "{}", doctor.output);
    Ok(())
}

#[test]
fn the_sample_is_valid_and_the_schema_and_the_reference_know_its_keys() -> Result<()> {
    let dir = TempDir::new();
    let sample = run(&["config", "sample"]).output;
    let file = dir.file("sample.toml", &sample).display().to_string();
    let checked = run(&["config", "check", &file]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.output);
    let schema: Value = serde_json::from_str(&run(&["config", "schema"]).output)?;
    assert_eq!(schema["properties"]["limits"]["properties"]["max_queued"]["x-takes-effect"], "reload");
    let reference = run(&["gen-docs", "config"]).output;
    assert!(reference.contains("| `max_queued` |"), "{reference}");
    Ok(())
}

#[test]
fn an_unknown_variable_or_setting_is_refused_with_the_one_that_was_meant() {
    let variable = run_with(&["--plugin", &mock()], &[("CASCADIA__SERVER__LISTN", ":1")]);
    variable.complains(2, &["CASCADIA__SERVER__LISTN is unknown", "CASCADIA__SERVER__LISTEN?"]);
    run(&["--plugin", &mock(), "--set", "server.max_queued=1"])
        .complains(2, &["--set", "did you mean limits.max_queued?"]);
}

#[test]
fn several_models_of_several_plugins_come_from_one_file_with_options_of_their_own() -> Result<()> {
    let dir = TempDir::new();
    let other = elf::replaced(&std::fs::read(setup::plugin("mock"))?, "\"id\":\"mock\"", "\"id\":\"othr\"");
    let other = dir.file("libother.so", other);
    let text = format!(
        "plugins.load = ['{}', '{}']\n\
         [plugin.mock]\nrepeat = 2\n\
         [plugin.othr]\nrepeat = 3\n\
         [[model]]\nname = 'plain'\nengine = 'mock'\n\
         [[model]]\nname = 'own'\nengine = 'mock/mock'\ndevice = 'second'\n[model.options]\nrepeat = 4\n\
         [[model]]\nname = 'org/third'\nengine = 'othr'\n",
        mock(),
        other.display()
    );
    let file = dir.file("host.toml", text).display().to_string();
    let host = Host::start(&["--config", &file]);
    host.ready();
    assert_eq!(served(&host)?, ["plain", "own", "org/third"]);
    for (model, text) in [("plain", "a a"), ("own", "a a a a"), ("org/third", "a a a")] {
        assert_eq!(says(&host, model, "a")?, text, "{model}");
    }
    let listed = host.get("/admin/v1/models")?.json()["models"].clone();
    let of = |name: &str, key: &str| {
        listed
            .as_array()
            .into_iter()
            .flatten()
            .find(|m| m["name"] == name)
            .map(|m| m[key].clone())
            .unwrap_or_default()
    };
    assert_eq!(of("own", "device"), "second");
    assert_eq!(of("org/third", "engine"), "othr/mock");
    assert_eq!(of("plain", "source"), "configuration");
    Ok(())
}

#[test]
fn check_knows_the_options_of_plugins_that_are_there() -> Result<()> {
    let dir = TempDir::new();
    let text = |plugin: &str| {
        format!(
            "plugins.load = [{plugin:?}, \"not-here\"]\n[plugin.mock]\nslotz = 1\n[plugin.other]\nx = 1\n[[model]]\nname = 'a'\n\
             engine = 'mock'\noptions = {{ slots = 'many' }}\n"
        )
    };
    let bad = dir.file("bad.toml", text(&mock())).display().to_string();
    let told = run(&["config", "check", &bad]);
    assert_eq!(told.status.code(), Some(1), "{}", told.complaint);
    let lines: Vec<_> = told.output.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], format!("{bad}:3: option mock.slotz is unknown; did you mean slots?"));
    assert!(lines[1].contains("option mock.slots: \"many\" is not a whole number"), "{lines:?}");
    // Without its file nobody can say what a plugin knows.
    let elsewhere = dir.file("elsewhere.toml", text("./nowhere/libmock.so")).display().to_string();
    assert_eq!(run(&["config", "check", &elsewhere]).status.code(), Some(0));
    Ok(())
}
