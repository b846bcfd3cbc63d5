//! What every client saw, and when a model was in trouble: a request may fail only while its model was.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use anyhow::{Result, anyhow};
use parking_lot::{Mutex, MutexGuard};

/// Faults that are told in full; of the others only the number.
const TOLD: usize = 20;

/// How a request ended. Each is a proper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With all that was asked for.
    Whole,
    /// The client wanted no more.
    Left,
    /// With an error status.
    Refused(u16),
    /// With an error frame, `[DONE]` and the end of the body.
    Broken,
}

/// What all threads write down.
#[derive(Debug, Default)]
pub(crate) struct Books(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By what they are called in the report.
    counts: BTreeMap<String, u64>,
    /// By model: when trouble began, and when it was over.
    troubles: BTreeMap<String, Vec<(Instant, Option<Instant>)>>,
    faults: Vec<String>,
    fault_count: u64,
}

impl Books {
    fn open(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// One more of these.
    pub(crate) fn count(&self, what: &str) {
        *self.open().counts.entry(what.to_owned()).or_default() += 1;
    }

    /// How many there were.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.open().counts.clone()
    }

    /// Something happened that must never happen.
    pub(crate) fn fault(&self, text: String) {
        let mut inner = self.open();
        inner.fault_count += 1;
        if inner.faults.len() < TOLD {
            inner.faults.push(text);
        }
    }

    /// Number of faults, and the first of them.
    pub(crate) fn faults(&self) -> (u64, Vec<String>) {
        let inner = self.open();
        (inner.fault_count, inner.faults.clone())
    }

    /// From now on requests of the model may fail.
    pub(crate) fn trouble(&self, model: &str) {
        self.open().troubles.entry(model.to_owned()).or_default().push((Instant::now(), None));
    }

    /// The model serves again.
    pub(crate) fn over(&self, model: &str) {
        for (_, end) in self.open().troubles.entry(model.to_owned()).or_default() {
            end.get_or_insert_with(Instant::now);
        }
    }

    /// Asks, and writes down how it ended, which is answered; a panic, which is how the harness says that an answer has another shape,
    /// is no proper end. `wanted` is an end that it may have at any time.
    pub(crate) fn asks(
        &self,
        model: &str,
        kind: &str,
        wanted: End,
        ask: impl FnOnce() -> Result<End>,
    ) -> Option<End> {
        let begun = Instant::now();
        let end = catch_unwind(AssertUnwindSafe(ask))
            .unwrap_or_else(|_| Err(anyhow!("an answer of another shape, see above")));
        let told = end.as_ref().ok().copied();
        self.ended(model, kind, begun, end, wanted);
        told
    }

    /// A request that began then has ended now. `wanted` is an end that it may have at any time.
    fn ended(&self, model: &str, kind: &str, begun: Instant, end: Result<End>, wanted: End) {
        let excused = self.excuses(model, begun);
        match end {
            Err(error) => {
                self.count("cut or hung");
                self.fault(format!("{kind} of {model}: no proper end: {error:#}"));
            }
            Ok(end) if end == wanted => self.count(if end == End::Left { "left" } else { "as asked" }),
            Ok(end) if excused && matches!(end, End::Refused(_) | End::Broken | End::Whole | End::Left) => {
                self.count("failed in trouble");
                if let End::Refused(status) = end
                    && !matches!(status, 404 | 500 | 503)
                {
                    self.fault(format!("{kind} of {model}: status {status}, which no trouble explains"));
                }
            }
            Ok(end) => {
                self.count("failed without reason");
                self.fault(format!("{kind} of {model}: {end:?} although the model was well"));
            }
        }
    }

    fn excuses(&self, model: &str, begun: Instant) -> bool {
        let inner = self.open();
        let troubles = inner.troubles.get(model).map_or(&[][..], Vec::as_slice);
        troubles.iter().any(|(_, end)| end.is_none_or(|end| end >= begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_trouble_of_its_own_time_and_model_excuses_a_request() {
        let books = Books::default();
        let early = Instant::now();
        books.trouble("a");
        books.ended("a", "x", early, Ok(End::Refused(503)), End::Whole);
        books.ended("b", "x", early, Ok(End::Refused(503)), End::Whole);
        books.over("a");
        books.ended("a", "x", early, Ok(End::Broken), End::Whole);
        books.ended("a", "x", Instant::now(), Ok(End::Broken), End::Whole);
        books.ended("a", "x", Instant::now(), Ok(End::Whole), End::Whole);
        assert_eq!(books.faults().0, 2);
        assert_eq!(books.counts()["failed in trouble"], 2);
        assert_eq!(books.counts()["as asked"], 1);
        books.trouble("a");
        books.ended("a", "x", early, Ok(End::Refused(418)), End::Whole);
        books.ended("a", "x", early, Err(anyhow::anyhow!("cut")), End::Whole);
        assert_eq!(books.faults().0, 4);
    }
}
