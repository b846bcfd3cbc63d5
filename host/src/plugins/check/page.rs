//! Memory that ends where it says: a struct laid against a page that nobody may touch, so that a read or a write beyond
//! its size is a crash and not luck.
#![expect(unsafe_code, reason = "maps a page and forbids the one behind it")]

/// A struct of some size at the end of a page. Lives for ever.
pub(super) struct Page {
    at: *mut u8,
}

impl Page {
    /// The first `size` bytes of `value`, and zeros where `size` is larger than it. `size` is a multiple of 8.
    pub(super) fn with<T: Copy>(value: &T, size: usize) -> Result<Page, String> {
        const PAGE: usize = 4096;
        debug_assert!(size <= PAGE && size.is_multiple_of(8));
        // SAFETY: a fresh mapping of two pages, of which the second is forbidden; the copy stays inside the first and
        // inside `value`.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let both =
                libc::mmap(core::ptr::null_mut(), 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            if both == libc::MAP_FAILED {
                return Err("the test has no memory".to_owned());
            }
            let first = both.cast::<u8>();
            if libc::mprotect(first.add(PAGE).cast(), PAGE, libc::PROT_NONE) != 0 {
                return Err("the test cannot guard its memory".to_owned());
            }
            let at = first.add(PAGE - size);
            core::ptr::copy_nonoverlapping(
                core::ptr::from_ref(value).cast::<u8>(),
                at,
                size.min(size_of::<T>()),
            );
            Ok(Page { at })
        }
    }

    /// Its last `size` bytes, as they are now.
    pub(super) fn bytes(&self, size: usize) -> Vec<u8> {
        // SAFETY: the struct lies there and has that size; nobody writes it any more.
        unsafe { core::slice::from_raw_parts(self.at, size) }.to_vec()
    }

    /// Its address, as what the other side expects to find there.
    pub(super) fn ptr<T>(&self) -> *mut T {
        self.at.cast()
    }
}
