//! The child's side of the plugin's metrics: counted here, told to the host now and then. A plugin never waits for it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::frame::Series;
use super::pack::{Packer, Short, Unpacker};
use crate::plugins::register::Register;
use crate::telemetry::labels::Protocol;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::plugin_metrics::{Kind, MAX_SERIES};
use crate::telemetry::transport::TransportMetrics;

/// Samples of one histogram kept between two tellings; more are left out.
const MAX_SAMPLES: usize = 1 << 16;

/// What was counted since it was last told.
#[derive(Default)]
pub(super) struct Ledger {
    inner: Mutex<Inner>,
    /// Of links between stages, in the families that the host has too.
    own: Metrics,
}

#[derive(Default)]
struct Inner {
    known: HashMap<(String, Vec<(String, String)>), u64>,
    entries: Vec<Entry>,
    /// Series that the host has not heard of.
    fresh: Vec<Series>,
    /// Breaches of the boundary's rules, by kind.
    breaches: [u64; Protocol::ALL.len()],
}

struct Entry {
    kind: Kind,
    /// Of a counter what was added since, of a gauge what it is.
    value: f64,
    samples: Vec<f64>,
    changed: bool,
}

impl Ledger {
    /// What changed: new series, and a frame of values.
    pub(super) fn tell(&self, values: &mut Packer) -> Vec<Series> {
        let mut inner = self.inner.lock();
        for (at, entry) in inner.entries.iter_mut().enumerate() {
            if !std::mem::take(&mut entry.changed) {
                continue;
            }
            let one = [entry.value];
            let told: &[f64] = if entry.kind == Kind::Histogram { &entry.samples } else { &one };
            values.word(at as u64 + 1);
            values.word(told.len() as u64);
            told.iter().for_each(|value| values.word(value.to_bits()));
            entry.samples.clear();
            if entry.kind == Kind::Counter {
                entry.value = 0.0;
            }
        }
        std::mem::take(&mut inner.fresh)
    }

    /// Breaches since the last question, a word for each kind; none when there were none.
    pub(super) fn tell_breaches(&self, out: &mut Packer) {
        let breaches = std::mem::take(&mut self.inner.lock().breaches);
        if breaches.iter().any(|n| *n > 0) {
            breaches.iter().for_each(|n| out.word(*n));
        }
    }

    fn change(&self, handle: u64, change: impl FnOnce(&mut Entry)) {
        let mut inner = self.inner.lock();
        if let Some(entry) =
            usize::try_from(handle).ok().and_then(|h| inner.entries.get_mut(h.wrapping_sub(1)))
        {
            change(entry);
            entry.changed = true;
        }
    }
}

impl Register for Ledger {
    fn series(
        &self,
        _plugin: &str,
        kind: Kind,
        name: &str,
        help: &str,
        labels: Vec<(String, String)>,
        buckets: Vec<f64>,
    ) -> Result<u64, String> {
        let mut inner = self.inner.lock();
        let key = (name.to_owned(), labels.clone());
        if let Some(handle) = inner.known.get(&key) {
            return Ok(*handle);
        }
        if inner.entries.len() >= MAX_SERIES {
            return Err(format!("there are {MAX_SERIES} series already"));
        }
        inner.entries.push(Entry { kind, value: 0.0, samples: Vec::new(), changed: false });
        let handle = inner.entries.len() as u64;
        inner.known.insert(key, handle);
        let (name, help) = (name.to_owned(), help.to_owned());
        inner.fresh.push(Series { handle, kind, name, help, labels, buckets });
        Ok(handle)
    }

    fn add(&self, handle: u64, value: f64) {
        self.change(handle, |entry| match entry.kind {
            Kind::Counter if value >= 0.0 && value.is_finite() => entry.value += value,
            Kind::Gauge => entry.value += value,
            _ => {}
        });
    }

    fn set(&self, handle: u64, value: f64) {
        self.change(handle, |entry| {
            if entry.kind == Kind::Gauge {
                entry.value = value;
            }
        });
    }

    fn observe(&self, handle: u64, value: f64) {
        self.change(handle, |entry| {
            if entry.kind == Kind::Histogram && entry.samples.len() < MAX_SAMPLES {
                entry.samples.push(value);
            }
        });
    }

    fn breach(&self, kind: Protocol, n: u64) {
        self.inner.lock().breaches[kind as usize] += n;
    }

    fn transport(&self) -> &Arc<TransportMetrics> {
        &self.own.transport
    }
}

/// The host's side: the child's handles and what they are here.
#[derive(Default)]
pub(super) struct Mirror(HashMap<u64, (Kind, u64)>);

impl Mirror {
    /// A series of the child's; a name that cannot be registered is left out, and said so.
    pub(super) fn series(
        &mut self,
        plugin: &str,
        series: Series,
        register: &dyn Register,
    ) -> Result<(), String> {
        let Series { handle, kind, name, help, labels, buckets } = series;
        if self.0.len() >= MAX_SERIES {
            return Err(format!("there are {MAX_SERIES} series already"));
        }
        let ours = register.series(plugin, kind, &name, &help, labels, buckets);
        self.0.insert(handle, (kind, ours.map_err(|reason| format!("{name}: {reason}"))?));
        Ok(())
    }

    /// Values of series.
    pub(super) fn values(&self, frame: &[u8], register: &dyn Register) -> Result<(), Short> {
        let mut from = Unpacker::new(frame);
        while !from.is_empty() {
            let handle = from.word()?;
            let series = self.0.get(&handle);
            for _ in 0..from.count()? {
                let value = f64::from_bits(from.word()?);
                match series {
                    Some((Kind::Counter, ours)) => register.add(*ours, value),
                    Some((Kind::Gauge, ours)) => register.set(*ours, value),
                    Some((Kind::Histogram, ours)) => register.observe(*ours, value),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// The child is gone: what it was doing it does not do any more.
    pub(super) fn end(&self, register: &dyn Register) {
        for (kind, ours) in self.0.values() {
            if *kind == Kind::Gauge {
                register.set(*ours, 0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_in_the_child_arrives_in_the_host() {
        // Two ledgers: one is the child's, the other stands for the host's registry.
        let (child, host) = (Ledger::default(), Ledger::default());
        let series = |kind, name| child.series("p", kind, name, "", Vec::new(), vec![1.0]).expect("a handle");
        let (a, b, c) = (series(Kind::Counter, "a"), series(Kind::Gauge, "b"), series(Kind::Histogram, "c"));
        assert_eq!(series(Kind::Counter, "a"), a);
        let mut mirror = Mirror::default();
        for round in 0..2 {
            child.add(a, 2.0);
            child.add(a, -1.0);
            child.add(a, f64::INFINITY);
            child.set(b, f64::from(round));
            child.observe(c, 0.5);
            let mut values = Packer::default();
            for series in child.tell(&mut values) {
                mirror.series("p", series, &host).expect("registered");
            }
            mirror.values(values.bytes(), &host).expect("whole");
        }
        let inner = host.inner.lock();
        assert_eq!(inner.entries[0].value, 4.0);
        assert_eq!(inner.entries[1].value, 1.0);
        assert_eq!(inner.entries[2].samples, [0.5, 0.5]);
    }
}
