//! The host's services as functions. Each cdylib has its own statics, so the tables are looked up once, at `init`.
#![expect(unsafe_code, reason = "calls the host's tables")]

use core::ffi::c_void;
use std::ffi::CStr;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Error, Result};
use crate::abi::code;
use crate::abi::entry::HostV1;
use crate::abi::host as wire;
use crate::abi::ids;
use crate::abi::prim::{Array, ErrOut, Kv, Str};

pub(super) struct Services {
    plugin: &'static str,
    log: Option<&'static wire::LogV1>,
    metrics: Option<&'static wire::MetricsV1>,
    clock: Option<&'static wire::ClockV1>,
    cancel: Option<&'static wire::CancelV1>,
    wake: Option<&'static wire::WakeV1>,
    heartbeat: Option<&'static wire::HeartbeatV1>,
    dlopen: Option<&'static wire::DlopenV1>,
    pub(super) trace: Option<&'static wire::TraceV1>,
    pub(super) fault: Option<&'static wire::FaultV1>,
    transport: Option<&'static wire::TransportV1>,
}

static SERVICES: OnceLock<Services> = OnceLock::new();

/// The host's tables, after `init`.
pub(super) fn services() -> Option<&'static Services> {
    SERVICES.get()
}

/// Keeps the host's tables.
///
/// # Safety
/// `host` must be valid for ever, as `init` promises.
pub(super) unsafe fn init(plugin: &'static str, host: *const HostV1) -> Result<()> {
    // SAFETY: the caller vouches for the pointer; null is tried.
    let host = unsafe { host.as_ref() }.ok_or_else(|| Error::config("the host passed no table"))?;
    /// # Safety
    /// The service of that id must be a `T` or null.
    unsafe fn find<T>(host: &HostV1, id: &str) -> Option<&'static T> {
        // SAFETY: the table is the host's; a service is valid for ever.
        unsafe { (host.get_service)(Str::new(id.as_bytes())).cast::<T>().as_ref() }
    }
    // SAFETY: each id names the type beside it.
    let services = unsafe {
        Services {
            plugin,
            log: find(host, ids::HOST_LOG),
            metrics: find(host, ids::HOST_METRICS),
            clock: find(host, ids::HOST_CLOCK),
            cancel: find(host, ids::HOST_CANCEL),
            wake: find(host, ids::HOST_WAKE),
            heartbeat: find(host, ids::HOST_HEARTBEAT),
            dlopen: find(host, ids::HOST_DLOPEN),
            trace: find(host, ids::HOST_TRACE),
            fault: find(host, ids::HOST_FAULT),
            transport: find(host, ids::HOST_TRANSPORT),
        }
    };
    SERVICES.get_or_init(|| services);
    Ok(())
}

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Level {
    /// Someone must act.
    Error = wire::level::ERROR,
    /// Recovered by itself.
    Warn = wire::level::WARN,
    /// What an operator must know.
    Info = wire::level::INFO,
    /// Per request.
    Debug = wire::level::DEBUG,
    /// Per token.
    Trace = wire::level::TRACE,
}

/// Whether a line of that level would be written.
pub fn log_enabled(level: Level) -> bool {
    // SAFETY: the host keeps the word aligned and valid for ever, and writes it atomically.
    let on = |log: &wire::LogV1| unsafe { AtomicU32::from_ptr(log.level.cast_mut()) }.load(Ordering::Relaxed);
    SERVICES.get().and_then(|s| s.log).is_some_and(|log| level as u32 <= on(log))
}

/// Writes a line into the host's log. `target` names the part of the plugin.
pub fn log(level: Level, target: &str, message: &str, fields: &[(&str, &str)]) {
    if !log_enabled(level) {
        return;
    }
    let Some(services) = SERVICES.get() else { return };
    let Some(table) = services.log else { return };
    let plugin = Str::new(services.plugin.as_bytes());
    let fields = kvs(fields);
    // SAFETY: the views live through the call.
    unsafe {
        (table.log)(
            level as u32,
            plugin,
            Str::new(target.as_bytes()),
            Str::new(message.as_bytes()),
            Array::new(&fields),
        );
    }
}

/// Nanoseconds of the clock that deadlines and waits are told in; 0 without a host.
pub fn now_ns() -> u64 {
    // SAFETY: a function of the host without arguments.
    SERVICES.get().and_then(|s| s.clock).map_or(0, |clock| unsafe { (clock.now_ns)() })
}

/// The instance of an engine, as the host knows it.
#[derive(Debug, Clone, Copy)]
pub struct Worker(pub(super) *mut c_void);

// SAFETY: the pointer is a name that only the host reads; all its services may be called from any thread.
unsafe impl Send for Worker {}
// SAFETY: as above.
unsafe impl Sync for Worker {}

impl Worker {
    /// Ends the wait that a step asked for.
    pub fn wake(self) {
        if let Some(table) = SERVICES.get().and_then(|s| s.wake) {
            // SAFETY: the worker is the host's own pointer.
            unsafe { (table.wake)(self.0) }
        }
    }

    /// Says that a long step is alive.
    pub fn beat(self) {
        let Some(table) = SERVICES.get().and_then(|s| s.heartbeat) else { return };
        // SAFETY: as above; a non-null answer is an aligned counter that lives as long as the worker.
        unsafe {
            let counter = (table.counter)(self.0);
            if !counter.is_null() {
                AtomicU64::from_ptr(counter).fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether the host has cancelled the task: the fast path, for engines that look between kernels.
    pub fn cancelled(self, task: u64) -> bool {
        let Some(table) = SERVICES.get().and_then(|s| s.cancel) else { return false };
        // SAFETY: as above; a non-null answer is an aligned word that lives until the task's finish was pushed, and this
        // is called between submit and that push.
        unsafe {
            let flag = (table.flag)(self.0, task);
            !flag.is_null() && AtomicU32::from_ptr(flag.cast_mut()).load(Ordering::Relaxed) != 0
        }
    }

    /// A counter on the host's `/metrics`, `cascadia_plugin_<plugin>_<name>`.
    pub fn counter(self, name: &str, help: &str, labels: &[(&str, &str)]) -> Metric {
        self.register(wire::METRIC_COUNTER, name, help, labels, &[])
    }

    /// A gauge on the host's `/metrics`.
    pub fn gauge(self, name: &str, help: &str, labels: &[(&str, &str)]) -> Metric {
        self.register(wire::METRIC_GAUGE, name, help, labels, &[])
    }

    /// A histogram on the host's `/metrics`, with these upper bounds.
    pub fn histogram(self, name: &str, help: &str, labels: &[(&str, &str)], buckets: &[f64]) -> Metric {
        self.register(wire::METRIC_HISTOGRAM, name, help, labels, buckets)
    }

    fn register(self, kind: u32, name: &str, help: &str, labels: &[(&str, &str)], buckets: &[f64]) -> Metric {
        let Some(table) = SERVICES.get().and_then(|s| s.metrics) else { return Metric(0) };
        let labels = kvs(labels);
        let mut failed = None;
        // SAFETY: the views live through the call; the worker is the host's own pointer.
        let handle = unsafe {
            (table.series)(
                self.0,
                kind,
                Str::new(name.as_bytes()),
                Str::new(help.as_bytes()),
                Array::new(&labels),
                Array::new(buckets),
                collect(&mut failed),
            )
        };
        if let Some(e) = failed {
            log(Level::Warn, "sdk", "metric not registered", &[("metric", name), ("reason", &e.message)]);
        }
        Metric(handle)
    }
}

/// A series on the host's `/metrics`. Without the service it does nothing.
#[derive(Debug, Clone, Copy)]
pub struct Metric(u64);

impl Metric {
    /// Adds to a counter or gauge.
    pub fn add(self, value: f64) {
        // SAFETY: the handle came from this table.
        self.call(|table, handle| unsafe { (table.add)(handle, value) });
    }

    /// Sets a gauge.
    pub fn set(self, value: f64) {
        // SAFETY: as above.
        self.call(|table, handle| unsafe { (table.set)(handle, value) });
    }

    /// Adds a sample to a histogram.
    pub fn observe(self, value: f64) {
        // SAFETY: as above.
        self.call(|table, handle| unsafe { (table.observe)(handle, value) });
    }

    fn call(self, f: impl FnOnce(&wire::MetricsV1, u64)) {
        if let (Some(table), true) = (SERVICES.get().and_then(|s| s.metrics), self.0 != 0) {
            f(table, self.0);
        }
    }
}

/// A library that the plugin depends on, opened by the host. Never closed.
#[derive(Debug, Clone, Copy)]
pub struct Dependency(*mut c_void);

// SAFETY: a handle of the dynamic linker, usable from any thread.
unsafe impl Send for Dependency {}
// SAFETY: as above.
unsafe impl Sync for Dependency {}

impl Dependency {
    /// Address of a symbol.
    pub fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        let table = SERVICES.get().and_then(|s| s.dlopen)?;
        // SAFETY: the handle came from this table; the name lives through the call.
        let address = unsafe { (table.symbol)(self.0, Str::new(name.to_bytes())) };
        (!address.is_null()).then_some(address)
    }
}

/// Opens a library by its full path. `global` makes its symbols visible to libraries opened later.
pub fn dlopen(path: &Path, global: bool) -> Result<Dependency> {
    let table = SERVICES
        .get()
        .and_then(|s| s.dlopen)
        .ok_or_else(|| Error::unsupported("dlopen service in this host"))?;
    let mut failed = None;
    let flags = if global { wire::DLOPEN_GLOBAL } else { 0 };
    // SAFETY: the path lives through the call.
    let handle =
        unsafe { (table.open)(Str::new(path.as_os_str().as_encoded_bytes()), flags, collect(&mut failed)) };
    match (handle.is_null(), failed) {
        (false, _) => Ok(Dependency(handle)),
        (true, Some(e)) => Err(e),
        (true, None) => Err(Error::backend(format!("open {}: no reason given", path.display()))),
    }
}

pub(super) fn kvs(pairs: &[(&str, &str)]) -> Vec<Kv> {
    pairs.iter().map(|(k, v)| Kv { key: Str::new(k.as_bytes()), value: Str::new(v.as_bytes()) }).collect()
}

/// The host's links, where it lends them.
pub(super) fn transport() -> Result<&'static wire::TransportV1> {
    SERVICES
        .get()
        .and_then(|s| s.transport)
        .ok_or_else(|| Error::new(code::UNSUPPORTED, "this host has no links between stages"))
}

/// An [`ErrOut`] that puts what comes into `slot`.
pub(super) fn collect(slot: &mut Option<Error>) -> ErrOut {
    unsafe extern "C" fn set(ctx: *mut c_void, code: u32, message: Str, details: Str) {
        // SAFETY: `ctx` is the slot below, alive for the call; the texts are lent for it.
        unsafe {
            *ctx.cast::<Option<Error>>() = Some(Error {
                code,
                message: message.text().into_owned(),
                details: details.text().into_owned(),
            });
        }
    }
    ErrOut { ctx: std::ptr::from_mut(slot).cast(), set }
}
