//! As much of OpenVINO's C interface as it takes to run a model and to see what became of its operations.
//!
//! Objects are not freed: a test's process ends soon.

#![expect(unsafe_code, reason = "a C interface, opened at run time")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

use libloading::Library;

/// An opened library and a core with exact arithmetic.
pub(crate) struct Runtime {
    library: Library,
    core: *mut c_void,
}

/// A compiled model with its state.
pub(crate) struct Running<'a> {
    runtime: &'a Runtime,
    request: *mut c_void,
}

/// Values of an input, with its shape.
pub(crate) enum Feed<'a> {
    I64(&'a [i64], [i64; 2]),
    I32(&'a [i32]),
    F32(&'a [f32], [i64; 3]),
}

#[repr(C)]
struct Shape {
    rank: i64,
    dims: *const i64,
}

#[repr(C)]
struct Profile {
    status: c_int,
    real_time: i64,
    cpu_time: i64,
    node_name: *const c_char,
    exec_type: *const c_char,
    node_type: *const c_char,
}

const OPTIMIZED_OUT: c_int = 1;

#[repr(C)]
struct Profiles {
    all: *const Profile,
    size: usize,
}

type Call2 = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;

impl Runtime {
    pub(crate) fn open(folder: &Path) -> Self {
        let lib = folder.join("lib");
        let entries = std::fs::read_dir(&lib).unwrap_or_else(|e| panic!("read {}: {e}", lib.display()));
        let path = entries
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().contains("libopenvino_c.so"))
            .unwrap_or_else(|| panic!("no libopenvino_c.so in {}", lib.display()));
        // SAFETY: the runtime's initializers have no requirements; its dependencies lie beside it.
        let library = unsafe { Library::new(&path) }.unwrap();
        let mut runtime = Self { library, core: null_mut() };
        let create = runtime.get::<unsafe extern "C" fn(*mut *mut c_void) -> c_int>("ov_core_create");
        // SAFETY: as declared in ov_core.h.
        let status = unsafe { create(&mut runtime.core) };
        runtime.check("create a core", status);
        for (key, value) in [
            ("INFERENCE_PRECISION_HINT", "f32"),
            ("KV_CACHE_PRECISION", "f32"),
            ("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"),
            ("INFERENCE_NUM_THREADS", "2"),
            ("PERF_COUNT", "YES"),
        ] {
            let set = runtime.get::<unsafe extern "C" fn(*mut c_void, *const c_char, ...) -> c_int>(
                "ov_core_set_property",
            );
            let (cpu, key, value) = (text("CPU"), text(key), text(value));
            // SAFETY: the variadic form takes one key and one value, both C strings.
            let status = unsafe { set(runtime.core, cpu.as_ptr(), key.as_ptr(), value.as_ptr()) };
            runtime.check(&key.to_string_lossy(), status);
        }
        runtime
    }

    /// Compiles the model of a folder.
    pub(crate) fn load(&self, folder: &Path) -> Running<'_> {
        let path = text(&folder.join("openvino_model.xml").to_string_lossy());
        let (mut model, mut compiled, mut request) = (null_mut(), null_mut(), null_mut());
        type Read =
            unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, *mut *mut c_void) -> c_int;
        let read = self.get::<Read>("ov_core_read_model");
        // SAFETY: as declared in ov_core.h; no second path means the file beside the first.
        let status = unsafe { read(self.core, path.as_ptr(), std::ptr::null(), &mut model) };
        self.check("read the model", status);
        type Compile = unsafe extern "C" fn(
            *mut c_void,
            *mut c_void,
            *const c_char,
            usize,
            *mut *mut c_void,
            ...
        ) -> c_int;
        let compile = self.get::<Compile>("ov_core_compile_model");
        // SAFETY: as declared in ov_core.h, with no properties.
        let status = unsafe { compile(self.core, model, text("CPU").as_ptr(), 0, &mut compiled) };
        self.check("compile the model", status);
        let create = self.get::<Call2>("ov_compiled_model_create_infer_request");
        // SAFETY: as declared in ov_compiled_model.h.
        self.check("create a request", unsafe { create(compiled, &mut request) });
        Running { runtime: self, request }
    }

    fn get<T: Copy>(&self, name: &str) -> T {
        // SAFETY: each caller names the type that the header declares.
        *unsafe { self.library.get::<T>(name.as_bytes()) }.unwrap()
    }

    fn check(&self, what: &str, status: c_int) {
        if status != 0 {
            let last = self.get::<unsafe extern "C" fn() -> *const c_char>("ov_get_last_err_msg");
            // SAFETY: the function gives a C string that lives until the next call.
            let message = unsafe { CStr::from_ptr(last()) };
            panic!("{what}: status {status}: {}", message.to_string_lossy());
        }
    }
}

impl Running<'_> {
    /// Runs once and gives the output.
    pub(crate) fn infer(&mut self, feeds: &[(&str, Feed)]) -> Vec<f32> {
        let r = self.runtime;
        for (name, feed) in feeds {
            self.feed(name, feed);
        }
        let infer = r.get::<unsafe extern "C" fn(*mut c_void) -> c_int>("ov_infer_request_infer");
        // SAFETY: as declared in ov_infer_request.h; all inputs were copied.
        r.check("infer", unsafe { infer(self.request) });
        type Output = unsafe extern "C" fn(*mut c_void, usize, *mut *mut c_void) -> c_int;
        let output = r.get::<Output>("ov_infer_request_get_output_tensor_by_index");
        let (mut tensor, mut data, mut size) = (null_mut(), null_mut(), 0usize);
        // SAFETY: as declared in ov_infer_request.h and ov_tensor.h.
        unsafe {
            r.check("get the output", output(self.request, 0, &mut tensor));
            let bytes =
                r.get::<unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int>("ov_tensor_get_byte_size");
            r.check("get the size", bytes(tensor, &mut size));
            r.check("get the data", r.get::<Call2>("ov_tensor_data")(tensor, &mut data));
            std::slice::from_raw_parts(data.cast::<f32>(), size / 4).to_vec()
        }
    }

    fn feed(&self, name: &str, feed: &Feed) {
        let r = self.runtime;
        let (kind, dims, data, bytes) = match feed {
            Feed::I64(values, dims) => (10, dims.to_vec(), values.as_ptr().cast::<u8>(), values.len() * 8),
            Feed::I32(values) => (9, vec![values.len() as i64], values.as_ptr().cast(), values.len() * 4),
            Feed::F32(values, dims) => (4, dims.to_vec(), values.as_ptr().cast(), values.len() * 4),
        };
        let shape = Shape { rank: dims.len() as i64, dims: dims.as_ptr() };
        let (mut tensor, mut place) = (null_mut(), null_mut());
        let create =
            r.get::<unsafe extern "C" fn(c_int, Shape, *mut *mut c_void) -> c_int>("ov_tensor_create");
        type Set = unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void) -> c_int;
        let set = r.get::<Set>("ov_infer_request_set_tensor");
        // SAFETY: the tensor has room for as many elements as its shape says, which is what the feed has.
        unsafe {
            r.check("create a tensor", create(kind, shape, &mut tensor));
            r.check("get the data", r.get::<Call2>("ov_tensor_data")(tensor, &mut place));
            std::ptr::copy_nonoverlapping(data, place.cast::<u8>(), bytes);
            r.check(name, set(self.request, text(name).as_ptr(), tensor));
        }
    }

    /// Operations of the runtime model by type, without those that were optimized away. One that took less than a
    /// microsecond counts as not run.
    pub(crate) fn operations(&self) -> BTreeMap<String, usize> {
        let r = self.runtime;
        let mut list = Profiles { all: std::ptr::null(), size: 0 };
        type Get = unsafe extern "C" fn(*mut c_void, *mut Profiles) -> c_int;
        let get = r.get::<Get>("ov_infer_request_get_profiling_info");
        // SAFETY: as declared in ov_infer_request.h; the list is valid until it is freed, which it is not.
        let all = unsafe {
            r.check("profile", get(self.request, &mut list));
            std::slice::from_raw_parts(list.all, list.size)
        };
        let mut counts = BTreeMap::new();
        for row in all.iter().filter(|row| row.status != OPTIMIZED_OUT) {
            // SAFETY: a C string of the list.
            let kind = unsafe { CStr::from_ptr(row.node_type) }.to_string_lossy().into_owned();
            *counts.entry(kind).or_insert(0) += 1;
        }
        counts
    }
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}
