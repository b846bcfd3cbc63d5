//! Lists the devices of OpenVINO over its C interface, a library beside the core.
//!
//! What must hold: nothing here runs while a model is served. Listing opens the driver of every device, and a broken
//! driver may end the process.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

use cascadia_ov_base::open::{Open, Symbols};

/// A device as OpenVINO knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// As options name it: `CPU`, `GPU.0`.
    pub(crate) name: String,
    /// The maker's words, or why the driver does not say them.
    pub(crate) full: String,
}

/// `ov_available_devices_t`.
#[repr(C)]
struct Names {
    at: *mut *mut c_char,
    count: usize,
}

type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void);
type List = unsafe extern "C" fn(*const c_void, *mut Names) -> c_int;
type ListFree = unsafe extern "C" fn(*mut Names);
type Property = unsafe extern "C" fn(*const c_void, *const c_char, *const c_char, *mut *mut c_char) -> c_int;
type TextFree = unsafe extern "C" fn(*const c_char);

/// The devices that the core at that path finds. The core must be open.
///
/// # Errors
/// What the loader says, or that the library refuses to list them.
pub(crate) fn list(open: &dyn Open, core: &Path, build: u32) -> Result<Vec<Device>, String> {
    let path = core.with_file_name(format!("libopenvino_c.so.{build}"));
    let symbols = open.open(&path, false).map_err(|reason| format!("open {}: {reason}", path.display()))?;
    let find = |name: &CStr| symbol(&symbols, name);
    // SAFETY: `Open` promises the addresses of those names, and OpenVINO's C interface gives them these types.
    let (create, free, list, list_free, property, text_free) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Create>(find(c"ov_core_create")?),
            std::mem::transmute::<*mut c_void, Free>(find(c"ov_core_free")?),
            std::mem::transmute::<*mut c_void, List>(find(c"ov_core_get_available_devices")?),
            std::mem::transmute::<*mut c_void, ListFree>(find(c"ov_available_devices_free")?),
            std::mem::transmute::<*mut c_void, Property>(find(c"ov_core_get_property")?),
            std::mem::transmute::<*mut c_void, TextFree>(find(c"ov_free")?),
        )
    };
    let mut core = null_mut();
    // SAFETY: the place for the answer outlives the call.
    let status = unsafe { create(&raw mut core) };
    if status != 0 || core.is_null() {
        return Err(format!("OpenVINO did not start: status {status}"));
    }
    let mut names = Names { at: null_mut(), count: 0 };
    // SAFETY: the core was just made; the place for the answer outlives the call.
    let status = unsafe { list(core, &raw mut names) };
    let devices = match status {
        0 => (0..names.count)
            .map(|at| {
                // SAFETY: the library filled `count` texts, which live until they are given back below.
                let name = unsafe { CStr::from_ptr(*names.at.add(at)) };
                let mut full = null_mut();
                // SAFETY: the core is alive, the texts are C strings, the place for the answer outlives the call.
                let status =
                    unsafe { property(core, name.as_ptr(), c"FULL_DEVICE_NAME".as_ptr(), &raw mut full) };
                let told = if status == 0 && !full.is_null() {
                    // SAFETY: a C string that the library made for us; given back once, after it was copied.
                    unsafe {
                        let copy = CString::from(CStr::from_ptr(full)).to_string_lossy().into_owned();
                        text_free(full);
                        copy
                    }
                } else {
                    format!("its driver does not say its name: status {status}")
                };
                Device { name: name.to_string_lossy().into_owned(), full: told.trim().to_owned() }
            })
            .collect(),
        _ => Vec::new(),
    };
    // SAFETY: made by the library above, given back once and not used again.
    unsafe {
        if status == 0 {
            list_free(&raw mut names);
        }
        free(core);
    }
    if status == 0 { Ok(devices) } else { Err(format!("OpenVINO did not list its devices: status {status}")) }
}

fn symbol(symbols: &Symbols, name: &CStr) -> Result<*mut c_void, String> {
    symbols(name).ok_or_else(|| format!("OpenVINO's C interface has no {}", name.to_string_lossy()))
}
