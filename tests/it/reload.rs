//! The configuration read again while the host runs (SIGHUP): what is taken, what is kept, and what is said.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use cascadia_tests::client::{CHAT, Client, chat, order, streamed, with};
use cascadia_tests::http::Request;
use cascadia_tests::{Host, TempDir, wait};
use serde_json::{Value, json};

use crate::config::{mock, says, served};

const SIGHUP: i32 = 1;

/// Reloads and waits until the host has said so; answers the line.
fn reload(host: &Host, message: &str) -> Value {
    let count = || host.log_lines().iter().filter(|l| is(l, message)).count();
    let before = count();
    host.signal(SIGHUP);
    wait(message, || if count() > before { Ok(()) } else { Err(host.log()) });
    host.log_lines().into_iter().rfind(|l| is(l, message)).expect("PANIC: it was just counted")
}

fn is(line: &Value, message: &str) -> bool {
    line["message"].as_str().is_some_and(|m| m.contains(message))
}

#[test]
fn a_reload_takes_what_reloads_and_names_what_needs_a_restart() -> Result<()> {
    let dir = TempDir::new();
    let write = |limits: &str, models: &[&str]| {
        let models: String = models.iter().map(|m| format!("[[model]]\nname = '{m}'\n")).collect();
        dir.file("host.toml", format!("plugins.load = ['{}']\n{limits}\n{models}", mock()))
            .display()
            .to_string()
    };
    let file = write("limits.max_choices = 1", &["kept", "gone"]);
    let host = Host::start(&["--config", &file, "--max-queued", "0"]);
    host.ready();
    let rebuilt = |model: &str| host.scrape().sum("cascadia_worker_restarts_total", &[("model", model)]);
    // A request that runs on the model that goes: it ends as if nothing were.
    let words: Vec<String> = (0..40).map(|i| format!("w{i}")).collect();
    let slow = chat(&order(&words.join(" "), &json!({"token_delay_ms": 20})));
    let mut stream = host.stream(CHAT, &streamed(with(slow, &json!({"model": "gone"}))))?;
    stream.pieces(1)?;
    let two = with(chat("a"), &json!({"model": "kept", "n": 2}));
    assert_eq!(host.post(CHAT, &two)?.status(), 400);

    write("limits.max_choices = 2\nserver.max_connections = 77\nlog.level = 'trace'", &["kept", "new"]);
    let done = reload(&host, "configuration was read again");
    let changed = done["changed"].as_str().unwrap_or_default();
    // Flags win: the level was given with one.
    assert_eq!(changed, "limits.max_choices,model", "{done}");
    assert_eq!(done["models"], "added new, removed gone");
    let warning = host.log_lines().into_iter().find(|l| is(l, "need a restart")).unwrap_or_default();
    assert_eq!((&warning["keys"], &warning["level"]), (&json!("server.max_connections"), &json!("WARN")));
    assert_eq!(host.post(CHAT, &two)?.status(), 200);
    assert!(host.log_lines().iter().filter(|l| is(l, "model is up") && l["model"] == "kept").count() == 1);
    assert_eq!(rebuilt("kept"), 0.0, "it was left alone");
    assert_eq!(host.answered("new", "x"), "x");
    assert_eq!(
        host.post(CHAT, &with(chat("a"), &json!({"model": "gone"})))?.error(404)["code"],
        "model_not_found"
    );
    let told = stream.rest()?;
    assert_eq!((told.text, told.error), (words.join(" "), None));

    // One slot, and no queue.
    write("limits.max_concurrent = 1", &["kept", "new"]);
    reload(&host, "configuration was read again");
    let stalled = with(chat(&order("a b", &json!({"stall_after": 1}))), &json!({"model": "kept"}));
    let mut held = host.stream(CHAT, &streamed(stalled))?;
    held.pieces(1)?;
    assert_eq!(host.post(CHAT, &with(chat("a"), &json!({"model": "kept"})))?.error(503)["code"], "capacity");
    write("limits.max_concurrent = 2", &["kept", "new"]);
    reload(&host, "configuration was read again");
    assert_eq!(says(&host, "kept", "a")?, "a");
    held.reset();
    Ok(())
}

#[test]
fn keys_reload_and_an_open_address_never_loses_them() -> Result<()> {
    let dir = TempDir::new();
    let keys = |key: &str| dir.file("keys", format!("{key}\n")).display().to_string();
    let file = keys("first-key-0123456789");
    let write = |text: &str| {
        let text = format!("plugins.load = ['{}']\n[server]\n{text}\n", mock());
        dir.file("host.toml", text).display().to_string()
    };
    let open = format!("listen = '0.0.0.0:0'\napi_keys = '{file}'");
    let host = Host::start_anywhere(&["--config", &write(&open)]);
    let client = Client { address: ([127, 0, 0, 1], host.client().address.port()).into() };
    let status = |key: &str| -> Result<u16> {
        let request = Request::new("GET", "/v1/models").header("authorization", &format!("Bearer {key}"));
        Ok(client.call(&request)?.status())
    };
    assert_eq!((status("first-key-0123456789")?, status("other-key-0123456789")?), (200, 401));
    keys("other-key-0123456789");
    reload(&host, "configuration was read again");
    assert_eq!((status("first-key-0123456789")?, status("other-key-0123456789")?), (401, 200));
    // Short keys are refused, and those there are stay.
    keys("short");
    assert!(is(&reload(&host, "the old configuration stays"), "shorter than"));
    assert_eq!(status("other-key-0123456789")?, 200);
    // Valid for the next start, which would listen on loopback; the running host would be open to everybody.
    write("listen = '127.0.0.1:0'");
    assert!(is(&reload(&host, "the old configuration stays"), "restart the host"));
    assert_eq!(status("first-key-0123456789")?, 401);
    Ok(())
}

#[test]
fn options_that_changed_build_the_model_anew_beside_the_old_one() -> Result<()> {
    let dir = TempDir::new();
    let write = |repeat: u32| {
        let text = format!(
            "plugins.load = ['{}']\nplugin.mock.repeat = {repeat}\n[[model]]\nname = 'mock'\n",
            mock()
        );
        dir.file("host.toml", text).display().to_string()
    };
    let host = Host::start(&["--config", &write(1)]);
    host.ready();
    assert_eq!(host.chat("a")?.content(), "a");
    write(3);
    let done = reload(&host, "configuration was read again");
    assert_eq!((&done["changed"], &done["models"]), (&json!("plugin"), &json!("changed mock")));
    wait("the new option to hold", || match host.chat("a") {
        // It answers all the time, first as before.
        Ok(answer) if answer.status() != 200 => panic!("{}", answer.text()),
        Ok(answer) if answer.content() == "a a a" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    host.quiet();
    Ok(())
}

#[test]
fn reloads_under_load_lose_no_request() -> Result<()> {
    let dir = TempDir::new();
    let write = |round: usize| {
        // Every second round builds the model anew; the slots go up and down.
        let (slots, repeat, more) = (
            4 + round % 3,
            1 + round / 2,
            if round.is_multiple_of(2) { "" } else { "[[model]]\nname = 'more'" },
        );
        let text = format!(
            "plugins.load = ['{}']\nlimits.max_concurrent = {slots}\nplugin.mock.max-waiting = {}\n[[model]]\nname = 'mock'\n{more}",
            mock(),
            100 + repeat,
        );
        dir.file("host.toml", text).display().to_string()
    };
    let host = Host::start(&["--config", &write(0)]);
    host.ready();
    let (client, stop) = (host.client(), AtomicBool::new(false));
    let failed = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut failed = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let told = client.told(CHAT, &streamed(chat("a b c")));
                        if !told.as_ref().is_ok_and(|told| told.text == "a b c" && told.error.is_none()) {
                            failed.push(format!("{told:?}"));
                        }
                    }
                    failed
                })
            })
            .collect();
        for round in 1..=8 {
            write(round);
            reload(&host, "configuration was read again");
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|c| c.join().expect("PANIC: clients do not panic")).collect::<Vec<_>>()
    });
    assert_eq!(failed, Vec::<String>::new());
    assert!(!host.log().contains("the old configuration stays"), "{}", host.log());
    assert!(
        host.scrape().sum("cascadia_worker_restarts_total", &[("model", "mock")]) > 0.0,
        "none was built anew"
    );
    host.quiet();
    Ok(())
}

#[test]
fn new_options_that_fail_leave_the_old_engine_serving_until_they_are_mended() -> Result<()> {
    let dir = TempDir::new();
    let write = |more: &str| {
        let text = format!("plugins.load = ['{}']\n[[model]]\nname = 'mock'\n{more}", mock());
        dir.file("host.toml", text).display().to_string()
    };
    let host = Host::start(&["--config", &write("")]);
    host.ready();
    let builds = || host.log_lines().iter().filter(|l| is(l, "building engine")).count();
    let listed = || host.get("/admin/v1/models").map(|a| a.json()["models"][0].clone());
    write("options = {fail-load = 'no weights', repeat = 2}");
    for round in 2..4 {
        // The same again is another try.
        reload(&host, "configuration was read again");
        wait("the reason to be listed", || match listed() {
            Ok(m) if builds() == round && m["reason"].as_str().is_some_and(|r| r.contains("no weights")) => {
                Ok(())
            }
            other => Err(format!("{} builds, {other:?}", builds())),
        });
        assert_eq!(listed()?["state"], "up");
        assert_eq!(host.chat("a")?.content(), "a");
        assert_eq!(host.get("/readyz")?.status(), 200);
    }
    write("options = {repeat = 2}");
    reload(&host, "configuration was read again");
    wait("the mended options to hold", || match host.chat("a") {
        Ok(answer) if answer.content() == "a a" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(listed()?["reason"], Value::Null);
    Ok(())
}

#[test]
fn a_reload_tries_a_model_that_failed_at_once() -> Result<()> {
    let dir = TempDir::new();
    let file = dir.file("host.toml", format!("plugins.load = ['{}']\n[[model]]\nname = 'mock'\n", mock()));
    let host = Host::start(&["--config", &file.display().to_string()]);
    host.ready();
    let up = host
        .post("/admin/v1/models?wait=true", &json!({"name": "bad", "options": {"fail-load": "not yet"}}))?;
    assert_eq!(up.error(500)["code"], "load_failed");
    let lines =
        |message: &str| host.log_lines().iter().filter(|l| l["model"] == "bad" && is(l, message)).count();
    // The fifth failure leaves it alone for five minutes, which is longer than this test waits.
    wait("the engine to be left alone", || match lines("engine failed too often in a minute: left alone") {
        0 => Err(lines("engine is down").to_string()),
        _ => Ok(()),
    });
    let tries = || lines("building engine");
    let before = tries();
    reload(&host, "configuration was read again");
    wait("one more try", || if tries() > before { Ok(()) } else { Err(tries().to_string()) });
    Ok(())
}

#[test]
fn the_log_level_reloads_in_both_directions() -> Result<()> {
    let dir = TempDir::new();
    let write = |level: &str| {
        let text = format!("plugins.load = ['{}']\nlog.level = '{level}'\n", mock());
        dir.file("host.toml", text).display().to_string()
    };
    let host = Host::start_bare(&["--config", &write("info")]);
    host.ready();
    let refused = || -> Result<usize> {
        host.get("/v1/models/of/nobody")?;
        host.post(CHAT, &json!({"model": "nobody", "messages": []}))?.error(404);
        Ok(host.log_lines().iter().filter(|l| l["level"] == "DEBUG").count())
    };
    assert_eq!(refused()?, 0);
    write("debug");
    reload(&host, "configuration was read again");
    let told = refused()?;
    assert!(told > 0, "{}", host.log());
    write("info");
    reload(&host, "configuration was read again");
    let before = refused()?;
    assert_eq!(refused()?, before, "nothing more is told");
    Ok(())
}

#[test]
fn the_log_level_of_an_isolated_engine_reloads_too() -> Result<()> {
    let dir = TempDir::new();
    let write = |level: &str| {
        let text = format!("plugins.load = ['{}']\nlog.level = '{level}'\n", mock());
        dir.file("host.toml", text).display().to_string()
    };
    let host = Host::start_bare(&["--config", &write("info"), "--isolate"]);
    host.ready();
    let lines =
        || host.log_lines().iter().filter(|l| l["target"] == "plugin" && l["level"] == "DEBUG").count();
    let spans = || -> Result<usize> {
        assert_eq!(host.chat(&order("a b", &json!({"span": true})))?.content(), "a b");
        Ok(lines())
    };
    assert_eq!(spans()?, 0);
    write("debug");
    reload(&host, "configuration was read again");
    wait("a span of the engine", || match spans() {
        Ok(n) if n > 0 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    write("info");
    reload(&host, "configuration was read again");
    wait("the engine to be quiet", || {
        // Several times as long as a line takes from there.
        std::thread::sleep(Duration::from_millis(400));
        let before = lines();
        spans().map_err(|e| e.to_string())?;
        std::thread::sleep(Duration::from_millis(400));
        if lines() == before { Ok(()) } else { Err(format!("{before}, then {}", lines())) }
    });
    assert!(!host.log().contains("engine failed"), "{}", host.log());
    Ok(())
}

#[test]
fn a_reload_of_a_bad_file_changes_nothing_and_is_one_error() -> Result<()> {
    let dir = TempDir::new();
    let write = |more: &str| {
        let text = format!("plugins.load = ['{}']\nlimits.max_choices = 1\n{more}", mock());
        dir.file("host.toml", text).display().to_string()
    };
    let host = Host::start(&["--config", &write("")]);
    host.ready();
    for (bad, words) in [
        ("[limit", "host.toml:3"),
        ("limits.max_choice = 5", "did you mean limits.max_choices?"),
        ("limits.max_concurrent = 0", "at least 1"),
        ("plugin.mock.slots = 'many'", "mock.slots"),
        ("limits.max_queued = 'x'\nlimits.max_concurrent = 0", "max_concurrent is 0"),
        ("limits.max_queued = 'x'\nplugin.mock.slots = 'many'", "mock.slots"),
        ("[[model]]\nname = 'x'\nengine = 'nobody'", "nobody"),
        ("plugin.nobody.slots = 1", "nobody"),
        ("[[model]]\nname = 'x'\n[[model]]\nname = 'x'", "two models"),
    ] {
        write(bad);
        let error = reload(&host, "the old configuration stays");
        assert_eq!(error["level"], "ERROR");
        assert!(is(&error, words), "{words:?} is missing in {error}");
    }
    assert_eq!(host.post(CHAT, &with(chat("a"), &json!({"n": 2})))?.status(), 400);
    assert_eq!(host.chat("still there")?.content(), "still there");
    assert_eq!(served(&host)?, ["mock"]);
    // And a good one after it is taken.
    write("limits.queue_timeout = '5s'");
    assert_eq!(reload(&host, "configuration was read again")["changed"], "limits.queue_timeout");
    Ok(())
}
