//! Accepts connections and serves them with the service it is given.
//!
//! What must hold: the number of connections is bounded; a head must come within its deadline; a connection ends when its
//! token is cancelled, whatever its client does; an accept error never ends the loop.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Body;
use super::socket::Socket;

/// What a handler knows of the connection.
#[derive(Clone)]
pub struct Connection {
    /// The other side.
    pub peer: SocketAddr,
    /// Cancelling it ends the connection at once.
    pub token: CancellationToken,
}

/// The future of an answer.
pub type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
/// Answers requests.
pub type Service = Arc<dyn Fn(Request<Incoming>, Connection) -> Answer + Send + Sync>;

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

/// Accepts until `stop` is cancelled, with TLS where there is an acceptor. Connections are tracked by `tasks` and end with `stop` too.
pub async fn serve(
    listener: TcpListener,
    limits: Limits,
    tls: Option<TlsAcceptor>,
    service: Service,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    loop {
        // A slot first: what cannot be served waits in the kernel's backlog.
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
                let connection = Connection { peer, token: stop.child_token() };
                let (service, tls) = (Arc::clone(&service), tls.clone());
                tasks.spawn(async move {
                    converse(socket, connection, limits, tls, service).await;
                    drop(slot);
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

async fn converse(
    socket: TcpStream,
    connection: Connection,
    limits: Limits,
    tls: Option<TlsAcceptor>,
    service: Service,
) {
    // Without it a token waits up to 40 ms for the acknowledgement of the one before.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "nodelay not set");
    }
    let token = connection.token.clone();
    let answer = service_fn(move |request| {
        let answer = service(request, connection.clone());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let http = async move {
        let patience = limits.header_timeout;
        let Some(acceptor) = tls else {
            let Ok(Ok(two)) = tokio::time::timeout(patience, speaks_two(&socket)).await else {
                // Nothing came in time, or it has gone.
                return Ok(());
            };
            return speak(Socket::new(socket, limits.write_timeout), two, limits, answer).await;
        };
        let shaken = Box::pin(acceptor.accept(Socket::new(socket, limits.write_timeout)));
        match tokio::time::timeout(patience, shaken).await {
            Ok(Ok(stream)) => {
                let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                // Boxed: a connection's memory is that of the largest kind, and this one is rare and large.
                Box::pin(speak(stream, two, limits, answer)).await
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "no TLS");
                Ok(())
            }
            Err(_) => Ok(()),
        }
    };
    tokio::select! {
        ended = http => if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        },
        () = token.cancelled() => {}
    }
}

/// Speaks HTTP over a connection to its end.
async fn speak<I, S>(io: I, two: bool, limits: Limits, answer: S) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: hyper::service::Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    let io = TokioIo::new(io);
    if two {
        let served = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(64 << 10)
            .keep_alive_interval(Some(PING))
            .keep_alive_timeout(PING)
            .serve_connection(io, answer);
        Box::pin(served).await
    } else {
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .serve_connection(io, answer)
            .await
    }
}

/// Requests that one HTTP/2 connection may have at once.
const STREAMS: u32 = 256;
/// How often an HTTP/2 client is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(20);

/// Whether the client begins with the preface of HTTP/2, as one does that knows of it beforehand. No method of HTTP/1
/// begins with `PR`. Waits for the first bytes and leaves them where they are.
async fn speaks_two(socket: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0; 2];
    let n = socket.peek(&mut first).await?;
    if n == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(&first == b"PR")
}
