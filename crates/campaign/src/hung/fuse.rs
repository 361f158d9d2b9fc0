//! A file system in the memory of this process (FUSE). It stops answering calls of one kind, as a
//! network file system whose server is gone.
//!
//! The kernel asks it by messages of the kind `include/uapi/linux/fuse.h` describes, in the byte
//! order of this machine. The file system caches nothing, so that each call arrives. A process that
//! waits for an answer cannot be killed until [`Mounted`] is dropped.

use std::{
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
    pipe::{PipeFlags, pipe_with},
};

use super::nodes::{Nodes, Reply};

/// A call, by its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call(pub(super) &'static str, pub(super) u32);

/// Calls that are of interest, those of an end that sends and then those of one that receives.
pub(super) const READS: [Call; 5] = [
    Call("lookup", LOOKUP),
    Call("getattr", GETATTR),
    Call("open", OPEN),
    Call("read", READ),
    Call("readdir", READDIR),
];
pub(super) const WRITES: [Call; 9] = [
    Call("lookup", LOOKUP),
    Call("opendir", OPENDIR),
    Call("mkdir", MKDIR),
    Call("create", CREATE),
    Call("write", WRITE),
    Call("setattr", SETATTR),
    Call("rename", RENAME2),
    Call("fsync", FSYNC),
    Call("statfs", STATFS),
];

pub(super) const LOOKUP: u32 = 1;
pub(super) const FORGET: u32 = 2;
pub(super) const GETATTR: u32 = 3;
pub(super) const SETATTR: u32 = 4;
pub(super) const MKDIR: u32 = 9;
pub(super) const UNLINK: u32 = 10;
pub(super) const RMDIR: u32 = 11;
pub(super) const RENAME: u32 = 12;
pub(super) const OPEN: u32 = 14;
pub(super) const READ: u32 = 15;
pub(super) const WRITE: u32 = 16;
pub(super) const STATFS: u32 = 17;
pub(super) const RELEASE: u32 = 18;
pub(super) const FSYNC: u32 = 20;
pub(super) const FLUSH: u32 = 25;
pub(super) const INIT: u32 = 26;
pub(super) const OPENDIR: u32 = 27;
pub(super) const READDIR: u32 = 28;
pub(super) const RELEASEDIR: u32 = 29;
pub(super) const FSYNCDIR: u32 = 30;
pub(super) const ACCESS: u32 = 34;
pub(super) const CREATE: u32 = 35;
pub(super) const INTERRUPT: u32 = 36;
pub(super) const BATCH_FORGET: u32 = 42;
pub(super) const RENAME2: u32 = 45;

/// Bytes before the arguments of a request.
const HEADER: usize = 40;
/// The longest request: a write, with its header.
const LONGEST: usize = (1 << 20) + (1 << 12);

/// State that the answering thread shares with the owner of the file system.
#[derive(Debug, Default)]
struct Shared {
    /// The call that gets no answer.
    hung: AtomicU32,
    /// Requests that got none.
    waiting: AtomicU64,
}

/// A mounted file system, for this thread's mounts and its children's.
#[derive(Debug)]
pub(super) struct Mounted {
    at: PathBuf,
    shared: Arc<Shared>,
    /// Closed, the thread ends.
    over: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Mounted {
    /// Mounts one at `at` with these files.
    pub(super) fn new(at: &Path, files: &[(&str, Vec<u8>)]) -> io::Result<Self> {
        let device = fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("farhaul-hung", at, "fuse", flags, Some(options.as_c_str()))?;
        let (ends, over) = pipe_with(PipeFlags::CLOEXEC)?;
        let shared = Arc::new(Shared::default());
        let mut nodes = Nodes::new(files);
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("fuse".into()).spawn(move || {
            // Whatever ends it, the kernel fails all calls that wait.
            let _over = answer(&device, &ends, &of_thread, &mut nodes);
        })?;
        Ok(Self {
            at: at.to_owned(),
            shared,
            over: Some(over),
            thread: Some(thread),
        })
    }

    /// Stops answering this call from now on.
    pub(super) fn hang(&self, call: Call) {
        self.shared.hung.store(call.1, SeqCst);
    }

    /// Calls that wait for an answer.
    pub(super) fn waiting(&self) -> u64 {
        self.shared.waiting.load(SeqCst)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
        let _gone = unmount(&self.at, UnmountFlags::DETACH);
    }
}

fn answer(
    device: &fs::File,
    ends: &OwnedFd,
    shared: &Shared,
    nodes: &mut Nodes,
) -> rustix::io::Result<()> {
    let mut buffer = vec![0; LONGEST];
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(ends.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        if !fds[1].revents().is_empty() {
            return Ok(());
        }
        let len = match rustix::io::read(device, &mut buffer) {
            // The request was interrupted before it was taken.
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            read => read?,
        };
        let request = Request(&buffer[..len]);
        let call = request.word(4);
        if call == shared.hung.load(SeqCst) {
            shared.waiting.fetch_add(1, SeqCst);
            continue;
        }
        if [FORGET, BATCH_FORGET, INTERRUPT].contains(&call) {
            continue;
        }
        let (error, bytes) = match nodes.answer(&request) {
            Ok(bytes) => (0, bytes),
            Err(error) => (-error.raw_os_error(), Vec::new()),
        };
        let mut reply = Reply::default();
        let whole = u32::try_from(16 + bytes.len()).unwrap_or(u32::MAX);
        reply.word(whole).word(error.cast_unsigned());
        reply.long(request.long(8)).bytes(&bytes);
        match rustix::io::write(device, &reply.0) {
            // The process that asked is gone.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Request of the kernel.
pub(super) struct Request<'a>(&'a [u8]);

impl Request<'_> {
    /// The bytes behind the header.
    pub(super) fn rest(&self, from: usize) -> &[u8] {
        self.0.get(HEADER + from..).unwrap_or_default()
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|b| b.try_into().ok());
        u32::from_ne_bytes(bytes.unwrap_or_default())
    }

    fn long(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..at + 8).and_then(|b| b.try_into().ok());
        u64::from_ne_bytes(bytes.unwrap_or_default())
    }

    pub(super) fn call(&self) -> u32 {
        self.word(4)
    }

    pub(super) fn node(&self) -> u64 {
        self.long(16)
    }

    /// A number among the arguments.
    pub(super) fn argument(&self, at: usize) -> u64 {
        self.long(HEADER + at)
    }

    /// A short number among the arguments.
    pub(super) fn short(&self, at: usize) -> u32 {
        self.word(HEADER + at)
    }

    /// The names behind the arguments, which end in zero.
    pub(super) fn names(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        self.rest(at).split(|byte| *byte == 0)
    }
}
