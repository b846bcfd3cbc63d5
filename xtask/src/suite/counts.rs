//! Reads the closing lines of `cargo nextest` and `cargo test`, so that our last line repeats true numbers.

use std::fmt;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// A runner ended without numbers, so the sums are not the whole truth.
    partial: bool,
}

impl Counts {
    /// Adds what the lines say; false if none of them is a closing line.
    pub(super) fn add(&mut self, lines: &[String]) -> bool {
        let mut found = false;
        for line in lines {
            let line = plain(line);
            let line = line.trim_start();
            let nextest = line.strip_prefix("Summary [").and_then(|rest| rest.split_once("run:"));
            let libtest = line.strip_prefix("test result:");
            if let Some(rest) = nextest.map(|(_, rest)| rest).or(libtest) {
                found = true;
                self.passed += number(rest, &["passed"]);
                self.failed += number(rest, &["failed", "timed", "exec"]);
                self.skipped += number(rest, &["skipped", "ignored"]);
            }
        }
        self.partial |= !found;
        found
    }

    pub(super) fn is_empty(&self) -> bool {
        self.passed + self.failed == 0
    }

    pub(super) fn in_brackets(&self) -> String {
        if self.partial { String::new() } else { format!(" ({self})") }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// Sum of the numbers that stand before one of the words.
fn number(text: &str, names: &[&str]) -> u64 {
    let words: Vec<&str> = text.split([' ', ',', ';', '(', ')']).filter(|word| !word.is_empty()).collect();
    words
        .windows(2)
        .filter(|pair| names.contains(&pair[1]))
        .filter_map(|pair| pair[0].parse::<u64>().ok())
        .sum()
}

/// The line without colours.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        text += before;
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_both_runners_are_summed() {
        let mut counts = Counts::default();
        let lines = [
            "     Summary [   1.005s] 14 tests run: 10 passed (1 slow), 2 failed, 1 exec failed, 1 timed out, 3 skipped",
            "\u{1b}[1mtest result:\u{1b}[0m ok. 4 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        ];
        assert!(counts.add(&lines.map(str::to_owned)));
        assert_eq!(counts.to_string(), "14 passed, 4 failed, 4 skipped");
    }

    #[test]
    fn other_lines_count_nothing() {
        let mut counts = Counts::default();
        assert!(!counts.add(&["test suite: 5 passed".to_owned(), "PASS [0.1s] 3 failed".to_owned()]));
        assert_eq!(counts.in_brackets(), "");
    }
}
