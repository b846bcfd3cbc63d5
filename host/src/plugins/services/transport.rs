//! `cascadia.host.transport/1`: links between stages, as the table that plugins call. What it does is in
//! [`crate::plugins::transport`].

use core::ffi::c_void;
use std::io::IoSlice;
use std::os::fd::AsRawFd;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::host::{FrameOut, IoVec, TransportV1};
use cascadia_plugin_api::abi::prim::{Array, ErrOut, Str, StrOut};

use super::{METRICS, fail, guarded, instant};
use crate::plugins::link::Link as Worker;
use crate::plugins::transport::link::{Frame, Shape};
use crate::plugins::transport::until::Until;
use crate::plugins::transport::{self, Error, Result};

pub(super) static TABLE: TransportV1 = TransportV1 {
    struct_size: size_of::<TransportV1>() as u32,
    flags: 0,
    listen,
    accept,
    open,
    send,
    recv,
    poll_fd,
    close,
};

/// Parts that a frame may be made of: more than anyone has, and few enough to be listed.
const MAX_PARTS: usize = 1 << 16;
/// Dimensions that are read at all; the frame's own rule is stricter and names the number.
const MAX_DIMS: usize = 64;

fn code_of(error: &Error) -> u32 {
    match error {
        Error::Invalid(_) => code::INVALID_CONFIG,
        Error::Full(_) => code::QUEUE_FULL,
        Error::Closed(_) => code::CLOSED,
        Error::Deadline(_) => code::DEADLINE_EXCEEDED,
        Error::Lost(_) => code::NOT_CONNECTED,
        Error::Rejected(_) => code::PEER_REJECTED,
        Error::Failed(_) => code::BACKEND,
    }
}

/// Tells an error, or a panic, through the plugin's callback; answers the code and what came of it.
fn call<T>(err: ErrOut, body: impl FnOnce() -> Result<T>) -> (u32, Option<T>) {
    let panicked = || Err(Error::Failed("the host's transport failed; its log says why".to_owned()));
    match guarded("transport", None, || Some(body())).unwrap_or_else(panicked) {
        Ok(value) => (code::OK, Some(value)),
        Err(error) => {
            let code = code_of(&error);
            fail(err, code, &error.to_string());
            (code, None)
        }
    }
}

fn worker(address: *mut c_void) -> Result<&'static Worker> {
    Worker::at(address as usize).ok_or_else(|| Error::Invalid("unknown worker".to_owned()))
}

fn metrics() -> Result<&'static std::sync::Arc<crate::telemetry::transport::TransportMetrics>> {
    let none = || Error::Failed("the host has not started its services".to_owned());
    METRICS.get().map(|metrics| metrics.transport()).ok_or_else(none)
}

fn until(deadline_ns: u64) -> Until {
    match deadline_ns {
        0 => Until::Default,
        ns => Until::At(instant(ns)),
    }
}

/// # Safety
/// The text must be readable for the call.
unsafe fn text(text: Str, what: &str) -> Result<String> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { text.bytes() };
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::Invalid(format!("the {what} is no UTF-8")))
}

unsafe extern "C" fn listen(w: *mut c_void, address: Str, purpose: Str, bound: StrOut, err: ErrOut) -> u64 {
    let made = call(err, || {
        // SAFETY: the plugin lends both texts for the call.
        let (address, purpose) = unsafe { (text(address, "address")?, text(purpose, "purpose")?) };
        worker(w)?.ends().listen(&address, &purpose, metrics()?)
    });
    let Some((handle, address)) = made.1 else { return 0 };
    // SAFETY: the plugin lends the callback for the call; the text outlives it.
    unsafe { (bound.set)(bound.ctx, Str::new(address.as_bytes())) };
    handle
}

unsafe extern "C" fn accept(listener: u64, deadline_ns: u64, err: ErrOut) -> u64 {
    call(err, || transport::accept(listener, until(deadline_ns), metrics()?)).1.unwrap_or(0)
}

unsafe extern "C" fn open(w: *mut c_void, address: Str, purpose: Str, deadline_ns: u64, err: ErrOut) -> u64 {
    let made = call(err, || {
        // SAFETY: the plugin lends both texts for the call.
        let (address, purpose) = unsafe { (text(address, "address")?, text(purpose, "purpose")?) };
        worker(w)?.ends().open(&address, &purpose, until(deadline_ns), metrics()?)
    });
    made.1.unwrap_or(0)
}

unsafe extern "C" fn send(
    link: u64,
    kind: u32,
    dtype: u32,
    dims: Array,
    parts: Array,
    deadline_ns: u64,
    err: ErrOut,
) -> u32 {
    let sent = call(err, || {
        let link = transport::link(link)?;
        if parts.len > MAX_PARTS || dims.len > MAX_DIMS {
            let (parts, dims) = (parts.len, dims.len);
            return Err(Error::Invalid(format!(
                "a frame of {parts} parts and {dims} dimensions is not taken"
            )));
        }
        // SAFETY: the plugin lends the arrays for the call; zero elements are valid.
        let (dims, parts) = unsafe { (dims.scalars::<u64>(), parts.iter::<IoVec>()) };
        // SAFETY: it lends what they view as well.
        let bytes = |part: IoVec| unsafe { Str { ptr: part.ptr, len: part.len }.bytes() };
        let parts: Vec<_> = parts.map(|part| IoSlice::new(bytes(part))).collect();
        link.send(Shape { kind, dtype, dims: &dims }, &parts, until(deadline_ns))
    });
    sent.0
}

unsafe extern "C" fn recv(link: u64, deadline_ns: u64, out: FrameOut, err: ErrOut) -> u32 {
    let hand_out = |frame: Frame<'_>| {
        let (dims, payload) = (Array::new(frame.dims), Str::new(frame.payload));
        // SAFETY: the plugin lends the callback for the call; the frame outlives it.
        unsafe { (out.set)(out.ctx, frame.kind, frame.dtype, dims, payload) }
    };
    call(err, || transport::link(link)?.recv(until(deadline_ns), hand_out)).0
}

unsafe extern "C" fn poll_fd(link: u64) -> i32 {
    guarded("transport", -1, || transport::link(link).map_or(-1, |link| link.fd().as_raw_fd()))
}

unsafe extern "C" fn close(handle: u64) {
    guarded("transport", (), || transport::close(handle));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn zero_is_the_default_and_every_other_number_a_moment() {
        assert!(matches!(until(0), Until::Default));
        assert!(matches!(until(1), Until::At(at) if at <= Instant::now()));
        assert!(matches!(until(u64::MAX), Until::At(at) if at >= Instant::now()));
    }

    #[test]
    fn nothing_is_done_with_what_is_unknown() {
        unsafe extern "C" fn set(ctx: *mut c_void, code: u32, _message: Str, _details: Str) {
            // SAFETY: the context is the word below.
            unsafe { *ctx.cast::<u32>() = code }
        }
        let mut code = 0_u32;
        let err = ErrOut { ctx: (&raw mut code).cast(), set };
        // SAFETY: the arguments are empty or point to what outlives the calls.
        unsafe {
            assert_eq!(send(7 << 60, 2, 0, Array::EMPTY, Array::EMPTY, 1, err), code::CLOSED);
            assert_eq!(code, code::CLOSED);
            assert_eq!(accept(7 << 60, 1, err), 0);
            assert_eq!(poll_fd(7 << 60), -1);
            close(7 << 60);
            assert_eq!(open(core::ptr::dangling_mut(), Str::new(b":1"), Str::EMPTY, 1, err), 0);
            assert_eq!(code, code::INVALID_CONFIG);
            assert_eq!(open(core::ptr::null_mut(), Str::new(b"\xff"), Str::EMPTY, 1, err), 0);
            assert_eq!(code, code::INVALID_CONFIG);
        }
    }
}
