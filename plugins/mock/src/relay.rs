//! The mock as a stage of a pipeline: the text of a task goes to every peer and comes back before it is answered.
//!
//! A stage that listens sends back each tensor that comes, from threads of its own. A stage with peers sends a task's text
//! as a tensor of bytes, waits for the same number of bytes, and repeats what came instead of what it sent. The option
//! `relay` makes the listening side go wrong: by its answers here, by its bytes on the wire in [`fault`].
//!
//! Holds: after anything went wrong with a link it is closed and opened anew for the next task, so that a late answer is never
//! taken for another task's. Every wait has a deadline, and ends when the engine closes.

mod fault;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::host::dtype;
use cascadia_plugin_api::sdk::{Deadline, Error, Frame, Level, Link, Listener, Result, Worker, log};
use parking_lot::Mutex;

use self::fault::Liar;

/// What is spoken on the links.
const PURPOSE: &str = "mock/relay/1";

/// How a stage that listens answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As it should.
    Right,
    /// Not at all.
    Mute,
    /// With other bytes.
    Garbled,
    /// Only its first peer.
    Once,
    /// As it should; but a stage with peers does not let go of them when it closes.
    Clinging,
    /// Wrong on the wire.
    Wire(fault::Wire),
}

impl Manner {
    /// The manner of that name.
    pub(crate) fn read(name: &str) -> Result<Manner> {
        Ok(match name {
            "on" => Manner::Right,
            "mute" => Manner::Mute,
            "garbled" => Manner::Garbled,
            "once" => Manner::Once,
            "clinging" => Manner::Clinging,
            other => Manner::Wire(fault::Wire::read(other)?),
        })
    }
}

/// The stage's links.
pub(crate) struct Relay {
    worker: Worker,
    peers: Vec<Peer>,
    rear: Option<Rear>,
    limit: Duration,
    manner: Manner,
    closed: AtomicBool,
}

/// A stage that texts go to.
struct Peer {
    address: String,
    /// None after something went wrong.
    link: Mutex<Option<Arc<Link>>>,
}

/// The side that listens.
enum Rear {
    Honest(Arc<Server>, Option<JoinHandle<()>>),
    Liar(Liar),
}

/// What the threads of the listening side share.
struct Server {
    listener: Listener,
    manner: Manner,
    links: Mutex<Vec<Arc<Link>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    closed: AtomicBool,
}

impl Relay {
    /// A stage without links. A text may take `limit` each way to go to a peer and back.
    pub(crate) fn new(worker: Worker) -> Relay {
        Relay {
            worker,
            peers: Vec::new(),
            rear: None,
            limit: Duration::from_secs(2),
            manner: Manner::Right,
            closed: AtomicBool::new(false),
        }
    }

    /// Sets how long one way may take, and how the stage behaves.
    pub(crate) fn configure(&mut self, limit: Duration, manner: Manner) {
        (self.limit, self.manner) = (limit, manner);
    }

    /// Whether it listens or has peers.
    pub(crate) fn is_used(&self) -> bool {
        self.rear.is_some() || self.has_peers()
    }

    /// Listens for stages that send texts; where they find it.
    pub(crate) fn listen(&mut self, address: &str) -> Result<String> {
        if let Manner::Wire(wire) = self.manner {
            let liar = Liar::listen(address, wire)?;
            let bound = liar.address();
            self.rear = Some(Rear::Liar(liar));
            return Ok(bound);
        }
        let server = Arc::new(Server {
            listener: self.worker.listen(address, PURPOSE)?,
            manner: self.manner,
            links: Mutex::default(),
            threads: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let bound = server.listener.address().to_owned();
        let shared = Arc::clone(&server);
        self.rear = Some(Rear::Honest(server, Some(thread("relay", move || shared.accept())?)));
        Ok(bound)
    }

    /// Opens a link to each stage.
    pub(crate) fn connect(&mut self, peers: &[(u32, String)]) -> Result<()> {
        for (_, address) in peers {
            let link = Arc::new(self.worker.open(address, PURPOSE, Deadline::DEFAULT)?);
            self.peers.push(Peer { address: address.clone(), link: Mutex::new(Some(link)) });
        }
        Ok(())
    }

    /// A stage that is its own peer, for hosts that form no pipelines.
    pub(crate) fn link_to_itself(&mut self) -> Result<()> {
        let address = self.listen(":0")?;
        self.connect(&[(0, address)])
    }

    /// Whether texts go anywhere.
    pub(crate) fn has_peers(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Sends a text to every peer in turn; what came back from the last.
    pub(crate) fn travel(&self, text: &str) -> Result<String> {
        let mut bytes = text.as_bytes().to_vec();
        for peer in &self.peers {
            self.worker.beat();
            let link = self.link(peer)?;
            bytes = self.round_trip(&link, &bytes).inspect_err(|_| {
                link.close();
                *peer.link.lock() = None;
            })?;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn link(&self, peer: &Peer) -> Result<Arc<Link>> {
        if let Some(link) = peer.link.lock().clone() {
            return Ok(link);
        }
        let link = Arc::new(self.worker.open(&peer.address, PURPOSE, Deadline::within(self.limit))?);
        *peer.link.lock() = Some(Arc::clone(&link));
        if self.closed.load(Ordering::Acquire) {
            link.close();
        }
        Ok(link)
    }

    fn round_trip(&self, link: &Link, bytes: &[u8]) -> Result<Vec<u8>> {
        let dims = [bytes.len() as u64];
        link.send_tensor(dtype::U8, &dims, &[bytes], Deadline::within(self.limit))?;
        link.recv(Deadline::within(self.limit), |frame| match frame {
            Frame::Tensor { dtype: dtype::U8, bytes, .. } => Ok(bytes.to_vec()),
            _ => Err(Error::new(code::PEER_REJECTED, "the peer answered a text with another kind of frame")),
        })?
    }

    /// Ends every wait; texts go nowhere from now on.
    pub(crate) fn close(&self) {
        if self.manner != Manner::Clinging {
            self.end();
        }
    }

    fn end(&self) {
        self.closed.store(true, Ordering::Release);
        for peer in &self.peers {
            if let Some(link) = &*peer.link.lock() {
                link.close();
            }
        }
        match &self.rear {
            Some(Rear::Honest(server, _)) => server.close(),
            Some(Rear::Liar(liar)) => liar.close(),
            None => {}
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end();
        if let Some(Rear::Honest(server, accepting)) = &mut self.rear {
            let answering = std::mem::take(&mut *server.threads.lock());
            accepting.take().into_iter().chain(answering).for_each(join);
            // One may have come in between.
            std::mem::take(&mut *server.threads.lock()).into_iter().for_each(join);
        }
    }
}

/// Its panic was told when it happened.
fn join(thread: JoinHandle<()>) {
    drop(thread.join());
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let spawned = Builder::new().name(format!("mock-{name}")).spawn(work);
    spawned.map_err(|e| Error::backend(format!("the thread {name} did not start: {e}")))
}

impl Server {
    fn accept(self: &Arc<Self>) {
        while !self.closed.load(Ordering::Acquire) {
            match self.listener.accept(Deadline::DEFAULT) {
                Ok(link) => {
                    if let Err(error) = self.serve(Arc::new(link)) {
                        log(Level::Warn, "relay", "a peer is not served", &[("reason", &error.message)]);
                    }
                    if self.manner == Manner::Once {
                        return;
                    }
                }
                Err(error) if error.code == code::DEADLINE_EXCEEDED => {}
                Err(error) if error.code == code::CLOSED => return,
                Err(error) => {
                    log(Level::Warn, "relay", "no peer is accepted", &[("reason", &error.message)]);
                    // Whatever is short now (places, descriptors) comes back when a link ends.
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    fn serve(self: &Arc<Self>, link: Arc<Link>) -> Result<()> {
        self.links.lock().push(Arc::clone(&link));
        if self.closed.load(Ordering::Acquire) {
            link.close();
        }
        let shared = Arc::clone(self);
        let answering = thread("answer", move || {
            let end = shared.answer(&link);
            log(Level::Debug, "relay", "a link ended", &[("reason", &end.message)]);
            shared.links.lock().retain(|other| !Arc::ptr_eq(other, &link));
        })?;
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(answering);
        Ok(())
    }

    /// Sends back what comes, until the link ends.
    fn answer(&self, link: &Link) -> Error {
        loop {
            let came = link.recv(Deadline::DEFAULT, |frame| match frame {
                Frame::Tensor { dtype, dims, bytes } => Some((dtype, dims.to_vec(), bytes.to_vec())),
                Frame::Raw(_) => None,
            });
            let (dtype, dims, mut bytes) = match came {
                Ok(Some(tensor)) => tensor,
                Ok(None) => continue,
                Err(error) if error.code == code::DEADLINE_EXCEEDED => continue,
                Err(error) => return error,
            };
            match self.manner {
                Manner::Mute => continue,
                Manner::Garbled => bytes.iter_mut().for_each(|byte| *byte = byte.to_ascii_uppercase()),
                _ => {}
            }
            if let Err(error) = link.send_tensor(dtype, &dims, &[&bytes], Deadline::DEFAULT) {
                return error;
            }
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.listener.close();
        self.links.lock().iter().for_each(|link| link.close());
    }
}
