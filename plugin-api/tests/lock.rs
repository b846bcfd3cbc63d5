//! Holds `abi.lock` equal to the tables. `ABI_BLESS=1 cargo test -p cascadia-plugin-api` writes it anew.

#[expect(clippy::disallowed_methods, reason = "blessing is asked for by the developer's environment")]
#[test]
fn the_lock_is_the_layout_of_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/abi.lock");
    let current = cascadia_plugin_api::lock::current();
    if std::env::var_os("ABI_BLESS").is_some() {
        std::fs::write(path, &current).expect("abi.lock is writable");
    }
    let committed = std::fs::read_to_string(path).expect("abi.lock is readable");
    assert_eq!(
        current, committed,
        "the ABI changed: give the changed table a new id, or bless a draft with a reason"
    );
}

#[test]
fn every_table_is_named_once_and_hashed() {
    let hashes: Vec<_> = cascadia_plugin_api::lock::hashes().collect();
    let mut names: Vec<_> = hashes.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cascadia_plugin_api::lock::current().lines().count());
    assert!(hashes.iter().all(|(_, h)| h.len() == 16));
}
