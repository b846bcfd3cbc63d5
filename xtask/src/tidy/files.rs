//! Files: how they open, what they are called, how long they are.

use super::policy::Policy;
use super::{Finding, Text};

pub(super) fn check(policy: &Policy, texts: &[Text]) -> Vec<Finding> {
    let mut found = Vec::new();
    for text in texts.iter().filter(|text| text.name.ends_with(".rs")) {
        if !text.text.starts_with("//!") {
            found.push(Finding::breach(
                &text.name,
                1,
                "opens without //!; say what the file is for and what must hold",
            ));
        }
        found.extend(name(policy, &text.name));
        found.extend(size(policy, text));
    }
    for long in &policy.sizes.long {
        if long.reason.is_empty() {
            found.push(Finding::breach(
                "tidy.toml",
                1,
                format!("{} may be long without a reason; give one", long.file),
            ));
        }
        if !texts.iter().any(|text| text.name == long.file) {
            let text = format!("{} is listed as long but is not there; remove its row", long.file);
            found.push(Finding::breach("tidy.toml", 1, text));
        }
    }
    found
}

fn name(policy: &Policy, name: &str) -> Option<Finding> {
    let stem = name.rsplit('/').next().unwrap_or(name).trim_end_matches(".rs");
    if stem == "mod" {
        return Some(Finding::breach(name, 1, "is a mod.rs; write foo.rs with foo/ beside it"));
    }
    let refused = policy.names.refused.iter().any(|one| one == stem);
    refused.then(|| {
        Finding::breach(
            name,
            1,
            format!("{stem} says nothing about what is inside; use a noun of the domain"),
        )
    })
}

fn size(policy: &Policy, text: &Text) -> Option<Finding> {
    let lines = text.text.lines().count();
    let sizes = &policy.sizes;
    let listed = sizes.long.iter().any(|long| long.file == text.name);
    if lines > sizes.fail && !listed {
        let most = sizes.fail;
        let said =
            format!("has {lines} lines, {most} are allowed; split it or list it in tidy.toml with a reason");
        return Some(Finding::breach(&text.name, lines, said));
    }
    let long = lines > sizes.warn && !listed;
    long.then(|| {
        Finding::remark(&text.name, lines, format!("has {lines} lines; look for the second idea in it"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn findings(name: &str, text: &str) -> Vec<(String, bool)> {
        let mut policy = Policy::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidy.toml")).unwrap();
        policy.sizes.long = vec![];
        let texts = [Text { name: name.to_owned(), text: text.to_owned() }];
        check(&policy, &texts).into_iter().map(|one| (one.text, one.fails)).collect()
    }

    #[test]
    fn a_file_without_a_first_sentence_is_refused() {
        assert!(findings("host/src/a.rs", "// A\n")[0].0.contains("without //!"));
        assert_eq!(findings("host/src/a.rs", "//! A\n"), []);
        assert_eq!(findings("docs/a.md", "A\n"), []);
    }

    #[test]
    fn empty_names_and_mod_files_are_refused() {
        assert!(findings("host/src/a/mod.rs", "//! A")[0].0.contains("mod.rs"));
        assert!(findings("plugins/x/src/utils.rs", "//! A")[0].0.contains("utils says nothing"));
    }

    #[test]
    fn long_files_are_remarked_and_very_long_ones_refused() {
        let lines = |n: usize| format!("//! A\n{}", "\n".repeat(n));
        assert_eq!(findings("a.rs", &lines(499)), []);
        assert!(!findings("a.rs", &lines(500))[0].1);
        assert!(findings("a.rs", &lines(1000))[0].1);
    }
}
