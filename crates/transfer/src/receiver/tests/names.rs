//! Names that may come together, and names that are our own.

use super::*;
use crate::state_names;

fn entry(kind: Kind, path: &str, size: u64) -> Entry {
    let file = super::entry(path, size);
    Entry { kind, ..file }
}

#[test]
fn two_files_listed_by_one_name_are_not_mixed() {
    let tmp = tempfile::tempdir().unwrap();
    let mut receiver = receiver(tmp.path(), RULES).unwrap();
    let entry = |path, size| entry(Kind::File, path, size);
    let entries = vec![
        entry("a", 3 << 20),
        entry("b", 5),
        entry("a", 2 << 20),
        entry("b", 5),
    ];
    let listed = Message::Entries { first: 0, entries };
    receiver.handle(listed).unwrap();
    assert_eq!(receiver.entries.core.tally.files_failed, 2);
    let wanted: u64 = receiver
        .entries
        .content
        .missing
        .iter()
        .map(|r| r.end - r.start)
        .sum();
    assert_eq!(wanted, (3 << 20) + 5, "only the first of each is wanted");
}

#[test]
fn what_is_in_place_may_be_listed_again() {
    let tmp = tempfile::tempdir().unwrap();
    let mut receiver = receiver(tmp.path(), RULES).unwrap();
    let entry = |path, size| entry(Kind::File, path, size);
    // The large one stays under way.
    let entries = vec![
        self::entry(Kind::Dir, "d", 0),
        entry("large", 3 << 20),
        entry("d/a", 5),
    ];
    let listed = Message::Entries { first: 0, entries };
    receiver.handle(listed).unwrap();
    let arrives = |receiver: &mut Receiver, file, offset, bytes: &[u8]| {
        let extent = Extent {
            object: 1,
            offset,
            len: u32::try_from(bytes.len()).unwrap(),
            at: 0,
        };
        receiver.place(&[extent], bytes).unwrap();
        let root = Root {
            file,
            sparse: false,
            hash: blake3::hash(bytes).into(),
        };
        receiver.handle(Message::Roots(vec![root])).unwrap();
    };
    arrives(&mut receiver, 2, 3 << 20, b"older");
    while receiver.entries.core.tally.files_ok == 0 {
        receiver.poll(Instant::EPOCH, &mut FakeSession::default());
        std::thread::yield_now();
    }
    let changed = Message::Failed {
        file: 2,
        code: Exit::SourceChanged,
        again: true,
        text: b"d/a: changed".to_vec(),
    };
    receiver.handle(changed).unwrap();
    let entries = vec![entry("d/a", 7)];
    let listed = Message::Entries { first: 3, entries };
    receiver.handle(listed).unwrap();
    receiver.handle(Message::End { entries: 4 }).unwrap();
    assert_eq!(receiver.entries.core.tally.files_failed, 0);
    arrives(&mut receiver, 3, (3 << 20) + 5, b"younger");
    arrives(&mut receiver, 1, 0, &vec![7; 3 << 20]);
    finish(&mut receiver);
    assert_eq!(receiver.entries.core.verdict(), None);
    assert_eq!(fs::read(tmp.path().join("d/a")).unwrap(), b"younger");
}

#[test]
fn names_that_a_directory_does_not_distinguish_are_reported() {
    for (folds, failed) in [(false, 0), (true, 2)] {
        let tmp = tempfile::tempdir().unwrap();
        let mut receiver = receiver(tmp.path(), RULES).unwrap();
        assert!(receiver.entries.names.folded.is_none());
        if folds {
            // As if the directory knew the journal by any spelling.
            let name = String::from_utf8(state_names::journal_name([1; 8])).unwrap();
            let (lower, upper) = (tmp.path().join(&name), tmp.path().join(name.to_uppercase()));
            fs::hard_link(lower, upper).unwrap();
        }
        receiver.entries.names = Names::new(receiver.lock().folds_case());
        let entries = vec![
            entry(Kind::Dir, "d", 0),
            entry(Kind::Dir, "D", 0),
            entry(Kind::File, "d/\u{e4}", 5),
            entry(Kind::File, "d/b", 5),
            entry(Kind::File, "d/\u{c4}", 5),
            entry(Kind::File, "D/b", 5),
            entry(Kind::File, "d/B2", 5),
        ];
        receiver
            .handle(Message::Entries { first: 0, entries })
            .unwrap();
        assert_eq!(receiver.entries.core.tally.files_failed, failed, "{folds}");
    }
}

#[test]
fn the_state_of_this_transfer_is_not_received_by_any_spelling() {
    let tmp = tempfile::tempdir().unwrap();
    let mut receiver = receiver(tmp.path(), RULES).unwrap();
    receiver.entries.names = Names::new(true);
    receiver.entries.dest.mirror.backups = Backups::new(None, true);
    let journal = String::from_utf8(state_names::journal_name([1; 8])).unwrap();
    let part = String::from_utf8(state_names::part_name(b"x", [1; 8])).unwrap();
    let other = String::from_utf8(state_names::part_name(b"x", [2; 8])).unwrap();
    let entries = vec![
        entry(Kind::File, &journal, 5),
        entry(Kind::File, &part.to_uppercase(), 5),
        entry(Kind::Symlink, &format!("{part}/x"), 0),
        entry(Kind::Dir, &part, 0),
        entry(Kind::File, &other, 5),
    ];
    receiver
        .handle(Message::Entries { first: 0, entries })
        .unwrap();
    assert_eq!(receiver.entries.core.tally.files_failed, 4);
}

#[test]
fn what_may_not_be_on_the_disk_and_may_not_be_replaced_is_reported() {
    let tmp = tempfile::tempdir().unwrap();
    let files = [("a", 5000)];
    let disk = Broken { all: true, ..GOOD };
    drop(run(tmp.path(), &files, disk));
    let rules = Rules {
        reach: Reach::New,
        ..SYNCED
    };
    let mut receiver = receiver(tmp.path(), rules).unwrap();
    let entries = vec![super::entry("a", 5000)];
    let listed = Message::Entries { first: 0, entries };
    receiver.handle(listed).unwrap();
    assert!(receiver.entries.content.missing.is_empty());
    let error = receiver.entries.core.verdict().unwrap();
    assert_eq!(error.code, Exit::DestError);
    assert!(error.text.contains("the disk failed"), "{error}");
}

#[test]
fn a_hole_is_not_taken_where_none_was_listed_in_a_part_that_is_continued() {
    let tmp = tempfile::tempdir().unwrap();
    let size = 3 << 20;
    let list = |receiver: &mut Receiver| {
        let entries = vec![super::entry("large", size)];
        let listed = Message::Entries { first: 0, entries };
        receiver.handle(listed).unwrap();
    };
    let mut first = receiver(tmp.path(), RULES).unwrap();
    list(&mut first);
    // The part; nothing in it is claimed.
    let part = first.entries.part_file(0).unwrap();
    part.write_all_at(b"left", 1 << 20).unwrap();
    drop(first);
    let mut second = receiver(tmp.path(), RULES).unwrap();
    list(&mut second);
    let holes: Vec<_> = second.entries.content.missing.iter().collect();
    assert_eq!(holes.first(), Some(&(0..size)));
    second.handle(Message::Holes { ranges: holes }).unwrap();
    let error = second.entries.core.verdict().unwrap();
    assert_eq!(error.code, Exit::SourceChanged, "{error}");
}
