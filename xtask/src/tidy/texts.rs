//! Words: documents stay short, texts speak of the project only, and what is left to do has an issue.

use super::policy::Policy;
use super::{Finding, Text};
use crate::docs;

pub(super) fn check(policy: &Policy, texts: &[Text]) -> Vec<Finding> {
    let mut found = Vec::new();
    for text in texts {
        found.extend(length(policy, text));
        // The list itself, and what no one of us writes.
        if matches!(text.name.as_str(), "tidy.toml" | "LICENSE" | "Cargo.lock") {
            continue;
        }
        for (at, line) in text.text.lines().enumerate() {
            for word in policy.words.refused.iter().filter(|word| line.contains(word.as_str())) {
                let said = format!(
                    "says {word}, which is about one machine or about nothing; say it for every reader"
                );
                found.push(Finding::breach(&text.name, at + 1, said));
            }
            if open_end(line) {
                found.push(Finding::breach(
                    &text.name,
                    at + 1,
                    "leaves work without an issue; write TODO(#12)",
                ));
            }
        }
    }
    found
}

fn length(policy: &Policy, text: &Text) -> Option<Finding> {
    let document = text.name.starts_with("docs/") && text.name.ends_with(".md");
    if !document || docs::is_generated(&text.text) {
        return None;
    }
    let (lines, most) = (text.text.lines().count(), policy.sizes.docs);
    let said = format!("has {lines} lines, {most} are allowed; split it or cut it");
    (lines > most).then(|| Finding::breach(&text.name, lines, said))
}

/// A marker in capitals, as a word of its own, that no issue number follows.
fn open_end(line: &str) -> bool {
    ["TODO", "FIXME"].iter().any(|mark| {
        line.match_indices(mark).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = &line[at + mark.len()..];
            let alone = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"');
            alone(before)
                && alone(after.chars().next())
                && !after.starts_with("(#")
                && !after.starts_with(" carries")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn findings(name: &str, text: &str) -> Vec<String> {
        let policy = Policy::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidy.toml")).unwrap();
        let texts = [Text { name: name.to_owned(), text: text.to_owned() }];
        check(&policy, &texts).into_iter().map(|one| format!("{} {}", one.line, one.text)).collect()
    }

    #[test]
    fn a_document_is_short_unless_it_is_generated() {
        let long = "x\n".repeat(401);
        assert_eq!(findings("docs/A.md", &long).len(), 1);
        assert_eq!(findings("docs/A.md", &format!("<!-- by cargo xtask gen -->\n{long}")), [""; 0]);
        assert_eq!(findings("README.md", &long), [""; 0]);
    }

    #[test]
    fn words_about_one_machine_are_refused() {
        let place = ["/ho", "me/me"].concat();
        assert!(findings("README.md", &format!("a\nsee {place}"))[0].starts_with("2 says"));
    }

    #[test]
    fn work_that_is_left_carries_an_issue() {
        let mark = ["TO", "DO"].concat();
        assert_eq!(findings("a.rs", &format!("// {mark}: later")).len(), 1);
        assert_eq!(findings("a.rs", &format!("// {mark}(#12): later")), [""; 0]);
        assert_eq!(findings("a.rs", "let METODOS = 1;"), [""; 0]);
    }
}
