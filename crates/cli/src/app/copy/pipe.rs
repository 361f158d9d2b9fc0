//! Copies from the standard input or to the standard output: opens the streams, and lets a reader that has enough end the
//! copy quietly.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use farhaul_transfer::{
    Exit, TransferError,
    client::{Download, Options, Remote, Upload},
};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, major, minor};

use crate::connect::internal;

/// Bytes that a pipe of ours should hold, if the system permits: the fewer switches between both
/// programs the better.
const HOLDS: usize = 1 << 20;
/// The permissions of new files without a mask.
const NEW: u16 = 0o666;
/// The mask where the system does not say it.
const MASK: u16 = 0o022;

/// State that every attempt has in common.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipe {
    /// The reader of the standard output is gone.
    closed: Arc<AtomicBool>,
    /// True if bytes were read or written, which another attempt could not have again.
    began: Arc<AtomicBool>,
}

/// The standard input.
struct In {
    file: File,
    began: Arc<AtomicBool>,
}

impl Read for In {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.began.store(true, Ordering::Relaxed);
        self.file.read(into)
    }
}

/// The standard output.
struct Out {
    file: File,
    closed: Arc<AtomicBool>,
    began: Arc<AtomicBool>,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.began.store(true, Ordering::Relaxed);
        let written = self.file.write(bytes);
        if written
            .as_ref()
            .is_err_and(|e| e.kind() == ErrorKind::BrokenPipe)
        {
            self.closed.store(true, Ordering::Relaxed);
        }
        written
    }

    /// Ends the output. Some file systems have no space, or an error, only when a file is synced.
    fn flush(&mut self) -> io::Result<()> {
        if self.file.metadata()?.is_file() {
            self.file.sync_all()?;
        }
        Ok(())
    }
}

impl Pipe {
    /// Makes the sender of the standard input.
    pub(super) fn upload(&self, to: &Remote, options: Options) -> Result<Upload, TransferError> {
        let input = io::stdin().as_fd().try_clone_to_owned();
        let input = File::from(input.map_err(|e| internal(&e))?);
        open(&input, "the standard input", "< /dev/null")?;
        widen(&input);
        let began = Arc::clone(&self.began);
        let input = In { file: input, began };
        Upload::pipe(Box::new(input), NEW & !mask(), to, options)
    }

    /// Makes the writer of the standard output.
    pub(super) fn download(
        &self,
        from: &Remote,
        options: Options,
    ) -> Result<Download, TransferError> {
        let file = io::stdout().as_fd().try_clone_to_owned();
        let file = File::from(file.map_err(|e| internal(&e))?);
        open(&file, "the standard output", "> /dev/null")?;
        widen(&file);
        let out = Out {
            file,
            closed: Arc::clone(&self.closed),
            began: Arc::clone(&self.began),
        };
        Download::pipe(Box::new(out), from, options)
    }

    /// True once an attempt has read or written something: no other can be made.
    pub(super) fn has_begun(&self) -> bool {
        self.began.load(Ordering::Relaxed)
    }

    /// True if the reader of the standard output is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// Refuses a stream that was closed when the program was started. The runtime opens /dev/null in
/// its place for reading and writing. So an empty file would be sent, or all that is received be
/// lost.
fn open(file: &File, name: &str, redirect: &str) -> Result<(), TransferError> {
    let stat = fstat(file).map_err(|e| internal(&e))?;
    let flags = fcntl_getfl(file).map_err(|e| internal(&e))?;
    let is_null = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3);
    if !is_null || flags & OFlags::RWMODE != OFlags::RDWR {
        return Ok(());
    }
    let text = format!("{name} is closed, or is /dev/null opened for reading and writing");
    let fix = format!("redirect it; if nothing is meant, by {redirect}");
    Err(TransferError::new(Exit::Usage, text).fix(fix))
}

/// A pipe of another program's, or no pipe, stays as it is.
fn widen(file: &File) {
    let _as_it_is = rustix::pipe::fcntl_setpipe_size(file, HOLDS);
}

/// The mask of new files, which only the system's report has without changing it.
fn mask() -> u16 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = line.and_then(|mask| u16::from_str_radix(mask.trim(), 8).ok());
    mask.unwrap_or(MASK)
}
