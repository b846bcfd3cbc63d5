//! Speaks to `shim/shim.h`, line by line, and makes it safe. With `ffi/devices.rs` and `ffi/words.rs` the only file of
//! this plugin with `unsafe`.
//!
//! Invariants: a [`Shim`] has the revision of `shim.h` that this file repeats; libraries are never closed, so its
//! functions stay valid; a [`Pipeline`] or [`Request`] owns its C++ object and every call on it is exclusive.
//! Knows nothing of profiles, sampling or paths: `pipeline.rs` says what is set, `locate.rs` what is loaded.
#![allow(unsafe_code, reason = "the one door to C++")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{NonNull, null};
use std::sync::Arc;

use cascadia_ov_base::locate;
pub(crate) use cascadia_ov_base::open::{Host, Open, Symbols};

pub(crate) mod devices;
#[cfg(test)]
mod tests;
pub(crate) mod words;

const ABI: u32 = 2;
/// Longer error texts are cut; OpenVINO's own are a few hundred bytes.
const TEXT: usize = 4096;

#[repr(C)]
struct RawText {
    at: *mut c_char,
    cap: usize,
    len: usize,
}

#[repr(C)]
struct RawValue {
    key: *const c_char,
    kind: u32,
    real: f32,
    integer: i64,
    text: *const c_char,
    ids: *const i64,
    count: usize,
}

/// What the scheduler may use; `cgn_scheduler`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scheduler {
    pub(crate) max_num_batched_tokens: usize,
    pub(crate) num_kv_blocks: usize,
    pub(crate) cache_size: usize,
    pub(crate) max_num_seqs: usize,
    pub(crate) dynamic_split_fuse: u32,
    pub(crate) enable_prefix_caching: u32,
}

/// Where a request stands; `cgn_progress`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    pub(crate) count: usize,
    pub(crate) left: usize,
    pub(crate) status: i32,
    pub(crate) reason: i32,
}

/// The pipeline's own numbers after the last step; `cgn_metrics`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Metrics {
    /// Requests the pipeline knows.
    pub(crate) requests: usize,
    /// Of these, part of the last step.
    pub(crate) scheduled_requests: usize,
    /// Percent of the cache blocks that exist now.
    pub(crate) cache_usage: f32,
    pub(crate) max_cache_usage: f32,
    /// Duration of the last inference in microseconds.
    pub(crate) step_us: f32,
    pub(crate) reserved: u32,
    /// Bytes allocated for the cache.
    pub(crate) cache_bytes: usize,
}

/// A value whose type is part of its meaning: the library refuses an `i64` where it reads a `size_t`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Size(usize),
    Float(f32),
    Text(CString),
    Ids(Vec<i64>),
    /// What an answer must keep to; the key says of which kind it is.
    Grammar(CString),
}

/// A named value.
pub(crate) type Entry = (CString, Value);

macro_rules! functions {
    ($($name:ident($($arg:ty),*) $(-> $out:ty)?;)*) => {
        #[cfg_attr(not(test), expect(dead_code, reason = "the layout's own report and `busy` are for the tests"))]
        struct Functions { $($name: unsafe extern "C" fn($($arg),*) $(-> $out)?,)* }

        impl Functions {
            fn resolve(symbols: &Symbols) -> Result<Self, LoadError> {
                Ok(Self { $($name: {
                    const NAME: &CStr = match CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("PANIC: an identifier has no zero byte"),
                    };
                    let at = symbols(NAME).ok_or(LoadError::Symbol { name: stringify!($name) })?;
                    // SAFETY: `Open` promises the address of that name, and shim.h gives it this type; the
                    // revision is compared before any other function is called.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $out)?>(at) }
                },)* })
            }
        }
    };
}

functions! {
    cgn_abi() -> u32;
    cgn_version(*mut RawText) -> c_int;
    cgn_check(c_int, *mut RawText) -> c_int;
    cgn_sched_selftest(*mut RawText, *mut RawText) -> c_int;
    cgn_open(*const c_char, *const c_char, *const Scheduler, *const RawValue, usize, *const c_char, *const c_char,
        c_int, *mut *mut c_void, *mut RawText) -> c_int;
    cgn_has_vocabulary(*mut c_void, *mut RawText) -> c_int;
    cgn_close(*mut c_void);
    cgn_add(*mut c_void, u64, *const i64, usize, *const RawValue, usize, *mut *mut c_void, *mut RawText) -> c_int;
    cgn_step(*mut c_void, *mut RawText) -> c_int;
    cgn_busy(*mut c_void, *mut RawText) -> c_int;
    cgn_read_metrics(*mut c_void, *mut Metrics, *mut RawText) -> c_int;
    cgn_poll(*mut c_void, *mut i64, *mut f32, usize, *mut Progress, *mut RawText) -> c_int;
    cgn_cancel(*mut c_void, *mut RawText) -> c_int;
    cgn_drop(*mut c_void);
    cgn_words_open(*const c_char, *const c_char, *mut *mut c_void, *mut RawText) -> c_int;
    cgn_words_close(*mut c_void);
    cgn_words_vocabulary(*const c_void) -> usize;
    cgn_words_template(*const c_void, *mut RawText);
    cgn_words_special(*const c_void, *mut i64, usize) -> usize;
    cgn_words_encode(*mut c_void, *const c_char, usize, *mut i64, usize, *mut usize, *mut RawText) -> c_int;
    cgn_words_decode(*mut c_void, *const i64, usize, usize, *mut c_char, usize, *mut usize, *mut RawText) -> c_int;
}

/// The loaded libraries.
pub(crate) struct Shim {
    call: Functions,
}

impl Shim {
    /// Opens the core, GenAI and the shim, in this order: each is linked to the ones before by name alone.
    ///
    /// # Errors
    /// What the loader says, with the file; or that the shim is of another revision.
    pub(crate) fn load(
        open: &dyn Open,
        runtime: &locate::Runtime,
        shim: &locate::Shim,
    ) -> Result<Arc<Self>, LoadError> {
        let library = |path: &Path, global| {
            open.open(path, global).map_err(|reason| LoadError::Open { path: path.to_path_buf(), reason })
        };
        // Opened for what is linked to them by name; their own symbols are not asked for.
        drop(library(&runtime.core, shim.global)?);
        drop(library(&runtime.genai, shim.global)?);
        let call = Functions::resolve(&library(&shim.path, false)?)?;
        // SAFETY: takes nothing, and has had this type in every revision.
        let found = unsafe { (call.cgn_abi)() };
        if found != ABI {
            return Err(LoadError::Revision { path: shim.path.clone(), found });
        }
        Ok(Arc::new(Self { call }))
    }

    /// The core's version as year * 100 + minor, and its build text.
    pub(crate) fn version(&self) -> (i32, String) {
        let mut build = Text::new();
        // SAFETY: the buffer outlives the call.
        let version = unsafe { (self.call.cgn_version)(build.raw()) };
        (version, build.into_string())
    }

    /// Whether this version is known and lays out its structs as the shim expects.
    pub(crate) fn check(&self, allow_untested: bool) -> Result<(), String> {
        // SAFETY: the buffer outlives the call.
        text(|err| unsafe { (self.call.cgn_check)(c_int::from(allow_untested), err) }).map(drop)
    }

    /// How the library reads a scheduler configuration that the shim filled.
    #[cfg(test)]
    pub(crate) fn scheduler_dump(&self) -> Result<String, String> {
        let mut dump = Text::new();
        let at = dump.raw();
        // SAFETY: both buffers outlive the call.
        text(|err| unsafe { (self.call.cgn_sched_selftest)(at, err) })?;
        Ok(dump.into_string())
    }
}

/// A continuous batching pipeline.
pub(crate) struct Pipeline {
    shim: Arc<Shim>,
    at: NonNull<c_void>,
}

// SAFETY: the library ties a pipeline to no thread; `&mut self` and ownership make its calls exclusive.
unsafe impl Send for Pipeline {}

impl Pipeline {
    pub(crate) fn open(
        shim: &Arc<Shim>,
        path: &CStr,
        device: &CStr,
        scheduler: &Scheduler,
        properties: &[Entry],
        draft: Option<(&CStr, &CStr)>,
        allow_untested: bool,
    ) -> Result<Self, String> {
        let properties = raw_values(properties);
        let (draft, draft_device) =
            draft.map_or((null(), null()), |(path, device)| (path.as_ptr(), device.as_ptr()));
        let mut out = std::ptr::null_mut();
        // SAFETY: strings, values and the place for the result live through the call; the shim copies them.
        text(|err| unsafe {
            (shim.call.cgn_open)(
                path.as_ptr(),
                device.as_ptr(),
                scheduler,
                properties.as_ptr(),
                properties.len(),
                draft,
                draft_device,
                c_int::from(allow_untested),
                &raw mut out,
                err,
            )
        })?;
        let at = NonNull::new(out).ok_or("the shim opened nothing")?;
        Ok(Self { shim: Arc::clone(shim), at })
    }

    /// Whether it has a vocabulary, without which it cannot keep to a grammar.
    pub(crate) fn has_vocabulary(&mut self) -> Result<bool, String> {
        // SAFETY: the pipeline lives as long as `self`, which is borrowed exclusively.
        text(|err| unsafe { (self.shim.call.cgn_has_vocabulary)(self.at.as_ptr(), err) }).map(|has| has != 0)
    }

    pub(crate) fn add(&mut self, id: u64, prompt: &[i64], settings: &[Entry]) -> Result<Request, String> {
        let settings = raw_values(settings);
        let mut out = std::ptr::null_mut();
        // SAFETY: as in `open`; `&mut self` keeps other calls on the pipeline out.
        text(|err| unsafe {
            (self.shim.call.cgn_add)(
                self.at.as_ptr(),
                id,
                prompt.as_ptr(),
                prompt.len(),
                settings.as_ptr(),
                settings.len(),
                &raw mut out,
                err,
            )
        })?;
        let at = NonNull::new(out).ok_or("the shim added nothing")?;
        Ok(Request { shim: Arc::clone(&self.shim), at })
    }

    pub(crate) fn step(&mut self) -> Result<(), String> {
        // SAFETY: the pipeline lives as long as `self`, which is borrowed exclusively.
        text(|err| unsafe { (self.shim.call.cgn_step)(self.at.as_ptr(), err) }).map(drop)
    }

    #[cfg(test)]
    pub(crate) fn busy(&mut self) -> Result<bool, String> {
        // SAFETY: as in `step`.
        text(|err| unsafe { (self.shim.call.cgn_busy)(self.at.as_ptr(), err) }).map(|busy| busy != 0)
    }

    pub(crate) fn metrics(&mut self) -> Result<Metrics, String> {
        let mut out = Metrics::default();
        // SAFETY: as in `step`; `out` has the layout of `cgn_metrics`.
        text(|err| unsafe { (self.shim.call.cgn_read_metrics)(self.at.as_ptr(), &raw mut out, err) })?;
        Ok(out)
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // SAFETY: the object is ours and not used again; requests hold what they need of it themselves.
        unsafe { (self.shim.call.cgn_close)(self.at.as_ptr()) }
    }
}

/// One request of a pipeline; may outlive it. Dropping an unfinished one cancels it.
pub(crate) struct Request {
    shim: Arc<Shim>,
    at: NonNull<c_void>,
}

// SAFETY: a request reaches the pipeline only through the library's locked queue and status, so its calls may run
// beside the pipeline's; `&mut self` makes them exclusive among themselves.
unsafe impl Send for Request {}

impl Request {
    /// Takes as many tokens as the slices hold; `left` says whether there are more.
    pub(crate) fn poll(&mut self, ids: &mut [i64], logprobs: &mut [f32]) -> Result<Progress, String> {
        let cap = ids.len().min(logprobs.len());
        let mut out = Progress::default();
        // SAFETY: both slices hold `cap` elements; the request lives as long as `self`, borrowed exclusively.
        text(|err| unsafe {
            (self.shim.call.cgn_poll)(
                self.at.as_ptr(),
                ids.as_mut_ptr(),
                logprobs.as_mut_ptr(),
                cap,
                &raw mut out,
                err,
            )
        })?;
        Ok(out)
    }

    pub(crate) fn cancel(&mut self) -> Result<(), String> {
        // SAFETY: as in `poll`.
        text(|err| unsafe { (self.shim.call.cgn_cancel)(self.at.as_ptr(), err) }).map(drop)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: the object is ours and not used again.
        unsafe { (self.shim.call.cgn_drop)(self.at.as_ptr()) }
    }
}

/// The values as C sees them; borrows `entries`, so it must not outlive them.
fn raw_values(entries: &[Entry]) -> Vec<RawValue> {
    let raw = |(key, value): &Entry| {
        let mut raw = RawValue {
            key: key.as_ptr(),
            kind: 0,
            real: 0.0,
            integer: 0,
            text: null(),
            ids: null(),
            count: 0,
        };
        match value {
            Value::Bool(on) => raw.integer = i64::from(*on),
            Value::Int(number) => (raw.kind, raw.integer) = (1, *number),
            // The shim turns the bits back: the largest size_t passes as -1.
            Value::Size(size) => (raw.kind, raw.integer) = (2, (*size as u64).cast_signed()),
            Value::Float(real) => (raw.kind, raw.real) = (3, *real),
            Value::Text(text) => (raw.kind, raw.text) = (4, text.as_ptr()),
            Value::Ids(ids) => (raw.kind, raw.ids, raw.count) = (5, ids.as_ptr(), ids.len()),
            Value::Grammar(text) => (raw.kind, raw.text) = (6, text.as_ptr()),
        }
        raw
    };
    entries.iter().map(raw).collect()
}

/// A buffer for the other side's words.
struct Text {
    bytes: Box<[u8; TEXT]>,
    raw: RawText,
}

impl Text {
    fn new() -> Self {
        let mut bytes = Box::new([0; TEXT]);
        let raw = RawText { at: bytes.as_mut_ptr().cast(), cap: TEXT, len: 0 };
        Self { bytes, raw }
    }

    fn raw(&mut self) -> *mut RawText {
        &raw mut self.raw
    }

    fn into_string(self) -> String {
        let len = self.raw.len.min(TEXT - 1);
        String::from_utf8_lossy(&self.bytes[..len]).into_owned()
    }
}

/// Makes a call and turns a negative answer into its text.
fn text(call: impl FnOnce(*mut RawText) -> c_int) -> Result<c_int, String> {
    let mut err = Text::new();
    match call(err.raw()) {
        answer if answer < 0 => Err(err.into_string()),
        answer => Ok(answer),
    }
}

/// Why the libraries cannot be used.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The loader refused a file.
    Open { path: std::path::PathBuf, reason: String },
    /// The shim lacks a function.
    Symbol { name: &'static str },
    /// The shim is of another revision.
    Revision { path: std::path::PathBuf, found: u32 },
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open { path, reason } => write!(f, "open {}: {reason}", path.display()),
            Self::Symbol { name } => write!(f, "the shim has no {name}; build it anew with cargo xtask"),
            Self::Revision { path, found } => write!(
                f,
                "{} is revision {found}, the plugin needs {ABI}; build both anew with cargo xtask",
                path.display()
            ),
        }
    }
}

impl std::error::Error for LoadError {}
