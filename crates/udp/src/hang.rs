//! Hangs a file system without a faulty disk: by a listener that must permit each file to be opened
//! and read (fanotify) and never answers. Every process that tries blocks in the kernel, killable,
//! as on a network file system whose server is gone. For tests; needs root.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

/// A mount that hangs until this is dropped.
#[derive(Debug)]
pub struct Hang {
    /// Closed, the kernel permits whatever waits.
    _listener: OwnedFd,
}

impl Hang {
    /// Every open or read on the mount at `path` blocks from now on. The caller must not do
    /// so itself.
    pub fn of_mount(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: no memory is passed.
        let fd = unsafe {
            libc::fanotify_init(
                libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC,
                libc::O_RDONLY.unsigned_abs(),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor without other owners.
        let listener = unsafe { OwnedFd::from_raw_fd(fd) };
        let events = libc::FAN_OPEN_PERM | libc::FAN_ACCESS_PERM | libc::FAN_ONDIR;
        // SAFETY: `path` ends in zero and outlives the call.
        let status = unsafe {
            libc::fanotify_mark(
                listener.as_raw_fd(),
                libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT,
                events,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            _listener: listener,
        })
    }
}
