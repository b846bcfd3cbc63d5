//! The continuous batching pipeline and its requests, through the shim.
//!
//! Invariant: a [`Pipeline`] or [`Request`] owns its C++ object and every call on it is exclusive.
#![allow(unsafe_code, reason = "calls the shim")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null};
use std::sync::Arc;

use super::Shim;
use super::value::{Entry, raw_values};
use cascadia_ov_base::text::text;

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
