//! Durations and sizes with units, as people write them: `250ms`, `30s`, `5m`, `1h`; `512MiB`, `8GiB`.

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

/// A size in the configuration, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let bad = || format!("{text:?} is not a size; write 512MiB or 8GiB");
        let (unit, factor) = UNITS.iter().find(|(unit, _)| text.ends_with(unit)).ok_or_else(bad)?;
        let number: u64 = text.trim_end_matches(unit).parse().map_err(|_| bad())?;
        number.checked_mul(*factor).filter(|bytes| *bytes <= 1 << 50).map(Size).ok_or_else(bad)
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (unit, factor) =
            UNITS.iter().find(|(_, factor)| self.0.is_multiple_of(*factor)).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Size {
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

    #[test]
    fn sizes_read_with_their_units_only() {
        assert_eq!("512MiB".parse(), Ok(Size(512 << 20)));
        assert_eq!(Size(8 << 30).to_string(), "8GiB");
        for bad in ["", "8", "8GB", "GiB", "-1GiB", "1.5GiB", "99999999999999GiB"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
