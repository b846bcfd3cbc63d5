//! Our own crates: which of them may use which, in any kind of dependency.

use super::Finding;
use super::policy::Uses;
use serde_json::Value;

/// `metadata` is that of the workspace alone.
pub(super) fn check(rules: &[Uses], metadata: &Value) -> Vec<Finding> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let empty = Vec::new();
    let packages = metadata["packages"].as_array().unwrap_or(&empty);
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut found = Vec::new();
    for package in packages {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let manifest = manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches('/');
        let folder = manifest.strip_suffix("/Cargo.toml").unwrap_or_default();
        let Some(rule) = rules.iter().find(|rule| fits(&rule.folder, folder)) else {
            found.push(Finding::breach(
                manifest,
                1,
                "has no row in [[crates]] of tidy.toml; say what it may use",
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap_or(&empty) {
            let name = dependency["name"].as_str().unwrap_or_default();
            if names.contains(&name) && !rule.uses.iter().any(|one| one == name) {
                let text = format!("{folder} must not use {name}; tidy.toml allows {:?}", rule.uses);
                found.push(Finding::breach(manifest, 1, text));
            }
        }
    }
    found
}

fn fits(rule: &str, folder: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(above) => folder.starts_with(above),
        None => folder == rule,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn findings(folder: &str, uses: &str) -> Vec<String> {
        let rules = [
            Uses { folder: "host".into(), uses: vec!["api".into()] },
            Uses { folder: "api".into(), uses: vec![] },
            Uses { folder: "plugins/*".into(), uses: vec!["api".into()] },
        ];
        let package = |folder: &str, uses: &str| {
            let name = folder.rsplit('/').next().unwrap();
            json!({"name": name, "manifest_path": format!("/r/{folder}/Cargo.toml"), "dependencies": [{"name": uses}]})
        };
        let packages = [package("host", "serde"), package("api", "serde"), package(folder, uses)];
        let found = check(&rules, &json!({"workspace_root": "/r", "packages": packages}));
        found.into_iter().map(|one| format!("{} {}", one.file, one.text)).collect()
    }

    #[test]
    fn plugins_know_the_boundary_and_not_the_host() {
        assert_eq!(findings("plugins/mock", "api"), [""; 0]);
        let found = findings("plugins/mock", "host");
        assert!(found[0].starts_with("plugins/mock/Cargo.toml plugins/mock must not use host"), "{found:?}");
    }

    #[test]
    fn a_crate_without_a_rule_is_asked_for_one() {
        assert!(findings("lib/frame", "serde")[0].contains("has no row"));
    }
}
