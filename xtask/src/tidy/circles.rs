//! No import circles: following the paths that files name never leads back to where one started.
//!
//! Not counted: a part that names the module it is part of (`prompt/detok.rs` naming `prompt.rs`), since a module and its
//! parts share one vocabulary. A circle that closes only through such a step is not seen.

use super::Finding;
use super::source::{self, Module};
use std::collections::BTreeMap;

pub(super) fn check(modules: &[Module]) -> Vec<Finding> {
    let by_path = source::by_path(modules);
    let edges: Vec<BTreeMap<usize, usize>> =
        modules.iter().map(|module| uses(module, modules, &by_path)).collect();
    let mut search =
        Search { modules, edges: &edges, state: vec![State::New; modules.len()], found: Vec::new() };
    for start in 0..modules.len() {
        search.visit(start, &mut Vec::new());
    }
    search.found
}

/// Files that a module names, each with the first line that does.
fn uses(module: &Module, modules: &[Module], by_path: &BTreeMap<&[String], usize>) -> BTreeMap<usize, usize> {
    let mut found = BTreeMap::new();
    for mention in &module.mentions {
        let Some(path) = module.resolve(mention) else { continue };
        // The longest part of the path that is a file; what is left are items in it.
        let file = (0..=path.len()).rev().find_map(|length| by_path.get(&path[..length]));
        if let Some(file) = file.filter(|file| !is_part(module, &modules[**file])) {
            found.entry(*file).or_insert(mention.line);
        }
    }
    found
}

/// The module itself or a part of the other one. Nothing counts as a part of the crate's root.
fn is_part(module: &Module, other: &Module) -> bool {
    module.path.starts_with(&other.path)
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Done,
}

struct Search<'a> {
    modules: &'a [Module],
    edges: &'a [BTreeMap<usize, usize>],
    state: Vec<State>,
    found: Vec<Finding>,
}

impl Search<'_> {
    fn visit(&mut self, at: usize, trail: &mut Vec<usize>) {
        match self.state[at] {
            State::Done => return,
            State::Open => return self.report(at, trail),
            State::New => self.state[at] = State::Open,
        }
        trail.push(at);
        for next in self.edges[at].keys() {
            self.visit(*next, trail);
        }
        trail.pop();
        self.state[at] = State::Done;
    }

    /// The trail from `at` on leads back to `at`.
    fn report(&mut self, at: usize, trail: &[usize]) {
        let from = trail.iter().position(|one| *one == at).unwrap_or(0);
        let circle = &trail[from..];
        let line = |from: usize, to: usize| self.edges[from].get(&to).copied().unwrap_or(1);
        let mut text = "import circle:".to_owned();
        for (place, one) in circle.iter().enumerate() {
            let next = circle.get(place + 1).copied().unwrap_or(at);
            text += &format!(" {}:{} →", self.modules[*one].file, line(*one, next));
        }
        text += &format!(" {}; move what both need to a third file", self.modules[at].file);
        let next = circle.get(1).copied().unwrap_or(at);
        self.found.push(Finding::breach(&self.modules[at].file, line(at, next), text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Text;
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let text =
            |(name, text): &(&str, &str)| Text { name: format!("host/src/{name}"), text: (*text).to_owned() };
        let texts: Vec<Text> = files.iter().map(text).collect();
        check(&Module::all("host/src", &texts)).into_iter().map(|one| one.text).collect()
    }

    #[test]
    fn a_circle_of_three_is_found_once() {
        let found = findings(&[
            ("a.rs", "use crate::b::c::X;"),
            ("b.rs", "pub mod c;"),
            ("b/c.rs", "fn f() { crate::d::g() }"),
            ("d.rs", "\nuse crate::{a, e};"),
            ("e.rs", ""),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        let circle = "host/src/a.rs:1 → host/src/b/c.rs:1 → host/src/d.rs:2 → host/src/a.rs;";
        assert!(found[0].contains(circle), "{found:?}");
    }

    #[test]
    fn parts_share_their_modules_vocabulary_but_siblings_make_circles() {
        let parent = ("b.rs", "mod c; mod d; pub struct X; fn f() { c::g() }");
        assert_eq!(findings(&[parent, ("b/c.rs", "use super::X;"), ("b/d.rs", "use super::c::g;")]), [""; 0]);
        let siblings = [parent, ("b/c.rs", "use super::d::h;"), ("b/d.rs", "use super::c::g;")];
        assert_eq!(findings(&siblings).len(), 1);
        let outside = [parent, ("b/c.rs", "use crate::e::Y;"), ("e.rs", "use crate::b::X;")];
        assert_eq!(findings(&outside).len(), 1, "through the parent's use of its part");
    }

    #[test]
    fn the_root_and_tests_make_no_circle() {
        let files = [
            ("lib.rs", "pub mod a; pub fn run() { a::f() }"),
            ("main.rs", "fn main() { cascadia_host::run() }"),
        ];
        assert_eq!(
            findings(&[files[0], files[1], ("a.rs", "#[cfg(test)] mod tests { use super::*; }")]),
            [""; 0]
        );
        assert_eq!(findings(&[files[0], ("a.rs", "use crate::run;")]).len(), 1);
    }
}
