//! Reads the text format of `/metrics`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// One series and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name, with `_bucket`, `_sum` or `_count` for those of a histogram.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// All series at one moment.
#[derive(Debug, Clone, Default)]
pub struct Scrape {
    series: Vec<Series>,
    /// Type of each family.
    pub types: BTreeMap<String, String>,
}

impl Scrape {
    /// Reads an exposition; a line that is none of it is an error.
    pub fn parse(text: &str) -> Result<Scrape> {
        let mut scrape = Scrape::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, ty) = rest.split_once(' ').with_context(|| line.to_owned())?;
                let before = scrape.types.insert(name.to_owned(), ty.to_owned());
                ensure!(before.is_none(), "family {name} is there twice");
            } else if !line.starts_with('#') && !line.is_empty() {
                scrape.series.push(series(line).with_context(|| format!("line {line:?}"))?);
            }
        }
        Ok(scrape)
    }

    /// All series of that name that have these labels.
    pub fn all(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &Series> {
        let has = |s: &Series| labels.iter().all(|(k, v)| s.labels.get(*k).is_some_and(|found| found == v));
        self.series.iter().filter(move |s| s.name == name && has(s))
    }

    /// Sum of the series of that name with these labels; 0 when there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.all(name, labels).map(|s| s.value).sum()
    }

    /// The one series of that name with these labels.
    ///
    /// # Panics
    /// When there is none, or several.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found: Vec<_> = self.all(name, labels).collect();
        assert_eq!(found.len(), 1, "series {name} with {labels:?}; of that name: {:?}", self.named(name));
        found[0].value
    }

    /// The families whose series these are.
    pub fn named(&self, name: &str) -> Vec<&Series> {
        self.series.iter().filter(|s| s.name == name).collect()
    }

    /// Samples of the generations' durations that ended so.
    pub fn ended(&self, finish: &str) -> f64 {
        self.sum("cascadia_generation_duration_seconds_count", &[("finish_reason", finish)])
    }

    /// Samples of all generations' durations.
    pub fn all_ended(&self) -> f64 {
        self.sum("cascadia_generation_duration_seconds_count", &[])
    }

    /// Connections that ended in one way.
    pub fn connections_ended(&self, reason: &str) -> f64 {
        self.value("cascadia_connections_ended_total", &[("reason", reason)])
    }

    /// Rejections for that reason.
    #[track_caller]
    pub fn rejected(&self, reason: &str) -> f64 {
        self.value("cascadia_api_rejected_total", &[("reason", reason)])
    }

    /// Rejections for all reasons.
    pub fn all_rejected(&self) -> f64 {
        self.sum("cascadia_api_rejected_total", &[])
    }

    /// HTTP requests of an endpoint with that status.
    pub fn requests(&self, endpoint: &str, status: &str) -> f64 {
        self.sum("cascadia_http_requests_total", &[("endpoint", endpoint), ("status", status)])
    }

    /// Tokens delivered.
    pub fn generated(&self) -> f64 {
        self.sum("cascadia_tokens_generated_total", &[])
    }

    /// Tasks of the mock engine that ended so, as the engine itself counts, without the host's one canary.
    pub fn mock_tasks(&self, outcome: &str) -> f64 {
        let canary = if outcome == "length" { 1.0 } else { 0.0 };
        self.sum("cascadia_plugin_mock_tasks_total", &[("outcome", outcome)]) - canary
    }

    /// Tokens that the mock engine made, as it counts, without the one of the host's canary.
    pub fn mock_tokens(&self) -> f64 {
        self.value("cascadia_plugin_mock_tokens_total", &[]) - 1.0
    }
}

fn series(line: &str) -> Result<Series> {
    let (head, value) = line.rsplit_once(' ').context("no value")?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        other => other.parse().context("value")?,
    };
    let (name, labels) = match head.split_once('{') {
        None => (head, BTreeMap::new()),
        Some((name, rest)) => (name, labels(rest.strip_suffix('}').context("no closing brace")?)?),
    };
    Ok(Series { name: name.to_owned(), labels, value })
}

fn labels(mut text: &str) -> Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").context("no label value")?;
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().context("a label value without an end")? {
                (at, '"') => break at,
                (_, '\\') => match chars.next().context("an escape without a letter")?.1 {
                    'n' => value.push('\n'),
                    c => value.push(c),
                },
                (_, c) => value.push(c),
            }
        };
        ensure!(labels.insert(name.to_owned(), value).is_none(), "label {name} is there twice");
        text = rest[end + 1..].trim_start_matches(',');
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposition_is_read_with_escapes_and_without_labels() {
        let text = "# HELP a b\n# TYPE a counter\na{x=\"1\",y=\"a\\\"b,\\\\\"} 2\nb 3.5\nc_bucket{le=\"+Inf\"} +Inf\n";
        let scrape = Scrape::parse(text).unwrap();
        assert_eq!(scrape.value("a", &[("y", "a\"b,\\")]), 2.0);
        assert_eq!(scrape.value("b", &[]), 3.5);
        assert_eq!(scrape.value("c_bucket", &[("le", "+Inf")]), f64::INFINITY);
        assert_eq!(scrape.types["a"], "counter");
        assert!(Scrape::parse("a{x=} 1").is_err());
    }
}
