//! The host's heap, and when what is free of it goes back to the system. The allocator keeps it for a second, and looks again
//! only when something else is freed: a host at rest would keep for good what its start or its busiest moment took.
#![expect(unsafe_code, reason = "the allocator's own calls")]

/// Gives back what is free, as far as this thread and those that ended had it.
pub fn give_back() {
    collect(true);
}

/// Gives back what has been free for a while.
pub fn give_back_old() {
    collect(false);
}

fn collect(all: bool) {
    // SAFETY: no memory is named; blocks in use stay where they are. Nothing to do where another allocator is in use.
    unsafe {
        libmimalloc_sys::mi_collect(all);
    }
}
