//! A target: what was asked for, what was found, and whether that is enough.

use serde_json::{Value, json};

use super::report::three;
use crate::spread::Spread;

/// What a median may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    /// No less.
    Least(f64),
    /// No more.
    Most(f64),
}

/// A target and what was found.
pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) found: Spread,
    pub(crate) bound: Bound,
}

/// The targets of which something was measured.
#[derive(Default)]
pub(crate) struct Verdicts(pub(crate) Vec<Verdict>);

impl Verdicts {
    /// One more, where it was measured.
    pub(crate) fn judge(&mut self, what: String, found: Option<Spread>, bound: Bound) {
        self.0.extend(found.map(|found| Verdict { what, found, bound }));
    }
}

impl Verdict {
    /// What is not a number is not met.
    pub(crate) fn is_met(&self) -> bool {
        match self.bound {
            Bound::Least(least) => self.found.median >= least,
            Bound::Most(most) => self.found.median <= most,
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let verdict = if self.is_met() { "met   " } else { "MISSED" };
        let bound = match self.bound {
            Bound::Least(least) => format!("at least {least}"),
            Bound::Most(most) => format!("at most {most}"),
        };
        let Spread { median, low, high } = self.found;
        format!("{verdict}  {}: {bound}, {median:.4} ({low:.4}-{high:.4}) found", self.what)
    }

    /// For reports.
    pub(crate) fn json(&self) -> Value {
        let (bound, name) = match self.bound {
            Bound::Least(least) => (least, "least"),
            Bound::Most(most) => (most, "most"),
        };
        json!({ "what": self.what, name: bound, "found": three(self.found), "met": self.is_met() })
    }
}
