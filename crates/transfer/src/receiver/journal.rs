//! Journal of a transfer: an append-only file beside the data. The journal records which blocks of
//! which unfinished files were complete, and what their content was. The next run of the same
//! command checks those blocks by hashing and requests only the rest.
//!
//! - A record is `u32 length, body, first 8 bytes of BLAKE3(body)`. Reading stops at the first
//!   record that does not check, and the journal is cut there.
//! - The journal is locked while its transfer lives; its first record of a run names the holder.
//! - A claim is never trusted without hashing, so nothing here needs to be synced.
//! - Claims beyond some bounds are not kept: their content is sent again.
//! - Hashing reads through the page cache, which may contain what the disk does not have once a
//!   sync has failed. So the journal records a failed sync: no claim from before is valid. Small
//!   files that were named since the last sync are then sent again whatever they look like. If the
//!   journal says neither that the sync failed nor that it succeeded, those small files are read
//!   past the cache.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufReader, Read},
    sync::Arc,
};

use farhaul_core::codec::{DecodeError, Reader, VARINT_MAX, Writer};
use rustix::fs::OFlags;

use super::lock::{Lock, cannot};
use crate::{
    bounds,
    confine::{self, Dir},
    disk::File,
    error::TransferError,
    sender::Identity,
    state_names, stripe,
    wire::{
        self, Hash,
        path::{self, Own, Tag},
    },
};

const CHECK: usize = 8;
/// Longest body: a path and a few numbers.
const MAX_BODY: usize = path::PATH_MAX + 64;
/// Longest journal that is read: the claims of some 20 TB.
const MOST: u64 = 1 << 30;
const HOLDER: u8 = 1;
const FILE: u8 = 2;
const BLOCK: u8 = 3;
const FORGET: u8 = 4;
const NAMED: u8 = 5;
const SYNCED: u8 = 6;
const UNSYNCED: u8 = 7;
/// Identity that no file has.
const VOID: Identity = Identity {
    size: VARINT_MAX,
    mtime: i64::MIN,
    mtime_nanos: u32::MAX,
};
/// Names per record, 8 bytes each.
const NAMES: usize = 256;

/// The claims of an earlier run on one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) identity: Identity,
    pub(crate) blocks: BTreeMap<u64, Hash>,
    /// Blocks that are kept of it.
    room: usize,
}

/// Number of blocks that may be claimed of this file.
type Room<'a> = &'a dyn Fn(&[u8], Identity) -> usize;

impl Claim {
    /// Voids the claim, but that there may be a part.
    fn void(&mut self) {
        self.blocks.clear();
        self.identity = VOID;
    }
}

/// Names of files, by [`short_name`]; of too many, all there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    some: BTreeSet<u64>,
    all: bool,
}

impl Names {
    fn add(&mut self, name: u64) {
        if self.some.len() < bounds::NAMED {
            self.some.insert(name);
        } else {
            self.all |= !self.some.contains(&name);
        }
    }

    fn append(&mut self, other: Self) {
        self.all |= other.all;
        other.some.into_iter().for_each(|name| self.add(name));
    }

    fn has(&self, path: &[u8]) -> bool {
        self.all || !self.some.is_empty() && self.some.contains(&short_name(path))
    }

    fn is_empty(&self) -> bool {
        !self.all && self.some.is_empty()
    }
}

/// The journal of one transfer.
#[derive(Debug)]
pub(crate) struct Journal {
    lock: Arc<Lock>,
    claims: BTreeMap<Vec<u8>, Claim>,
    /// Files that an earlier run named whose sync failed.
    suspects: Names,
    /// Names of files whose sync the earlier run did not live to see.
    unsure: Names,
    /// Suspects that this run named again, without a wish to have them on the disk.
    settled: BTreeSet<u64>,
    /// True if files were named and not synced.
    unsynced: bool,
    /// Files with a part on disk.
    live: BTreeSet<u64>,
    next: u64,
    /// Bytes of the file.
    len: u64,
    buffer: Vec<u8>,
}

impl Journal {
    /// Opens or makes the journal of transfer `tag` in `dir`, and locks it.
    pub(crate) fn open(dir: &Dir, tag: Tag) -> Result<Self, TransferError> {
        Self::open_with(dir, tag, &|name, identity| room(dir, tag, name, identity))
    }

    fn open_with(dir: &Dir, tag: Tag, room: Room<'_>) -> Result<Self, TransferError> {
        let lock = Arc::new(Lock::take(dir, tag)?);
        let mut journal = Self {
            lock,
            claims: BTreeMap::new(),
            suspects: Names::default(),
            unsure: Names::default(),
            settled: BTreeSet::new(),
            unsynced: false,
            live: BTreeSet::new(),
            next: 0,
            len: 0,
            buffer: Vec::new(),
        };
        let loaded = journal.load(room);
        loaded.map_err(|e| cannot("read the journal", &e))?;
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

    fn load(&mut self, room: Room<'_>) -> io::Result<()> {
        let file = self.lock.file();
        let contents = Contents::read(file.reader(), room)?;
        self.next = contents.next;
        self.claims = contents.claims;
        self.suspects = contents.suspects;
        self.unsynced = !contents.named.is_empty();
        self.unsure = contents.named;
        file.set_len(contents.good)?;
        self.len = contents.good;
        Ok(())
    }

    pub(crate) const fn lock(&self) -> &Arc<Lock> {
        &self.lock
    }

    /// Claim of an earlier run on the file at `name`, if it was the same file.
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

    /// Records that block `index` is complete with this value.
    pub(crate) fn block(&mut self, number: u64, index: u64, value: &Hash) {
        put_block(&mut self.buffer, number, index, value);
    }

    /// Records that the file is over, its part gone.
    pub(crate) fn forget(&mut self, number: u64) {
        self.live.remove(&number);
        put_record(&mut self.buffer, FORGET, |w| w.varint(number).is_ok());
    }

    /// Records files that are about to get their names, and are not synced.
    pub(crate) fn named<'a>(&mut self, paths: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        let names: Vec<u64> = paths.map(short_name).collect();
        self.put_named(&names);
        self.flush()?;
        self.unsynced = true;
        for name in &names {
            self.suspects.some.remove(name);
            self.unsure.some.remove(name);
        }
        Ok(())
    }

    fn put_named(&mut self, names: &[u64]) {
        for names in names.chunks(NAMES) {
            put_record(&mut self.buffer, NAMED, |w| {
                names.iter().all(|n| w.put(&n.to_be_bytes()).is_ok())
            });
        }
    }

    /// Records files that are about to get their names in a run that does not sync.
    pub(crate) fn named_for_now<'a>(&mut self, paths: impl Iterator<Item = &'a [u8]>) {
        let suspects = &self.suspects.some;
        let again = paths.map(short_name).filter(|n| suspects.contains(n));
        self.settled.extend(again);
    }

    /// Ends a run without sync: names of this run, and of those before, are no longer checked
    /// against the disk.
    pub(crate) fn settle(&mut self) {
        let settled = std::mem::take(&mut self.settled);
        self.suspects.some.retain(|name| !settled.contains(name));
        self.unsure = Names::default();
        self.unsynced = false;
    }

    /// True if the file of this name may be in the page cache only, whatever its content.
    pub(crate) fn is_suspect(&self, path: &[u8]) -> bool {
        self.suspects.has(path)
    }

    /// True if a run named this file and ended before it was synced. If the disk failed, another
    /// process that synced that disk may have consumed the error.
    pub(crate) fn is_unsure(&self, path: &[u8]) -> bool {
        self.unsure.has(path)
    }

    /// Records that the disk has the file of this path.
    pub(crate) fn found(&mut self, path: &[u8]) {
        for names in [&mut self.unsure.some, &mut self.suspects.some] {
            if !names.is_empty() {
                names.remove(&short_name(path));
            }
        }
    }

    /// Records that a sync has failed.
    pub(crate) fn sync_failed(&mut self) -> io::Result<()> {
        put_record(&mut self.buffer, UNSYNCED, |_| true);
        self.flush()
    }

    /// Records that everything was synced that this run named. Names of an earlier run that this
    /// one did not check are forgotten only if nothing failed: they are no longer among the
    /// sources.
    pub(crate) fn synced(&mut self, complete: bool) -> io::Result<()> {
        if complete && self.suspects.all {
            self.suspects = Names::default();
        }
        let left = std::mem::take(&mut self.unsure);
        self.unsynced = !complete && !left.is_empty();
        if self.unsynced && left.all {
            // They cannot be distinguished one by one.
            return self.flush();
        }
        put_record(&mut self.buffer, SYNCED, |_| true);
        if self.unsynced {
            let left: Vec<u64> = left.some.into_iter().collect();
            self.put_named(&left);
        }
        self.flush()
    }

    /// Hands what was appended to the system. What cannot be written is dropped, and so is the beginning
    /// of it that was: what follows could not be read behind it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let file = self.lock.file();
        let written = file.write_all_at(&self.buffer, self.len);
        let len = self.buffer.len() as u64;
        self.buffer.clear();
        if let Err(e) = written {
            file.set_len(self.len)?;
            return Err(e);
        }
        self.len += len;
        Ok(())
    }

    /// True if a later run should know something.
    pub(crate) fn is_needed(&self) -> bool {
        let files = !self.live.is_empty() || !self.claims.is_empty();
        files || self.unsynced || !self.suspects.is_empty()
    }

    /// Unused claims: parts of files that are no longer among the sources.
    pub(crate) fn unclaimed(&self) -> impl Iterator<Item = &[u8]> {
        self.claims.keys().map(Vec::as_slice)
    }

    /// Drops unused claims, except those whose parts are `left`.
    pub(crate) fn drop_unclaimed(&mut self, left: &[Vec<u8>]) {
        self.claims.retain(|name, _| left.contains(name));
    }

    /// The part of the file at `name` could not be removed, and is of no use.
    pub(crate) fn left(&mut self, name: &[u8]) {
        self.begin(name, VOID);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // What cannot be written is sent again by the next run.
        let _later = self.flush();
        self.lock.set_idle(!self.is_needed());
    }
}

/// The parsed content of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    claims: BTreeMap<Vec<u8>, Claim>,
    /// Names by number.
    names: BTreeMap<u64, Vec<u8>>,
    /// Files that were named since the last sync that succeeded.
    named: Names,
    /// Files whose sync failed.
    suspects: Names,
    /// Memory that the names cost, bytes, and the blocks claimed.
    charged: usize,
    blocks: usize,
    /// The first number that no file has.
    next: u64,
    /// Bytes up to the end of the last record that checks.
    good: u64,
}

impl Contents {
    fn read(from: impl Read, room: Room<'_>) -> io::Result<Self> {
        let mut contents = Self::default();
        contents.good = records(from, |body| contents.apply(body, room).is_ok())?;
        Ok(contents)
    }

    /// Notes that a file was begun. Of too many the later ones are not remembered.
    fn begin(&mut self, number: u64, name: &[u8], identity: Identity, room: Room<'_>) {
        self.next = self.next.max(number.saturating_add(1));
        self.drop_name(number);
        let charge = bounds::charge_of(name.len());
        if self.charged + charge > bounds::CLAIMS {
            return self.drop_claim(name);
        }
        self.charged += charge;
        self.names.insert(number, name.to_vec());
        let claim = self.claims.entry(name.to_vec());
        let claim = claim.or_insert_with(|| Claim {
            identity,
            blocks: BTreeMap::new(),
            room: room(name, identity),
        });
        // A run that ended before it had checked what the one before left takes nothing away.
        if claim.identity != identity {
            claim.identity = identity;
            claim.room = room(name, identity);
            self.blocks -= std::mem::take(&mut claim.blocks).len();
        }
    }

    fn drop_name(&mut self, number: u64) -> Option<Vec<u8>> {
        let name = self.names.remove(&number)?;
        self.charged -= bounds::charge_of(name.len());
        Some(name)
    }

    fn drop_claim(&mut self, name: &[u8]) {
        let gone = self.claims.remove(name);
        self.blocks -= gone.map_or(0, |claim| claim.blocks.len());
    }

    fn apply(&mut self, body: &[u8], room: Room<'_>) -> Result<(), DecodeError> {
        let mut r = Reader::new(body);
        match r.u8()? {
            FILE => {
                let number = r.varint()?;
                let identity = Identity {
                    size: r.varint()?,
                    mtime: r.u64()?.cast_signed(),
                    mtime_nanos: r.u32()?,
                };
                self.begin(number, r.rest(), identity, room);
            }
            BLOCK => {
                let (number, index) = (r.varint()?, r.varint()?);
                let value = r.take(32)?.try_into().map_err(|_| DecodeError::Truncated)?;
                let name = self.names.get(&number);
                if let Some(claim) = name.and_then(|n| self.claims.get_mut(n))
                    && claim.blocks.len() < claim.room
                    && self.blocks < bounds::CLAIMED
                {
                    self.blocks += usize::from(claim.blocks.insert(index, value).is_none());
                }
            }
            NAMED => {
                let (names, []) = r.rest().as_chunks() else {
                    return Err(DecodeError::Malformed("names"));
                };
                for name in names {
                    self.named.add(u64::from_be_bytes(*name));
                }
            }
            UNSYNCED => {
                self.suspects.append(std::mem::take(&mut self.named));
                self.claims.values_mut().for_each(Claim::void);
                self.blocks = 0;
            }
            SYNCED => {
                for name in std::mem::take(&mut self.named).some {
                    self.suspects.some.remove(&name);
                }
            }
            FORGET => {
                let number = r.varint()?;
                if let Some(name) = self.drop_name(number) {
                    self.drop_claim(&name);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The name of the part of the file at `path` below `root`, beside it. For a stripe the journal has
/// the name of the file in which it is collected. That file is known by its content: a user's file
/// may have such a name.
pub(super) fn part_of(root: &Dir, tag: Tag, path: &[u8]) -> Vec<u8> {
    let name = path::split(path).1;
    let stripes = matches!(Own::of(name), Some(Own::Stripes(_)))
        && confine::open_to_read(root, path).is_ok_and(|file| stripe::is_collected(&file));
    if stripes {
        name.to_vec()
    } else {
        state_names::part_name(name, tag)
    }
}

/// Number of blocks that may be claimed of this file: in proportion to what its part stores,
/// whatever the journal says. A file system that compresses stores less than was written.
fn room(dir: &Dir, tag: Tag, path: &[u8], identity: Identity) -> usize {
    let part = part_of(dir, tag, path);
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let there = confine::open_beneath(dir, path::split(path).0, flags)
        .and_then(|dir| confine::stat(&dir, &part));
    match there {
        Ok(Some(stat)) if stat.st_size.cast_unsigned() >= identity.size => {
            let stored = stat.st_blocks.cast_unsigned().saturating_mul(512) / wire::BLOCK;
            usize::try_from(stored.saturating_mul(4).saturating_add(16)).unwrap_or(usize::MAX)
        }
        _ => 0,
    }
}

/// Shows the bodies of the records that check to `each`. Ends at the first that does not check or
/// that `each` declines, or when the journal is too long to be one. Returns the end of the last
/// record that `each` took.
pub(super) fn records(from: impl Read, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<u64> {
    let mut from = BufReader::new(from.take(MOST));
    let (mut good, mut body, mut check) = (0, Vec::new(), [0; CHECK]);
    let mut next = |body: &mut Vec<u8>| -> io::Result<Option<u64>> {
        let mut len = [0; 4];
        from.read_exact(&mut len)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > MAX_BODY {
            return Ok(None);
        }
        body.resize(len, 0);
        from.read_exact(body)?;
        from.read_exact(&mut check)?;
        let checks = check[..] == blake3::hash(body).as_bytes()[..CHECK];
        Ok(checks.then_some((4 + len + CHECK) as u64))
    };
    loop {
        match next(&mut body) {
            Ok(Some(len)) if each(&body) => good += len,
            Ok(_) => return Ok(good),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(good),
            Err(e) => return Err(e),
        }
    }
}

/// True if `file` begins as a journal does: a file of the user's may have the name of one.
pub(crate) fn is_journal(file: &File) -> bool {
    let mut begins = false;
    let read = records(file.reader(), |body| {
        begins = holder(body).is_some();
        false
    });
    read.is_ok() && begins
}

/// Hash of a path; of two with the same value one may be sent needlessly.
fn short_name(path: &[u8]) -> u64 {
    let mut name = [0; 8];
    name.copy_from_slice(&blake3::hash(path).as_bytes()[..8]);
    u64::from_be_bytes(name)
}

/// The process of a run, if the record has it.
pub(super) fn holder(body: &[u8]) -> Option<&[u8]> {
    body.split_first()
        .filter(|(k, _)| **k == HOLDER)
        .map(|(_, name)| name)
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
    let read = |bytes: &[u8]| Contents::read(bytes, &|_, _| usize::MAX).unwrap_or_default();
    let contents = read(bytes);
    let good = usize::try_from(contents.good).unwrap_or(usize::MAX);
    assert_eq!(read(&bytes[..good]), contents);
    let mut again = Vec::new();
    for (name, claim) in &contents.claims {
        // One number for all: a number means what it was last given to.
        put_file(&mut again, 0, name, claim.identity);
        for (index, value) in &claim.blocks {
            put_block(&mut again, 0, *index, value);
        }
    }
    let twin = read(&again);
    assert_eq!(
        (twin.claims, twin.good),
        (contents.claims, again.len() as u64)
    );
}

/// Reads records behind lengths and checks that are right, which a fuzzer does not find by itself.
/// The records are cut out of `bytes`, each after its length in one byte. For fuzzing.
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

/// Opens a journal as a transfer under way has it.
#[cfg(test)]
pub(crate) fn open_journal(dir: &Dir, tag: Tag) -> impl Drop + use<> {
    Journal::open(dir, tag).expect("a journal can be made")
}

#[cfg(test)]
mod tests;
