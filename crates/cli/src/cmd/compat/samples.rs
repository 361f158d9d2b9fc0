//! Protocol of libudt's file programs. `recvfile` connects and sends the length of a name (four
//! bytes) and the name. `sendfile` answers with the file's size (eight bytes, -1: there is none),
//! then the file. Numbers are little-endian, as on the programs' usual hosts.
//!
//! - There is no digest and no permission in the protocol. A file is complete if as many bytes were
//!   received as announced, and any host that can send a packet may send a request.
//! - Names are `SHARE/PATH` beneath a shared directory; nothing else can be opened.
//! - The disk is read and written by the thread of the sessions, which is what such a program costs.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use farhaul_core::{
    protocol::{CloseReason, Event, Session},
    store::{Extent, ObjectId, Store, StoreError},
    text::shown,
    time::Instant,
};
use farhaul_io::App;
use farhaul_transfer::{Exit, TransferError, closed_by_server, error_of, server::Share};

/// The longest name: the programs keep it in a kilobyte, with a zero at its end.
const NAME_MAX: usize = 1_023;
const OBJECT: ObjectId = 1;
/// Time for a client to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// End of the name under which a file is collected.
const PART: &str = ".farhaul-part";

/// Called with the result of a session, one line for people.
pub(crate) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// A file beneath a share, open to be read.
pub(crate) struct Shared {
    file: File,
    size: u64,
}

impl Shared {
    /// Opens `SHARE/PATH`, if one of `shares` may be fetched and has it.
    pub(crate) fn open(shares: &[Share], name: &[u8]) -> io::Result<Self> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let slash = name.iter().position(|b| *b == b'/').ok_or_else(missing)?;
        let (share, rest) = (&name[..slash], &name[slash + 1..]);
        let share = shares.iter().find(|s| s.name().as_bytes() == share);
        let file = share.ok_or_else(missing)?.open_file(rest)?;
        let size = file.metadata()?.len();
        Ok(Self { file, size })
    }

    /// Bytes in it.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// The files that lie directly in `shares` and may be fetched, as `SHARE/NAME`, each with its bytes. More than
    /// `most` are an error.
    pub(crate) fn list(shares: &[Share], most: usize) -> io::Result<Vec<(Vec<u8>, u64)>> {
        let mut files = Vec::new();
        for share in shares.iter().filter(|share| share.may_be_fetched()) {
            share.each_file(|name| {
                let name = [share.name().as_bytes(), b"/", name].concat();
                // What may not be read is not offered.
                let Ok(file) = Self::open(shares, &name) else {
                    return Ok(());
                };
                if files.len() == most {
                    let text = format!("there are more than {most} files");
                    return Err(io::Error::other(text));
                }
                files.push((name, file.size));
                Ok(())
            })?;
        }
        Ok(files)
    }

    /// Fills `into` with the bytes from `offset` on.
    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Result<(), StoreError> {
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|e| StoreError(format!("the file changed or cannot be read: {e}")))
    }
}

/// A file being fetched. It is collected under another name beside its own, and is gone unless it is kept.
pub(crate) struct Part {
    path: PathBuf,
    local: PathBuf,
    file: File,
    kept: bool,
}

impl Part {
    /// Begins to collect `local`, which may exist and is then replaced.
    pub(crate) fn create(local: &Path) -> Result<Self, TransferError> {
        let refused = |code, text: String| TransferError::new(code, text);
        let shown = local.display();
        // A device or pipe would be replaced like any file.
        let special = std::fs::symlink_metadata(local)
            .is_ok_and(|there| !there.is_file() && !there.is_symlink());
        if local.is_dir() || local.file_name().is_none() || special {
            let text = format!("{shown} is no file name, or is no file");
            return Err(refused(Exit::DestError, text).fix("name the file to write"));
        }
        let mut path = local.as_os_str().to_owned();
        path.push(PART);
        let path = PathBuf::from(path);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = opened.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => refused(
                Exit::Locked,
                format!(
                    "{} exists: another run writes it, or one was ended",
                    path.display()
                ),
            )
            .fix("remove it if none does"),
            _ => refused(Exit::of_write(&e), format!("{}: {e}", path.display())),
        })?;
        Ok(Self {
            path,
            local: local.to_path_buf(),
            file,
            kept: false,
        })
    }

    /// Appends.
    fn append(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        self.file.write_all(bytes).map_err(|e| self.failed(&e))
    }

    /// Writes `bytes` from `offset` on.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), TransferError> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|e| self.failed(&e))
    }

    /// True if `bytes` are there from `offset` on.
    pub(crate) fn holds(&self, bytes: &[u8], offset: u64) -> Result<bool, TransferError> {
        let mut there = vec![0; bytes.len()];
        let read = self.file.read_exact_at(&mut there, offset);
        read.map_err(|e| self.failed(&e))?;
        Ok(there == bytes)
    }

    /// Keeps the file, which is whole: it gets its own name once it is on the disk.
    pub(crate) fn keep(mut self) -> Result<(), TransferError> {
        let synced = self.file.sync_all();
        let kept = synced.and_then(|()| std::fs::rename(&self.path, &self.local));
        self.kept = kept.is_ok();
        kept.map_err(|e| self.failed(&e))
    }

    fn failed(&self, e: &io::Error) -> TransferError {
        TransferError::new(Exit::of_write(e), format!("{}: {e}", self.path.display()))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.kept {
            // Its part is not needed any more; the failure has been reported.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Error unless `name` can be requested, in at most `most` bytes.
pub(crate) fn check_name(name: &[u8], most: usize) -> Result<(), TransferError> {
    if name.is_empty() || name.len() > most || name.contains(&0) {
        let text = format!("a name has 1 to {most} bytes, none of them zero");
        return Err(TransferError::new(Exit::Usage, text));
    }
    Ok(())
}

/// Answers one client, as `sendfile` does.
pub(crate) struct SendFile {
    shares: Arc<[Share]>,
    tell: Tell,
    asked: Vec<u8>,
    file: Option<Shared>,
    /// Answer that was given, for the last line.
    answer: Option<String>,
    since: Option<Instant>,
}

impl SendFile {
    /// Serves what the shares allow to be fetched.
    pub(crate) const fn new(shares: Arc<[Share]>, tell: Tell) -> Self {
        Self {
            shares,
            tell,
            asked: Vec::new(),
            file: None,
            answer: None,
            since: None,
        }
    }

    /// The name, once it is whole.
    fn name(&self) -> Result<Option<&[u8]>, TransferError> {
        let Some((len, rest)) = self.asked.split_first_chunk() else {
            return Ok(None);
        };
        let len = usize::try_from(i32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        if !(1..=NAME_MAX).contains(&len) || rest.len() > len {
            return Err(TransferError::protocol(
                "the requested name is not a file name",
            ));
        }
        Ok((rest.len() == len).then_some(rest))
    }

    fn answer(&mut self, session: &mut dyn Session) -> Result<(), TransferError> {
        let Some(name) = self.name()? else {
            return Ok(());
        };
        let shown = shown(name);
        match Shared::open(&self.shares, name) {
            Ok(file) => {
                let size = file.size();
                session.write(&size.to_le_bytes());
                session.send(OBJECT, 0, size);
                self.file = Some(file);
                self.answer = Some(format!("sent {shown}, {size} bytes"));
            }
            Err(e) => {
                session.write(&(-1_i64).to_le_bytes());
                self.answer = Some(format!("refused {shown}: {e}"));
            }
        }
        Ok(())
    }
}

impl Store for SendFile {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        let file = self.file.as_ref();
        let file = file.ok_or_else(|| StoreError("no file is open".into()))?;
        for extent in extents {
            file.read(&mut batch[extent.range()], extent.offset)?;
        }
        Ok(())
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError("a stream places nothing".into()))
    }
}

impl App for SendFile {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Connected { .. } => self.since = Some(now),
            Event::Readable => {
                session.read(&mut self.asked);
                if self.asked.len() > 4 + NAME_MAX || self.answer.is_some() {
                    session.close(now, Exit::Protocol.number().into(), "more than one name");
                } else if let Err(e) = self.answer(session) {
                    session.close(now, e.code.number().into(), &e.text);
                }
            }
            Event::Delivered => session.close(now, 0, "done"),
            Event::Closed(reason) => {
                let answer = self.answer.as_deref().unwrap_or("no request");
                match reason {
                    CloseReason::Local { code: 0, .. } => (self.tell)(answer),
                    other => (self.tell)(&format!("{answer}; {}", error_of(&other).text)),
                }
            }
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.next_wake().is_some_and(|at| at <= now) {
            session.close(now, Exit::Protocol.number().into(), "no request");
            self.since = None;
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let waiting = self.since.filter(|_| self.answer.is_none());
        waiting.map(|since| since + REQUEST_TIMEOUT)
    }
}

/// Fetches one file, as `recvfile` does.
pub(crate) struct RecvFile {
    name: Vec<u8>,
    part: Option<Part>,
    inbox: Vec<u8>,
    size: Option<u64>,
    got: u64,
    result: Option<Result<u64, TransferError>>,
}

impl RecvFile {
    /// Will fetch `name` to `local`, which may exist and is then replaced.
    pub(crate) fn new(name: &[u8], local: &Path) -> Result<Self, TransferError> {
        check_name(name, NAME_MAX)?;
        Ok(Self {
            name: name.to_vec(),
            part: Some(Part::create(local)?),
            inbox: Vec::new(),
            size: None,
            got: 0,
            result: None,
        })
    }

    /// Bytes fetched, or why not.
    pub(crate) fn result(mut self) -> Result<u64, TransferError> {
        let lost = || TransferError::new(Exit::ConnectionLost, "the session never ended");
        self.result.take().unwrap_or_else(|| Err(lost()))
    }

    fn take(&mut self) -> Result<bool, TransferError> {
        if self.size.is_none() {
            let Some((size, rest)) = self.inbox.split_first_chunk() else {
                return Ok(false);
            };
            let size = i64::from_le_bytes(*size);
            let name = shown(&self.name);
            self.size = Some(u64::try_from(size).map_err(|_| match size {
                -1 => {
                    TransferError::new(Exit::SourceMissing, format!("the server has no '{name}'"))
                }
                _ => TransferError::protocol(format!("'{name}' cannot have {size} bytes")),
            })?);
            let rest = rest.to_vec();
            self.inbox = rest;
        }
        let size = self.size.unwrap_or(0);
        self.got += self.inbox.len() as u64;
        if self.got > size {
            let text = format!("more than the {size} bytes that were announced");
            return Err(TransferError::protocol(text));
        }
        if let Some(part) = &mut self.part {
            part.append(&self.inbox)?;
        }
        self.inbox.clear();
        if self.got < size {
            return Ok(false);
        }
        if let Some(part) = self.part.take() {
            part.keep()?;
        }
        Ok(true)
    }

    fn end(&mut self, now: Instant, result: Result<u64, TransferError>, session: &mut dyn Session) {
        let code = result.as_ref().err().map_or(0, |e| e.code.number().into());
        let text = result.as_ref().err().map_or("done", |e| e.text.as_str());
        session.close(now, code, text);
        self.result.get_or_insert(result);
    }
}

impl Store for RecvFile {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError("a stream has no objects".into()))
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError("a stream places nothing".into()))
    }
}

impl App for RecvFile {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Connected { .. } => {
                let len = i32::try_from(self.name.len()).unwrap_or(i32::MAX);
                session.write(&len.to_le_bytes());
                session.write(&self.name);
            }
            Event::Readable if self.result.is_none() => {
                session.read(&mut self.inbox);
                match self.take() {
                    Ok(false) => {}
                    Ok(true) => self.end(now, Ok(self.got), session),
                    Err(e) => self.end(now, Err(e), session),
                }
            }
            Event::Closed(reason) if self.result.is_none() => {
                let mut error = error_of(&closed_by_server(&reason));
                if let Some(size) = self.size {
                    error.text = format!("{} after {} of {size} bytes", error.text, self.got);
                }
                error.fix = "run it again: this framing cannot be continued".into();
                self.result = Some(Err(error));
            }
            Event::Readable | Event::Delivered | Event::Closed(_) => {}
        }
    }

    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}

#[cfg(test)]
mod tests {
    use farhaul_transfer::server::Access;

    use super::*;

    fn server(folder: &Path, access: Access) -> SendFile {
        let share = Share::open("s", folder, access).unwrap();
        SendFile::new(Arc::new([share]), Arc::new(|_: &str| {}))
    }

    #[test]
    fn only_files_beneath_a_share_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("d/f"), b"12345").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        let reader = server(folder.path(), Access::Read);
        assert_eq!(Shared::open(&reader.shares, b"s/d/f").unwrap().size(), 5);
        let bad: [&[u8]; 10] = [
            b"s",
            b"s/",
            b"d/f",
            b"s/d",
            b"s/../s/d/f",
            b"/etc/passwd",
            b"s//etc/passwd",
            b"s/link",
            b"s/none",
            b"s/d/f\0",
        ];
        for name in bad {
            assert!(
                Shared::open(&reader.shares, name).is_err(),
                "{}",
                shown(name)
            );
        }
        let writer = server(folder.path(), Access::Write);
        assert!(
            Shared::open(&writer.shares, b"s/d/f").is_err(),
            "nothing may be fetched"
        );
    }

    #[test]
    fn a_name_arrives_in_pieces_and_invalid_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut end = server(folder.path(), Access::Read);
        for (piece, whole) in [(&b"\x03\0"[..], false), (b"\0\0ab", false), (b"c", true)] {
            end.asked.extend(piece);
            assert_eq!(end.name().unwrap(), whole.then_some(&b"abc"[..]));
        }
        for bad in [
            &b"\0\0\0\0"[..],
            b"\xff\xff\xff\xff",
            b"\0\x04\0\0",
            b"\x01\0\0\0ab",
        ] {
            end.asked = bad.to_vec();
            assert_eq!(end.name().unwrap_err().code, Exit::Protocol, "{bad:?}");
        }
    }

    #[test]
    fn a_file_is_taken_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("f");
        let fetch = |pieces: &[&[u8]]| {
            let mut end = RecvFile::new(b"s/f", &local).unwrap();
            let mut taken = Ok(false);
            for piece in pieces {
                end.inbox.extend(*piece);
                taken = end.take();
            }
            taken.map_err(|e| e.code)
        };
        let five = 5_i64.to_le_bytes();
        assert_eq!(fetch(&[&five, b"123"]), Ok(false));
        assert_eq!(fetch(&[&five, b"123456"]), Err(Exit::Protocol));
        assert_eq!(fetch(&[&(-1_i64).to_le_bytes()]), Err(Exit::SourceMissing));
        assert_eq!(fetch(&[&(-2_i64).to_le_bytes()]), Err(Exit::Protocol));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(fetch(&[&five[..4], &five[4..], b"123", b"45"]), Ok(true));
        assert_eq!(std::fs::read(&local).unwrap(), b"12345");
        let first = RecvFile::new(b"s/f", &local).unwrap();
        let second = RecvFile::new(b"s/f", &local).err().unwrap();
        assert_eq!(second.code, Exit::Locked);
        drop(first);
        assert_eq!(RecvFile::new(b"", &local).err().unwrap().code, Exit::Usage);
        let error = RecvFile::new(b"s/f", folder.path()).err().unwrap();
        assert_eq!(error.code, Exit::DestError);
    }
}
