//! `cascadia.adapters/1` for authors.
#![expect(unsafe_code, reason = "the plugin's side of the table")]

use core::ffi::c_void;
use std::path::PathBuf;

use super::with_extension;
use crate::abi::prim::{self, Array, ErrOut, Str};
use crate::ext::draft::adapters as wire;
use crate::sdk::{Error, Progress, Result};

/// An adapter to load.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterSpec {
    /// Name that tasks use.
    pub name: String,
    /// File or folder.
    pub path: PathBuf,
    /// Factor on what it adds.
    pub scale: f32,
}

/// A loaded adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// Name, place and factor.
    pub spec: AdapterSpec,
    /// Its rank; 0 = not known.
    pub rank: u32,
    /// Tasks that use it at this moment.
    pub tasks: u32,
}

/// An engine whose adapters come and go while it serves.
pub trait Adapters {
    /// Loads an adapter; may run beside step, submit and cancel.
    fn load(&self, adapter: AdapterSpec, progress: &Progress) -> Result<()>;

    /// Unloads one; tasks that have it keep it.
    fn unload(&self, name: &str) -> Result<()>;

    /// All of them; must not block.
    fn list(&self) -> Vec<Adapter>;
}

pub(super) static TABLE: wire::AdaptersV1 =
    wire::AdaptersV1 { struct_size: size_of::<wire::AdaptersV1>() as u32, flags: 0, load, unload, list };

unsafe extern "C" fn load(
    engine: *mut c_void,
    adapter: *const wire::AdapterSpec,
    progress: prim::Progress,
    err: ErrOut,
) -> u32 {
    // SAFETY: the host's promise: the adapter is lent for the call.
    unsafe {
        with_extension!(engine, Some(err), adapters, "adapters", |adapters| {
            let spec = adapter.as_ref().ok_or_else(|| Error::config("the host passed no adapter"))?;
            if (spec.struct_size as usize) < size_of::<wire::AdapterSpec>() {
                return Err(Error::config("the host's adapter is too small"));
            }
            let spec = AdapterSpec {
                name: spec.name.text().into_owned(),
                path: spec.path.text().into_owned().into(),
                scale: if spec.scale == 0.0 { 1.0 } else { spec.scale },
            };
            adapters.load(spec, &Progress(progress))
        })
    }
}

unsafe extern "C" fn unload(engine: *mut c_void, name: Str, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_extension!(engine, Some(err), adapters, "adapters", |adapters| adapters.unload(&name.text()))
    }
}

unsafe extern "C" fn list(engine: *mut c_void, out: wire::AdaptersOut, err: ErrOut) -> u32 {
    // SAFETY: the host's promise: the callback is lent for the call.
    unsafe {
        with_extension!(engine, Some(err), adapters, "adapters", |adapters| {
            let all = adapters.list();
            let infos: Vec<_> = all
                .iter()
                .map(|a| wire::AdapterInfo {
                    name: Str::new(a.spec.name.as_bytes()),
                    path: Str::new(a.spec.path.as_os_str().as_encoded_bytes()),
                    scale: a.spec.scale,
                    rank: a.rank,
                    tasks: a.tasks,
                    flags: 0,
                })
                .collect();
            (out.set)(out.ctx, Array::new(&infos));
            Ok(())
        })
    }
}
