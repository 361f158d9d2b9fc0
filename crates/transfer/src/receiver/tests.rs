use std::{
    fs::{self, File},
    os::fd::BorrowedFd,
    path::Path,
    time::Duration,
};

use farhaul_core::store::Extent;
use farhaul_testkit::FakeSession;
use rustix::io::Errno;

use super::*;
use crate::{
    digest::BlockTree,
    disk::{Answer, Call, Disk, Interposer},
    quota::Claim,
    reach::Reach,
    wire::{Entry, Existing, Exit, Kind, Mirror, testing::said},
};

mod backups;
mod folders;
mod lacks;
mod mirror;
mod names;
mod quota;
mod stuck;
mod unsynced;
mod words;

fn entry(path: &str, size: u64) -> Entry {
    Entry::of(Kind::File, path, size)
}

/// Sends files with the same byte everywhere, as their sender would.
fn send_all(receiver: &mut Receiver, files: &[(&str, u64)]) -> u64 {
    let entries = files.iter().map(|(path, size)| entry(path, *size));
    let entries = entries.collect();
    let listed = Message::Entries { first: 0, entries };
    receiver.handle(listed).unwrap();
    let wanted: Vec<_> = receiver.entries.content.missing.iter().collect();
    let mut at = 0;
    for (number, (_, size)) in (0..).zip(files) {
        let bytes = vec![7; usize::try_from(*size).unwrap()];
        let len = u32::try_from(*size).unwrap();
        let extent = Extent {
            object: 1,
            offset: at,
            len,
            at: 0,
        };
        receiver.place(&[extent], &bytes).unwrap();
        at += size;
        let root = Root {
            file: number,
            sparse: false,
            hash: blake3::hash(&bytes).into(),
        };
        receiver.handle(Message::Roots(vec![root])).unwrap();
    }
    let end = Message::End {
        entries: files.len() as u64,
    };
    receiver.handle(end).unwrap();
    wanted.iter().map(|r| r.end - r.start).sum()
}

/// Time stands still while workers are busy, or they would seem to be stuck.
fn later(receiver: &Receiver, now: Instant) -> Instant {
    if receiver.is_waiting() {
        return now;
    }
    now + place::LINGER
}

/// Moves it on until it is finished; what it said.
fn finish(receiver: &mut Receiver) -> Vec<Message> {
    let mut session = FakeSession::default();
    let mut now = Instant::EPOCH;
    while !receiver.entries.core.is_finished() {
        receiver.poll(now, &mut session);
        now = later(receiver, now);
        std::thread::yield_now();
    }
    receiver.poll(now, &mut session);
    said(&session)
}

/// A disk that takes nothing.
struct Broken {
    files: bool,
    all: bool,
}

impl Interposer for Broken {
    fn before(&self, _: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        match call {
            Call::Sync if self.files => Answer::Fail(Errno::IO),
            Call::SyncAll if self.all => Answer::Fail(Errno::IO),
            _ => Answer::Go,
        }
    }

    fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
}

const SYNCED: Rules = Rules {
    sync: true,
    ..RULES
};

/// A run whose disk fails so, and what it said.
fn run(dir: &Path, files: &[(&str, u64)], disk: Broken) -> (u64, Receiver, Vec<Message>) {
    let mut receiver = receiver_on(disk, dir, SYNCED).unwrap();
    let wanted = send_all(&mut receiver, files);
    let said = finish(&mut receiver);
    (wanted, receiver, said)
}

const GOOD: Broken = Broken {
    files: false,
    all: false,
};

#[test]
fn a_disk_that_does_not_take_it_is_no_success_and_is_not_trusted_later() {
    let tmp = tempfile::tempdir().unwrap();
    let files = [("a", 5000), ("b", 0), ("c", 70_000), ("large", 3 << 20)];
    let total: u64 = files.iter().map(|(_, size)| size).sum();
    let disk = Broken { all: true, ..GOOD };
    let (wanted, receiver, said) = run(tmp.path(), &files, disk);
    assert_eq!(wanted, total);
    assert_eq!(
        (
            receiver.entries.core.tally.files_ok,
            receiver.entries.core.tally.files_failed
        ),
        (0, 4)
    );
    let error = receiver.entries.core.verdict().unwrap();
    assert_eq!(error.code, Exit::DestError);
    assert!(error.text.contains("did not write everything"), "{error}");
    assert!(error.text.contains("Input/output error"), "{error}");
    assert!(!error.fix.is_empty());
    // The sender hears it before it hears that all is over.
    let reported = said.iter().position(|m| {
        matches!(
            m,
            Message::Trouble {
                file: NOT_LISTED,
                code: Exit::DestError,
                ..
            }
        )
    });
    let over = said
        .iter()
        .position(|m| matches!(m, Message::Finished { .. }));
    assert!(reported.unwrap() < over.unwrap(), "{said:?}");
    drop(receiver);
    // Everything looks right, in the page cache.
    assert_eq!(fs::read(tmp.path().join("c")).unwrap(), vec![7; 70_000]);
    let (wanted, receiver, _) = run(tmp.path(), &files, GOOD);
    assert_eq!(wanted, 75_000, "the large one was synced by itself");
    assert_eq!(
        (
            receiver.entries.core.tally.files_ok,
            receiver.entries.core.tally.files_skipped
        ),
        (3, 1)
    );
    assert_eq!(receiver.entries.core.verdict(), None);
    drop(receiver);
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 4, "no journal");
    let (wanted, receiver, _) = run(tmp.path(), &files, GOOD);
    assert_eq!((wanted, receiver.entries.core.tally.files_skipped), (0, 4));
}

#[test]
fn a_large_file_is_not_resumed_after_a_failed_sync() {
    let tmp = tempfile::tempdir().unwrap();
    let files = [("large", 3 << 20)];
    let disk = Broken {
        files: true,
        ..GOOD
    };
    let (_, receiver, _) = run(tmp.path(), &files, disk);
    let error = receiver.entries.core.verdict().unwrap();
    assert_eq!(error.code, Exit::DestError, "{error}");
    drop(receiver);
    assert_eq!(
        fs::read_dir(tmp.path()).unwrap().count(),
        0,
        "no part is left"
    );
    let (wanted, receiver, _) = run(tmp.path(), &files, GOOD);
    assert_eq!((wanted, receiver.entries.core.tally.files_ok), (3 << 20, 1));
}

#[test]
fn what_replaces_something_is_on_the_disk_before_it_does() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("a"), "before").unwrap();
    let disk = Broken { all: true, ..GOOD };
    let (_, receiver, _) = run(tmp.path(), &[("a", 5000)], disk);
    assert!(receiver.entries.core.verdict().is_some());
    assert_eq!(fs::read(tmp.path().join("a")).unwrap(), b"before");
    drop(receiver);
    let left = fs::read_dir(tmp.path()).unwrap();
    let left: Vec<_> = left.map(|e| e.unwrap().file_name()).collect();
    let parts = left
        .iter()
        .filter(|n| n.to_string_lossy().ends_with("-part"));
    assert_eq!(parts.count(), 0, "{left:?}");
}

const RULES: Rules = Rules {
    alone: false,
    sync: false,
    existing: Existing::Replace,
    checksum: false,
    verify_disk: false,
    reach: Reach::All,
    strangers: false,
    mirror: Mirror::PLAIN,
    pipe: false,
    stripe_scope: None,
};

fn receiver(dir: &Path, rules: Rules) -> Result<Receiver, TransferError> {
    begin(Base::local(dir, false)?, rules)
}

/// Makes a receiver on this disk.
fn receiver_on(
    disk: impl Interposer + 'static,
    dir: &Path,
    rules: Rules,
) -> Result<Receiver, TransferError> {
    let disk = Disk(Some(Arc::new(disk)));
    let mut base = Base::local(dir, false)?;
    base.dir = Arc::new(base.dir.on(&disk).unwrap());
    begin(base, rules)
}

fn begin(base: Base, rules: Rules) -> Result<Receiver, TransferError> {
    let anything = Requested::anything();
    Receiver::new(
        base,
        [1; 8],
        rules,
        anything,
        Arc::default(),
        &Host::default(),
    )
}

#[test]
fn the_destination_is_locked_until_the_last_worker_is_done() {
    let tmp = tempfile::tempdir().unwrap();
    let first = receiver(tmp.path(), RULES).unwrap();
    // What a stalled worker holds.
    let lock = Arc::clone(first.lock());
    drop(first);
    let refused = receiver(tmp.path(), RULES).err().unwrap();
    assert_eq!(refused.code, Exit::Locked);
    drop(lock);
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
    assert!(receiver(tmp.path(), RULES).is_ok());
}

/// A disk that changes bytes that are written to it: always, or the first time.
struct Liar {
    dir: std::path::PathBuf,
    left: std::sync::Mutex<u32>,
}

impl Liar {
    fn lie(&self) {
        let mut left = self.left.lock().unwrap();
        for found in fs::read_dir(&self.dir).unwrap() {
            let path = found.unwrap().path();
            if *left > 0 && path.to_string_lossy().ends_with("-part") {
                let mut bytes = fs::read(&path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(&path, bytes).unwrap();
                *left -= 1;
            }
        }
    }
}

impl Interposer for Liar {
    fn before(&self, _: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        if matches!(call, Call::Sync | Call::SyncAll) {
            self.lie();
        }
        Answer::Go
    }

    fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
}

/// Receives one file to replace another, on a disk that changes it so often; what it said.
fn reread(dir: &Path, size: u64, lies: u32, verify_disk: bool) -> (Receiver, Vec<Message>) {
    let rules = Rules {
        verify_disk,
        ..SYNCED
    };
    fs::write(dir.join("a"), "before").unwrap();
    let disk = Liar {
        dir: dir.to_path_buf(),
        left: lies.into(),
    };
    let mut receiver = receiver_on(disk, dir, rules).unwrap();
    send_all(&mut receiver, &[("a", size)]);
    let (mut session, mut now, mut heard) = (FakeSession::default(), Instant::EPOCH, 0);
    while !receiver.entries.core.is_finished() {
        receiver.poll(now, &mut session);
        now = later(&receiver, now);
        let said = said(&session);
        for message in &said[heard..] {
            let Message::Repair { file: 0, ranges } = message else {
                continue;
            };
            for r in ranges {
                let len = r.end - r.start;
                let bytes = vec![7; usize::try_from(len).unwrap()];
                let extent = Extent {
                    object: 1,
                    offset: r.start,
                    len: u32::try_from(len).unwrap(),
                    at: 0,
                };
                receiver.place(&[extent], &bytes).unwrap();
            }
            let whole = vec![7; usize::try_from(size).unwrap()];
            let root = Root {
                file: 0,
                sparse: false,
                hash: blake3::hash(&whole).into(),
            };
            receiver.handle(Message::Roots(vec![root])).unwrap();
        }
        heard = said.len();
        std::thread::yield_now();
    }
    (receiver, said(&session))
}

#[test]
fn what_the_disk_does_not_return_is_repaired_once_and_then_reported() {
    for size in [5000, 3 << 20] {
        let content = vec![7; usize::try_from(size).unwrap()];
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("a");
        // Without being asked, nobody looks.
        let (receiver, _) = reread(tmp.path(), size, 1, false);
        assert_eq!(receiver.entries.core.verdict(), None);
        drop(receiver);
        assert!(fs::read(&file).unwrap() != content);

        let (receiver, said) = reread(tmp.path(), size, 1, true);
        assert_eq!(receiver.entries.core.verdict(), None, "{size}");
        let asked: u64 = said
            .iter()
            .filter_map(|m| match m {
                Message::Repair { ranges, .. } => {
                    Some(ranges.iter().map(|r| r.end - r.start).sum::<u64>())
                }
                _ => None,
            })
            .sum();
        assert_eq!(asked, size.min(1 << 20), "one block");
        drop(receiver);
        assert!(fs::read(&file).unwrap() == content);

        let (receiver, _) = reread(tmp.path(), size, u32::MAX, true);
        let error = receiver.entries.core.verdict().unwrap();
        assert_eq!(error.code, Exit::VerifyFailed, "{error}");
        assert!(error.text.contains("the disk returns"), "{error}");
        drop(receiver);
        assert_eq!(fs::read(&file).unwrap(), b"before");
        assert!(tmp.path().join("a.bad").exists());
    }
}

#[test]
fn existing_files_are_read_from_the_disk_if_requested() {
    let tmp = tempfile::tempdir().unwrap();
    let files = [("a", 5000), ("large", 3 << 20)];
    drop(run(tmp.path(), &files, GOOD));
    let rules = Rules {
        verify_disk: true,
        ..SYNCED
    };
    for changed in [false, true] {
        if changed {
            let path = tmp.path().join("large");
            let time = path.metadata().unwrap().modified().unwrap();
            let mut bytes = fs::read(&path).unwrap();
            bytes[2 << 20] ^= 1;
            fs::write(&path, bytes).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(time).unwrap();
        }
        let mut receiver = receiver(tmp.path(), rules).unwrap();
        assert_eq!(send_all(&mut receiver, &files), 0, "compared, not wanted");
        let mut session = FakeSession::default();
        while receiver.is_waiting() {
            receiver.poll(Instant::EPOCH, &mut session);
            std::thread::yield_now();
        }
        receiver.poll(Instant::EPOCH, &mut session);
        // What differs is found out block by block.
        let asked = said(&session).into_iter();
        let asked = asked.filter(|m| matches!(m, Message::AskBlocks { .. }));
        assert_eq!(asked.count(), usize::from(changed));
    }
}

#[test]
fn leftover_bytes_where_a_hole_is_reported_become_a_hole() {
    let tmp = tempfile::tempdir().unwrap();
    let size = 4 << 20;
    let block = vec![7; 1 << 20];
    let list = |receiver: &mut Receiver| {
        let sparse = Entry {
            allocated: 1 << 20,
            ..entry("sparse", size)
        };
        let entries = vec![sparse];
        let listed = Message::Entries { first: 0, entries };
        receiver.handle(listed).unwrap();
    };
    let idle = |receiver: &mut Receiver| {
        let mut now = Instant::EPOCH;
        while receiver.next_wake(now).is_some() {
            receiver.poll(now, &mut FakeSession::default());
            if !receiver.is_waiting() {
                now += report::REPORT_AFTER;
            }
            std::thread::yield_now();
        }
    };
    let mut first = receiver(tmp.path(), RULES).unwrap();
    list(&mut first);
    for (offset, len) in [(0, 1 << 20), (2 << 20, 5000), (3 << 20, 1 << 20)] {
        let extent = Extent {
            object: 1,
            offset,
            len,
            at: 0,
        };
        first.place(&[extent], &block).unwrap();
    }
    idle(&mut first);
    drop(first);
    // One block of those that are claimed is damaged.
    let part = fs::read_dir(tmp.path()).unwrap().map(|e| e.unwrap().path());
    let part = part
        .into_iter()
        .find(|p| p.to_string_lossy().ends_with("-part"));
    let part = File::options().write(true).open(part.unwrap()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&part, b"damage", 3 << 20).unwrap();

    let mut second = receiver(tmp.path(), RULES).unwrap();
    list(&mut second);
    idle(&mut second);
    let ranges: Vec<_> = second.entries.content.missing.iter().collect();
    assert_eq!(ranges.first(), Some(&(1 << 20..4 << 20)));
    second.handle(Message::Holes { ranges }).unwrap();
    let mut tree = BlockTree::new(size);
    tree.set(0, crate::digest::block_hash(0, size, &block));
    tree.set_hole(&(1 << 20..size));
    let root = Root {
        file: 0,
        sparse: true,
        hash: tree.root().unwrap(),
    };
    second.handle(Message::Roots(vec![root])).unwrap();
    second.handle(Message::End { entries: 1 }).unwrap();
    finish(&mut second);
    assert_eq!(second.entries.core.verdict(), None);
    let got = fs::read(tmp.path().join("sparse")).unwrap();
    assert!(got[..1 << 20] == block);
    assert!(got[1 << 20..].iter().all(|b| *b == 0), "nothing but zeros");
}

#[test]
fn small_files_that_workers_have_leave_less_room() {
    let tmp = tempfile::tempdir().unwrap();
    let mut receiver = receiver(tmp.path(), RULES).unwrap();
    let empty = receiver.sink().free;
    // Complete, and none of them handed back yet.
    let names: Vec<_> = (0..5).map(|n| n.to_string()).collect();
    let files: Vec<_> = names.iter().map(|n| (n.as_str(), 1 << 20)).collect();
    send_all(&mut receiver, &files);
    assert_eq!(receiver.entries.workers.writing, 5 << 20);
    assert!(receiver.sink().free < empty, "{empty}");
    finish(&mut receiver);
    assert_eq!(
        (receiver.entries.workers.writing, receiver.sink().free),
        (0, empty)
    );
    assert_eq!(receiver.sink().drained, 5 << 20);
}

#[test]
fn small_files_without_room_in_memory_are_synced_with_the_others() {
    let tmp = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    let files: Vec<_> = names.iter().map(|n| (n.as_str(), 1 << 20)).collect();
    // It does not sync a file by itself.
    let disk = Broken {
        files: true,
        all: false,
    };
    let (_, receiver, _) = run(tmp.path(), &files, disk);
    assert_eq!(
        (
            receiver.entries.core.tally.files_ok,
            receiver.entries.core.tally.files_failed
        ),
        (20, 0)
    );
}
