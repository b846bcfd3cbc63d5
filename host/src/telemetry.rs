//! What an operator sees: metric names and values, and the log.
//!
//! The only place that knows prometheus and the log's format. Values are booked by whoever owns the event, at the place
//! where it happens; this module decides names, labels and buckets.

pub mod labels;
pub mod logs;
pub mod metrics;
pub mod names;
pub mod plugin_metrics;
pub mod reference;
pub mod transport;
