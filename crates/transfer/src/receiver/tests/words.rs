//! A sender's messages: those that are acted on, and those that count.

use super::*;
use crate::wire::Hash;

fn root_of(file: u64, bytes: &[u8]) -> Message {
    Message::Roots(vec![Root {
        file,
        sparse: false,
        hash: blake3::hash(bytes).into(),
    }])
}

#[test]
fn the_reported_root_is_the_one_that_was_checked() {
    for size in [0, 5000, 3 << 20] {
        let tmp = tempfile::tempdir().unwrap();
        let mut receiver = receiver(tmp.path(), SYNCED).unwrap();
        send_all(&mut receiver, &[("a", size)]);
        let (mut session, mut now) = (FakeSession::default(), Instant::EPOCH);
        while !receiver.entries.core.is_finished() {
            receiver.poll(now, &mut session);
            now = later(&receiver, now);
            std::thread::yield_now();
            // Once more at every step after it was checked.
            let slot = receiver.entries.table.get(0);
            let begun = slot.is_none_or(|s| match &s.item.state {
                item::State::Part(part) => part.compared.is_some(),
                _ => true,
            });
            if begun {
                receiver.handle(root_of(0, b"something else")).unwrap();
            }
        }
        receiver.handle(root_of(0, b"something else")).unwrap();
        let whole = vec![7; usize::try_from(size).unwrap()];
        assert_eq!(receiver.entries.core.tally.files_ok, 1, "{size}");
        assert_eq!(
            receiver.entries.core.last_root,
            Some(blake3::hash(&whole).into()),
            "{size}"
        );
    }
}

#[test]
fn the_root_of_a_file_without_its_name_is_not_reported() {
    let tmp = tempfile::tempdir().unwrap();
    let disk = Broken {
        files: true,
        ..GOOD
    };
    // The large one fails last.
    let (_, receiver, _) = run(tmp.path(), &[("a", 5000), ("large", 3 << 20)], disk);
    assert_eq!(receiver.entries.core.tally.files_ok, 1);
    let small: Hash = blake3::hash(&[7; 5000]).into();
    assert_eq!(receiver.entries.core.last_root, Some(small));
}

fn failed(file: u64, again: bool) -> Message {
    Message::Failed {
        file,
        code: Exit::SourceChanged,
        again,
        text: b"changed".to_vec(),
    }
}

#[test]
fn what_was_to_be_listed_again_and_was_not_has_failed() {
    let tmp = tempfile::tempdir().unwrap();
    let mut receiver = receiver(tmp.path(), RULES).unwrap();
    let list = |receiver: &mut Receiver, first, names: &[&str]| {
        let entries = names.iter().map(|name| entry(name, 5000)).collect();
        let listed = Message::Entries { first, entries };
        receiver.handle(listed).unwrap();
    };
    list(&mut receiver, 0, &["a", "b", "c"]);
    for file in 0..3 {
        receiver.handle(failed(file, true)).unwrap();
    }
    // A file that is over may not be given up once more.
    receiver.handle(failed(0, true)).unwrap();
    assert_eq!(receiver.entries.core.tally.files_failed, 0);
    list(&mut receiver, 3, &["b", "d"]);
    receiver.handle(failed(3, false)).unwrap();
    receiver.handle(failed(4, true)).unwrap();
    let end = Message::End { entries: 5 };
    receiver.handle(end).unwrap();
    finish(&mut receiver);
    assert_eq!(receiver.entries.core.tally.files_failed, 4);
    let error = receiver.entries.core.verdict().unwrap();
    assert_eq!(error.code, Exit::SourceChanged, "{error}");
}

#[test]
fn what_is_given_up_after_the_end_is_not_listed_again() {
    let tmp = tempfile::tempdir().unwrap();
    let mut receiver = receiver(tmp.path(), RULES).unwrap();
    let entries = vec![entry("a", 5000)];
    let listed = Message::Entries { first: 0, entries };
    receiver.handle(listed).unwrap();
    receiver.handle(Message::End { entries: 1 }).unwrap();
    receiver.handle(failed(0, true)).unwrap();
    finish(&mut receiver);
    assert_eq!(receiver.entries.core.tally.files_failed, 1);
}

/// Small files whose workers have begun when the sender gives them up. The first keeps its place,
/// so that they are not forgotten before their workers are done.
fn given_up_while_checked(names: &[&str], wrong: bool) -> (Receiver, Vec<Message>) {
    let tmp = tempfile::tempdir().unwrap();
    let mut receiver = receiver(tmp.path(), RULES).unwrap();
    let entries: Vec<_> = names.iter().map(|name| entry(name, 5000)).collect();
    let count = entries.len() as u64;
    receiver
        .handle(Message::Entries { first: 0, entries })
        .unwrap();
    let room = receiver.sink().free;
    let last = count - 1;
    let extent = Extent {
        object: 1,
        offset: 5000 * last,
        len: 5000,
        at: 0,
    };
    receiver.place(&[extent], &[7; 5000]).unwrap();
    let sent = if wrong { [8; 5000] } else { [7; 5000] };
    receiver.handle(root_of(last, &sent)).unwrap();
    assert!(receiver.sink().free < room, "a worker has it");
    // A datagram was repeated, and the file that it was to be read from again has vanished.
    receiver.handle(failed(last, false)).unwrap();
    let (mut session, mut now) = (FakeSession::default(), Instant::EPOCH);
    receiver.poll(now, &mut session);
    while receiver.is_waiting() {
        receiver.poll(now, &mut session);
        std::thread::yield_now();
    }
    assert!(
        receiver
            .entries
            .content
            .missing
            .iter()
            .all(|r| r.end <= 5000 * last)
    );
    for file in 0..last {
        receiver.handle(failed(file, false)).unwrap();
    }
    receiver.handle(Message::End { entries: count }).unwrap();
    while !receiver.entries.core.is_finished() {
        receiver.poll(now, &mut session);
        now = later(&receiver, now);
        std::thread::yield_now();
    }
    receiver.poll(now, &mut session);
    assert_eq!(
        receiver.sink().free,
        room,
        "what the worker had is free again"
    );
    (receiver, said(&session))
}

#[test]
fn what_is_given_up_while_it_is_checked_is_over_and_not_asked_for_again() {
    for names in [&["a"][..], &["a", "b"]] {
        for wrong in [false, true] {
            let (receiver, said) = given_up_while_checked(names, wrong);
            let tally = receiver.entries.core.tally;
            assert_eq!(
                (tally.files_ok, tally.files_failed),
                (0, names.len() as u64),
                "{names:?}, wrong: {wrong}"
            );
            let error = receiver.entries.core.verdict().unwrap();
            assert_eq!(error.code, Exit::SourceChanged, "{error}");
            let asks = |m: &Message| matches!(m, Message::Repair { .. });
            assert!(!said.iter().any(asks), "{said:?}");
        }
    }
}
