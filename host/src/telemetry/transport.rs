//! The values of links between stages: the contract's families, and the host's own that tell a stalled link from an idle
//! one.
//!
//! What must hold: the series of an address live as long as somebody holds its [`PeerMetrics`], so that what engines open and
//! close over time leaves nothing behind.

pub mod carried;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use prometheus::{Counter, CounterVec, Gauge, GaugeVec, Histogram, IntCounter, IntCounterVec};

use super::labels::{Direction, FrameKind, LinkError, Side};

/// Plugin, side and address of a peer.
type Key = (String, Side, String);

/// The families of links.
pub struct TransportMetrics {
    pub(super) sent: Vec<IntCounter>,
    pub(super) received: Vec<IntCounter>,
    pub(super) send_seconds: Histogram,
    pub(super) recv_seconds: Histogram,
    pub(super) errors: Vec<IntCounter>,
    pub(super) up: GaugeVec,
    pub(super) frames: IntCounterVec,
    pub(super) bytes: IntCounterVec,
    pub(super) unfinished: GaugeVec,
    pub(super) last_frame: GaugeVec,
    pub(super) blocked: CounterVec,
    pub(super) known: Mutex<HashMap<Key, Weak<PeerMetrics>>>,
    /// Kept in a child, which tells them.
    pub(super) samples: OnceLock<carried::Samples>,
}

/// A frame that went over a link.
#[derive(Debug, Clone, Copy)]
pub struct Whole {
    /// Its kind.
    pub kind: FrameKind,
    /// Its bytes, header included.
    pub bytes: u64,
    /// Of a sent one, from its first byte to its last; of a received one, from its header to its last byte.
    pub took: Duration,
}

impl TransportMetrics {
    /// Books what went wrong with a link.
    pub fn error(&self, reason: LinkError) {
        self.errors[reason as usize].inc();
    }

    /// The series of an address, all at zero when they are new.
    pub fn peer(self: &Arc<Self>, plugin: &str, side: Side, address: &str) -> Arc<PeerMetrics> {
        let key = (plugin.to_owned(), side, address.to_owned());
        let mut known = self.known.lock();
        if let Some(peer) = known.get(&key).and_then(Weak::upgrade) {
            return peer;
        }
        let base = [plugin, side.name(), address];
        let way = |direction: Direction| {
            let labels = [plugin, side.name(), address, direction.name()];
            Way {
                frames: self.frames.with_label_values(&labels),
                bytes: self.bytes.with_label_values(&labels),
                unfinished: self.unfinished.with_label_values(&labels),
                last_frame: self.last_frame.with_label_values(&labels),
            }
        };
        let peer = Arc::new(PeerMetrics {
            up: self.up.with_label_values(&base),
            blocked: self.blocked.with_label_values(&base),
            ways: Direction::ALL.iter().map(|d| way(*d)).collect(),
            all: Arc::clone(self),
            key: key.clone(),
        });
        known.insert(key, Arc::downgrade(&peer));
        peer
    }
}

struct Way {
    frames: IntCounter,
    bytes: IntCounter,
    unfinished: Gauge,
    last_frame: Gauge,
}

/// The series of the links to one address. Dropping the last holder ends them.
pub struct PeerMetrics {
    all: Arc<TransportMetrics>,
    key: Key,
    up: Gauge,
    blocked: Counter,
    ways: Vec<Way>,
}

impl PeerMetrics {
    /// A link came up.
    pub fn up(&self) {
        self.up.inc();
    }

    /// A link ended; with the reason when that was not in order.
    pub fn down(&self, reason: Option<LinkError>) {
        self.up.dec();
        if let Some(reason) = reason {
            self.all.error(reason);
        }
    }

    /// A frame has begun.
    pub fn begun(&self, direction: Direction) {
        self.ways[direction as usize].unfinished.inc();
    }

    /// Bytes of a frame went over.
    pub fn moved(&self, direction: Direction, bytes: usize) {
        self.ways[direction as usize].bytes.inc_by(bytes as u64);
    }

    /// A frame that had begun will not become whole.
    pub fn given_up(&self, direction: Direction) {
        self.ways[direction as usize].unfinished.dec();
    }

    /// A frame that had begun is whole.
    pub fn whole(&self, direction: Direction, frame: Whole) {
        let way = &self.ways[direction as usize];
        way.unfinished.dec();
        way.frames.inc();
        way.last_frame.set(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64()));
        let (bytes, seconds) = match direction {
            Direction::Sent => (&self.all.sent, &self.all.send_seconds),
            Direction::Received => (&self.all.received, &self.all.recv_seconds),
        };
        bytes[frame.kind as usize].inc_by(frame.bytes);
        if frame.kind == FrameKind::Tensor {
            seconds.observe(frame.took.as_secs_f64());
            if let Some(samples) = self.all.samples.get() {
                samples.keep(direction, frame.took.as_secs_f64());
            }
        }
    }

    /// A send waited that long for the peer to read.
    pub fn blocked(&self, time: Duration) {
        self.blocked.inc_by(time.as_secs_f64());
    }

    /// Whole frames so far.
    pub fn frames(&self, direction: Direction) -> u64 {
        self.ways[direction as usize].frames.get()
    }
}

impl Drop for PeerMetrics {
    fn drop(&mut self) {
        let mut known = self.all.known.lock();
        // Somebody may have asked for the same address anew while this one was on its way out.
        if known.get(&self.key).is_some_and(|peer| peer.strong_count() > 0) {
            return;
        }
        known.remove(&self.key);
        let (plugin, side, address) = (self.key.0.as_str(), self.key.1.name(), self.key.2.as_str());
        // Absent is what is wanted.
        drop(self.all.up.remove_label_values(&[plugin, side, address]));
        drop(self.all.blocked.remove_label_values(&[plugin, side, address]));
        for direction in Direction::ALL {
            let labels = [plugin, side, address, direction.name()];
            drop(self.all.frames.remove_label_values(&labels));
            drop(self.all.bytes.remove_label_values(&labels));
            drop(self.all.unfinished.remove_label_values(&labels));
            drop(self.all.last_frame.remove_label_values(&labels));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.expose()).expect("text")
    }

    #[test]
    fn a_stalled_link_and_an_idle_one_look_different() {
        let metrics = Metrics::new();
        let peer = metrics.transport.peer("p", Side::Opened, "h:1");
        peer.up();
        let labels = r#"{address="h:1",direction="sent",plugin="p",side="opened"}"#;
        let open = format!("cascadia_link_unfinished_frames{labels}");
        assert!(text(&metrics).contains(&format!("{open} 0")));
        peer.begun(Direction::Sent);
        peer.moved(Direction::Sent, 10);
        assert!(text(&metrics).contains(&format!("{open} 1")));
        assert!(text(&metrics).contains(&format!("cascadia_link_bytes_total{labels} 10")));
        assert!(text(&metrics).contains(r#"cascadia_transport_sent_bytes_total{kind="tensor"} 0"#));
        let took = Duration::from_millis(1);
        peer.whole(Direction::Sent, Whole { kind: FrameKind::Tensor, bytes: 10, took });
        assert!(text(&metrics).contains(&format!("{open} 0")));
        assert!(text(&metrics).contains(r#"cascadia_transport_sent_bytes_total{kind="tensor"} 10"#));
        assert!(text(&metrics).contains("cascadia_transport_send_seconds_count 1"));
    }

    #[test]
    fn the_series_of_an_address_go_with_its_last_holder() {
        let metrics = Metrics::new();
        let first = metrics.transport.peer("p", Side::Accepted, ":1");
        let second = metrics.transport.peer("p", Side::Accepted, ":1");
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        assert!(text(&metrics).contains("cascadia_link_up{"));
        drop(second);
        assert!(!text(&metrics).contains("cascadia_link_up{"));
        assert!(!text(&metrics).contains("cascadia_link_frames_total{"));
    }
}
