//! Bounds the freed memory that a process keeps. The C library has arenas that threads share, up to
//! eight for each core, and each keeps its own holes. A server whose sessions come and go on
//! threads of their own grows for hours until all have theirs.

/// Limits the arenas of this process to `most`. Called before there are threads.
pub fn limit_arenas(most: u8) {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: no memory is passed, and no other thread allocates yet.
        let done = unsafe { libc::mallopt(libc::M_ARENA_MAX, most.into()) };
        debug_assert_eq!(done, 1, "the C library knows its own option");
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = most;
}
