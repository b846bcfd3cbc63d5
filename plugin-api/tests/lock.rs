//! Holds `abi.lock` equal to the tables, and both to what was shipped.
//!
//! `ABI_BLESS=1 cargo test -p cascadia-plugin-api` writes the lock anew; it cannot change a frozen line.
//! `ABI_FREEZE=1.2.3 cargo test -p cascadia-plugin-api --test lock` is a release: every table of the lock joins
//! `abi.frozen`, for good.

use cascadia_plugin_api::{frozen, lock};

const LOCK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/abi.lock");
const FROZEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/abi.frozen");

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "blessing and freezing are asked for by the developer's environment"
)]
fn asked(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[test]
fn the_lock_is_the_layout_of_the_tables_and_keeps_what_was_shipped() {
    let current = lock::current();
    if asked("ABI_BLESS").is_some() {
        let blessed =
            frozen::blessed(&read(FROZEN), &current).unwrap_or_else(|why| panic!("not blessed: {why}"));
        std::fs::write(LOCK, blessed).expect("abi.lock is writable");
    }
    let committed = read(LOCK);
    if let Err(why) =
        frozen::kept(&read(FROZEN), &current).and_then(|()| frozen::kept(&read(FROZEN), &committed))
    {
        panic!("{why}");
    }
    assert_eq!(
        current, committed,
        "the ABI changed: give the changed table a new id, or bless a draft with a reason"
    );
    if let Some(release) = asked("ABI_FREEZE") {
        let text = frozen::shipped(&read(FROZEN), &committed, &release).expect("kept, as above");
        std::fs::write(FROZEN, text).expect("abi.frozen is writable");
    }
}

#[test]
fn every_table_is_named_once_and_hashed() {
    let hashes: Vec<_> = lock::hashes().collect();
    let mut names: Vec<_> = hashes.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), lock::current().lines().count());
    assert!(hashes.iter().all(|(_, h)| h.len() == 16));
}

// ---- The freeze, tried on texts ----

const FIRST: &str =
    "# what was shipped\n\n# 0.1.0\na size=8 align=8; x@0:8 u64\nb size=4 align=4; y@0:4 u32\n";
const A: &str = "a size=8 align=8; x@0:8 u64";
const B: &str = "b size=4 align=4; y@0:4 u32";

fn text(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_frozen_line_may_be_neither_edited_nor_dropped_and_blessing_refuses_it() {
    let grown = "a size=16 align=8; x@0:8 u64; z@8:8 u64";
    let retyped = "a size=8 align=8; x@0:8 i64";
    for (what, lock) in [
        ("edited", text(&[grown, B])),
        ("with another type", text(&[retyped, B])),
        ("renamed", text(&["a2 size=8 align=8; x@0:8 u64", B])),
        ("dropped", text(&[B])),
        ("gone", String::new()),
    ] {
        for found in [frozen::kept(FIRST, &lock), frozen::blessed(FIRST, &lock).map(drop)] {
            let why = found.expect_err(what);
            assert!(
                why.starts_with(&format!("a shipped table was edited or dropped: {A}\n")),
                "{what}: {why}"
            );
        }
    }
    let twice = frozen::kept(FIRST, &text(&[A, B, grown])).expect_err("both");
    assert_eq!(twice, "the table a is there twice");
}

#[test]
fn a_draft_may_change_or_go_beside_frozen_lines_in_any_order() {
    for lock in [
        text(&[A, B]),
        text(&[B, A]),
        text(&["c size=1 align=1; w@0:1 u8", A, B]),
        text(&[A, "c size=2 align=2; w@0:2 u16", B]),
    ] {
        assert_eq!(frozen::blessed(FIRST, &lock), Ok(lock.clone()));
    }
    // Nothing is frozen yet: everything may change.
    assert_eq!(frozen::blessed("# nothing\n", ""), Ok(String::new()));
}

#[test]
fn a_release_freezes_what_is_there_and_the_next_one_adds_to_it() {
    let first = frozen::shipped("# what was shipped\n", &text(&[A, B]), "0.1.0").expect("all drafts");
    assert_eq!(first, FIRST.replace("\n\n", "\n"));
    let c = "c size=1 align=1; w@0:1 u8";
    let second = frozen::shipped(&first, &text(&[c, A, B]), "0.2.0").expect("kept");
    assert_eq!(second, format!("{first}# 0.2.0\n{c}\n"));
    assert_eq!(frozen::shipped(&second, &text(&[A, B, c]), "0.2.1"), Ok(second.clone()), "nothing new");
    frozen::shipped(&second, &text(&[A, B]), "0.3.0").expect_err("c is gone");
    assert!(frozen::is_frozen_in(&second, "c") && !frozen::is_frozen_in(&first, "c"));
    assert!(!frozen::is_frozen_in(&second, "#"), "a remark is no table");
}

#[test]
fn a_plugin_needs_the_same_draft_of_a_table_and_any_hash_of_a_frozen_one() {
    let ours = || [("a", "1".to_owned()), ("b", "2".to_owned()), ("c", "3".to_owned())].into_iter();
    let theirs = |name: &str| match name {
        "a" => Some("old".to_owned()),
        "c" => Some("old".to_owned()),
        "future" => Some("9".to_owned()),
        _ => None,
    };
    assert_eq!(frozen::other_drafts("", ours(), theirs), ["a", "c"]);
    assert_eq!(frozen::other_drafts(FIRST, ours(), theirs), ["c"], "a is frozen, b is not theirs");
    assert_eq!(frozen::other_drafts(FIRST, ours(), |_| None), [""; 0]);
}
