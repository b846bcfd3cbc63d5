//! States that are not what they say, and tasks that cannot move.

use super::*;

/// A task that has said something, its state, and the task to go on with it.
fn begun() -> (Alone, Held, Task) {
    let here = Alone::new(60);
    let whole = task(1, prompt(1, 13), 30);
    here.add(whole.clone());
    here.turns(6);
    let saved = here.save(1).unwrap();
    let gone = moved(&whole, 2, &here.text(1));
    (here, saved, gone)
}

/// Refused with the name of a key, and nothing is left of it.
fn refused(there: &Alone, task: &Task, held: &Held) -> String {
    let error = there.restore(task.clone(), held).expect_err("it is taken");
    assert_eq!(error.code, code::INVALID_CONFIG, "{error:?}");
    assert_eq!((there.load().held, there.load().running), (0, 0), "{error:?}");
    let details: Value = serde_json::from_str(&error.details).unwrap_or_else(|_| panic!("{error:?}"));
    let key = details["key"].as_str().unwrap().to_owned();
    assert!(error.message.contains(&key), "{error:?}");
    assert!(error.message.len() < 1000);
    key
}

#[test]
fn no_flipped_byte_and_no_lost_or_added_one_gets_in() {
    let (_here, saved, task) = begun();
    let there = Alone::new(60);
    for at in 0..saved.bytes.len() {
        let mut bad = saved.clone();
        bad.bytes[at] ^= 1 << (at % 8);
        let key = refused(&there, &task, &bad);
        // The first are the tokens, which are compared at once.
        assert_eq!(key, if at < 18 * 4 { "tokens" } else { "digest" }, "byte {at}");
    }
    for length in 0..saved.bytes.len() {
        let bytes = saved.bytes[..length].to_vec();
        assert_eq!(refused(&there, &task, &Held { bytes, ..saved.clone() }), "bytes");
    }
    let bytes = [saved.bytes.as_slice(), &[0]].concat();
    assert_eq!(refused(&there, &task, &Held { bytes, ..saved.clone() }), "bytes");
    there.restore(task, &saved).unwrap();
    there.run();
}

#[test]
fn each_key_that_does_not_fit_is_named() {
    let (here, saved, task) = begun();
    let there = Alone::new(60);
    let hostile = [Value::Null, json!(-1), json!(1e300), json!("x"), json!([[]]), json!({"a": 1})];
    let long = json!("y".repeat(10_000));
    for key in [
        "layout",
        "model",
        "dtype",
        "computes",
        "runtime",
        "caches",
        "block",
        "generated_from",
        "seed",
        "digest",
    ] {
        for value in hostile.iter().chain([&long]) {
            assert_eq!(refused(&there, &task, &saved.with(key, value.clone())), key, "{value}");
        }
    }
    for value in hostile.iter().chain([&json!(0), &json!(1), &json!(17), &json!(19), &json!(u64::MAX)]) {
        assert_eq!(refused(&there, &task, &saved.with("tokens", value.clone())), "tokens", "{value}");
        assert_eq!(refused(&there, &task, &saved.with("bytes", value.clone())), "tokens", "{value}");
    }
    let seven = json!("f".repeat(64));
    assert_eq!(refused(&there, &task, &saved.with("digest", seven)), "digest");
    for descriptor in ["", "{", "[]", "null", &"[".repeat(10_000), &" ".repeat(20_000)] {
        let bad = Held { descriptor: descriptor.to_owned(), ..saved.clone() };
        assert_eq!(refused(&there, &task, &bad), "descriptor");
    }
    // All of another text, and all of a shorter one.
    let mut other = task.clone();
    other.tokens[0] ^= 1;
    assert_eq!(refused(&there, &other, &saved), "tokens");
    let mut early = task.clone();
    early.generated_from -= 1;
    assert_eq!(refused(&there, &early, &saved), "generated_from");
    let mut shorter = task.clone();
    shorter.tokens.truncate(18);
    assert_eq!(refused(&there, &shorter, &saved), "tokens");
    for form in [
        Form { weights: Weights::made_up("other"), ..Alone::new(60).form },
        Form { dtype: "u8".to_owned(), ..Alone::new(60).form },
        Form { rows: vec![0, 8, 16], ..Alone::new(60).form },
    ] {
        assert!(restore(&there, &form, task.clone(), &saved).is_err());
    }
    here.run();
}

#[test]
fn what_is_not_running_has_no_state() {
    let (here, ..) = begun();
    let refused = |task| here.save(task).map(|held| held.bytes.len()).unwrap_err();
    here.add(task(7, prompt(7, 5), 3));
    for id in [7, 8, u64::MAX] {
        assert_eq!(refused(id).code, code::INVALID_CONFIG, "{id}");
    }
    here.run();
    assert_eq!(refused(1).code, code::INVALID_CONFIG);
}

#[test]
fn tasks_that_cannot_move_are_refused_before_a_byte_is_read() {
    let (_here, saved, task) = begun();
    let there = Alone::new(60);
    let saved = Held { lost: Some(0), ..saved };
    let refused = |task: Task| there.restore(task, &saved).unwrap_err().code;
    assert_eq!(
        refused(Task { grammar: (GrammarKind::Mask, String::new()), ..task.clone() }),
        code::UNSUPPORTED
    );
    assert_eq!(refused(Task { generated_from: 1 << 60, ..task.clone() }), code::INVALID_CONFIG);
    let wants = Task { generated_from: task.tokens.len() as u64, prompt_logprobs: Some(0), ..task.clone() };
    assert_eq!(refused(wants), code::UNSUPPORTED);
    assert_eq!(refused(Task { tokens: vec![VOCABULARY as u32; 19], ..task.clone() }), code::INVALID_CONFIG);
    assert_eq!(refused(Task { tokens: vec![1; 400], ..task.clone() }), code::PROMPT_TOO_LONG);
    // Its limit counts from where the answer begins, and is used up.
    assert_eq!(refused(Task { max_tokens: 5, ..task.clone() }), code::INVALID_CONFIG);
    assert_eq!(refused(task), code::NOT_CONNECTED);
    assert_eq!(there.load().held, 0);
}
