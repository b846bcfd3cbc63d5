//! Crates of others: allowed licences, one version of each, crates.io only.
//!
//! Holds: what a crate's manifest declares is what is checked; texts inside the crate are not read.

use super::Finding;
use super::policy::Deny;
use serde_json::Value;
use std::collections::BTreeMap;

const FILE: &str = "Cargo.lock";

/// `metadata` has every package that is built for our platform.
pub(super) fn check(deny: &Deny, metadata: &Value) -> Vec<Finding> {
    let empty = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().unwrap_or(&empty) {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let Some(source) = package["source"].as_str() else { continue };
        let (name, version, licence) = (text("name"), text("version"), text("license"));
        versions.entry(name).or_default().push(version);
        let registry = source.strip_prefix("registry+").unwrap_or_default();
        if !deny.sources.allow_registry.iter().any(|allowed| allowed == registry) {
            let said = format!("{name} {version} comes from {source}; use a release from crates.io");
            found.push(Finding::breach(FILE, 1, said));
        }
        if !allowed(licence, &deny.licenses.allow) {
            let said = format!("{name} {version} has licence {licence:?}, which deny.toml does not allow");
            found.push(Finding::breach(FILE, 1, said));
        }
    }
    for (name, mut versions) in versions {
        let skipped =
            |version: &&str| deny.bans.skip.iter().any(|skip| skip.spec == format!("{name}@{version}"));
        let all = versions.join(", ");
        versions.retain(|version| !skipped(version));
        if versions.len() > 1 {
            let said =
                format!("{name} is there as {all}; unify them, or skip one in deny.toml with a reason");
            found.push(Finding::breach(FILE, 1, said));
        }
    }
    found
}

/// Whether an SPDX expression can be met: OR needs one side, AND both. An old style `/` is an OR.
fn allowed(expression: &str, allow: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let good = either(&words, &mut at, allow);
    good && at == words.len()
}

fn either(words: &[&str], at: &mut usize, allow: &[String]) -> bool {
    let mut good = both(words, at, allow);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        good |= both(words, at, allow);
    }
    good
}

fn both(words: &[&str], at: &mut usize, allow: &[String]) -> bool {
    let mut good = one(words, at, allow);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        good &= one(words, at, allow);
    }
    good
}

fn one(words: &[&str], at: &mut usize, allow: &[String]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let good = either(words, at, allow);
        *at += 1;
        return good;
    }
    let mut name = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        name += &format!(" WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allow.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Bans, Licences, Skip, Sources};
    use super::*;
    use serde_json::json;

    fn names(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn licence_expressions_are_worked_out() {
        let allow = names(&["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"]);
        for (expression, good) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0 OR MIT", true),
            ("LGPL-3.0", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND LGPL-2.1", false),
            ("MIT OR LGPL-2.1 AND GPL-2.0", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0 WITH Other", false),
            ("", false),
            ("MIT MIT", false),
        ] {
            assert_eq!(allowed(expression, &allow), good, "{expression}");
        }
    }

    #[test]
    fn second_versions_and_other_sources_are_refused() {
        let registry = "registry+https://r";
        let package = |name: &str, version: &str, source: &str| json!({"name": name, "version": version, "source": source, "license": "MIT"});
        let deny = Deny {
            licenses: Licences { allow: names(&["MIT"]) },
            bans: Bans { skip: vec![Skip { spec: "b@1.0.0".into() }] },
            sources: Sources { allow_registry: names(&["https://r"]) },
        };
        let packages = [
            package("a", "1.0.0", registry),
            package("a", "2.0.0", registry),
            package("b", "1.0.0", registry),
            package("b", "2.0.0", registry),
            package("c", "1.0.0", "git+https://g"),
        ];
        let found = check(&deny, &json!({"packages": packages}));
        let texts: Vec<&str> = found.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(
            texts[0].starts_with("c 1.0.0 comes from git")
                && texts[1].starts_with("a is there as 1.0.0, 2.0.0")
        );
    }
}
