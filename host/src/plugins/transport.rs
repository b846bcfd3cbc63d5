//! Links between pipeline stages, safe and with blocking sockets: plugins wait on their own threads.
//!
//! [`Ends`] is what one worker has open; everything open has a handle in one table of the process, so that a plugin can
//! hold nothing that dangles. [`link::Link`] moves whole frames, `listener` and `dial` make links, `socket` is the system.
//!
//! What must hold: every wait has a deadline and ends when its link, listener or worker is closed; every number that a peer
//! sends is checked before it is used; what one worker has open is bounded, and closed with it.

mod address;
mod dial;
mod frame;
mod greeting;
mod hello;
pub mod link;
pub mod listener;
mod socket;
pub mod until;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use self::address::Address;
use self::dial::{Waiting, dial};
use self::link::Link;
use self::listener::{Guest, Listener};
use self::until::Until;
use crate::telemetry::labels::{Direction, LinkError, Side};
use crate::telemetry::transport::{PeerMetrics, TransportMetrics};

/// Why a call of the transport did not do what was asked. The message is one line and names the peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An argument is against the rules.
    #[error("{0}")]
    Invalid(String),
    /// The worker has as many as it may have.
    #[error("{0}")]
    Full(String),
    /// The link, the listener or the worker was closed on this side.
    #[error("{0}")]
    Closed(String),
    /// The deadline passed.
    #[error("{0}")]
    Deadline(String),
    /// The peer is not there, or the link has ended.
    #[error("{0}")]
    Lost(String),
    /// The peer is another than was meant.
    #[error("{0}")]
    Rejected(String),
    /// The system refused.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    fn long_purpose(have: usize) -> Error {
        Error::Invalid(format!("the purpose has {have} bytes, at most {} are taken", hello::MAX_TEXT))
    }

    fn worker_closed() -> Error {
        Error::Closed("the worker is closed".to_owned())
    }

    fn no_handle(what: &str) -> Error {
        Error::Closed(format!("the {what} is closed, or never was one"))
    }
}

/// What a call answers.
pub type Result<T> = std::result::Result<T, Error>;

/// The bounds of links.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest payload of a tensor frame, in bytes.
    pub tensor: u64,
    /// Largest payload of a raw frame, in bytes.
    pub raw: u64,
    /// Links of one worker, those that are being opened included.
    pub links: usize,
    /// Listeners of one worker.
    pub listeners: usize,
    /// How long a frame that has begun may stand still.
    pub still: Duration,
    /// How long a peer may take to say hello.
    pub greeting: Duration,
}

impl Limits {
    /// What the contract promises.
    pub const CONTRACT: Limits = Limits {
        tensor: 512 << 20,
        raw: 1 << 20,
        links: 64,
        listeners: 8,
        still: Duration::from_secs(30),
        greeting: Duration::from_secs(5),
    };

    fn sizes(&self) -> frame::Sizes {
        frame::Sizes { tensor: self.tensor, raw: self.raw }
    }
}

/// Addresses of one worker that have series of their own.
const SERIES: usize = 16;

/// What one worker has open. Lives as long as the process, as the worker's address does.
pub struct Ends {
    plugin: String,
    limits: Limits,
    state: Mutex<State>,
    /// Tells those who pause that the worker was closed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    links: usize,
    listeners: usize,
    handles: Vec<u64>,
    /// Kept until the worker closes, so that a link that is opened anew goes on with its series.
    peers: HashMap<(Side, String), Arc<PeerMetrics>>,
}

/// Something open.
enum End {
    Link(Arc<Link>, #[expect(dead_code, reason = "gives the place back")] Seat),
    Listener(Arc<Listener>, &'static Ends, #[expect(dead_code, reason = "as above")] Seat),
}

/// A place among a worker's links or listeners.
struct Seat {
    ends: &'static Ends,
    count: fn(&mut State) -> &mut usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        *(self.count)(&mut self.ends.state.lock()) -= 1;
    }
}

fn table() -> &'static RwLock<HashMap<u64, End>> {
    static TABLE: OnceLock<RwLock<HashMap<u64, End>>> = OnceLock::new();
    TABLE.get_or_init(RwLock::default)
}

impl Ends {
    /// Nothing is open yet.
    pub fn new(plugin: &str, limits: Limits) -> Ends {
        Ends { plugin: plugin.to_owned(), limits, state: Mutex::default(), changed: Condvar::new() }
    }

    /// A listener at `address` for `purpose`: its handle, and where peers find it.
    pub fn listen(
        &'static self,
        address: &str,
        purpose: &str,
        metrics: &Arc<TransportMetrics>,
    ) -> Result<(u64, String)> {
        let address = Address::parse(address).map_err(Error::Invalid)?;
        let seat = self.seat("listeners", self.limits.listeners, |state| &mut state.listeners)?;
        let listener =
            Arc::new(Listener::new(address, purpose.to_owned(), self.limits, Arc::clone(metrics))?);
        let bound = listener.bound.to_string();
        Ok((self.put(End::Listener(listener, self, seat))?, bound))
    }

    /// A link to the peer at `address`.
    pub fn open(
        &'static self,
        address: &str,
        purpose: &str,
        until: Until,
        metrics: &Arc<TransportMetrics>,
    ) -> Result<u64> {
        let address = Address::parse(address).map_err(Error::Invalid)?;
        let seat = self.link_seat()?;
        let guest = dial(&address, purpose, until, &self.limits, self).inspect_err(|error| {
            if matches!(error, Error::Rejected(_)) {
                metrics.error(LinkError::Rejected);
            }
        })?;
        self.link(guest, address.to_string(), Side::Opened, &address, metrics, seat)
    }

    fn accept(
        &'static self,
        listener: &Listener,
        until: Until,
        metrics: &Arc<TransportMetrics>,
    ) -> Result<u64> {
        let seat = self.link_seat()?;
        let guest = listener.accept(until)?;
        let name = format!("the peer at {}", listener.bound);
        self.link(guest, name, Side::Accepted, &listener.asked, metrics, seat)
    }

    fn link_seat(&'static self) -> Result<Seat> {
        self.seat("links", self.limits.links, |state| &mut state.links)
    }

    fn link(
        &'static self,
        guest: Guest,
        name: String,
        side: Side,
        address: &Address,
        metrics: &Arc<TransportMetrics>,
        seat: Seat,
    ) -> Result<u64> {
        tracing::info!(plugin = self.plugin, peer = name, "a link between stages is up");
        let peer = self.peer(side, address, metrics);
        let link = Link::new(guest.stream, name, self.limits, guest.largest, peer);
        self.put(End::Link(Arc::new(link), seat))
    }

    /// The series of an address, up to a number of addresses.
    fn peer(&self, side: Side, address: &Address, metrics: &Arc<TransportMetrics>) -> Arc<PeerMetrics> {
        let mut state = self.state.lock();
        let known = |state: &State, address: &str| state.peers.contains_key(&(side, address.to_owned()));
        let text = address.to_string();
        let text = if known(&state, &text) || state.peers.len() < SERIES { text } else { "other".to_owned() };
        let made = || metrics.peer(&self.plugin, side, &text);
        Arc::clone(state.peers.entry((side, text.clone())).or_insert_with(made))
    }

    fn seat(&'static self, what: &str, most: usize, count: fn(&mut State) -> &mut usize) -> Result<Seat> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::worker_closed());
        }
        if *count(&mut state) >= most {
            return Err(Error::Full(format!("the worker has {most} {what} already; close some")));
        }
        *count(&mut state) += 1;
        Ok(Seat { ends: self, count })
    }

    fn put(&self, end: End) -> Result<u64> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut state = self.state.lock();
        if state.closed {
            // The place is given back under the same lock.
            drop(state);
            end.close();
            return Err(Error::worker_closed());
        }
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        state.handles.retain(|open| table().read().contains_key(open));
        state.handles.push(handle);
        table().write().insert(handle, end);
        Ok(handle)
    }

    /// Closes everything, now and for ever; who waits on any of it is told.
    pub fn close(&self) {
        let (handles, peers) = {
            let mut state = self.state.lock();
            state.closed = true;
            (std::mem::take(&mut state.handles), std::mem::take(&mut state.peers))
        };
        self.changed.notify_all();
        handles.into_iter().for_each(close);
        drop(peers);
    }

    /// Whole frames that went over all links so far, sent and received; since the worker closed, none.
    pub fn frames(&self) -> (u64, u64) {
        let state = self.state.lock();
        let sum = |direction| state.peers.values().map(|peer| peer.frames(direction)).sum();
        (sum(Direction::Sent), sum(Direction::Received))
    }

    /// What the worker's open listeners are for.
    pub fn purposes(&self) -> Vec<String> {
        let handles = self.state.lock().handles.clone();
        let table = table().read();
        let purpose = |handle: &u64| match table.get(handle) {
            Some(End::Listener(listener, ..)) => Some(listener.purpose().to_owned()),
            _ => None,
        };
        handles.iter().filter_map(purpose).collect()
    }
}

impl Waiting for Ends {
    fn is_gone(&self) -> bool {
        self.state.lock().closed
    }

    fn pause(&self, until: Instant) {
        let mut state = self.state.lock();
        while !state.closed && !self.changed.wait_until(&mut state, until).timed_out() {}
    }
}

impl End {
    fn close(&self) {
        match self {
            End::Link(link, _) => link.close(),
            End::Listener(listener, ..) => listener.close(),
        }
    }
}

/// What a peer that opens a link for `purpose` says first: a stage is tried with peers that break off after it.
pub fn greeting(purpose: &str) -> Vec<u8> {
    let (word, largest) = (hello::Word::Hello, Limits::CONTRACT.tensor);
    hello::Hello { word, largest, text: purpose.to_owned() }.bytes()
}

/// A link to the next peer that comes to the listener.
pub fn accept(listener: u64, until: Until, metrics: &Arc<TransportMetrics>) -> Result<u64> {
    let found = match table().read().get(&listener) {
        Some(End::Listener(listener, ends, _)) => (Arc::clone(listener), *ends),
        _ => return Err(Error::no_handle("listener")),
    };
    found.1.accept(&found.0, until, metrics)
}

/// The link of that handle.
pub fn link(handle: u64) -> Result<Arc<Link>> {
    match table().read().get(&handle) {
        Some(End::Link(link, _)) => Ok(Arc::clone(link)),
        _ => Err(Error::no_handle("link")),
    }
}

/// Whether something is open under that handle.
pub fn is_open(handle: u64) -> bool {
    table().read().contains_key(&handle)
}

/// Closes a link or a listener; nothing for a handle that is closed.
pub fn close(handle: u64) {
    let end = table().write().remove(&handle);
    if let Some(end) = end {
        end.close();
    }
}

#[cfg(test)]
mod tests;
