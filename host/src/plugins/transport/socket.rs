//! Sockets as the system has them: opening, binding, polling, keep-alive. The only file of links with system calls of its own.
//!
//! What must hold: every socket made here is non-blocking and closed on exec, so that nothing but [`wait`] and [`poll`] waits.
#![expect(unsafe_code, reason = "polls, and sets what std has no function for")]

use std::fs;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::address::Address;

/// Longest single wait; who waits longer looks up in between.
const TICK: Duration = Duration::from_secs(1);
/// Longest that one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(3);
/// A connection without traffic is asked after that long, then every `PROBE_EVERY`, `PROBES` times. Seconds.
const PROBE_AFTER: i32 = 30;
const PROBE_EVERY: i32 = 10;
const PROBES: i32 = 3;

/// A connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Reads what is there.
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(into),
            Stream::Unix(stream) => (&*stream).read(into),
        }
    }

    /// Writes as much as there is room for.
    pub(super) fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write_vectored(parts),
            Stream::Unix(stream) => (&*stream).write_vectored(parts),
        }
    }

    /// Ends both directions; whoever waits on it wakes. On one that has ended, nothing.
    pub(super) fn end(&self) {
        let ended = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
        // Fails only where there is nothing left to end.
        drop(ended);
    }

    /// Whether the peer is gone, or will send no more.
    pub(super) fn is_left(&self) -> bool {
        let mut fd = libc::pollfd { fd: self.as_fd().as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one descriptor of ours, for the call.
        unsafe { libc::poll(&raw mut fd, 1, 0) > 0 }
    }

    /// A TCP connection within this machine can meet itself while nobody listens at the port.
    fn is_itself(&self) -> bool {
        match self {
            Stream::Tcp(stream) => {
                stream.local_addr().is_ok_and(|own| stream.peer_addr().is_ok_and(|peer| own == peer))
            }
            Stream::Unix(_) => false,
        }
    }

    fn prepared(self) -> io::Result<Stream> {
        match &self {
            Stream::Unix(stream) => stream.set_nonblocking(true)?,
            Stream::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let fd = stream.as_fd();
                set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
                set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, PROBE_AFTER)?;
                set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, PROBE_EVERY)?;
                set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES)?;
                // Not TCP_USER_TIMEOUT: it would also end the link to a peer that is well and takes long to read.
            }
        }
        Ok(self)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(super) enum Acceptor {
    Tcp(TcpListener),
    /// With its file, and the file's device and number: another's file of that name is not removed.
    Unix(UnixListener, PathBuf, (u64, u64)),
}

impl Acceptor {
    /// Listens there; also the address that a peer opens.
    pub(super) fn bind(address: &Address, until: Instant) -> io::Result<(Acceptor, Address)> {
        match address {
            Address::Tcp(host, port) => {
                let listener = TcpListener::bind(&look_up(host, *port, until, &|| false)?[..])?;
                listener.set_nonblocking(true)?;
                let bound = listener.local_addr()?;
                Ok((Acceptor::Tcp(listener), Address::Tcp(bound.ip().to_string(), bound.port())))
            }
            Address::Unix(path) => {
                let listener = match bind_unix(path) {
                    Err(e) if e.kind() == ErrorKind::AddrInUse && remove_stale(path) => bind_unix(path),
                    other => other,
                }?;
                let file = fs::symlink_metadata(path)?;
                Ok((Acceptor::Unix(listener, path.clone(), (file.dev(), file.ino())), address.clone()))
            }
        }
    }

    /// The next connection, if one waits.
    pub(super) fn accept(&self) -> io::Result<Stream> {
        let stream = match self {
            Acceptor::Tcp(listener) => Stream::Tcp(listener.accept()?.0),
            Acceptor::Unix(listener, ..) => Stream::Unix(listener.accept()?.0),
        };
        stream.prepared()
    }

    /// Ends it; whoever waits on it wakes.
    pub(super) fn end(&self) {
        // SAFETY: a descriptor of ours. It fails only where there is nothing left to end.
        unsafe { libc::shutdown(self.as_fd().as_raw_fd(), libc::SHUT_RDWR) };
    }
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Acceptor::Tcp(listener) => listener.as_fd(),
            Acceptor::Unix(listener, ..) => listener.as_fd(),
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        if let Acceptor::Unix(_, path, ours) = self
            && fs::symlink_metadata(&path).is_ok_and(|file| (file.dev(), file.ino()) == *ours)
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(file = %path.display(), %error, "socket of a listener not removed");
        }
    }
}

/// One attempt to connect. `gone` says that nobody wants it any more.
pub(super) fn connect(address: &Address, until: Instant, gone: &dyn Fn() -> bool) -> io::Result<Stream> {
    let stream = match address {
        Address::Unix(path) => Stream::Unix(connect_unix(path)?),
        Address::Tcp(host, port) => {
            let mut met = io::Error::new(ErrorKind::NotFound, "the name has no address");
            let mut found = None;
            for address in look_up(host, *port, until, gone)? {
                let time =
                    until.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), ATTEMPT);
                match TcpStream::connect_timeout(&address, time) {
                    Ok(stream) => {
                        found = Some(stream);
                        break;
                    }
                    Err(e) => met = e,
                }
                if gone() {
                    break;
                }
            }
            Stream::Tcp(found.ok_or(met)?)
        }
    };
    if stream.is_itself() {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    stream.prepared()
}

/// The addresses of a name. The system's resolver has no deadline, so it works on a thread of its own, of which there is at
/// most one for each call; the thread ends when the resolver does.
fn look_up(host: &str, port: u16, until: Instant, gone: &dyn Fn() -> bool) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (tell, told) = sync_channel(1);
    let name = host.to_owned();
    std::thread::Builder::new().name("look-up".to_owned()).spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Nobody waits any more: the name came too late.
        drop(tell.send(found));
    })?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match told.recv_timeout(left.min(TICK)) {
            Ok(found) => return found,
            Err(RecvTimeoutError::Timeout) if !left.is_zero() && !gone() => {}
            Err(_) => return Err(io::Error::new(ErrorKind::TimedOut, "the name was not found in time")),
        }
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wish {
    Read,
    Write,
}

impl Wish {
    fn events(self) -> libc::c_short {
        match self {
            Wish::Read => libc::POLLIN,
            Wish::Write => libc::POLLOUT,
        }
    }
}

/// Waits until the wish is granted or the socket has ended, until then, or for a moment.
pub(super) fn wait(socket: &impl AsFd, wish: Wish, until: Instant) -> io::Result<()> {
    poll_raw(&mut [libc::pollfd { fd: socket.as_fd().as_raw_fd(), events: wish.events(), revents: 0 }], until)
}

/// Waits until one of these can be read or has ended, until then, or for a moment; answers which.
pub(super) fn poll(sockets: &[BorrowedFd<'_>], until: Instant) -> io::Result<Vec<bool>> {
    let mut fds: Vec<_> = sockets
        .iter()
        .map(|socket| libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    poll_raw(&mut fds, until)?;
    Ok(fds.iter().map(|fd| fd.revents != 0).collect())
}

fn poll_raw(fds: &mut [libc::pollfd], until: Instant) -> io::Result<()> {
    // Rounded up, so that what wakes is not early and asks again at once.
    let left = until.saturating_duration_since(Instant::now()).min(TICK).as_micros().div_ceil(1000);
    // SAFETY: descriptors that the caller borrows for the call; the length is the slice's.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, left as libc::c_int) };
    match ready {
        0.. => Ok(()),
        _ => match io::Error::last_os_error() {
            e if e.kind() == ErrorKind::Interrupted => Ok(()),
            e => Err(e),
        },
    }
}

fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option takes an int, which outlives the call.
    let code = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A Unix socket, not yet bound or connected: std's own would wait in connect for a peer that does not accept.
fn unix_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: makes a descriptor; no memory is involved.
    match unsafe { libc::socket(libc::AF_UNIX, kind, 0) } {
        // SAFETY: just made, and nobody else's.
        fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn unix_address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zero is an address without a name.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // One less than there is room for: the last byte stays 0.
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the path is too long for a socket"));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let (socket, (address, len)) = (unix_socket()?, unix_address(path)?);
    // SAFETY: the address and its length belong together and outlive the call.
    match unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) } {
        0 => Ok(UnixStream::from(socket)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    const BACKLOG: i32 = 128;
    let (socket, (address, len)) = (unix_socket()?, unix_address(path)?);
    let fd = socket.as_raw_fd();
    // SAFETY: a descriptor of ours; address and length belong together. The mode is set before there is a file, so that
    // nobody else can ever connect to it.
    let bound = unsafe {
        libc::fchmod(fd, 0o600) == 0
            && libc::bind(fd, (&raw const address).cast(), len) == 0
            && libc::listen(fd, BACKLOG) == 0
    };
    if bound { Ok(UnixListener::from(socket)) } else { Err(io::Error::last_os_error()) }
}

/// Removes the socket of a process that is gone; false where there is anything else.
fn remove_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = || connect_unix(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
    is_socket && refused() && fs::remove_file(path).is_ok()
}
