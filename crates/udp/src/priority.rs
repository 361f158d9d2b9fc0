//! Raises a thread's priority, so that it gets the core when two are runnable. A thread with
//! deadlines can request to be scheduled before all ordinary work.

use std::io;

/// Puts the calling thread before all ordinary threads of the machine, whatever their groups and
/// niceness. It must sleep most of the time. Needs `CAP_SYS_NICE` in the initial user namespace.
pub fn before_ordinary_threads() -> io::Result<()> {
    let priority: libc::c_int = 1;
    // The system call: the function of musl refuses.
    let call = libc::SYS_sched_setscheduler;
    // SAFETY: reads the kernel's `sched_param`, which is one int and outlives the call; 0 is the calling thread.
    let result = unsafe { libc::syscall(call, 0, libc::SCHED_RR, &raw const priority) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
