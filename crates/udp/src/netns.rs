//! Gives a process a network of its own, by moving a thread into a new network namespace. Sockets
//! that the thread opens, devices it makes and programs it starts then live there, and the
//! namespace vanishes with the last of them. Programs get a process namespace besides, so that none
//! outlives it. Without privileges a user namespace has to be entered first.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command},
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags},
    net::AddressFamily,
    process::{Signal, getegid, geteuid},
    thread::UnshareFlags,
};

use crate::tun::{bring_up, control_socket, set_mtu};

/// Makes this process the administrator of a new user namespace, unless it is root already.
///
/// Must be called before any thread is started; the kernel refuses otherwise, and it refuses where
/// the system does not allow unprivileged user namespaces.
pub fn become_administrator() -> io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return Ok(());
    }
    // SAFETY: a new user namespace changes no memory and no open files of this process.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}

/// Moves the calling thread into a new network namespace with its loopback device up.
pub fn enter_new_network() -> io::Result<()> {
    // SAFETY: only this thread's view of the network changes; descriptors stay valid.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    bring_up(&control_socket(AddressFamily::INET)?, "lo")
}

/// Sets the MTU of the loopback device of the calling thread's network.
pub fn set_loopback_mtu(mtu: u32) -> io::Result<()> {
    set_mtu(&control_socket(AddressFamily::INET)?, "lo", mtu)
}

/// Gives the calling thread, and what it starts, a `/sys` that shows its own network's devices.
/// Refused where the system hides parts of `/sys`.
pub fn see_own_devices() -> io::Result<()> {
    own_mounts()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("sysfs", "/sys", "sysfs", flags, None)?)
}

/// Shows `file` at `place`, for the calling thread's mount namespace.
pub fn mount_file(file: &Path, place: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind(file, place)?)
}

/// A file system in memory at `path`, for the calling thread's mount namespace.
pub fn mount_memory(path: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount("tmpfs", path, "tmpfs", flags, None)?)
}

/// Gives the calling thread, and what it starts, private mounts.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: only this thread's view of the file system's mounts changes, and its current directory
    // is its own from now on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", private)?)
}

/// Sets kernel parameters (`net.ipv4.tcp_rmem` written `net/ipv4/tcp_rmem`) in the calling thread's
/// network namespace; answers those that could not be set.
pub fn set_parameters<'a>(parameters: &[(&'a str, &str)]) -> Vec<&'a str> {
    parameters
        .iter()
        .filter(|(name, value)| fs::write(format!("/proc/sys/{name}"), value).is_err())
        .map(|(name, _)| *name)
        .collect()
}

/// Moves all programs that the calling thread starts from now on into a new process namespace. The
/// init of that namespace is `command`, which may do nothing. When it ends, the kernel kills all
/// the others, whatever they made of sessions and process groups; and it has ended only once they
/// have. They see `/proc` as theirs where the system allows it. The thread can start no threads
/// after this.
pub fn start_init(command: &mut Command) -> io::Result<Child> {
    // Refused in some containers; then `/proc` shows the system's processes.
    let mounts = own_mounts().is_ok();
    // SAFETY: the new PID namespace is for children of this thread only.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }?;
    let proc_flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // SAFETY: the closure makes two system calls and neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            // Children that it inherits leave nothing behind; it need not wait for them.
            if libc::signal(libc::SIGCHLD, libc::SIG_IGN) == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
            if mounts {
                let _refused_as_above =
                    rustix::mount::mount(c"proc", c"/proc", c"proc", proc_flags, None);
            }
            Ok(())
        });
    }
    die_with_this_thread(command).spawn()
}

/// Has the kernel kill the command's process when the thread that spawns it ends, however it ends.
pub fn die_with_this_thread(command: &mut Command) -> &mut Command {
    let parent = rustix::process::getpid();
    // SAFETY: the closure makes two system calls and neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have gone before the line above. From a process namespace it is not seen; there
            // everything ends with the init, and that with what it reads from the parent.
            match rustix::process::getppid() {
                Some(other) if other != parent => Err(io::ErrorKind::BrokenPipe.into()),
                _ => Ok(()),
            }
        })
    }
}
