//! Destinations whose file system refuses to set something besides the content.

use super::*;
use crate::wire::BLOCK;

/// Calls, and words of the warnings when they are refused.
type Case = (fn(&Call<'_>) -> bool, &'static [&'static str]);

/// Refuses these calls so.
struct Refusing(fn(&Call<'_>) -> bool, Errno);

impl Interposer for Refusing {
    fn before(&self, _: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        if self.0(call) {
            Answer::Fail(self.1)
        } else {
            Answer::Go
        }
    }

    fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
}

/// A folder with two small files, a large one and a link, on this disk.
fn run(dir: &Path, disk: Refusing) -> Receiver {
    let mut receiver = receiver_on(disk, dir, SYNCED).unwrap();
    let link = Entry {
        target: b"a".to_vec(),
        ..Entry::of(Kind::Symlink, "d/link", 0)
    };
    let mut old = entry("d/a", 5);
    old.mtime = -5;
    let entries = vec![Entry::of(Kind::Dir, "d", 0), link, old, entry("d/b", 6)];
    let large = 3 * BLOCK / 2;
    let entries = [entries, vec![entry("d/large", large)]].concat();
    let listed = Message::Entries { first: 0, entries };
    receiver.handle(listed).unwrap();
    let mut at = 0;
    for (number, size) in [(2, 5), (3, 6), (4, large)] {
        let bytes = vec![7; usize::try_from(size).unwrap()];
        for chunk in bytes.chunks(1000) {
            let len = u32::try_from(chunk.len()).unwrap();
            let extent = Extent {
                object: 1,
                offset: at,
                len,
                at: 0,
            };
            receiver.place(&[extent], chunk).unwrap();
            at += u64::from(len);
        }
        let mut tree = BlockTree::new(size);
        for index in 0..size.div_ceil(BLOCK) {
            let block = crate::digest::block_range(index, size);
            let bytes = &bytes[usize::try_from(block.start).unwrap()..];
            let bytes = &bytes[..usize::try_from(block.end - block.start).unwrap()];
            tree.set(index, crate::digest::block_hash(index, size, bytes));
        }
        let root = Root {
            file: number,
            sparse: false,
            hash: tree.root().unwrap(),
        };
        receiver.handle(Message::Roots(vec![root])).unwrap();
    }
    receiver.handle(Message::End { entries: 5 }).unwrap();
    finish(&mut receiver);
    receiver
}

#[test]
fn what_a_file_system_refuses_is_told_once_and_the_content_arrives() {
    let refused = [
        Errno::PERM,
        Errno::ACCESS,
        Errno::NOSYS,
        Errno::OPNOTSUPP,
        Errno::INVAL,
        Errno::NOTTY,
    ];
    let cases: [Case; 4] = [
        (|call| matches!(call, Call::SyncAll), &["no syncfs"]),
        (|call| matches!(call, Call::SetMode(_)), &["permissions"]),
        (
            |call| matches!(call, Call::SetTimes(..)),
            &["times cannot be set", "times of links"],
        ),
        (|call| matches!(call, Call::Lock), &["no file locks"]),
    ];
    for (calls, words) in cases {
        for e in refused {
            if e == Errno::ACCESS && words[0] == "no file locks" {
                // Another has it.
                continue;
            }
            if words[0] == "no syncfs" && ![Errno::NOSYS, Errno::OPNOTSUPP].contains(&e) {
                // What was written may have failed so.
                continue;
            }
            let tmp = tempfile::tempdir().unwrap();
            let receiver = run(tmp.path(), Refusing(calls, e));
            let warnings = &receiver.entries.core.log.warnings;
            assert_eq!(receiver.entries.core.log.failures, [], "{words:?} {e}");
            assert_eq!(receiver.entries.core.tally.files_ok, 3);
            assert_eq!(warnings.len(), words.len(), "{warnings:?}");
            for word in words {
                assert_eq!(warnings.iter().filter(|w| w.contains(word)).count(), 1);
            }
            assert_eq!(fs::read(tmp.path().join("d/b")).unwrap(), [7; 6]);
            let large = fs::metadata(tmp.path().join("d/large")).unwrap();
            assert_eq!(large.len(), 3 * BLOCK / 2);
            assert!(tmp.path().join("d/link").is_symlink());
        }
    }
}

#[test]
fn links_that_cannot_be_made_are_left_out_with_one_warning() {
    for e in [Errno::PERM, Errno::NOSYS, Errno::OPNOTSUPP] {
        let tmp = tempfile::tempdir().unwrap();
        let links = Refusing(|call| matches!(call, Call::Link(..)), e);
        let receiver = run(tmp.path(), links);
        assert_eq!(receiver.entries.core.verdict(), None);
        assert_eq!(receiver.entries.core.log.warnings.len(), 1);
        assert!(!tmp.path().join("d/link").is_symlink());
        assert!(tmp.path().join("d/large").exists());
    }
}

#[test]
fn errors_of_the_disk_stay_errors() {
    for e in [Errno::IO, Errno::NOSPC, Errno::ROFS] {
        let tmp = tempfile::tempdir().unwrap();
        let times = Refusing(|call| matches!(call, Call::SetTimes(..)), e);
        let receiver = run(tmp.path(), times);
        assert_eq!(receiver.entries.core.tally.files_ok, 0);
        assert!(!receiver.entries.core.log.failures.is_empty());
    }
}

#[test]
fn links_have_the_time_of_the_source() {
    use std::os::unix::fs::MetadataExt as _;
    let tmp = tempfile::tempdir().unwrap();
    run(tmp.path(), Refusing(|_| false, Errno::IO));
    let link = tmp.path().join("d/link").symlink_metadata().unwrap();
    let file = tmp.path().join("d/b").metadata().unwrap();
    assert_eq!(link.mtime(), file.mtime());
}

#[test]
fn a_hard_link_that_cannot_be_made_is_a_file_of_its_own_and_not_copied_again() {
    let rules = Rules {
        mirror: Mirror {
            preserve: crate::wire::Preserve {
                links: true,
                ..crate::wire::Preserve::NONE
            },
            ..Mirror::PLAIN
        },
        ..SYNCED
    };
    for e in [Errno::PERM, Errno::MLINK, Errno::XDEV, Errno::OPNOTSUPP] {
        let tmp = tempfile::tempdir().unwrap();
        for made in [true, false] {
            let disk = Refusing(|call| matches!(call, Call::HardLink(_)), e);
            let mut receiver = receiver_on(disk, tmp.path(), rules).unwrap();
            let mut first = entry("a", 5);
            first.facts = Some(Box::new(crate::wire::Facts {
                linked: true,
                ..Default::default()
            }));
            let second = Entry {
                target: b"a".to_vec(),
                ..Entry::of(Kind::HardLink, "b", 5)
            };
            let entries = vec![first, second];
            let listed = Message::Entries { first: 0, entries };
            receiver.handle(listed).unwrap();
            let extent = Extent {
                object: 1,
                offset: 0,
                len: 5,
                at: 0,
            };
            receiver.place(&[extent], &[7; 5]).unwrap();
            let root = Root {
                file: 0,
                sparse: false,
                hash: blake3::hash(&[7; 5]).into(),
            };
            receiver.handle(Message::Roots(vec![root])).unwrap();
            receiver.handle(Message::End { entries: 2 }).unwrap();
            finish(&mut receiver);
            assert_eq!(receiver.entries.core.log.failures, []);
            assert_eq!(receiver.entries.core.log.warnings.len(), 1);
            let tally = receiver.entries.core.tally;
            let expected = if made { (2, 0) } else { (0, 2) };
            assert_eq!((tally.files_ok, tally.files_skipped), expected);
            assert_eq!(fs::read(tmp.path().join("b")).unwrap(), [7; 5]);
        }
    }
}
