//! Durations with units, as people write them: `250ms`, `30s`, `5m`, `1h`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl Span {
    /// So many seconds.
    pub const fn seconds(n: u64) -> Span {
        Span(Duration::from_secs(n))
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let bad = || format!("{text:?} is not a duration; write 250ms, 30s, 5m or 1h");
        let number: u64 = number.parse().map_err(|_| bad())?;
        let millis = match unit {
            "ms" => Some(number),
            "s" => number.checked_mul(1000),
            "m" => number.checked_mul(60_000),
            "h" => number.checked_mul(3_600_000),
            _ => None,
        };
        // A year is beyond any sense here, and far from overflowing a clock.
        millis
            .filter(|ms| *ms <= 366 * 24 * 3_600_000)
            .map(|ms| Span(Duration::from_millis(ms)))
            .ok_or_else(bad)
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_millis() {
            ms if ms % 1000 == 0 => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_with_their_units_only() {
        assert_eq!("250ms".parse(), Ok(Span(Duration::from_millis(250))));
        assert_eq!("5m".parse(), Ok(Span::seconds(300)));
        for bad in ["", "30", "s", "-1s", "1.5s", "99999999999999999999s", "9999999h"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
