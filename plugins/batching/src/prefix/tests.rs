//! Hits are believed for what they are, never for their hash.

use super::*;

fn scope(salt: &str) -> Arc<Scope> {
    Arc::new(Scope { salt: salt.into(), adapter: String::new() })
}

fn text<'a>(hash: u64, parent: Option<Block>, scope: &'a Arc<Scope>, tokens: &'a [u32]) -> Text<'a> {
    Text { hash, parent, scope, tokens }
}

#[test]
fn a_text_is_found_by_what_it_is_and_not_by_its_hash() {
    let mut index = Index::new(4, 2);
    let (here, there) = (scope("here"), scope("there"));
    index.insert(1, text(7, None, &here, &[1, 2]));
    index.insert(2, text(8, Some(1), &here, &[3, 4]));
    assert_eq!(index.find(text(7, None, &scope("here"), &[1, 2])), Found::Block(1));
    assert_eq!(index.find(text(8, Some(1), &here, &[3, 4])), Found::Block(2));
    assert_eq!(index.find(text(9, None, &here, &[1, 2])), Found::Nothing);
    // All of these have a hash that another text has.
    assert_eq!(index.find(text(7, None, &here, &[1, 3])), Found::Other);
    assert_eq!(index.find(text(7, None, &there, &[1, 2])), Found::Other);
    assert_eq!(index.find(text(7, Some(2), &here, &[1, 2])), Found::Other);
    assert_eq!(index.find(text(8, Some(3), &here, &[3, 4])), Found::Other);
}

#[test]
fn what_is_removed_is_not_found() {
    let mut index = Index::new(4, 2);
    let here = scope("");
    index.insert(1, text(7, None, &here, &[1, 2]));
    index.remove(1);
    index.remove(1);
    assert!(!index.names(1));
    assert_eq!(index.find(text(7, None, &here, &[1, 2])), Found::Nothing);
}

#[test]
fn a_hash_is_of_scope_place_and_tokens() {
    let hashes = [
        hash(None, &scope(""), &[1, 2]),
        hash(None, &scope("a"), &[1, 2]),
        hash(None, &Scope { salt: String::new(), adapter: "a".into() }, &[1, 2]),
        hash(None, &scope(""), &[2, 1]),
        hash(Some(1), &scope(""), &[1, 2]),
        hash(Some(2), &scope(""), &[1, 2]),
    ];
    let different: std::collections::BTreeSet<u64> = hashes.into_iter().collect();
    assert_eq!(different.len(), hashes.len());
    assert_eq!(hashes[0], hash(None, &Scope::default(), &[1, 2]));
}
