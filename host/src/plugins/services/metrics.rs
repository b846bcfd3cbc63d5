//! `cascadia.host.metrics/1`: series of plugins on the host's `/metrics`.

use core::ffi::c_void;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::host::{METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM, MetricsV1};
use cascadia_plugin_api::abi::prim::{Array, ErrOut, Kv, Str};

use super::{METRICS, fail, guarded};
use crate::plugins::breach;
use crate::telemetry::plugin_metrics::Kind;

pub(super) static TABLE: MetricsV1 =
    MetricsV1 { struct_size: size_of::<MetricsV1>() as u32, flags: 0, series, add, set, observe };

unsafe extern "C" fn series(
    worker: *mut c_void,
    kind: u32,
    name: Str,
    help: Str,
    labels: Array,
    buckets: Array,
    err: ErrOut,
) -> u64 {
    guarded("metrics", 0, || {
        let (Some(link), Some(metrics)) = (breach::worker("metrics", worker as usize), METRICS.get()) else {
            fail(err, code::INVALID_CONFIG, "unknown worker");
            return 0;
        };
        let kind = match kind {
            METRIC_COUNTER => Kind::Counter,
            METRIC_GAUGE => Kind::Gauge,
            METRIC_HISTOGRAM => Kind::Histogram,
            other => {
                fail(err, code::INVALID_CONFIG, &format!("{other} is no kind of metric"));
                return 0;
            }
        };
        // SAFETY: the plugin lends texts and arrays for the call; zero elements are valid.
        let (name, help, labels, buckets) = unsafe {
            let labels = labels
                .iter::<Kv>()
                .take(8)
                .map(|kv| (kv.key.text().into_owned(), kv.value.text().into_owned()));
            (name.text(), help.text(), labels.collect(), buckets.scalars::<f64>())
        };
        let buckets = buckets[..buckets.len().min(64)].to_vec();
        match metrics.series(&link.plugin, kind, &name, &help, labels, buckets) {
            Ok(handle) => handle,
            Err(error) => {
                fail(err, code::INVALID_CONFIG, &error);
                0
            }
        }
    })
}

unsafe extern "C" fn add(handle: u64, value: f64) {
    guarded("metrics", (), || METRICS.get().map_or((), |m| m.add(handle, value)));
}

unsafe extern "C" fn set(handle: u64, value: f64) {
    guarded("metrics", (), || METRICS.get().map_or((), |m| m.set(handle, value)));
}

unsafe extern "C" fn observe(handle: u64, value: f64) {
    guarded("metrics", (), || METRICS.get().map_or((), |m| m.observe(handle, value)));
}
