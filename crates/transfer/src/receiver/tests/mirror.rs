//! Mirrors, and the obstacles in their way; the leftovers of a crash.

use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::Mode;

use super::*;
use crate::wire::Delete;

const MIRROR: Rules = Rules {
    mirror: Mirror {
        delete: Some(Delete {
            most: None,
            excluded: false,
        }),
        ..Mirror::PLAIN
    },
    ..SYNCED
};

/// A disk as a user has it: nothing is removed from a folder that its owner may not write to.
struct Guarded;

impl Interposer for Guarded {
    fn before(&self, fd: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        let mode = Mode::from_raw_mode(rustix::fs::fstat(fd).unwrap().st_mode);
        match call {
            Call::Remove(_) | Call::RemoveDir(_) if !mode.contains(Mode::WUSR) => {
                Answer::Fail(Errno::ACCESS)
            }
            _ => Answer::Go,
        }
    }

    fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
}

/// Copies a file `a` and a folder `d` with a file `b`; `more` is said before the end.
fn copy(dir: &Path, disk: impl Interposer + 'static, more: Option<Message>) -> Receiver {
    let mut receiver = receiver_on(disk, dir, MIRROR).unwrap();
    let folder = |path| Entry::of(Kind::Dir, path, 0);
    let entries = vec![folder(""), entry("a", 5), folder("d"), entry("d/b", 5)];
    let listed = Message::Entries { first: 0, entries };
    receiver.handle(listed).unwrap();
    for (number, offset) in [(1, 0), (3, 5)] {
        let extent = Extent {
            object: 1,
            offset,
            len: 5,
            at: 0,
        };
        receiver.place(&[extent], &[7; 5]).unwrap();
        let root = Root {
            file: number,
            sparse: false,
            hash: blake3::hash(&[7; 5]).into(),
        };
        receiver.handle(Message::Roots(vec![root])).unwrap();
    }
    if let Some(message) = more {
        receiver.handle(message).unwrap();
    }
    receiver.handle(Message::End { entries: 4 }).unwrap();
    finish(&mut receiver);
    receiver
}

#[test]
fn a_folder_that_became_a_file_and_a_file_that_became_a_folder_are_replaced() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |path: &str| tmp.path().join(path);
    fs::create_dir_all(at("a/deep")).unwrap();
    fs::write(at("a/deep/x"), "x").unwrap();
    fs::write(at("d"), "d").unwrap();
    fs::write(at("gone"), "gone").unwrap();
    let receiver = copy(tmp.path(), GOOD, None);
    assert_eq!(receiver.entries.core.log.failures, []);
    assert_eq!(
        (
            receiver.entries.core.tally.files_ok,
            receiver.entries.core.tally.deleted
        ),
        (2, 5)
    );
    assert_eq!(fs::read(at("a")).unwrap(), [7; 5]);
    assert_eq!(fs::read(at("d/b")).unwrap(), [7; 5]);
    drop(receiver);
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 2);
}

#[test]
fn after_an_incomplete_listing_the_folder_stays_and_the_file_has_failed() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |path: &str| tmp.path().join(path);
    fs::create_dir_all(at("a/deep")).unwrap();
    fs::write(at("gone"), "gone").unwrap();
    let unread = Message::Failed {
        file: NOT_LISTED,
        code: Exit::SourceMissing,
        again: false,
        text: b"x: permission denied".to_vec(),
    };
    let receiver = copy(tmp.path(), GOOD, Some(unread));
    let tally = receiver.entries.core.tally;
    assert_eq!((tally.files_ok, tally.deleted), (1, 0));
    assert!(at("a/deep").is_dir() && at("gone").exists());
    let told = |f: &crate::Failure| f.text.starts_with("a: the folder of this name");
    assert!(receiver.entries.core.log.failures.iter().any(told));
    drop(receiver);
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 3, "no part");
}

#[test]
fn a_read_only_folder_is_opened_emptied_and_closed_again() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |path: &str| tmp.path().join(path);
    let close = |path: &str| {
        fs::set_permissions(at(path), fs::Permissions::from_mode(0o555)).unwrap();
    };
    for dir in ["d", "gone/deep"] {
        fs::create_dir_all(at(dir)).unwrap();
        fs::write(at(dir).join("x"), "x").unwrap();
    }
    ["d", "gone/deep", "gone"].into_iter().for_each(close);
    let receiver = copy(tmp.path(), Guarded, None);
    assert_eq!(receiver.entries.core.log.failures, []);
    assert_eq!(receiver.entries.core.tally.deleted, 4);
    assert!(!at("gone").exists() && !at("d/x").exists());
    let mode = fs::metadata(at("d")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o555 & 0o644, "closed as before");
}

/// Makes no folder `d`.
struct NoFolder;

impl Interposer for NoFolder {
    fn before(&self, _: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        match call {
            Call::MakeDir(b"d", _) => Answer::Fail(Errno::NOSPC),
            _ => Answer::Go,
        }
    }

    fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
}

#[test]
fn what_is_in_the_way_of_a_folder_that_cannot_be_made_stays() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("d"), "before").unwrap();
    let receiver = copy(tmp.path(), NoFolder, None);
    assert!(receiver.entries.core.verdict().is_some());
    assert_eq!(fs::read(tmp.path().join("d")).unwrap(), b"before");
    assert_eq!(receiver.entries.core.tally.deleted, 0);
}

#[test]
fn a_file_of_this_copy_makes_no_way_for_a_folder_of_its_name() {
    let tmp = tempfile::tempdir().unwrap();
    let mut receiver = receiver_on(GOOD, tmp.path(), MIRROR).unwrap();
    send_some(&mut receiver, "d");
    let entries = vec![Entry::of(Kind::Dir, "d", 0)];
    let listed = Message::Entries { first: 1, entries };
    receiver.handle(listed).unwrap();
    receiver.handle(Message::End { entries: 2 }).unwrap();
    finish(&mut receiver);
    assert!(receiver.entries.core.verdict().is_some());
    assert_eq!(fs::read(tmp.path().join("d")).unwrap(), [7; 5]);
}

/// Delivers a file of this name, which is in place then.
fn send_some(receiver: &mut Receiver, name: &str) {
    let entries = vec![entry(name, 5)];
    receiver
        .handle(Message::Entries { first: 0, entries })
        .unwrap();
    let (object, offset, len, at) = (1, 0, 5, 0);
    let extent = Extent {
        object,
        offset,
        len,
        at,
    };
    receiver.place(&[extent], &[7; 5]).unwrap();
    receiver
        .handle(Message::Roots(vec![Root {
            file: 0,
            sparse: false,
            hash: blake3::hash(&[7; 5]).into(),
        }]))
        .unwrap();
    let mut session = FakeSession::default();
    while receiver.entries.core.tally.files_ok == 0 {
        receiver.poll(Instant::EPOCH, &mut session);
        std::thread::yield_now();
    }
}

#[test]
fn after_a_crash_only_what_it_may_have_left_is_replaced_against_the_wish_of_the_user() {
    let files = [("a", 5), ("b", 5), ("c", 5)];
    for existing in [Existing::Keep, Existing::KeepNewer] {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        // A run that ended before anything was synced, as by a power loss.
        let mut first = receiver_on(GOOD, tmp.path(), SYNCED).unwrap();
        send_all(&mut first, &files);
        let journal = fs::read_dir(tmp.path()).unwrap().map(|e| e.unwrap().path());
        let journal = journal
            .into_iter()
            .find(|p| p.to_string_lossy().contains("journal"));
        let journal = journal.expect("it is under way");
        let mut session = FakeSession::default();
        while !["a", "b", "c"].iter().all(|name| at(name).exists()) {
            first.poll(Instant::EPOCH, &mut session);
            std::thread::yield_now();
        }
        let noted = fs::read(&journal).unwrap();
        drop(first);
        fs::write(&journal, noted).unwrap();
        // Empty since then, changed by the user since then, and gone since then.
        fs::write(at("a"), "").unwrap();
        fs::write(at("b"), "mine").unwrap();
        fs::remove_file(at("c")).unwrap();
        let rules = Rules { existing, ..SYNCED };
        let mut second = receiver_on(GOOD, tmp.path(), rules).unwrap();
        send_all(&mut second, &files);
        finish(&mut second);
        assert_eq!(fs::read(at("a")).unwrap(), [7; 5], "{existing:?}");
        assert_eq!(fs::read(at("b")).unwrap(), b"mine", "{existing:?}");
        assert_eq!(fs::read(at("c")).unwrap(), [7; 5], "{existing:?}");
    }
}
