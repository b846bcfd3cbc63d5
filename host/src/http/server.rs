//! Accepts connections and serves them with the service it is given.
//!
//! What must hold: the number of connections is bounded; a head must come within its deadline, and so must the preface of
//! HTTP/2 and the first head behind it; a connection ends when its token is cancelled, whatever its client does; an accept error never ends the loop.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, TRANSFER_ENCODING};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Body;
use super::bell::Bell;
use super::ended::{self, Booked};
use super::socket::{Socket, Watch};
use super::stream::Stream;
use super::streams::Streams;
use super::takeover::{Handover, Lent};
use super::tls::Certificates;
use super::upload::{Rest, Upload};
use crate::telemetry::labels::ConnectionEnd;
use crate::telemetry::metrics::Metrics;

/// What a handler knows of the connection.
#[derive(Clone)]
pub struct Connection {
    /// The other side.
    pub peer: SocketAddr,
    /// Cancelling it ends the connection at once; with HTTP/2, the request's stream alone.
    pub token: CancellationToken,
}

/// The future of an answer.
pub type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
/// Answers requests.
pub type Service = Arc<dyn Fn(Request<Upload>, Connection) -> Answer + Send + Sync>;

/// An answer as hyper wants it: one that could have failed.
struct Sure {
    answer: Answer,
    /// To whom a stream is offered, and whether the connection stays behind it.
    offer: Option<(Arc<Handover>, bool)>,
}

impl Future for Sure {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer.as_mut().poll(cx).map(|mut response| {
            if let Some((handover, stays)) = &self.offer {
                response.body_mut().offer(handover, *stays);
            }
            Ok(response)
        })
    }
}

/// The listener's bounds.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most connections at once.
    pub connections: usize,
    /// How long a head may take.
    pub header_timeout: Duration,
    /// How long a client may leave bytes unread.
    pub write_timeout: Duration,
}

/// Accepts until `stop` is cancelled, with TLS where there are certificates. Connections are booked in `metrics`, tracked by
/// `tasks`, and end with `stop` too. `limits` is asked for each of them; how many there may be is settled at the start.
pub async fn serve(
    listener: TcpListener,
    limits: impl Fn() -> Limits + Send,
    tls: Option<Certificates>,
    service: Service,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let most = limits().connections;
    let (slots, mut full) = (Arc::new(Semaphore::new(most)), Full::default());
    loop {
        // A slot first: what cannot be served waits in the kernel's backlog.
        if slots.available_permits() == 0 {
            full.say(most, Instant::now());
        }
        let slot = tokio::select! {
            slot = Arc::clone(&slots).acquire_owned() => slot,
            () = stop.cancelled() => return,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match (slot, accepted) {
            (Ok(slot), Ok((socket, peer))) => {
                let terms = Terms {
                    limits: limits(),
                    connection: Connection { peer, token: stop.child_token() },
                    service: Arc::clone(&service),
                    tasks: tasks.clone(),
                };
                let tls = tls.as_ref().map(Certificates::now);
                let mut booked = Booked::new(Arc::clone(&metrics));
                tasks.spawn(async move {
                    booked.end = converse(socket, tls, terms).await;
                    drop((booked, slot));
                });
            }
            (_, Err(error)) => {
                // Out of descriptors, or a connection that died before it was accepted: neither is a reason to stop.
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            (Err(_), _) => return,
        }
    }
}

/// Says that all connections are in use, and not with each that waits.
#[derive(Default)]
struct Full {
    said: Option<Instant>,
}

impl Full {
    const EVERY: Duration = Duration::from_secs(60);

    fn say(&mut self, most: usize, now: Instant) {
        if self.said.is_none_or(|said| now.saturating_duration_since(said) >= Full::EVERY) {
            self.said = Some(now);
            tracing::warn!(
                max_connections = most,
                "all connections are in use: the next client waits until one ends; raise server.max_connections if they are clients"
            );
        }
    }
}

/// What holds for one connection.
struct Terms {
    limits: Limits,
    connection: Connection,
    service: Service,
    tasks: TaskTracker,
}

async fn converse(socket: TcpStream, tls: Option<TlsAcceptor>, terms: Terms) -> ConnectionEnd {
    // Without it a token waits up to 40 ms for the acknowledgement of the one before.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "nodelay not set");
    }
    let Connection { peer, token } = terms.connection.clone();
    let mut http: Pin<Box<dyn Future<Output = ConnectionEnd> + Send>> = match tls {
        Some(acceptor) => Box::pin(speak_tls(socket, acceptor, terms)),
        None => Box::pin(speak_openly(socket, terms)),
    };
    let mut cancelled = pin!(token.cancelled());
    let mut bell: Option<Arc<Bell>> = None;
    let end = poll_fn(|cx| {
        // Asked only when it may have come true: asking with every token would cost a lock each.
        let bell = Bell::of(&mut bell, cx.waker());
        if bell.rang() && cancelled.as_mut().poll(&mut Context::from_waker(&bell.waker())).is_ready() {
            return Poll::Ready(ConnectionEnd::Cut);
        }
        http.as_mut().poll(cx)
    })
    .await;
    tracing::debug!(%peer, reason = end.name(), "connection ended");
    end
}

/// Speaks HTTP over a plain connection; the client's first bytes say which.
async fn speak_openly(socket: TcpStream, terms: Terms) -> ConnectionEnd {
    // Boxed, and gone before the first request: a connection's memory is that of its largest moment.
    let begun = Box::pin(tokio::time::timeout(terms.limits.header_timeout, Begun::read(socket)));
    let (socket, begun) = match begun.await {
        Ok(Ok(begun)) => begun,
        Ok(Err(_gone)) => return ConnectionEnd::Closed,
        Err(_late) => return ConnectionEnd::NoRequest,
    };
    let two = begun.is_two();
    let socket = Socket::new(socket, terms.limits.write_timeout);
    let watch = socket.watch();
    let lent = Lent::new(socket, Bytes::copy_from_slice(begun.bytes()), watch.clone());
    speak(lent, watch, two, terms, |socket| socket.farewell(FAREWELL)).await
}

/// The same over TLS.
async fn speak_tls(socket: TcpStream, acceptor: TlsAcceptor, terms: Terms) -> ConnectionEnd {
    let socket = Socket::new(socket, terms.limits.write_timeout);
    let (watch, peer) = (socket.watch(), terms.connection.peer);
    match tokio::time::timeout(terms.limits.header_timeout, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => {
            let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let farewell = |mut stream: TlsStream<Socket>| async move {
                // Its word of farewell; a client that has gone needs none.
                if tokio::time::timeout(FAREWELL, stream.shutdown()).await.is_ok() {
                    stream.into_inner().0.farewell(FAREWELL).await;
                }
            };
            speak(Lent::new(stream, Bytes::new(), watch.clone()), watch, two, terms, farewell).await
        }
        // It came and went without a word, as who looks whether the port is open.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => ConnectionEnd::Closed,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "no TLS");
            ConnectionEnd::Tls
        }
        Err(_late) => ConnectionEnd::NoRequest,
    }
}

/// Speaks HTTP over a connection to its end, and then says farewell.
async fn speak<I, F>(
    lent: Lent<I>,
    watch: Watch,
    two: bool,
    terms: Terms,
    farewell: impl FnOnce(I) -> F,
) -> ConnectionEnd
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = ()>,
{
    if two {
        return speak_two(lent, terms).await;
    }
    match speak_one(lent, watch, terms).await {
        (end, Some(io)) => {
            Box::pin(farewell(io)).await;
            end
        }
        (end, None) => end,
    }
}

/// Speaks HTTP/2.
async fn speak_two<I>(lent: Lent<I>, terms: Terms) -> ConnectionEnd
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Terms { limits, connection, service, tasks } = terms;
    let rest = Rest::new(connection.token.clone(), tasks.clone(), FAREWELL);
    let streams = Streams::new(connection.token.clone(), tasks);
    // Held here: what hyper leaves running must not outlive its connection.
    let _all = connection.token.drop_guard();
    let (peer, begun) = (connection.peer, streams.clone());
    let answer = service_fn(move |request: Request<Incoming>| {
        let request = request.map(|body| Upload::new(body, Some(rest.clone())));
        Sure { answer: service(request, Connection { peer, token: begun.begin() }), offer: None }
    });
    let served = http2::Builder::new(streams.clone())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(64 << 10)
        .keep_alive_interval(Some(PING))
        .keep_alive_timeout(PING)
        .serve_connection(TokioIo::new(lent), answer);
    let mut served = Box::pin(served);
    if let Ok(ended) = tokio::time::timeout(limits.header_timeout, &mut served).await {
        return ended::of(ended, true, peer);
    }
    if !streams.has_begun() {
        // Nobody asks: a connection that is only held keeps others out. What comes now is still answered.
        served.as_mut().graceful_shutdown();
        if let Ok(ended) = tokio::time::timeout(FAREWELL, &mut served).await {
            return ended::of(ended, true, peer);
        }
        if !streams.has_begun() {
            return ConnectionEnd::NoRequest;
        }
    }
    ended::of(served.await, true, peer)
}

/// How a turn of hyper's on a connection ends.
enum Turn {
    /// The client left unseen by hyper.
    Left,
    /// Hyper is through with the connection.
    Over(hyper::Result<()>),
    /// A stream goes on without hyper; the connection stays behind it or ends.
    Stream(Arc<Mutex<Stream>>, bool),
}

/// Speaks HTTP/1: hyper does, and where a stream is under way this task alone. Gives the connection back where its client is
/// owed a farewell.
async fn speak_one<I>(mut lent: Lent<I>, watch: Watch, terms: Terms) -> (ConnectionEnd, Option<I>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Terms { limits, connection, service, .. } = terms;
    let (peer, asked) = (connection.peer, Arc::new(AtomicBool::new(false)));
    let mut left = pin!(watch.left());
    loop {
        let handover = Arc::new(Handover::default());
        lent.tells(&handover);
        let (asks, to) = (Arc::clone(&asked), Arc::clone(&handover));
        let (service, connection) = (Arc::clone(&service), connection.clone());
        let answer = service_fn(move |request: Request<Incoming>| {
            asks.store(true, Ordering::Relaxed);
            let offer = may_be_taken(&request).then(|| (Arc::clone(&to), stays(request.headers())));
            let request = request.map(|body| Upload::new(body, None));
            Sure { answer: service(request, connection.clone()), offer }
        });
        // Boxed, or it would lie in this future twice: where it is made and where it stays.
        let mut one = Box::new(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.header_timeout)
                .serve_connection(TokioIo::new(lent), answer),
        );
        let turn = poll_fn(|cx| match one.poll_without_shutdown(cx) {
            Poll::Ready(ended) => Poll::Ready(Turn::Over(ended)),
            Poll::Pending => match handover.take() {
                Some((stream, stays)) => Poll::Ready(Turn::Stream(stream, stays)),
                None => left.as_mut().poll(cx).map(|()| Turn::Left),
            },
        });
        let turn = turn.await;
        let parts = one.into_parts();
        let had = parts.io.into_inner();
        let (mut taken, stays) = match turn {
            Turn::Stream(stream, stays) => (had.take(&parts.read_buf, stream), stays),
            // Needs no farewell.
            Turn::Left => return (ConnectionEnd::ClientLeft, None),
            Turn::Over(ended) => {
                let io = had.into_inner();
                return match ended::of(ended, false, peer) {
                    ConnectionEnd::NoRequest if asked.load(Ordering::Relaxed) => {
                        (ConnectionEnd::Idle, Some(io))
                    }
                    end => (end, Some(io)),
                };
            }
        };
        drop(parts.read_buf);
        let sent = poll_fn(|cx| match taken.poll(cx) {
            Poll::Pending if taken.looks_away() => {
                left.as_mut().poll(cx).map(|()| Err(io::ErrorKind::UnexpectedEof.into()))
            }
            sent => sent,
        });
        match sent.await {
            Ok(()) if stays => lent = taken.into_lent(),
            Ok(()) => return (ConnectionEnd::Closed, Some(taken.into_inner())),
            Err(error) => return (ended::of_stream(&error, peer), None),
        }
    }
}

/// Whether a stream that answers this may be taken over: hyper frames it in chunks, and the connection's fate is told by the
/// request's head alone.
fn may_be_taken(request: &Request<Incoming>) -> bool {
    request.version() == Version::HTTP_11
        && request.method() != Method::HEAD
        && !request.headers().contains_key(TRANSFER_ENCODING)
}

/// Whether a connection stays for a next request (RFC 9112, 9.3).
fn stays(headers: &HeaderMap) -> bool {
    // What is no text says nothing: so hyper reads it, who has told the client by then.
    let texts = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    !texts.flat_map(|text| text.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"))
}

/// Requests that one HTTP/2 connection may have at once.
const STREAMS: u32 = 256;
/// How often an HTTP/2 client is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(20);
/// How long a client that is still sending is listened to after the answer.
const FAREWELL: Duration = Duration::from_secs(2);
/// How a client begins that speaks HTTP/2 without asking first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first bytes of a connection: as many as tell whether they are the preface of HTTP/2. They are read whole before
/// the HTTP/2 connection is made, because that waits for them without a deadline.
struct Begun {
    bytes: [u8; PREFACE.len()],
    length: usize,
}

impl Begun {
    async fn read(mut socket: TcpStream) -> std::io::Result<(TcpStream, Begun)> {
        let mut begun = Begun { bytes: [0; PREFACE.len()], length: 0 };
        while begun.length < PREFACE.len() && PREFACE.starts_with(begun.bytes()) {
            match socket.read(&mut begun.bytes[begun.length..]).await? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => begun.length += n,
            }
        }
        Ok((socket, begun))
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn is_two(&self) -> bool {
        self.bytes() == PREFACE
    }
}
