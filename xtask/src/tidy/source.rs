//! Rust sources as the rules see them: modules with the paths that they name.
//!
//! Holds: comments, strings and test code are blanked before anything is looked for; line numbers stay those of the
//! file. This is no parser: it knows tokens, paths and `use` groups, which is all that the rules ask about.
//! Limits: a `super` inside an inline (not test) module is read as the file's, and names that a glob import or a macro
//! brings in are not followed.

mod blank;

use super::Text;
use std::collections::BTreeMap;

/// A path such as `crate::sched::Permit`, once per leaf of a `use` group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mention {
    pub(super) line: usize,
    pub(super) path: Vec<String>,
}

impl Mention {
    /// True if the path is `name` or lies below it; a name of one word asks for a path below it.
    pub(super) fn is_below(&self, name: &str) -> bool {
        let name: Vec<&str> = name.split("::").collect();
        self.path.len() >= name.len().max(2) && self.path.iter().zip(&name).all(|(a, b)| a == b)
    }
}

/// One file of a crate.
pub(super) struct Module {
    pub(super) file: String,
    /// `["sched", "admit"]` for `sched/admit.rs`; `["lib"]` and `["main"]` for the roots.
    pub(super) path: Vec<String>,
    pub(super) mentions: Vec<Mention>,
    /// Lines with the word `unsafe`.
    pub(super) unsafes: Vec<usize>,
    children: Vec<String>,
}

impl Module {
    /// The modules below `root`, without test files.
    pub(super) fn all(root: &str, texts: &[Text]) -> Vec<Module> {
        let mut all = Vec::new();
        for text in texts {
            let below = text.name.strip_prefix(root).and_then(|rest| rest.strip_prefix('/'));
            let Some(stem) = below.and_then(|rest| rest.strip_suffix(".rs")) else { continue };
            let path: Vec<String> = stem.split('/').map(str::to_owned).collect();
            if !path.iter().any(|part| part == "tests") {
                all.push(Module::new(&text.name, path, &text.text));
            }
        }
        all
    }

    fn new(file: &str, path: Vec<String>, text: &str) -> Module {
        let code = blank::tests(&blank::comments_and_strings(text));
        let tokens = tokens(&code);
        let unsafes = tokens.iter().filter(|token| token.text == "unsafe").map(|token| token.line).collect();
        let children = tokens
            .windows(3)
            .filter(|three| three[0].text == "mod" && three[2].text == ";")
            .map(|three| three[1].text.to_owned())
            .collect();
        Module { file: file.to_owned(), path, mentions: mentions(&tokens), unsafes, children }
    }

    /// Where a mention leads, counted from the crate's root; None for other crates and local names.
    pub(super) fn resolve(&self, mention: &Mention) -> Option<Vec<String>> {
        let own: &[String] = if self.is_root() { &[] } else { &self.path };
        let (first, rest) = mention.path.split_first()?;
        match first.as_str() {
            "crate" | "cascadia_host" => Some(rest.to_vec()),
            "self" => Some([own, rest].concat()),
            "super" => {
                let ups = mention.path.iter().take_while(|part| *part == "super").count();
                let above = own.get(..own.len().checked_sub(ups)?)?;
                Some([above, &mention.path[ups..]].concat())
            }
            child if self.children.iter().any(|one| one == child) && !rest.is_empty() => {
                Some([own, &mention.path].concat())
            }
            _ => None,
        }
    }

    fn is_root(&self) -> bool {
        matches!(self.path.as_slice(), [one] if one == "lib" || one == "main")
    }
}

/// Files by module path; the crate's root is the empty path.
pub(super) fn by_path(modules: &[Module]) -> BTreeMap<&[String], usize> {
    let mut map = BTreeMap::new();
    for (at, module) in modules.iter().enumerate() {
        match module.path.as_slice() {
            [one] if one == "main" => {}
            [one] if one == "lib" => drop(map.insert(&[][..], at)),
            path => drop(map.insert(path, at)),
        }
    }
    map
}

struct Token<'a> {
    line: usize,
    text: &'a str,
}

impl Token<'_> {
    fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// Words, `::`, and every other sign alone.
fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut all = Vec::new();
    let mut line = 1;
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let length = match first {
            _ if word > 0 => word,
            ':' if rest.starts_with("::") => 2,
            other => other.len_utf8(),
        };
        let (text, after) = rest.split_at(length);
        if first == '\n' {
            line += 1;
        }
        if !first.is_whitespace() {
            all.push(Token { line, text });
        }
        rest = after;
    }
    all
}

fn mentions(tokens: &[Token]) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        // A word after a dot is a field or method, one after `mod` a declaration.
        let before = at.checked_sub(1).map_or("", |before| tokens[before].text);
        at = if tokens[at].is_word() && !matches!(before, "." | "mod" | "'") {
            path(tokens, at, &[], &mut found)
        } else {
            at + 1
        };
    }
    found
}

/// Reads the path that starts at `at`, adds its leaves, and returns where it ends.
fn path(tokens: &[Token], mut at: usize, above: &[String], found: &mut Vec<Mention>) -> usize {
    let line = tokens[at].line;
    let mut path = above.to_vec();
    path.push(tokens[at].text.to_owned());
    at += 1;
    let text = |at: usize| tokens.get(at).map_or("", |token: &Token| token.text);
    while text(at) == "::" {
        if text(at + 1) == "{" {
            return group(tokens, at + 2, &path, found);
        }
        if !tokens.get(at + 1).is_some_and(Token::is_word) {
            break;
        }
        path.push(text(at + 1).to_owned());
        at += 2;
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    found.push(Mention { line, path });
    // `::*` and turbofish: nothing more to learn.
    match (text(at), text(at + 1)) {
        ("::", "*") => at + 2,
        ("::", _) => at + 1,
        _ => at,
    }
}

fn group(tokens: &[Token], mut at: usize, above: &[String], found: &mut Vec<Mention>) -> usize {
    while at < tokens.len() && tokens[at].text != "}" {
        at = match tokens[at].text {
            "as" => at + 2,
            _ if tokens[at].is_word() => path(tokens, at, above, found),
            "*" => {
                found.push(Mention { line: tokens[at].line, path: above.to_vec() });
                at + 1
            }
            _ => at + 1,
        };
    }
    at + 1
}

#[cfg(test)]
mod tests;
