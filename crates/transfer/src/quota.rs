//! Quota of a share. Its content is counted as `du` counts, in blocks, and at least one block for
//! each file, folder and link. On top come the promises to deliveries, and what has arrived since
//! the count.
//!
//! - No byte is promised to two deliveries. Content that arrives during a count may count twice
//!   until the next one, and what is still in memory then not at all. The end of the delivery
//!   brings another count.
//! - A folder that this process may not read does not count, which is said; deliveries of strangers make none.
//! - A peer is not believed: what arrives beyond what it declared is checked as it arrives.

use std::{
    collections::HashSet,
    io, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use farhaul_core::units::Size;
use rustix::{
    fs::{FileType, OFlags, Stat},
    io::Errno,
};

use crate::{confine::Dir, disk::File, names::Cursor};

/// Bytes of a block: the space of a file is a multiple of them, on most file systems.
const UNIT: u64 = 4096;

/// Message about a file for which no room will ever be free.
pub(crate) const NEVER: &str = "more than the share's quota";

/// The quota of one share.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    limit: u64,
    usage: Arc<Usage>,
}

/// Space and entries of a folder.
#[derive(Debug)]
struct Usage {
    root: Dir,
    /// Bytes in it when they were last counted.
    counted: AtomicU64,
    /// Folders that could not be read then.
    closed: AtomicU64,
    /// Bytes that have arrived since.
    arrived: AtomicU64,
    /// Bytes that deliveries may still bring.
    held: AtomicU64,
    counting: Mutex<Counting>,
}

/// Progress of a count.
#[derive(Debug, Default)]
struct Counting {
    busy: bool,
    /// True if something changed since the count began, which it may have missed.
    again: bool,
}

impl Quota {
    /// Counts the content beneath `root`.
    pub(crate) fn new(root: Dir, limit: u64) -> io::Result<Self> {
        let counted = count(&root)?;
        let usage = Arc::new(Usage {
            root,
            counted: AtomicU64::new(counted.bytes),
            closed: AtomicU64::new(counted.closed),
            arrived: AtomicU64::new(0),
            held: AtomicU64::new(0),
            counting: Mutex::default(),
        });
        Ok(Self { limit, usage })
    }

    /// Takes over what deliveries under `earlier` hold; true if it is for the same folder.
    pub(crate) fn succeed(&mut self, earlier: &Self) -> bool {
        let folder = |quota: &Self| quota.usage.root.stat().map(|s| (s.st_dev, s.st_ino));
        let (Ok(a), Ok(b)) = (folder(self), folder(earlier)) else {
            return false;
        };
        if a == b {
            let counted = mem::replace(&mut self.usage, Arc::clone(&earlier.usage));
            let closed = counted.closed.load(SeqCst);
            self.usage.closed.store(closed, SeqCst);
            self.usage.recount();
        }
        a == b
    }

    /// Folders in which nothing counts, since they could not be read.
    pub(crate) fn closed(&self) -> u64 {
        self.usage.closed.load(SeqCst)
    }

    /// Bytes that nothing has been promised of.
    pub(crate) fn room(&self) -> u64 {
        self.limit.saturating_sub(self.usage.all())
    }

    /// Gives back what a removed entry took. During a count that waits for another count: what the first
    /// one has seen is not known.
    pub(crate) fn free(&self, removed: &Stat) {
        let mut counting = self.usage.counting();
        if counting.busy {
            counting.again = true;
            return;
        }
        let bytes = taken(removed);
        let counted = self.usage.counted.load(SeqCst);
        let rest = bytes.saturating_sub(counted);
        self.usage
            .counted
            .store(counted.saturating_sub(bytes), SeqCst);
        // No count runs, which would subtract from it.
        let less = |arrived: u64| Some(arrived.saturating_sub(rest));
        let _before = self.usage.arrived.fetch_update(SeqCst, SeqCst, less);
    }

    /// Highest number of bytes that may lie in the folder.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }
}

impl Usage {
    fn all(&self) -> u64 {
        let stored = self
            .counted
            .load(SeqCst)
            .saturating_add(self.arrived.load(SeqCst));
        stored.saturating_add(self.held.load(SeqCst))
    }

    fn counting(&self) -> MutexGuard<'_, Counting> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts again, on a thread of its own; once more if one is at it.
    fn recount(self: &Arc<Self>) {
        let mut counting = self.counting();
        if mem::replace(&mut counting.busy, true) {
            counting.again = true;
            return;
        }
        drop(counting);
        let usage = Arc::clone(self);
        let started = thread::Builder::new().name("quota".into()).spawn(move || {
            loop {
                let before = usage.arrived.load(SeqCst);
                // If it cannot be counted, what was counted and has arrived stands.
                if let Ok(counted) = count(&usage.root) {
                    usage.counted.store(counted.bytes, SeqCst);
                    usage.closed.store(counted.closed, SeqCst);
                    usage.arrived.fetch_sub(before, SeqCst);
                }
                let mut counting = usage.counting();
                if !mem::take(&mut counting.again) {
                    counting.busy = false;
                    return;
                }
            }
        });
        if started.is_err() {
            *self.counting() = Counting::default();
        }
    }
}

/// Bytes that an entry takes.
fn taken(stat: &Stat) -> u64 {
    let blocks = u64::try_from(stat.st_blocks).unwrap_or_default();
    blocks.saturating_mul(512).max(UNIT)
}

/// Count of a folder's content.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    bytes: u64,
    /// Folders that may not be read.
    closed: u64,
}

/// Files beneath `root`, each once whatever names it has, which links do not lead out of. What vanishes meanwhile is not counted, nor what this
/// process may not read: one such folder does not end the share.
fn count(root: &File) -> io::Result<Counted> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let open = |dir: &File, name: &[u8], held: usize| -> rustix::io::Result<(File, Cursor)> {
        let dir = dir.openat(name, flags)?;
        let names = Cursor::within(&dir, held)?;
        Ok((dir, names))
    };
    let mut counted = Counted::default();
    let mut several_names = HashSet::new();
    let mut open_folders = vec![open(root, b".", 0)?];
    loop {
        let held = open_folders.iter().map(|(_, names)| names.size()).sum();
        let Some((dir, names)) = open_folders.last_mut() else {
            return Ok(counted);
        };
        let Some(name) = names.next(dir)? else {
            open_folders.pop();
            continue;
        };
        let below = dir.statat(name).and_then(|stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            let again = kind == FileType::RegularFile
                && stat.st_nlink > 1
                && !several_names.insert((stat.st_dev, stat.st_ino));
            if !again {
                counted.bytes = counted.bytes.saturating_add(taken(&stat));
            }
            (kind == FileType::Directory)
                .then(|| open(dir, name, held))
                .transpose()
        });
        match below {
            Ok(below) => open_folders.extend(below),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(Errno::ACCESS | Errno::PERM) => counted.closed += 1,
            Err(e) => return Err(e.into()),
        }
    }
}

/// Part of a quota that one delivery takes. Bytes that the delivery was promised and did not bring
/// are free again when it ends.
#[derive(Debug)]
pub(crate) struct Claim {
    quota: Quota,
    held: u64,
    /// True if something arrived or was refused: the next count may differ.
    moved: bool,
}

impl Claim {
    pub(crate) const fn new(quota: Quota) -> Self {
        Self {
            quota,
            held: 0,
            moved: false,
        }
    }

    /// Promises room for a file of `need` more bytes; why there is none, otherwise.
    pub(crate) fn hold(&mut self, need: u64) -> Result<(), String> {
        let held = &self.quota.usage.held;
        // What a peer declares is no number to overflow by, and a file of nothing but holes may get some content.
        let need = need.max(1).checked_next_multiple_of(UNIT);
        let need = need.unwrap_or(u64::MAX);
        if need <= self.quota.limit {
            held.fetch_add(need, SeqCst);
            if self.quota.usage.all() <= self.quota.limit {
                self.held += need;
                return Ok(());
            }
            held.fetch_sub(need, SeqCst);
        }
        self.moved = true;
        Err(self.lacks(need))
    }

    /// Promises room for one more folder or link; why there is none, otherwise.
    pub(crate) fn hold_inode(&mut self) -> Result<(), String> {
        self.hold(UNIT)
    }

    /// Ends [`Self::hold_inode`]: the folder or link was `made` and counts, or its room is free again.
    pub(crate) fn settle_inode(&mut self, made: bool) {
        let usage = &self.quota.usage;
        if made {
            self.moved = true;
            usage.arrived.fetch_add(UNIT, SeqCst);
        }
        self.held -= UNIT;
        usage.held.fetch_sub(UNIT, SeqCst);
    }

    /// Counts `bytes` that arrived; an error says why they are too many.
    pub(crate) fn arrive(&mut self, bytes: u64) -> Result<(), String> {
        let promised = bytes.min(self.held);
        self.held -= promised;
        self.moved = true;
        let usage = &self.quota.usage;
        // In this order it is never too little.
        usage.arrived.fetch_add(bytes, SeqCst);
        usage.held.fetch_sub(promised, SeqCst);
        if bytes > promised && usage.all() > self.quota.limit {
            return Err(self.lacks(bytes - promised));
        }
        Ok(())
    }

    fn lacks(&self, need: u64) -> String {
        let never = need > self.quota.limit;
        let [need, room, limit] = [need, self.quota.room(), self.quota.limit].map(Size::from_bytes);
        if never {
            return format!("needs {need}, {NEVER} of {limit}");
        }
        format!("needs {need}, {room} of the share's quota of {limit} are free")
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let held = mem::take(&mut self.held);
        self.quota.usage.held.fetch_sub(held, SeqCst);
        if self.moved {
            self.quota.usage.recount();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use super::*;
    use crate::{
        confine::open_root,
        disk::{Answer, Call, Disk, Interposer},
    };

    #[test]
    fn what_lies_in_folders_counts_and_what_links_lead_to_does_not() {
        let tmp = tempfile::tempdir().unwrap();
        let (root, out) = (tmp.path().join("root"), tmp.path().join("out"));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(&out).unwrap();
        std::fs::write(out.join("big"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(&out, root.join("a/link")).unwrap();
        std::os::unix::fs::symlink(out.join("big"), root.join("file-link")).unwrap();
        for name in ["x", "a/x", "a/b/x"] {
            std::fs::write(root.join(name), vec![1; 8192]).unwrap();
        }
        let counted = count(&open_root(&root).unwrap()).unwrap();
        // Two folders and two links.
        assert_eq!(counted.bytes, 3 * 8192 + 4 * UNIT);
    }

    /// A disk on which nobody may open `closed`, as root may everywhere else.
    struct Closed;

    impl Interposer for Closed {
        fn before(&self, _: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
            match call {
                Call::Open(b"closed") => Answer::Fail(Errno::ACCESS),
                _ => Answer::Go,
            }
        }

        fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
    }

    #[test]
    fn a_folder_that_may_not_be_read_does_not_end_the_share() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tmp.path().join("a/closed")).unwrap();
        for name in ["a/closed/x", "a/x", "z"] {
            std::fs::write(tmp.path().join(name), vec![1; 8192]).unwrap();
        }
        let root = open_root(tmp.path()).unwrap();
        let root = root.on(&Disk(Some(Arc::new(Closed)))).unwrap();
        let quota = Quota::new(Arc::new(root), 1 << 20).unwrap();
        assert_eq!(quota.closed(), 1);
        assert_eq!(quota.room(), (1 << 20) - 2 * 8192 - 2 * UNIT);
    }

    #[test]
    fn nothing_is_promised_twice_and_what_did_not_come_is_free_again() {
        let tmp = tempfile::tempdir().unwrap();
        let kib = |n: u64| n << 10;
        let new = |limit| Quota::new(open_root(tmp.path()).unwrap(), kib(limit)).unwrap();
        let quota = new(1000);
        let mut first = Claim::new(quota.clone());
        let mut second = Claim::new(quota.clone());
        first.hold(kib(600)).unwrap();
        let why = second.hold(kib(500)).unwrap_err();
        assert_eq!(
            why,
            "needs 500.0 KiB, 400.0 KiB of the share's quota of 1000.0 KiB are free"
        );
        first.arrive(kib(100)).unwrap();
        assert_eq!(quota.room(), kib(400), "as before: it was promised");
        second.hold(u64::MAX).unwrap_err();
        // The peer brings more than it declared.
        first.arrive(kib(900)).unwrap();
        assert!(first.arrive(1).is_err());
        // Nothing of it came.
        let quota = new(1000);
        Claim::new(quota.clone()).hold(kib(600)).unwrap();
        let mut third = Claim::new(quota.clone());
        third.hold(kib(1000)).unwrap();
        // Another limit for the same folder, in which that is still to come.
        let mut later = new(1500);
        assert!(later.succeed(&quota));
        assert_eq!(later.room(), kib(500));
    }

    #[test]
    fn small_files_count_as_they_are_stored_and_a_file_of_two_names_once() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("a"), vec![1; 8192]).unwrap();
        std::fs::hard_link(tmp.path().join("a"), tmp.path().join("b")).unwrap();
        let quota = Quota::new(open_root(tmp.path()).unwrap(), 5 * UNIT).unwrap();
        assert_eq!(quota.room(), 3 * UNIT);
        let mut claim = Claim::new(quota.clone());
        for room in [2, 1] {
            claim.hold(1).unwrap();
            claim.arrive(1).unwrap();
            assert_eq!(quota.room(), room * UNIT);
        }
        // Nothing of it is stored, it says.
        claim.hold(0).unwrap();
        assert_eq!(quota.room(), 0);
        assert!(claim.hold(1).is_err());
    }

    #[test]
    fn what_is_removed_is_free_at_once_or_after_the_count_that_is_under_way() {
        let tmp = tempfile::tempdir().unwrap();
        let root = open_root(tmp.path()).unwrap();
        std::fs::write(tmp.path().join("a"), vec![1; 8192]).unwrap();
        let stat = root.statat(b"a").unwrap();
        let quota = Quota::new(Arc::clone(&root), 5 * UNIT).unwrap();
        assert_eq!(quota.room(), 3 * UNIT);
        quota.free(&stat);
        assert_eq!(quota.room(), 5 * UNIT);
        // Of what has arrived since the count.
        quota.usage.arrived.store(3 * UNIT, SeqCst);
        quota.free(&stat);
        assert_eq!(quota.room(), 4 * UNIT);
        quota.usage.counting().busy = true;
        quota.free(&stat);
        assert_eq!(quota.room(), 4 * UNIT, "the count may have seen it, or not");
        assert!(quota.usage.counting().again);
    }
}
