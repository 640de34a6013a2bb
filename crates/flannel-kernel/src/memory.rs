//! Keeps the daemon small: the allocator is told to keep little of what was freed.
//!
//! A pass over thousands of peers needs a few megabytes for a moment. glibc keeps them for ever, once for each
//! thread, unless it is told otherwise.

#[allow(unsafe_code, reason = "the allocator has no safe way to be told")]
/// Tells the allocator to use one pool for all threads. To be called before any thread is started.
pub fn use_one_pool() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only sets a number in the allocator and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

#[allow(unsafe_code, reason = "the allocator has no safe way to be told")]
/// Gives what is free back to the kernel.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim touches only memory that nobody holds, under the allocator's own lock.
    unsafe {
        libc::malloc_trim(0);
    }
}
