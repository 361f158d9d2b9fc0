//! What of this transfer is already on disk? An append-only file beside the data says which blocks of
//! which unfinished files were complete and what their content was; the next run of the same command
//! checks that by hashing and asks only for the rest.
//!
//! - A record is `u32 length, body, first 8 bytes of BLAKE3(body)`; reading stops at the first record
//!   that does not check, and the file is cut there.
//! - The journal is locked while its transfer lives; its first record of a run names the holder.
//! - A claim is never believed without hashing, so nothing here needs to be synced.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    sync::Arc,
};

use farhaul_core::codec::{DecodeError, Reader, Writer};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::{
    confine::{self, Dir},
    digest::Hash,
    error::{Code, TransferError},
    path::{self, Tag},
    sender::Identity,
};

const CHECK: usize = 8;
/// Longest body: a path and a few numbers.
const MAX_BODY: usize = path::PATH_MAX + 64;
const HOLDER: u8 = 1;
const FILE: u8 = 2;
const BLOCK: u8 = 3;
const FORGET: u8 = 4;

/// What an earlier run says it has of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) identity: Identity,
    pub(crate) blocks: BTreeMap<u64, Hash>,
}

/// The journal of one transfer, locked.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: Dir,
    name: Vec<u8>,
    file: File,
    claims: BTreeMap<Vec<u8>, Claim>,
    /// Files with a part on disk.
    live: BTreeSet<u64>,
    next: u64,
    buffer: Vec<u8>,
}

impl Journal {
    /// Opens or makes the journal of transfer `tag` in `dir`, and locks it.
    pub(crate) fn open(dir: &Dir, tag: Tag) -> Result<Self, TransferError> {
        let name = path::journal_name(tag);
        let file = lock(dir, &name)?;
        let mut journal = Self {
            dir: Arc::clone(dir),
            name,
            file,
            claims: BTreeMap::new(),
            live: BTreeSet::new(),
            next: 0,
            buffer: Vec::new(),
        };
        journal.load().map_err(|e| cannot("read the journal", &e))?;
        let host = rustix::system::uname();
        let holder = format!(
            "pid {} on {}",
            std::process::id(),
            host.nodename().to_string_lossy()
        );
        put_record(&mut journal.buffer, HOLDER, |w| {
            w.put(&holder.as_bytes()[..holder.len().min(300)]).is_ok()
        });
        journal
            .flush()
            .map_err(|e| cannot("write the journal", &e))?;
        Ok(journal)
    }

    fn load(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes)?;
        let contents = Contents::read(&bytes);
        self.next = contents.next();
        self.claims = contents.claims;
        self.file.set_len(contents.good as u64)?;
        self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }

    /// What an earlier run claims of the file at `name`, if it was the same file.
    pub(crate) fn claim(&mut self, name: &[u8], identity: Identity) -> Option<BTreeMap<u64, Hash>> {
        let claim = self.claims.remove(name)?;
        (claim.identity == identity).then_some(claim.blocks)
    }

    /// Starts to record the file at `name`; returns its number here.
    pub(crate) fn begin(&mut self, name: &[u8], identity: Identity) -> u64 {
        let number = self.next;
        self.next += 1;
        self.live.insert(number);
        put_file(&mut self.buffer, number, name, identity);
        number
    }

    /// Block `index` is complete with this value.
    pub(crate) fn block(&mut self, number: u64, index: u64, value: &Hash) {
        put_block(&mut self.buffer, number, index, value);
    }

    /// The file is over, its part gone.
    pub(crate) fn forget(&mut self, number: u64) {
        self.live.remove(&number);
        put_record(&mut self.buffer, FORGET, |w| w.varint(number).is_ok());
    }

    /// Hands what was appended to the system.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written
    }

    /// True if some file can be continued by a later run.
    pub(crate) fn is_needed(&self) -> bool {
        !self.live.is_empty() || !self.claims.is_empty()
    }

    /// Claims nobody asked for: parts of files that are no longer among the sources.
    pub(crate) fn unclaimed(&self) -> impl Iterator<Item = &[u8]> {
        self.claims.keys().map(Vec::as_slice)
    }

    /// Drops the claims nobody asked for, once their parts are gone.
    pub(crate) fn drop_unclaimed(&mut self) {
        self.claims.clear();
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A journal that says nothing only clutters; if it cannot be written or removed, the next run
        // reads it and starts over.
        let _later = self.flush();
        if !self.is_needed() {
            let _cluttered =
                rustix::fs::unlinkat(&self.dir, self.name.as_slice(), AtFlags::empty());
        }
    }
}

fn cannot(what: &str, e: &io::Error) -> TransferError {
    TransferError::new(
        Code::of_write(e),
        format!("cannot {what} at the destination: {e}"),
    )
    .fix("choose a destination that can be written")
}

/// Opens and locks; the loser of a race for a removed journal tries again.
fn lock(dir: &Dir, name: &[u8]) -> Result<File, TransferError> {
    loop {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))
            .map_err(|e| cannot("write", &e.into()))?;
        let mut file = File::from(fd);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(&mut file)),
            Err(TryLockError::Error(e)) => return Err(cannot("lock the journal", &e)),
        }
        let ours = rustix::fs::fstat(&file).map_err(|e| cannot("read the journal", &e.into()))?;
        match confine::stat(dir, name) {
            Ok(Some(there)) if there.st_ino == ours.st_ino => return Ok(file),
            Ok(_) => {}
            Err(e) => return Err(cannot("read the journal", &e)),
        }
    }
}

fn locked(file: &mut File) -> TransferError {
    let mut bytes = Vec::new();
    let read = file.read_to_end(&mut bytes).is_ok();
    let mut holder = String::from("another run");
    let mut r = Reader::new(&bytes);
    while let Ok(body) = record(&mut r) {
        if read && body.first() == Some(&HOLDER) {
            holder = path::show(&body[1..]);
        }
    }
    TransferError::new(
        Code::Locked,
        format!("the destination is being written by {holder}"),
    )
    .fix("wait for it to end, or stop it; the files it completed will not be sent again")
}

/// What the bytes of a journal say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    claims: BTreeMap<Vec<u8>, Claim>,
    /// Names by number.
    names: BTreeMap<u64, Vec<u8>>,
    /// Bytes up to the end of the last record that checks.
    good: usize,
}

impl Contents {
    fn read(bytes: &[u8]) -> Self {
        let mut contents = Self::default();
        let mut r = Reader::new(bytes);
        while let Ok(body) = record(&mut r) {
            if contents.apply(body).is_err() {
                break;
            }
            contents.good = bytes.len() - r.rest().len();
        }
        contents
    }

    /// The first number that no file has.
    fn next(&self) -> u64 {
        self.names.last_key_value().map_or(0, |(n, _)| n + 1)
    }

    fn apply(&mut self, body: &[u8]) -> Result<(), DecodeError> {
        let mut r = Reader::new(body);
        match r.u8()? {
            FILE => {
                let number = r.varint()?;
                let identity = Identity {
                    size: r.varint()?,
                    mtime: r.u64()?.cast_signed(),
                    mtime_nanos: r.u32()?,
                };
                let name = r.rest().to_vec();
                let claim = self.claims.entry(name.clone()).or_insert_with(|| Claim {
                    identity,
                    blocks: BTreeMap::new(),
                });
                // A run that ended before it had checked what the one before left takes nothing away.
                if claim.identity != identity {
                    claim.identity = identity;
                    claim.blocks.clear();
                }
                self.names.insert(number, name);
            }
            BLOCK => {
                let (number, index) = (r.varint()?, r.varint()?);
                let value = r.take(32)?.try_into().map_err(|_| DecodeError::Truncated)?;
                let name = self.names.get(&number);
                if let Some(claim) = name.and_then(|n| self.claims.get_mut(n)) {
                    claim.blocks.insert(index, value);
                }
            }
            FORGET => {
                let number = r.varint()?;
                if let Some(name) = self.names.get(&number) {
                    self.claims.remove(name);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn record<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = r.u32()? as usize;
    if len > MAX_BODY {
        return Err(DecodeError::Malformed("journal record"));
    }
    let body = r.take(len)?;
    if r.take(CHECK)? == &blake3::hash(body).as_bytes()[..CHECK] {
        Ok(body)
    } else {
        Err(DecodeError::Malformed("journal record"))
    }
}

fn put_record(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Writer<'_>) -> bool) {
    let mut space = [0; MAX_BODY];
    let mut w = Writer::new(&mut space);
    let fits = w.u8(kind).is_ok() && body(&mut w);
    debug_assert!(fits, "names are bounded");
    let len = w.len();
    let body = &space[..len];
    out.extend_from_slice(&u32::try_from(len).unwrap_or_default().to_be_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&blake3::hash(body).as_bytes()[..CHECK]);
}

fn put_file(out: &mut Vec<u8>, number: u64, name: &[u8], identity: Identity) {
    put_record(out, FILE, |w| {
        w.varint(number).is_ok()
            && w.varint(identity.size).is_ok()
            && w.put(&identity.mtime.to_be_bytes()).is_ok()
            && w.u32(identity.mtime_nanos).is_ok()
            && w.put(name).is_ok()
    });
}

fn put_block(out: &mut Vec<u8>, number: u64, index: u64, value: &Hash) {
    put_record(out, BLOCK, |w| {
        w.varint(number).is_ok() && w.varint(index).is_ok() && w.put(value).is_ok()
    });
}

/// Reads arbitrary bytes as a journal; what they claim must survive being recorded anew. For fuzzing.
#[doc(hidden)]
pub fn fuzz_journal(bytes: &[u8]) {
    let contents = Contents::read(bytes);
    assert_eq!(Contents::read(&bytes[..contents.good]), contents);
    let mut again = Vec::new();
    for (name, claim) in &contents.claims {
        // One number for all: a number means what it was last given to.
        put_file(&mut again, 0, name, claim.identity);
        for (index, value) in &claim.blocks {
            put_block(&mut again, 0, *index, value);
        }
    }
    let twin = Contents::read(&again);
    assert_eq!((twin.claims, twin.good), (contents.claims, again.len()));
}

/// The same behind lengths and checks that are right, which a fuzzer does not find by itself: records
/// are cut out of `bytes`, each after its length in one byte. For fuzzing.
#[doc(hidden)]
pub fn fuzz_journal_records(bytes: &[u8]) {
    let (mut r, mut journal) = (Reader::new(bytes), Vec::new());
    while let Ok(kind) = r.u8() {
        let len = r.u8().map_or(0, usize::from).min(r.rest().len());
        let body = r.take(len).unwrap_or_default();
        put_record(&mut journal, kind, |w| w.put(body).is_ok());
    }
    fuzz_journal(&journal);
}

#[cfg(test)]
mod tests;
