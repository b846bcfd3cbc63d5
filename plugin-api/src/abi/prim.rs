//! The primitive views that every table uses: borrowed text, strided arrays, callbacks for results.
//!
//! All of them are valid for the duration of the call they are passed to, unless a function says otherwise.
#![expect(unsafe_code, reason = "views over memory that the other side lends for one call")]

use core::ffi::c_void;
use std::borrow::Cow;

table! {
    /// Borrowed bytes. UTF-8 wherever the field is an id, a message or JSON; any bytes where it is token text.
    Str as "cascadia_str" {
        /// First byte; may be null when `len` is 0.
        ptr: *const u8,
        /// Length in bytes.
        len: usize,
    }
}

impl Str {
    /// The empty text.
    pub const EMPTY: Str = Str { ptr: core::ptr::null(), len: 0 };

    /// A view of `bytes`; the caller keeps them alive for the call.
    pub const fn new(bytes: &[u8]) -> Str {
        Str { ptr: bytes.as_ptr(), len: bytes.len() }
    }

    /// The bytes.
    ///
    /// # Safety
    /// `ptr..ptr+len` must be readable for `'a`.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.ptr.is_null() || self.len == 0 {
            return &[];
        }
        // SAFETY: the caller vouches for the range; null was handled above.
        unsafe { core::slice::from_raw_parts(self.ptr, self.len) }
    }

    /// The text; invalid UTF-8 becomes U+FFFD, so that a faulty peer cannot break a log line.
    ///
    /// # Safety
    /// As [`Str::bytes`].
    pub unsafe fn text<'a>(self) -> Cow<'a, str> {
        // SAFETY: passed on to the caller.
        String::from_utf8_lossy(unsafe { self.bytes() })
    }
}

impl From<&'static str> for Str {
    fn from(s: &'static str) -> Str {
        Str::new(s.as_bytes())
    }
}

table! {
    /// A borrowed array whose elements lie `stride` bytes apart, so that a newer, larger element stays readable.
    Array as "cascadia_array" {
        /// First element; may be null when `len` is 0.
        ptr: *const c_void,
        /// Number of elements.
        len: usize,
        /// Distance between elements in bytes, which is also their size as the writer knows them.
        stride: usize,
    }
}

impl Array {
    /// The array without elements.
    pub const EMPTY: Array = Array { ptr: core::ptr::null(), len: 0, stride: 0 };

    /// A view of `items`; the caller keeps them alive for the call.
    pub const fn new<T>(items: &[T]) -> Array {
        Array { ptr: items.as_ptr().cast(), len: items.len(), stride: size_of::<T>() }
    }

    /// The elements, copied out one by one: the only way to read an array of structs. Of an element shorter than `T`
    /// (an older writer) the rest reads as zero, of a longer one (a newer writer) the rest is left. A null pointer, a
    /// stride of 0 or a length that wraps the address space reads as empty.
    ///
    /// # Safety
    /// `ptr` must point to `len` elements, `stride` bytes apart, readable for the life of the iterator; each must begin
    /// with a valid prefix of `T`, and an all-zero `T` must be valid.
    pub unsafe fn iter<T: Copy>(self) -> impl ExactSizeIterator<Item = T> {
        let base = self.ptr.cast::<u8>();
        let size = self.stride.min(size_of::<T>());
        (0..self.readable()).map(move |i| {
            let mut item = core::mem::MaybeUninit::<T>::zeroed();
            // SAFETY: the caller vouches for `stride` readable bytes at each place and for zero being valid; `size` is
            // no larger than either side.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    base.add(i * self.stride),
                    item.as_mut_ptr().cast::<u8>(),
                    size,
                );
                item.assume_init()
            }
        })
    }

    /// Where the elements are, when none is shorter than `T`, as is the rule; else nothing. For readers that look at a few
    /// fields of large elements: each place is a whole `T`, aligned or not.
    ///
    /// # Safety
    /// As [`Array::iter`].
    #[inline]
    pub unsafe fn places<T: Copy>(self) -> Option<impl ExactSizeIterator<Item = *const T>> {
        let base = self.ptr.cast::<u8>();
        // SAFETY: the caller vouches for `stride` readable bytes at each place.
        let place = move |i| unsafe { base.add(i * self.stride).cast::<T>() };
        (self.stride >= size_of::<T>()).then(|| (0..self.readable()).map(place))
    }

    /// Where the only element is, of an array of one; as [`Array::places`], without its arithmetic.
    ///
    /// # Safety
    /// As [`Array::iter`].
    #[inline]
    pub unsafe fn only<T: Copy>(self) -> Option<*const T> {
        let sound = self.len == 1 && self.stride >= size_of::<T>() && !self.ptr.is_null();
        sound.then_some(self.ptr.cast())
    }

    /// Number of elements, 0 of an array that cannot be one.
    #[inline]
    fn readable(self) -> usize {
        // Two numbers of 31 bits, as nearly all are, have a product that fits.
        let fits = (self.len | self.stride) >> 31 == 0
            || self.len.checked_mul(self.stride).is_some_and(|n| n <= isize::MAX as usize);
        let sound = !self.ptr.is_null() && self.stride > 0 && fits;
        if sound { self.len } else { 0 }
    }

    /// The elements as a slice when they lie side by side and aligned, as scalars nearly always do.
    ///
    /// # Safety
    /// As [`Array::iter`], for `'a`.
    #[inline]
    pub unsafe fn slice<'a, T: Copy + 'a>(self) -> Option<&'a [T]> {
        if self.len == 0 || self.ptr.is_null() {
            return Some(&[]);
        }
        let sound = self.stride == size_of::<T>()
            && self.ptr.cast::<T>().is_aligned()
            && self.len <= isize::MAX as usize / size_of::<T>();
        // SAFETY: contiguous, aligned, bounded; the caller vouches for the memory.
        sound.then(|| unsafe { core::slice::from_raw_parts(self.ptr.cast(), self.len) })
    }

    /// The elements as a slice when they lie side by side and aligned (scalars nearly always do), else copied.
    ///
    /// # Safety
    /// As [`Array::iter`], for `'a`.
    #[inline]
    pub unsafe fn scalars<'a, T: Copy + 'a>(self) -> Cow<'a, [T]> {
        if self.len == 0 || self.ptr.is_null() {
            return Cow::Borrowed(&[]);
        }
        if self.stride == size_of::<T>()
            && self.ptr.cast::<T>().is_aligned()
            && self.len <= isize::MAX as usize / self.stride
        {
            // SAFETY: contiguous, aligned, bounded; the caller vouches for the memory.
            return Cow::Borrowed(unsafe { core::slice::from_raw_parts(self.ptr.cast(), self.len) });
        }
        // SAFETY: passed on to the caller.
        Cow::Owned(unsafe { self.copied() })
    }

    /// # Safety
    /// As [`Array::iter`].
    #[cold]
    unsafe fn copied<T: Copy>(self) -> Vec<T> {
        // SAFETY: passed on to the caller.
        unsafe { self.iter() }.collect()
    }
}

table! {
    /// A key and its value, both UTF-8.
    Kv as "cascadia_kv" {
        /// The key.
        key: Str,
        /// The value.
        value: Str,
    }
}

table! {
    /// Where a failing call says why. A call that answers a code other than 0 sets it once, before it returns, with the
    /// code that it answers. Where the two differ the answered one counts; a call that answers 0 has not failed, whatever
    /// it said.
    ErrOut as "cascadia_err_out" {
        /// The receiver's context.
        ctx: *mut c_void,
        /// Takes the code, a one-line message and details as a JSON object (or nothing).
        set: unsafe extern "C" fn(ctx: *mut c_void, code: u32, message: Str, details_json: Str),
    }
}

table! {
    /// Where a call puts a text result.
    StrOut as "cascadia_str_out" {
        /// The receiver's context.
        ctx: *mut c_void,
        /// Takes the text; a second call replaces the first.
        set: unsafe extern "C" fn(ctx: *mut c_void, text: Str),
    }
}

table! {
    /// Progress of a long call; also the way to give it up.
    Progress as "cascadia_progress" {
        /// The receiver's context.
        ctx: *mut c_void,
        /// Reports `done` of `total` (0 = unknown) in `phase`; answers 1 when the caller wants the call to give up.
        report: unsafe extern "C" fn(ctx: *mut c_void, phase: Str, done: u64, total: u64) -> u32,
    }
}
