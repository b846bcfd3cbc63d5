//! The links of a child: what its families hold, told to the host, which adds what is new to its own.
//!
//! What must hold: nothing that is told is believed beyond what a series can be (no label but an address, which is
//! clipped, no value that a counter cannot take); what a child had open ends in the host with it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus::{Gauge, IntCounter};
use serde::{Deserialize, Serialize};

use super::{PeerMetrics, TransportMetrics, Way};
use crate::telemetry::labels::{Direction, Side};

/// Durations of tensors that wait to be told, each way; more are left out.
const MAX_SAMPLES: usize = 1 << 14;
/// Addresses of one child that are kept.
const MAX_PEERS: usize = 256;
/// Longest address, in bytes.
const MAX_ADDRESS: usize = 256;

/// How long tensors took since this was told last, sent and received, where somebody asks for it.
#[derive(Default)]
pub(in crate::telemetry) struct Samples(Mutex<[Vec<f64>; 2]>);

impl Samples {
    pub(super) fn keep(&self, direction: Direction, seconds: f64) {
        let kept = &mut self.0.lock()[direction as usize];
        if kept.len() < MAX_SAMPLES {
            kept.push(seconds);
        }
    }
}

/// What the families hold. Counts are since the child began, but for the samples, which are those since the last telling.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    sent: Vec<u64>,
    received: Vec<u64>,
    errors: Vec<u64>,
    samples: [Vec<f64>; 2],
    peers: Vec<Peer>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Peer {
    accepted: bool,
    address: String,
    up: f64,
    blocked: f64,
    ways: [Counts; 2],
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Counts {
    frames: u64,
    bytes: u64,
    unfinished: f64,
    last_frame: f64,
}

impl TransportMetrics {
    /// What is there now. From the first time on it keeps samples for the next.
    pub fn told(&self) -> Told {
        let samples = self.samples.get_or_init(Samples::default);
        // Letting go of an address locks them: outside of the lock.
        let known: Vec<Arc<PeerMetrics>> = self.known.lock().values().filter_map(Weak::upgrade).collect();
        let counts = |all: &[IntCounter]| all.iter().map(IntCounter::get).collect();
        Told {
            sent: counts(&self.sent),
            received: counts(&self.received),
            errors: counts(&self.errors),
            samples: std::mem::take(&mut *samples.0.lock()),
            peers: known.iter().take(MAX_PEERS).map(|peer| peer.told()).collect(),
        }
    }
}

impl PeerMetrics {
    fn told(&self) -> Peer {
        let way = |direction: Direction| {
            let way = &self.ways[direction as usize];
            Counts {
                frames: way.frames.get(),
                bytes: way.bytes.get(),
                unfinished: way.unfinished.get(),
                last_frame: way.last_frame.get(),
            }
        };
        Peer {
            accepted: self.key.1 == Side::Accepted,
            address: self.key.2.clone(),
            up: self.up.get(),
            blocked: self.blocked.get(),
            ways: [way(Direction::Sent), way(Direction::Received)],
        }
    }

    /// Adds what is new since `before`.
    fn add(&self, before: &Peer, now: &Peer) {
        moved(&self.up, before.up, now.up);
        let blocked = now.blocked - if now.blocked < before.blocked { 0.0 } else { before.blocked };
        if blocked.is_finite() && blocked > 0.0 {
            self.blocked.inc_by(blocked);
        }
        for (way, (before, now)) in self.ways.iter().zip(before.ways.iter().zip(&now.ways)) {
            way.add(before, now);
        }
    }
}

impl Way {
    fn add(&self, before: &Counts, now: &Counts) {
        self.frames.inc_by(since(before.frames, now.frames));
        self.bytes.inc_by(since(before.bytes, now.bytes));
        moved(&self.unfinished, before.unfinished, now.unfinished);
        if now.last_frame.is_finite() && now.last_frame > before.last_frame {
            self.last_frame.set(now.last_frame);
        }
    }
}

/// What a counter went up by; one that is lower than before began anew.
fn since(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

fn moved(gauge: &Gauge, before: f64, now: f64) {
    if (now - before).is_finite() {
        gauge.add(now - before);
    }
}

/// The host's side: what one child had told last, and the series that it holds here.
#[derive(Default)]
pub struct Mirror {
    last: Told,
    peers: HashMap<(Side, String), (Arc<PeerMetrics>, Peer)>,
}

impl Mirror {
    /// Takes what a child of the plugin tells.
    pub fn take(&mut self, plugin: &str, told: Told, all: &Arc<TransportMetrics>) {
        let add = |ours: &[IntCounter], before: &[u64], now: &[u64]| {
            for (i, (ours, now)) in ours.iter().zip(now).enumerate() {
                ours.inc_by(since(before.get(i).copied().unwrap_or(0), *now));
            }
        };
        add(&all.sent, &self.last.sent, &told.sent);
        add(&all.received, &self.last.received, &told.received);
        add(&all.errors, &self.last.errors, &told.errors);
        for (seconds, samples) in [&all.send_seconds, &all.recv_seconds].into_iter().zip(&told.samples) {
            samples.iter().take(MAX_SAMPLES).filter(|s| s.is_finite()).for_each(|s| seconds.observe(*s));
        }
        let mut before = std::mem::take(&mut self.peers);
        for peer in told.peers.iter().take(MAX_PEERS) {
            let side = if peer.accepted { Side::Accepted } else { Side::Opened };
            let address = peer.address[..peer.address.floor_char_boundary(MAX_ADDRESS)].to_owned();
            let key = (side, address);
            let (series, last) =
                before.remove(&key).unwrap_or_else(|| (all.peer(plugin, side, &key.1), Peer::default()));
            series.add(&last, peer);
            self.peers.insert(key, (series, peer.clone()));
        }
        before.into_values().for_each(|(series, last)| series.add(&last, &ended(&last)));
        self.last = told;
    }

    /// The child is gone, and its links with it.
    pub fn end(&mut self) {
        self.peers.drain().for_each(|(_, (series, last))| series.add(&last, &ended(&last)));
    }
}

/// The same without what is open: another child may hold links to that address.
fn ended(peer: &Peer) -> Peer {
    let mut ended = Peer { up: 0.0, ..peer.clone() };
    ended.ways.iter_mut().for_each(|way| way.unfinished = 0.0);
    ended
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::labels::{FrameKind, LinkError};
    use crate::telemetry::metrics::Metrics;
    use crate::telemetry::transport::Whole;

    /// The families of links, without what they are.
    fn text(metrics: &Metrics) -> Vec<String> {
        let all = String::from_utf8(metrics.expose()).expect("text");
        let of_links = |line: &&str| line.contains("_link_") || line.contains("_transport_");
        all.lines().filter(of_links).filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn what_a_child_counts_of_its_links_arrives_in_the_host_and_ends_with_it() {
        let (child, host) = (Metrics::new(), Metrics::new());
        let (none, mut mirror) = (text(&host), Mirror::default());
        drop(child.transport.told());
        let peer = child.transport.peer("p", Side::Opened, "h:1");
        peer.up();
        let whole = Whole { kind: FrameKind::Tensor, bytes: 10, took: Duration::from_millis(3) };
        for _ in 0..3 {
            peer.begun(Direction::Sent);
            peer.moved(Direction::Sent, 10);
            peer.whole(Direction::Sent, whole);
            peer.blocked(Duration::from_millis(1));
            peer.begun(Direction::Received);
            child.transport.error(LinkError::Lost);
            mirror.take("p", child.transport.told(), &host.transport);
            assert_eq!(text(&host), text(&child));
        }
        // Told again without news, it is the same.
        mirror.take("p", child.transport.told(), &host.transport);
        assert_eq!(text(&host), text(&child));
        // A second child with a link to the same address.
        let (other, mut second) = (Metrics::new(), Mirror::default());
        let same = other.transport.peer("p", Side::Opened, "h:1");
        same.up();
        second.take("p", other.transport.told(), &host.transport);
        let up = r#"cascadia_link_up{address="h:1",plugin="p",side="opened"}"#;
        assert!(text(&host).contains(&format!("{up} 2")), "{:?}", text(&host));
        second.end();
        assert_eq!(text(&host), text(&child));
        drop(peer);
        mirror.take("p", child.transport.told(), &host.transport);
        assert_eq!(text(&host), text(&child), "the series of the address are gone in both");
        assert_ne!(text(&host), none, "its totals stay");
    }

    #[test]
    fn what_no_series_can_be_is_left_out() {
        let (host, mut mirror) = (Metrics::new(), Mirror::default());
        let way = Counts { unfinished: f64::INFINITY, last_frame: f64::NAN, ..Counts::default() };
        let peer = |n: usize| Peer {
            address: format!("{n}-{}", "é".repeat(1000)),
            up: f64::NAN,
            blocked: -1.0,
            ways: [way.clone(), way.clone()],
            ..Peer::default()
        };
        let samples = [vec![f64::NAN; 3], Vec::new()];
        let told =
            Told { samples, sent: vec![1; 1000], peers: (0..1000).map(peer).collect(), ..Told::default() };
        mirror.take("p", told, &host.transport);
        let lines = text(&host);
        let up = lines.iter().filter(|line| line.starts_with("cascadia_link_up{")).count();
        assert_eq!(up, MAX_PEERS);
        assert!(lines.iter().all(|line| line.len() < 500 && !line.contains("inf") && !line.contains("NaN")));
        mirror.end();
        assert!(!text(&host).iter().any(|line| line.starts_with("cascadia_link_up{")));
    }
}
