//! Which paths are seen in which source.

use super::*;

fn module(path: &str, text: &str) -> Module {
    Module::new("f.rs", path.split('/').map(str::to_owned).collect(), text)
}

fn paths(text: &str) -> Vec<String> {
    let module = module("a", text);
    let long = module.mentions.iter().filter(|mention| mention.path.len() > 1);
    long.map(|mention| format!("{} {}", mention.line, mention.path.join("::"))).collect()
}

#[test]
fn use_groups_are_taken_apart() {
    let text = "use crate::{\n  a::B,\n  c::{self, D as E, f::*},\n};\nuse std::fs;";
    let found = ["2 crate::a::B", "3 crate::c", "3 crate::c::D", "3 crate::c::f", "5 std::fs"];
    assert_eq!(paths(text), found);
}

#[test]
fn paths_in_expressions_and_types_are_seen() {
    let text = "fn f(x: crate::a::T) -> Vec<u8> {\n x.clap::<u8>(); tokio::time::sleep::<T>(1) }";
    assert_eq!(paths(text), ["1 crate::a::T", "2 tokio::time::sleep"]);
}

#[test]
fn comments_strings_and_tests_are_not() {
    let text = r##"
// crate::a
/* crate::b /* crate::c */ */
const A: &str = "crate::d \" crate::e"; const B: char = '"'; const C: &str = r#"crate::f " "#;
fn f<'a>(x: &'a str) { crate::g::h() }
#[cfg(test)]
mod tests { use crate::i::J; fn f() { { } } }
use crate::k::L;
"##;
    assert_eq!(paths(text), ["5 crate::g::h", "8 crate::k::L"]);
}

#[test]
fn mentions_are_resolved_from_the_module() {
    let module = module(
        "sched/admit",
        "mod child; use super::Queue; use self::x::Y; fn f() { child::go(); other::go() }",
    );
    let found: Vec<_> = module.mentions.iter().filter_map(|mention| module.resolve(mention)).collect();
    let found: Vec<String> = found.iter().map(|path| path.join("/")).collect();
    assert_eq!(found, ["sched/Queue", "sched/admit/x/Y", "sched/admit/child/go"]);
}

#[test]
fn the_root_resolves_its_own_modules() {
    let module = module("lib", "pub mod app; pub fn run() { app::run() }");
    let found: Vec<_> = module.mentions.iter().filter_map(|mention| module.resolve(mention)).collect();
    assert_eq!(found, [["app", "run"]]);
}

#[test]
fn a_name_of_one_word_asks_for_a_path_below_it() {
    let mention = |path: &str| Mention { line: 1, path: path.split("::").map(str::to_owned).collect() };
    assert!(mention("prometheus::Registry").is_below("prometheus"));
    assert!(!mention("prometheus").is_below("prometheus"));
    assert!(mention("std::fs::read").is_below("std::fs"));
    assert!(mention("std::fs").is_below("std::fs"));
    assert!(!mention("std::fsx").is_below("std::fs"));
}
