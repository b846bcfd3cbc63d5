//! Checks the options given for a plugin against its manifest, before the library is opened.

use std::collections::BTreeMap;

use super::manifest::{Kind, Spec};
use crate::config::nearest::nearest;

/// The options as the plugin gets them, defaults filled in; or everything that is wrong, one line each.
pub fn check(
    plugin: &str,
    specs: &BTreeMap<String, Spec>,
    given: &BTreeMap<String, toml::Value>,
) -> Result<BTreeMap<String, String>, Vec<String>> {
    let mut problems = Vec::new();
    let mut options = BTreeMap::new();
    for (key, value) in given {
        match specs.get(key) {
            None => problems.push(unknown(plugin, key, specs)),
            Some(spec) => match convert(spec, &text(value)) {
                Ok(value) => {
                    options.insert(key.clone(), value);
                }
                Err(problem) => problems.push(format!("option {plugin}.{key}: {problem}")),
            },
        }
    }
    for (key, spec) in specs {
        if let (false, Some(default)) = (options.contains_key(key), &spec.default) {
            match convert(spec, &json_text(default)) {
                Ok(value) => {
                    options.insert(key.clone(), value);
                }
                Err(problem) => {
                    problems.push(format!(
                        "the manifest of {plugin} is wrong: the default of {key} is not valid: {problem}"
                    ));
                }
            }
        }
    }
    if problems.is_empty() { Ok(options) } else { Err(problems) }
}

fn unknown(plugin: &str, key: &str, specs: &BTreeMap<String, Spec>) -> String {
    match nearest(key, specs.keys().map(String::as_str)) {
        Some(near) => format!("option {plugin}.{key} is unknown; did you mean {near}?"),
        None if specs.is_empty() => format!("option {plugin}.{key} is unknown; the plugin has no options"),
        None => {
            let all: Vec<_> = specs.keys().map(String::as_str).collect();
            format!("option {plugin}.{key} is unknown; there are {}", all.join(", "))
        }
    }
}

fn convert(spec: &Spec, value: &str) -> Result<String, String> {
    let number = match spec.kind {
        Kind::String => None,
        Kind::Boolean => match value {
            "true" | "1" | "on" | "yes" => return Ok("true".to_owned()),
            "false" | "0" | "off" | "no" => return Ok("false".to_owned()),
            _ => return Err(format!("{value:?} is neither true nor false")),
        },
        Kind::Integer => {
            Some(value.parse::<i64>().map_err(|_| format!("{value:?} is not a whole number"))? as f64)
        }
        Kind::Number => {
            let n: f64 = value.parse().map_err(|_| format!("{value:?} is not a number"))?;
            Some(n)
                .filter(|n| n.is_finite())
                .ok_or_else(|| format!("{value:?} is not a finite number"))?
                .into()
        }
    };
    if let (Some(n), Some(min)) = (number, spec.minimum)
        && n < min
    {
        return Err(format!("{value} is below {min}"));
    }
    if let (Some(n), Some(max)) = (number, spec.maximum)
        && n > max
    {
        return Err(format!("{value} is above {max}"));
    }
    if let Some(choices) = &spec.choices
        && !choices.iter().any(|c| json_text(c) == value)
    {
        let all: Vec<_> = choices.iter().map(json_text).collect();
        return Err(format!("{value:?} is none of {}", all.join(", ")));
    }
    Ok(value.to_owned())
}

fn text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

fn json_text(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs() -> BTreeMap<String, Spec> {
        serde_json::from_str(
            r#"{"slots":{"type":"integer","default":16,"minimum":1,"maximum":64},
                "device":{"type":"string","enum":["CPU","GPU"]},"cb":{"type":"boolean","default":false}}"#,
        )
        .expect("valid")
    }

    fn given(pairs: &[(&str, toml::Value)]) -> BTreeMap<String, toml::Value> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect()
    }

    #[test]
    fn defaults_are_filled_in_and_values_normalised() {
        let options =
            check("p", &specs(), &given(&[("cb", "on".into()), ("device", "GPU".into())])).expect("valid");
        let expected = [("cb", "true"), ("device", "GPU"), ("slots", "16")];
        assert_eq!(options.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_default_must_fit_its_own_type() {
        let specs: BTreeMap<String, Spec> =
            serde_json::from_str(r#"{"n":{"type":"integer","default":"fast"}}"#).expect("valid");
        let problems = check("p", &specs, &BTreeMap::new()).expect_err("a wrong default");
        assert!(problems[0].contains("the default of n is not valid"), "{problems:?}");
        check("p", &specs, &given(&[("n", 3.into())])).expect("the default is not used");
    }

    #[test]
    fn all_problems_are_told_at_once_with_the_way_out() {
        let given = given(&[
            ("slot", 1.into()),
            ("slots", 65.into()),
            ("device", "NPU".into()),
            ("cb", "maybe".into()),
        ]);
        let problems = check("p", &specs(), &given).expect_err("four problems").join("\n");
        for expected in
            ["did you mean slots?", "65 is above 64", "\"NPU\" is none of CPU, GPU", "neither true nor false"]
        {
            assert!(problems.contains(expected), "{problems}");
        }
    }
}
