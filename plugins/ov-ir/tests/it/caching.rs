//! What a cache of compiled models promises: nothing damaged is handed out, and it stays within its bound.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cascadia_ov_ir::{BIN, Error, MANIFEST, Report, Request, Step, Target, compile, prune, verify};

use crate::fixture::{Scratch, request};
use crate::models::source;

fn cached(name: &str, folder: &Path) -> Report {
    compile(&asked(name, folder), &mut ()).unwrap()
}

fn asked(name: &str, folder: &Path) -> Request {
    Request { target: Target::Cache(folder.to_owned()), ..request(&source(name), folder) }
}

/// As if it had been used so long ago.
fn aged(report: &Report, hours: u64) {
    let then = SystemTime::now() - Duration::from_secs(hours * 3600 + 60);
    let manifest = File::options().append(true).open(report.folder.join(MANIFEST)).unwrap();
    manifest.set_modified(then).unwrap();
}

#[test]
fn a_byte_that_changed_in_the_cache_is_found_and_compiled_again() {
    let scratch = Scratch::new("flipped");
    let first = cached("llama-gguf", &scratch.path("cache"));
    let bin = first.folder.join(BIN);
    let whole = fs::read(&bin).unwrap();
    let mut bytes = whole.clone();
    bytes[whole.len() / 2] ^= 1;
    fs::write(&bin, bytes).unwrap();
    let second = cached("llama-gguf", &scratch.path("cache"));
    assert!(!second.cached, "the length is right, the digest is not");
    assert_eq!(fs::read(&bin).unwrap(), whole);
    assert!(cached("llama-gguf", &scratch.path("cache")).cached);
}

#[test]
fn a_comparison_that_is_stopped_leaves_the_cache_as_it_was() {
    let scratch = Scratch::new("stopped");
    let first = cached("qwen3-gguf", &scratch.path("cache"));
    // The digest of the source comes first, that of the cache's files second.
    let mut begun = 0;
    let mut stop = |step: Step, done: u64, _: u64| {
        begun += u32::from(step == Step::Digest && done == 0);
        if begun == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let error = compile(&asked("qwen3-gguf", &scratch.path("cache")), &mut stop).unwrap_err();
    assert!(matches!(error, Error::Cancelled { .. }), "{error}");
    assert_eq!(verify(&first.folder, &mut ()).unwrap(), first.manifest);
}

#[test]
fn what_was_unused_for_longest_goes_first_and_only_as_much_as_must() {
    let scratch = Scratch::new("bound");
    let cache = scratch.path("cache");
    let (old, older, new) =
        (cached("llama-gguf", &cache), cached("qwen2-gguf", &cache), cached("qwen3-gguf", &cache));
    aged(&old, 2);
    aged(&older, 3);
    let all = prune(&cache, u64::MAX).unwrap();
    assert!(all.removed.is_empty(), "{all:?}");
    let pruned = prune(&cache, all.left - 1).unwrap();
    assert_eq!((pruned.removed.len(), older.folder.exists(), old.folder.exists()), (1, false, true));
    assert!(pruned.left < all.left);
    // Nothing is left of it but a recent one, whatever the bound is.
    prune(&cache, 0).unwrap();
    assert_eq!((old.folder.exists(), new.folder.exists()), (false, true));
    // Use makes it recent again.
    let again = cached("llama-gguf", &cache);
    aged(&again, 5);
    assert!(cached("llama-gguf", &cache).cached);
    prune(&cache, 0).unwrap();
    assert!(again.folder.exists());
}

#[test]
fn what_is_being_compiled_is_left_alone_and_what_a_killed_one_left_is_not() {
    let scratch = Scratch::new("working");
    let cache = scratch.path("cache");
    let held = cached("llama-gguf", &cache);
    aged(&held, 2);
    let key = held.folder.file_name().unwrap().to_str().unwrap().to_owned();
    let lock = File::options().write(true).open(cache.join(format!(".{key}.lock"))).unwrap();
    lock.lock().unwrap();
    let (working, left) = (cache.join(format!(".{key}.partial")), cache.join(".0123.partial"));
    fs::create_dir(&working).unwrap();
    fs::create_dir(&left).unwrap();
    assert!(prune(&cache, 0).unwrap().removed.is_empty());
    assert_eq!((held.folder.exists(), working.exists(), left.exists()), (true, true, false));
    drop(lock);
    assert_eq!(prune(&cache, 0).unwrap().removed, [key]);
    assert_eq!((held.folder.exists(), working.exists()), (false, false));
}
