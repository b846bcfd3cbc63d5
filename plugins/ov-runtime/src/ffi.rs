//! Speaks to `shim/shim.h`, line by line, and makes it safe. The only file of this plugin with `unsafe`.
//!
//! Invariants: a [`Shim`] has the revision of `shim.h` that this file repeats; libraries are never closed, so its functions
//! stay valid; a [`Model`] owns its C++ object and every call on it is exclusive; what is bound outlives its inference.
//! Knows nothing of sequences, profiles or paths: `backend.rs` says what is computed, `ov-base` what is loaded.
#![allow(unsafe_code, reason = "the one door to C++")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cascadia_ov_base::locate;
use cascadia_ov_base::open::Open;
use cascadia_ov_base::shim::LoadError;
use cascadia_ov_base::text::{RawText, Text, text};

#[cfg(test)]
pub(crate) mod live;
#[cfg(test)]
mod tests;

const ABI: u32 = 1;

#[repr(C)]
struct RawProperty {
    key: *const c_char,
    value: *const c_char,
}

/// What a compiled model turned out to be; `ovr_facts`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Layers that have a cache.
    pub(crate) layers: usize,
    /// Positions in a block.
    pub(crate) block_tokens: usize,
    /// Bytes of a block, in all layers.
    pub(crate) block_bytes: usize,
    /// Logits in a row.
    pub(crate) vocabulary: usize,
    /// Not 0: logits come for the sampled rows only.
    pub(crate) cut: u32,
    reserved: u32,
}

impl Facts {
    /// Of a backend that is no OpenVINO.
    #[cfg(test)]
    pub(crate) fn made_up(block_tokens: usize, vocabulary: usize) -> Facts {
        Facts { layers: 1, block_tokens, block_bytes: block_tokens * 4, vocabulary, cut: 1, reserved: 0 }
    }
}

/// One inference; arrays as `shim.h` describes them.
pub(crate) struct Rows<'a> {
    pub(crate) ids: &'a [i64],
    pub(crate) positions: &'a [i64],
    pub(crate) past: &'a [i32],
    pub(crate) row_begins: &'a [i32],
    pub(crate) blocks: &'a [i32],
    pub(crate) block_begins: &'a [i32],
    pub(crate) sampled: &'a [i64],
    pub(crate) longest: i32,
}

#[repr(C)]
struct RawBatch {
    ids: *const i64,
    positions: *const i64,
    rows: usize,
    past: *const i32,
    row_begins: *const i32,
    sequences: usize,
    blocks: *const i32,
    blocks_count: usize,
    block_begins: *const i32,
    sampled: *const i64,
    sampled_count: usize,
    longest: i32,
    reserved: u32,
}

#[repr(C)]
struct RawLogits {
    at: *mut f32,
    rows: usize,
    columns: usize,
}

cascadia_ov_base::functions! {
    Functions {
        ovr_abi() -> u32;
        ovr_version(*mut RawText) -> c_int;
        ovr_check(c_int, *mut RawText) -> c_int;
        ovr_open(*const c_char, *const c_char, *const RawProperty, usize, *mut *mut c_void, *mut RawText) -> c_int;
        ovr_close(*mut c_void);
        ovr_read_facts(*const c_void, *mut Facts);
        ovr_property_value(*mut c_void, *const c_char, *mut RawText, *mut RawText) -> c_int;
        ovr_cache_type(*const c_void, *mut RawText);
        ovr_allocate(*mut c_void, usize, *mut RawText) -> c_int;
        ovr_bind(*mut c_void, *const RawBatch, *mut RawText) -> c_int;
        ovr_infer(*mut c_void, *mut RawLogits, *mut RawText) -> c_int;
        ovr_copy_block(*mut c_void, usize, usize, *mut RawText) -> c_int;
        ovr_fill_block(*mut c_void, usize, u8, *mut RawText) -> c_int;
    }
}

/// The loaded libraries.
pub(crate) struct Shim {
    call: Functions,
}

impl Shim {
    /// Opens the core and then the shim, which is linked to it by name.
    ///
    /// # Errors
    /// What the loader says, with the file; or that the shim is of another revision.
    pub(crate) fn load(open: &dyn Open, core: &Path, shim: &locate::Shim) -> Result<Arc<Self>, LoadError> {
        let call = Functions::resolve(&cascadia_ov_base::shim::open(open, &[core], shim)?)?;
        // SAFETY: takes nothing, and has had this type in every revision.
        let found = unsafe { (call.ovr_abi)() };
        if found != ABI {
            return Err(LoadError::Revision { path: shim.path.clone(), found, needed: ABI });
        }
        Ok(Arc::new(Self { call }))
    }

    /// The core's build text, which begins with its version.
    pub(crate) fn version(&self) -> String {
        let mut build = Text::new();
        // SAFETY: the buffer outlives the call.
        unsafe { (self.call.ovr_version)(build.raw()) };
        build.into_string()
    }

    /// Whether this version was tested.
    pub(crate) fn check(&self, allow_untested: bool) -> Result<(), String> {
        // SAFETY: the buffer outlives the call.
        text(|err| unsafe { (self.call.ovr_check)(c_int::from(allow_untested), err) }).map(drop)
    }
}

/// A network with paged attention, compiled for a device.
pub(crate) struct Model {
    shim: Arc<Shim>,
    at: NonNull<c_void>,
    facts: Facts,
}

// SAFETY: the library ties a model to no thread; `&mut self` and ownership make its calls exclusive.
unsafe impl Send for Model {}

/// Logits, lent until the next inference.
pub(crate) struct Lent<'a> {
    /// Rows one after the other.
    pub(crate) values: &'a [f32],
    /// Time that it took to hand over the arrays.
    pub(crate) bind: Duration,
    /// Time that the inference took.
    pub(crate) infer: Duration,
}

impl Model {
    pub(crate) fn open(
        shim: &Arc<Shim>,
        xml: &Path,
        device: &str,
        properties: &[(String, String)],
    ) -> Result<Self, String> {
        let c =
            |what: &str, text: &[u8]| CString::new(text).map_err(|_| format!("{what} has a zero byte in it"));
        let xml = c("the model's path", xml.as_os_str().as_encoded_bytes())?;
        let device = c("device", device.as_bytes())?;
        let texts: Vec<(CString, CString)> = properties
            .iter()
            .map(|(key, value)| Ok((c("a property", key.as_bytes())?, c(key, value.as_bytes())?)))
            .collect::<Result<_, String>>()?;
        let raw: Vec<RawProperty> =
            texts.iter().map(|(k, v)| RawProperty { key: k.as_ptr(), value: v.as_ptr() }).collect();
        let mut out = std::ptr::null_mut();
        // SAFETY: texts and the place for the result live through the call; the shim copies them.
        text(|err| unsafe {
            let (xml, device) = (xml.as_ptr(), device.as_ptr());
            (shim.call.ovr_open)(xml, device, raw.as_ptr(), raw.len(), &raw mut out, err)
        })?;
        let at = NonNull::new(out).ok_or("the shim opened nothing")?;
        let mut facts = Facts::default();
        // SAFETY: the model was just made; `facts` has the layout of `ovr_facts`.
        unsafe { (shim.call.ovr_read_facts)(at.as_ptr(), &raw mut facts) };
        Ok(Self { shim: Arc::clone(shim), at, facts })
    }

    pub(crate) fn facts(&self) -> Facts {
        self.facts
    }

    /// Name of the type that the cache is kept in: `f32`, `u8`.
    pub(crate) fn cache_type(&self) -> String {
        let mut name = Text::new();
        // SAFETY: the model lives as long as `self`; the buffer outlives the call.
        unsafe { (self.shim.call.ovr_cache_type)(self.at.as_ptr(), name.raw()) };
        name.into_string()
    }

    /// How the device has set a property.
    pub(crate) fn property(&mut self, key: &CStr) -> Result<String, String> {
        let mut value = Text::new();
        let into = value.raw();
        // SAFETY: the model lives as long as `self`, borrowed exclusively; both buffers outlive the call.
        text(|err| unsafe {
            (self.shim.call.ovr_property_value)(self.at.as_ptr(), key.as_ptr(), into, err)
        })?;
        Ok(value.into_string())
    }

    /// Makes the cache; once.
    pub(crate) fn allocate(&mut self, blocks: usize) -> Result<(), String> {
        // SAFETY: as in `property`.
        text(|err| unsafe { (self.shim.call.ovr_allocate)(self.at.as_ptr(), blocks, err) }).map(drop)
    }

    /// Runs one inference. The rows must agree with each other and name blocks that there are; the library believes them.
    pub(crate) fn infer<'a>(&'a mut self, rows: &Rows<'_>) -> Result<Lent<'a>, String> {
        let sequences = rows.past.len();
        let agree = rows.ids.len() == rows.positions.len()
            && rows.row_begins.len() == sequences + 1
            && rows.block_begins.len() == sequences + 1
            && rows.row_begins.last().is_some_and(|&end| usize::try_from(end) == Ok(rows.ids.len()))
            && rows.block_begins.last().is_some_and(|&end| usize::try_from(end) == Ok(rows.blocks.len()))
            && rows.sampled.iter().all(|&row| usize::try_from(row).is_ok_and(|row| row < rows.ids.len()));
        if !agree {
            return Err("the arrays of the batch do not agree".to_owned());
        }
        let raw = RawBatch {
            ids: rows.ids.as_ptr(),
            positions: rows.positions.as_ptr(),
            rows: rows.ids.len(),
            past: rows.past.as_ptr(),
            row_begins: rows.row_begins.as_ptr(),
            sequences,
            blocks: rows.blocks.as_ptr(),
            blocks_count: rows.blocks.len(),
            block_begins: rows.block_begins.as_ptr(),
            sampled: rows.sampled.as_ptr(),
            sampled_count: rows.sampled.len(),
            longest: rows.longest,
            reserved: 0,
        };
        let begun = Instant::now();
        // SAFETY: the arrays and `raw` outlive the inference below; the model lives as long as `self`, borrowed exclusively.
        text(|err| unsafe { (self.shim.call.ovr_bind)(self.at.as_ptr(), &raw const raw, err) })?;
        let bound = Instant::now();
        let mut out = RawLogits { at: std::ptr::null_mut(), rows: 0, columns: 0 };
        // SAFETY: as above; `out` has the layout of `ovr_logits`.
        text(|err| unsafe { (self.shim.call.ovr_infer)(self.at.as_ptr(), &raw mut out, err) })?;
        let done = Instant::now();
        let values = if out.rows == 0 {
            &[]
        } else {
            // SAFETY: the shim lends so many floats until the next inference, which the borrow of `self` keeps off.
            unsafe { std::slice::from_raw_parts(out.at, out.rows * out.columns) }
        };
        Ok(Lent { values, bind: bound - begun, infer: done - bound })
    }

    /// Copies a block to another, in all layers.
    pub(crate) fn copy_block(&mut self, from: usize, to: usize) -> Result<(), String> {
        // SAFETY: as in `property`; the shim checks both numbers.
        text(|err| unsafe { (self.shim.call.ovr_copy_block)(self.at.as_ptr(), from, to, err) }).map(drop)
    }

    /// Fills a block with a byte, in all layers.
    #[cfg(test)]
    pub(crate) fn fill_block(&mut self, block: usize, byte: u8) -> Result<(), String> {
        // SAFETY: as in `copy_block`.
        text(|err| unsafe { (self.shim.call.ovr_fill_block)(self.at.as_ptr(), block, byte, err) }).map(drop)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the object is ours and not used again; nobody borrows its logits any more.
        unsafe { (self.shim.call.ovr_close)(self.at.as_ptr()) }
    }
}
