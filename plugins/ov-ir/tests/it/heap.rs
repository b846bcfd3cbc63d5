//! Counts what each thread has on the heap, so that a test can say how much its own calls needed at most.

#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated less those it has freed, and the most there were.
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn count(change: isize) {
    let now = NOW.get() + change;
    NOW.set(now);
    MOST.set(MOST.get().max(now));
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches two cells that need no heap and are
// never dropped.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may be there for a moment.
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// The most bytes that `call` had on the heap at once, beside what was there before it.
pub(crate) fn most(call: impl FnOnce()) -> usize {
    let before = NOW.get();
    MOST.set(before);
    call();
    usize::try_from(MOST.get() - before).unwrap_or(0)
}
