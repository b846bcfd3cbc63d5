//! Models that are loaded and let go while the host runs: the admin routes, and the commands that use them.

use std::time::Duration;

use anyhow::Result;
use cascadia_tests::client::{Answer, CHAT, Client, chat, order, streamed, with};
use cascadia_tests::host::run;
use cascadia_tests::http::Request;
use cascadia_tests::{Host, Scrape, TempDir, wait};
use serde_json::{Value, json};

const MODELS: &str = "/admin/v1/models";

fn load(host: &Host, query: &str, body: &Value) -> Result<Answer> {
    host.post(&format!("{MODELS}{query}"), body)
}

fn unload(host: &Host, tail: &str) -> Result<Answer> {
    host.call(&Request::new("DELETE", &format!("{MODELS}/{tail}")))
}

fn of(host: &Host, name: &str) -> Result<Value> {
    let all = host.get(MODELS)?.json()["models"].clone();
    Ok(all.as_array().into_iter().flatten().find(|m| m["name"] == name).cloned().unwrap_or_default())
}

fn to(model: &str, prompt: &str) -> Value {
    with(chat(prompt), &json!({"model": model}))
}

#[test]
fn a_model_is_loaded_asked_and_let_go() -> Result<()> {
    let host = Host::mock(&[]);
    let body =
        json!({"name": "org/more", "engine": "mock/mock", "device": "other", "options": {"repeat": 2}});
    let up = load(&host, "?wait=true&timeout=60s", &body)?;
    assert_eq!(up.status(), 200, "{}", up.text());
    let up = up.json();
    assert_eq!(
        (&up["state"], &up["source"], &up["device"]),
        (&json!("up"), &json!("admin"), &json!("other"))
    );
    assert_eq!(host.post(CHAT, &to("org/more", "a"))?.content(), "a a");
    assert_eq!(host.chat("a")?.content(), "a", "the other model has options of its own");
    let gone = unload(&host, "org%2Fmore?wait=true")?;
    assert_eq!((gone.status(), gone.json()), (200, json!({"name": "org/more", "state": "unloaded"})));
    assert_eq!(host.post(CHAT, &to("org/more", "a"))?.error(404)["code"], "model_not_found");
    assert_eq!(of(&host, "org/more")?, Value::Null);
    // The name is free again.
    assert_eq!(load(&host, "?wait=true", &body)?.status(), 200);
    Ok(())
}

#[test]
fn the_series_of_a_model_that_was_let_go_leave_with_it_and_begin_at_zero_when_it_comes_back() -> Result<()> {
    let host = Host::mock(&[]);
    let shown = || -> Result<Vec<String>> {
        let text = host.get("/metrics")?.text();
        Ok(text.lines().filter(|line| line.contains("model=\"b\"")).map(str::to_owned).collect())
    };
    let generated = |s: &Scrape| s.value("cascadia_tokens_generated_total", &[("model", "b")]);
    for _ in 0..2 {
        assert_eq!(load(&host, "?wait=true", &json!({"name": "b", "device": "other"}))?.status(), 200);
        assert_eq!(generated(&host.scrape()), 0.0);
        assert_eq!(host.post(CHAT, &to("b", "x y"))?.content(), "x y");
        assert_eq!(generated(&host.quiet()), 2.0);
        assert!(shown()?.len() > 20);
        assert_eq!(unload(&host, "b?wait=true")?.status(), 200);
        assert_eq!(shown()?, Vec::<String>::new());
    }
    // The other's are as they were.
    assert_eq!(host.chat("x")?.content(), "x");
    assert_eq!(host.quiet().ended("stop"), 1.0);
    Ok(())
}

#[test]
fn requests_on_a_model_that_is_let_go_end_as_if_nothing_were() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "2"]);
    assert_eq!(load(&host, "?wait=true", &json!({"name": "b"}))?.status(), 200);
    let words: Vec<String> = (0..30).map(|i| format!("w{i}")).collect();
    let slow = to("b", &order(&words.join(" "), &json!({"token_delay_ms": 20})));
    let mut stream = host.stream(CHAT, &streamed(slow.clone()))?;
    stream.pieces(1)?;
    let mut whole = host.begin(&Request::post(CHAT, &slow))?;
    host.running(2);
    // It waits for a slot when the model goes.
    let mut queued = host.begin(&Request::post(CHAT, &slow))?;
    host.queued(1);
    let gone = unload(&host, "b")?;
    assert_eq!((gone.status(), &gone.json()["state"]), (202, &json!("draining")));
    assert_eq!(of(&host, "b")?["state"], "draining");
    assert_eq!(host.post(CHAT, &to("b", "late"))?.error(404)["code"], "model_not_found");
    assert_eq!(host.chat("others go on")?.content(), "others go on");
    let told = stream.rest()?;
    assert_eq!((told.text.as_str(), told.error), (words.join(" ").as_str(), None));
    assert_eq!(whole.answer()?.content(), words.join(" "));
    assert_eq!(queued.answer()?.content(), words.join(" "));
    wait("the drained model to be gone", || match of(&host, "b") {
        Ok(Value::Null) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // What was booked for it left with it.
    let metrics = host.quiet();
    assert_eq!((metrics.ended("stop"), metrics.all_ended()), (1.0, 1.0));
    assert_eq!(
        (metrics.rejected("invalid_request"), metrics.all_rejected()),
        (1.0, 1.0),
        "the one that was late"
    );
    Ok(())
}

#[test]
fn the_steps_of_a_model_that_drains_are_counted_on() -> Result<()> {
    let host = Host::mock(&[]);
    assert_eq!(load(&host, "?wait=true", &json!({"name": "b"}))?.status(), 200);
    let words = vec!["x"; 200];
    let slow = order("slow", &json!({"token_delay_ms": 50, "script": words}));
    let mut running = host.stream(CHAT, &streamed(to("b", &slow)))?;
    running.pieces(1)?;
    assert_eq!(unload(&host, "b")?.status(), 202);
    let steps = || host.scrape().sum("cascadia_engine_steps_total", &[("model", "b")]);
    let before = steps();
    wait("steps of the engine that drains", || match steps() {
        now if now >= before + 5.0 => Ok(()),
        now => Err(format!("{before}, then {now}")),
    });
    drop(running);
    host.quiet();
    Ok(())
}

#[test]
fn a_name_that_is_loaded_again_while_the_old_model_drains_keeps_its_series() -> Result<()> {
    let host = Host::mock(&[]);
    let body = json!({"name": "b"});
    assert_eq!(load(&host, "?wait=true", &body)?.status(), 200);
    let mut old = host.stream(CHAT, &streamed(to("b", &order("a b", &json!({"token_delay_ms": 700})))))?;
    old.pieces(1)?;
    assert_eq!(unload(&host, "b")?.status(), 202);
    assert_eq!(load(&host, "?wait=true", &body)?.status(), 200);
    assert_eq!(host.post(CHAT, &to("b", "new"))?.content(), "new");
    assert_eq!(old.rest()?.text, "a b");
    wait("the old engine to be closed", || match host.log().matches("engine closed").count() {
        1 => Ok(()),
        n => Err(n.to_string()),
    });
    let metrics = host.scrape();
    assert_eq!(metrics.sum("cascadia_worker_up", &[("model", "b")]), 1.0);
    Ok(())
}

#[test]
fn a_model_that_loads_or_fails_leaves_the_host_ready() -> Result<()> {
    let host = Host::mock(&[]);
    let slow = json!({"name": "slow", "options": {"load-delay-ms": 3_600_000}});
    let asked = load(&host, "", &slow)?;
    assert_eq!((asked.status(), &asked.json()["state"]), (202, &json!("loading")));
    // A wait that is over before the model is up says how it stands.
    let late = load(
        &host,
        "?wait=true&timeout=50ms",
        &json!({"name": "late", "options": {"load-delay-ms": 3_600_000}}),
    )?;
    assert_eq!((late.status(), &late.json()["state"]), (202, &json!("loading")));
    assert_eq!(host.get("/readyz")?.status(), 200);
    assert_eq!(host.post(CHAT, &to("slow", "a"))?.error(503)["code"], "engine_unavailable");
    let bad = json!({"name": "bad", "options": {"fail-load": "no such weights"}});
    let failed = load(&host, "?wait=true", &bad)?.error(500);
    assert_eq!(failed["code"], "load_failed");
    assert!(failed["message"].as_str().is_some_and(|m| m.contains("no such weights")), "{failed}");
    assert_eq!(host.get("/readyz")?.status(), 200);
    let listed = of(&host, "bad")?;
    assert_eq!(listed["state"], "failed");
    assert!(listed["reason"].as_str().is_some_and(|r| r.contains("no such weights")), "{listed}");
    // The name of one that failed may be used again.
    assert_eq!(load(&host, "?wait=true", &json!({"name": "bad"}))?.status(), 200);
    // A build that nobody wants any more is given up.
    for name in ["slow", "late"] {
        assert_eq!(unload(&host, name)?.status(), 200);
        assert_eq!(of(&host, name)?, Value::Null);
    }
    Ok(())
}

#[test]
fn a_wrong_wish_is_refused_and_changes_nothing() -> Result<()> {
    let host = Host::mock(&[]);
    for (body, status, code, param) in [
        (json!({"name": "mock"}), 409, "model_exists", "name"),
        (json!({"name": "a b"}), 400, "invalid_value", "name"),
        (json!({"name": ""}), 400, "invalid_value", "name"),
        (json!({"name": "x", "engine": "nobody"}), 400, "invalid_value", "engine"),
        (json!({"name": "x", "options": {"slotz": 1}}), 400, "invalid_value", ""),
        (json!({"name": "x", "options": {"slots": [1]}}), 400, "invalid_value", "options"),
        (json!({"name": "x", "modle": "y"}), 400, "invalid_value", ""),
        (json!([]), 400, "invalid_json", ""),
    ] {
        let error = load(&host, "", &body)?.error(status);
        assert_eq!(
            (&error["code"], error["param"].as_str().unwrap_or_default()),
            (&json!(code), param),
            "{body}"
        );
    }
    assert_eq!(load(&host, "?wait=perhaps", &json!({"name": "x"}))?.error(400)["param"], "wait");
    assert_eq!(unload(&host, "nobody")?.error(404)["code"], "model_not_found");
    assert_eq!(unload(&host, "%zz")?.error(400)["code"], "invalid_value");
    let put = host.call(&Request::new("PUT", MODELS))?;
    assert_eq!((put.status(), put.head.header("allow")), (405, Some("GET, HEAD, POST, OPTIONS")));
    let all = host.get(MODELS)?.json();
    assert_eq!(all["models"].as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!(host.scrape().all_rejected(), 0.0, "an admin call is no generation");
    Ok(())
}

#[test]
fn web_pages_and_what_comes_through_a_proxy_are_not_answered() -> Result<()> {
    let host = Host::mock(&[]);
    for (name, value) in
        [("origin", "http://localhost:3000"), ("x-forwarded-for", "10.0.0.1"), ("forwarded", "for=10.0.0.1")]
    {
        for request in [
            Request::new("GET", MODELS),
            Request::post(MODELS, &json!({"name": "x"})),
            Request::new("DELETE", &format!("{MODELS}/mock")),
        ] {
            assert_eq!(host.call(&request.header(name, value))?.error(403)["code"], "admin_only", "{name}");
        }
    }
    assert_eq!(host.chat("untouched")?.content(), "untouched");
    Ok(())
}

#[test]
fn a_host_with_admin_keys_answers_who_shows_one() -> Result<()> {
    let dir = TempDir::new();
    let key = "admin-key-0123456789abcdef";
    let file = dir.file("keys", format!("# the operator\n{key}\n")).display().to_string();
    let client = "client-key-0123456789abcdef";
    let clients = dir.file("clients", format!("{client}\n")).display().to_string();
    let host = Host::mock(&["--admin-keys", &file, "--api-keys", &clients]);
    let get = |name: &str, value: &str| host.call(&Request::new("GET", MODELS).header(name, value));
    assert_eq!(host.get(MODELS)?.error(401)["code"], "invalid_api_key");
    assert_eq!(get("x-api-key", "another-key-0123456789")?.error(401)["code"], "invalid_api_key");
    assert_eq!(get("x-api-key", key)?.status(), 200);
    // It is one of the host's, only none of those.
    let error = get("x-api-key", client)?.error(403);
    assert_eq!(error["code"], "admin_only");
    assert!(error["message"].as_str().is_some_and(|m| m.contains("--admin-keys")), "{error}");
    // Who has the key may come through a proxy.
    let forwarded =
        Request::new("GET", MODELS).header("x-api-key", key).header("x-forwarded-for", "10.0.0.1");
    assert_eq!(host.call(&forwarded)?.status(), 200);
    let at = format!("http://{}", host.client().address);
    run(&["model", "list", "--host", &at]).complains(1, &["401", "a key is needed"]);
    let list = run(&["model", "list", "--host", &at, "--key-file", &file]);
    assert_eq!(list.status.code(), Some(0), "{}", list.complaint);
    run(&["model", "list", "--host", &at, "--key-file", "/nowhere"]).complains(2, &["/nowhere"]);
    Ok(())
}

#[test]
fn a_page_bound_to_this_machine_is_not_answered_even_when_others_may_reach_the_host() -> Result<()> {
    let host = Host::mock(&["--set", "server.listen=0.0.0.0:0", "--no-auth"]);
    let client = Client { address: ([127, 0, 0, 1], host.client().address.port()).into() };
    let named = |name: &str| client.call(&Request::new("GET", MODELS).header("host", name));
    assert_eq!(named("evil.example")?.error(403)["code"], "host_not_allowed");
    assert_eq!(named("localhost")?.status(), 200);
    Ok(())
}

#[test]
fn a_model_that_drains_when_the_host_ends_is_closed_in_good_order() -> Result<()> {
    let mut host = Host::mock(&[]);
    assert_eq!(load(&host, "?wait=true", &json!({"name": "b"}))?.status(), 200);
    let mut stream = host.stream(CHAT, &streamed(to("b", &order("a b", &json!({"token_delay_ms": 500})))))?;
    stream.pieces(1)?;
    assert_eq!(unload(&host, "b")?.status(), 202);
    host.signal(15);
    assert_eq!(stream.rest()?.text, "a b");
    assert_eq!(host.ended().code(), Some(0));
    let log = host.log();
    assert!(log.contains("stopped") && !log.contains("left behind"), "{log}");
    Ok(())
}

#[test]
fn a_host_that_ends_takes_no_models() -> Result<()> {
    let mut host = Host::mock(&[]);
    let mut stream = host.stream(CHAT, &streamed(chat(&order("a b", &json!({"token_delay_ms": 1500})))))?;
    stream.pieces(1)?;
    host.signal(15);
    wait("the drain", || match host.get("/readyz") {
        Ok(answer) if answer.status() == 503 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(load(&host, "", &json!({"name": "x"}))?.error(503)["code"], "draining");
    assert_eq!(stream.rest()?.text, "a b");
    assert_eq!(host.ended().code(), Some(0));
    Ok(())
}

#[test]
fn the_commands_list_load_and_unload() -> Result<()> {
    let host = Host::mock(&[]);
    let at = format!("http://{}", host.client().address);
    let model = |args: &[&str]| run(&[&["model"], args, &["--host", &at]].concat());
    let up = model(&["load", "two", "--option", "repeat=2", "--wait", "--timeout", "60s"]);
    assert_eq!(up.status.code(), Some(0), "{}", up.complaint);
    assert!(up.output.starts_with("two  up  mock/mock"), "{}", up.output);
    assert_eq!(host.post(CHAT, &to("two", "a"))?.content(), "a a");
    let list = model(&["list"]);
    assert_eq!(list.output.lines().count(), 2, "{}", list.output);
    let list: Value = serde_json::from_str(&model(&["list", "--json"]).output)?;
    assert_eq!(list["models"][1]["name"], "two");
    model(&["load", "two"]).complains(1, &["409", "two already"]);
    model(&["load", "x", "--option", "repeat"]).complains(2, &["KEY=VALUE"]);
    let gone = model(&["unload", "two", "--wait"]);
    assert_eq!((gone.status.code(), gone.output.trim()), (Some(0), "two  unloaded"), "{}", gone.complaint);
    model(&["unload", "two"]).complains(1, &["404", "there is mock"]);
    run(&["model", "list", "--host", "ftp://x"]).complains(2, &["--host"]);
    // Nobody listens on port 1; whatever is there does not speak HTTP.
    run(&["model", "list", "--host", "127.0.0.1:1"]).complains(1, &["127.0.0.1:1", "--host"]);
    Ok(())
}

#[test]
fn loads_and_unloads_under_load_lose_no_request() -> Result<()> {
    let host = Host::mock(&[]);
    let client = host.client();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (asked, failed) = std::thread::scope(|scope| -> Result<(u32, Vec<String>)> {
        let loads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (mut asked, mut failed) = (0, Vec::new());
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        asked += 1;
                        match client.chat("a b c") {
                            Ok(answer) if answer.status() == 200 && answer.content() == "a b c" => {}
                            other => failed.push(format!("{other:?}")),
                        }
                    }
                    (asked, failed)
                })
            })
            .collect();
        let rounds = (|| -> Result<()> {
            for round in 0..5 {
                let name = format!("m{round}");
                assert_eq!(load(&host, "?wait=true", &json!({"name": name}))?.status(), 200);
                assert_eq!(host.post(CHAT, &to(&name, "x"))?.content(), "x");
                assert_eq!(unload(&host, &format!("{name}?wait=true"))?.status(), 200);
            }
            Ok(())
        })();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut all = (0, Vec::new());
        for thread in loads {
            let (asked, failed) = thread.join().expect("PANIC: clients do not panic");
            all.0 += asked;
            all.1.extend(failed);
        }
        rounds.map(|()| all)
    })?;
    assert!(asked > 4, "{asked}");
    assert_eq!(failed, Vec::<String>::new());
    wait("all engines but one to be gone", || {
        let workers = host.scrape().all("cascadia_worker_up", &[]).count();
        if workers == 1 { Ok(()) } else { Err(workers.to_string()) }
    });
    Ok(())
}

/// The longest that a host may take to answer an admin call while an engine is being built.
const PROMPT: Duration = Duration::from_secs(10);

#[test]
fn the_fleet_answers_while_engines_are_built() -> Result<()> {
    let host = Host::mock(&[]);
    for i in 0..4 {
        let body = json!({"name": format!("s{i}"), "options": {"load-delay-ms": 3_600_000}});
        assert_eq!(load(&host, "", &body)?.status(), 202);
    }
    let begun = std::time::Instant::now();
    assert_eq!(host.get(MODELS)?.json()["models"].as_array().map(Vec::len), Some(5));
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    Ok(())
}
