//! Links between pipeline stages. The rules (addresses, deadlines, limits, ends) are those of
//! [`crate::abi::host::TransportV1`].
#![expect(unsafe_code, reason = "calls the host's transport table")]

use core::ffi::c_void;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::host::{Worker, collect, now_ns, transport};
use super::{Error, Result};
use crate::abi::code;
use crate::abi::host::{FRAME_RAW, FRAME_TENSOR, FrameOut, IoVec};
use crate::abi::prim::{Array, Str, StrOut};

/// Until when a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(u64);

impl Deadline {
    /// The host's own patience: about a minute without anything moving.
    pub const DEFAULT: Deadline = Deadline(0);

    /// So long from now; zero does what can be done at once.
    pub fn within(time: Duration) -> Deadline {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Deadline::at(now_ns().saturating_add(ns))
    }

    /// This time of [`now_ns`].
    pub fn at(ns: u64) -> Deadline {
        // The clock never shows 0, which means the default.
        Deadline(ns.max(1))
    }
}

/// A received frame, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Activations: an element type of [`crate::abi::host::dtype`], dimensions, and exactly their bytes.
    Tensor {
        /// Element type.
        dtype: u32,
        /// Dimensions.
        dims: &'a [u64],
        /// Little-endian elements in row-major order.
        bytes: &'a [u8],
    },
    /// Control bytes.
    Raw(&'a [u8]),
}

impl Worker {
    /// A listener at `address` (`host:port`, `:port`, `unix:/path`) for peers that open with the same `purpose`: the
    /// protocol, its version and the model, in at most 512 bytes.
    pub fn listen(self, address: &str, purpose: &str) -> Result<Listener> {
        unsafe extern "C" fn set(ctx: *mut c_void, text: Str) {
            // SAFETY: `ctx` is the text below, alive for the call; what comes is lent for it.
            unsafe { *ctx.cast::<String>() = text.text().into_owned() }
        }
        let table = transport()?;
        let (mut bound, mut failed) = (String::new(), None);
        let out = StrOut { ctx: (&raw mut bound).cast(), set };
        let (at, purpose) = (Str::new(address.as_bytes()), Str::new(purpose.as_bytes()));
        // SAFETY: texts and callbacks outlive the call; the worker is the host's own pointer.
        let handle = unsafe { (table.listen)(self.0, at, purpose, out, collect(&mut failed)) };
        made(handle, failed).map(|handle| Listener { handle, address: bound })
    }

    /// A link to the peer that listens at `address` for the same `purpose`; one that is not there yet is tried again.
    pub fn open(self, address: &str, purpose: &str, deadline: Deadline) -> Result<Link> {
        let table = transport()?;
        let mut failed = None;
        let (at, purpose) = (Str::new(address.as_bytes()), Str::new(purpose.as_bytes()));
        // SAFETY: as above.
        let handle = unsafe { (table.open)(self.0, at, purpose, deadline.0, collect(&mut failed)) };
        made(handle, failed).map(Link)
    }
}

/// Where peers come in. Closed when dropped.
#[derive(Debug)]
pub struct Listener {
    handle: u64,
    address: String,
}

impl Listener {
    /// Where it listens, as a peer opens it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A link to the next peer. Strangers are sent away by the host and do not end the wait.
    pub fn accept(&self, deadline: Deadline) -> Result<Link> {
        let table = transport()?;
        let mut failed = None;
        // SAFETY: a handle of this table; the callback outlives the call.
        let handle = unsafe { (table.accept)(self.handle, deadline.0, collect(&mut failed)) };
        made(handle, failed).map(Link)
    }

    /// Closes it; an `accept` that waits fails with CLOSED.
    pub fn close(&self) {
        close(self.handle);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

/// A link to another stage. Closed when dropped.
#[derive(Debug)]
pub struct Link(u64);

impl Link {
    /// Sends a tensor of an element type of [`crate::abi::host::dtype`], made of `parts`.
    pub fn send_tensor(&self, dtype: u32, dims: &[u64], parts: &[&[u8]], deadline: Deadline) -> Result<()> {
        self.send(FRAME_TENSOR, dtype, dims, parts, deadline)
    }

    /// Sends control bytes made of `parts`.
    pub fn send_raw(&self, parts: &[&[u8]], deadline: Deadline) -> Result<()> {
        self.send(FRAME_RAW, 0, &[], parts, deadline)
    }

    fn send(&self, kind: u32, dtype: u32, dims: &[u64], parts: &[&[u8]], deadline: Deadline) -> Result<()> {
        let table = transport()?;
        let parts: Vec<_> = parts.iter().map(|p| IoVec { ptr: p.as_ptr(), len: p.len() }).collect();
        let mut failed = None;
        let (dims, parts) = (Array::new(dims), Array::new(&parts));
        // SAFETY: a handle of this table; arrays and callback outlive the call.
        let code =
            unsafe { (table.send)(self.0, kind, dtype, dims, parts, deadline.0, collect(&mut failed)) };
        done(code, failed)
    }

    /// Receives one frame and lends it to `take`. A frame of a kind that this SDK does not know is an error.
    pub fn recv<T>(&self, deadline: Deadline, take: impl FnOnce(Frame<'_>) -> T) -> Result<T> {
        let table = transport()?;
        let mut failed = None;
        let mut taking = Taking { take: Some(take), taken: None, kind: 0 };
        let out = taking.out();
        // SAFETY: a handle of this table; both callbacks outlive the call.
        let code = unsafe { (table.recv)(self.0, deadline.0, out, collect(&mut failed)) };
        done(code, failed)?;
        match taking.taken {
            Some(Ok(value)) => Ok(value),
            Some(Err(panic)) => resume_unwind(panic),
            None => Err(Error::new(code::UNSUPPORTED, format!("a frame of kind {} came", taking.kind))),
        }
    }

    /// A descriptor that is readable when (a part of) a frame waits, or its end.
    pub fn poll_fd(&self) -> Option<RawFd> {
        // SAFETY: any number is a handle, if only of nothing.
        let fd = unsafe { (transport().ok()?.poll_fd)(self.0) };
        (fd >= 0).then_some(fd)
    }

    /// Closes it; calls that wait on it fail with CLOSED.
    pub fn close(&self) {
        close(self.0);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

/// The closure that takes a frame, and what came of it. A panic waits here until the host's call has returned.
struct Taking<T, F> {
    take: Option<F>,
    taken: Option<std::thread::Result<T>>,
    kind: u32,
}

impl<T, F: FnOnce(Frame<'_>) -> T> Taking<T, F> {
    /// The callback that fills this; valid while this is not moved.
    fn out(&mut self) -> FrameOut {
        FrameOut { ctx: std::ptr::from_mut(self).cast(), set: taken::<T, F> }
    }
}

unsafe extern "C" fn taken<T, F: FnOnce(Frame<'_>) -> T>(
    ctx: *mut c_void,
    kind: u32,
    dtype: u32,
    dims: Array,
    payload: Str,
) {
    // SAFETY: `ctx` is the value of `recv`, alive for the call; the frame is lent for it.
    let (taking, bytes, dims) =
        unsafe { (&mut *ctx.cast::<Taking<T, F>>(), payload.bytes(), dims.scalars::<u64>()) };
    taking.kind = kind;
    let frame = match kind {
        FRAME_TENSOR => Frame::Tensor { dtype, dims: &dims, bytes },
        FRAME_RAW => Frame::Raw(bytes),
        _ => return,
    };
    if let Some(take) = taking.take.take() {
        taking.taken = Some(catch_unwind(AssertUnwindSafe(|| take(frame))));
    }
}

fn close(handle: u64) {
    if let Ok(table) = transport() {
        // SAFETY: as above.
        unsafe { (table.close)(handle) }
    }
}

fn made(handle: u64, failed: Option<Error>) -> Result<u64> {
    if handle == 0 { Err(failed.unwrap_or_else(no_reason)) } else { Ok(handle) }
}

fn done(code: u32, failed: Option<Error>) -> Result<()> {
    if code == code::OK { Ok(()) } else { Err(failed.unwrap_or_else(|| Error { code, ..no_reason() })) }
}

fn no_reason() -> Error {
    Error::backend("the host's transport failed and gave no reason")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the closure of a `recv` makes of a frame that the host hands out.
    fn hand_out<T>(
        kind: u32,
        dims: &[u64],
        bytes: &[u8],
        take: impl FnOnce(Frame<'_>) -> T,
    ) -> Option<std::thread::Result<T>> {
        let mut taking = Taking { take: Some(take), taken: None, kind: 0 };
        let out = taking.out();
        // SAFETY: the context is the value above; the views outlive the calls.
        unsafe { (out.set)(out.ctx, kind, 5, Array::new(dims), Str::new(bytes)) };
        taking.taken
    }

    #[test]
    fn frames_are_handed_out_by_their_kind() {
        let tensor = hand_out(FRAME_TENSOR, &[2], b"hi", |frame| {
            frame == Frame::Tensor { dtype: 5, dims: &[2], bytes: b"hi" }
        });
        assert!(matches!(tensor, Some(Ok(true))));
        assert!(matches!(hand_out(FRAME_RAW, &[], b"hi", |f| f == Frame::Raw(b"hi")), Some(Ok(true))));
        assert!(hand_out(9, &[], b"", |_| ()).is_none());
    }

    #[test]
    fn a_panic_of_the_closure_does_not_reach_the_host() {
        let taken = hand_out(FRAME_RAW, &[], b"", |_| panic!("as the test asks"));
        assert!(matches!(taken, Some(Err(_))));
    }

    #[test]
    fn no_moment_is_taken_for_the_default() {
        assert_ne!(Deadline::at(0), Deadline::DEFAULT);
        assert_ne!(Deadline::within(Duration::ZERO), Deadline::DEFAULT);
        assert_eq!(Deadline::within(Duration::MAX), Deadline::at(u64::MAX));
    }
}
