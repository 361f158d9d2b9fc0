//! Signals that this process ignores because the program that started it did: a shell does so for `nohup` and for jobs in
//! the background.

use std::{io, mem::MaybeUninit, ptr};

/// True if `signal` is ignored now.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set without a new action, and the old one has a place that outlives the call.
    let status = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled it.
    let action = unsafe { action.assume_init() };
    Ok(action.sa_sigaction == libc::SIG_IGN)
}
