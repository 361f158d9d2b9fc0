//! Peers that lie about what goes through a pipe.

use std::io;

use farhaul_core::{protocol::CloseReason, store::Store as _};

use super::*;
use crate::{
    client::Upload,
    pipe::MOST,
    wire::{BLOCK, Hash},
};

/// A server that was asked to take a pipe into `f`, and has accepted.
fn taking(root: &Path) -> Victim<Server> {
    let share = Share::open("s", root, Access::ReadWrite).unwrap();
    let policy = Policy::new(vec![share], Allow::Any, false);
    let mut victim = Victim::new(Server::new(Arc::new(policy), None));
    victim.send(&request(Direction::Put));
    assert!(victim.has_said(|m| matches!(m, Message::Accepted { .. })));
    victim
}

fn request(direction: Direction) -> Message {
    let options = RequestOptions {
        one_file: true,
        pipe: true,
        ..RequestOptions::default()
    };
    Message::request_with(direction, "s", "f", options)
}

fn listed(size: u64) -> Message {
    Message::Entries {
        first: 0,
        entries: vec![entry(
            Kind::File,
            "f",
            0o644,
            usize::try_from(size).unwrap(),
        )],
    }
}

fn grown(file: u64, size: u64) -> Message {
    Message::Grown { file, size }
}

fn roots(hash: Hash) -> Message {
    Message::Roots(vec![Root {
        file: 0,
        sparse: false,
        hash,
    }])
}

fn end<A: App>(victim: &mut Victim<A>) {
    let reason = CloseReason::TimedOut;
    let event = Event::Closed(reason);
    victim.app.on_event(victim.now, event, &mut victim.line);
}

/// Puts `bytes` of the object from `offset` on.
fn put<A: App>(
    victim: &mut Victim<A>,
    offset: u64,
    bytes: &[u8],
) -> Result<(), farhaul_core::store::StoreError> {
    let extent = Extent {
        object: CONTENT,
        offset,
        len: u32::try_from(bytes.len()).unwrap(),
        at: 0,
    };
    let placed = victim.app.place(&[extent], bytes);
    victim.app.poll(victim.now, &mut victim.line);
    placed
}

fn code<A>(victim: &Victim<A>) -> Option<u32> {
    victim.line.closed.as_ref().map(|(code, _)| *code)
}

#[test]
fn a_file_grows_only_as_a_pipe_makes_it_grow() {
    let two = 2 * BLOCK;
    let cases: [&[Message]; 9] = [
        &[grown(0, two)],
        &[listed(two), grown(1, 3 * BLOCK)],
        &[listed(two), grown(0, two)],
        &[listed(two), grown(0, BLOCK)],
        &[listed(BLOCK), grown(0, two)],
        &[listed(two + 1), grown(0, 3 * BLOCK)],
        &[listed(two), grown(0, two + 1), grown(0, 3 * BLOCK)],
        &[listed(two), roots([0; 32]), grown(0, 3 * BLOCK)],
        &[listed(two), listed(two)],
    ];
    for messages in cases {
        let tmp = tempfile::tempdir().unwrap();
        let mut victim = taking(tmp.path());
        for message in messages {
            assert_eq!(code(&victim), None, "{messages:?}");
            victim.send(message);
        }
        assert_eq!(code(&victim), Some(20), "{messages:?}");
        end(&mut victim);
        drop(victim);
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0, "{messages:?}");
    }
}

#[test]
fn growth_beyond_what_the_disk_has_fails_the_file_and_is_not_asked_for() {
    let tmp = tempfile::tempdir().unwrap();
    let mut victim = taking(tmp.path());
    victim.send(&listed(2 * BLOCK));
    victim.send(&grown(0, 1 << 61));
    let mut failed = None;
    victim.has_said(|m| {
        if let Message::Trouble { code, .. } = m {
            failed = Some(*code);
        }
        if let Message::Want { ranges, .. } = m {
            assert!(ranges.iter().all(|r| r.end <= 2 * BLOCK), "{ranges:?}");
        }
        false
    });
    assert_eq!(failed, Some(Exit::NoSpace));
    // It may go on to lie, and is not listened to.
    victim.send(&Message::End { entries: 1 });
    victim.until_finished();
    end(&mut victim);
    drop(victim);
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
}

#[test]
fn a_total_that_does_not_match_leaves_the_old_file() {
    let content = vec![5; usize::try_from(3 * BLOCK).unwrap()];
    let short = &content[..usize::try_from(2 * BLOCK).unwrap()];
    for (claimed, right) in [(&content[..], true), (short, false)] {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("f"), "old").unwrap();
        let mut victim = taking(tmp.path());
        victim.send(&listed(2 * BLOCK));
        // Content collected for the disk goes on across the growth.
        let before = usize::try_from(2 * BLOCK - 1_000).unwrap();
        put(&mut victim, 0, &content[..before]).unwrap();
        victim.send(&grown(0, 3 * BLOCK));
        put(&mut victim, before as u64, &content[before..]).unwrap();
        victim.send(&roots(blake3::hash(claimed).into()));
        victim.send(&Message::End { entries: 1 });
        let handle = victim.app.handle();
        victim.until_finished();
        end(&mut victim);
        let error = handle.outcome().unwrap().error.map(|e| e.code);
        let there = fs::read(tmp.path().join("f")).unwrap();
        if right {
            assert_eq!((error, there == content), (None, true));
        } else {
            assert_eq!((error, &there[..]), (Some(Exit::VerifyFailed), &b"old"[..]));
        }
    }
}

#[test]
fn what_was_under_way_when_the_peer_went_is_removed() {
    let tmp = tempfile::tempdir().unwrap();
    let mut victim = taking(tmp.path());
    victim.send(&listed(2 * BLOCK));
    put(&mut victim, 0, &[1; 5_000]).unwrap();
    let files = |tmp: &tempfile::TempDir| fs::read_dir(tmp.path()).unwrap().count();
    assert_eq!(files(&tmp), 2, "a part and a journal");
    end(&mut victim);
    drop(victim);
    // The last worker holds the journal.
    while files(&tmp) > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_pipe_that_was_not_agreed_on_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let share = Share::open("s", tmp.path(), Access::ReadWrite).unwrap();
    let policy = Arc::new(Policy::new(vec![share], Allow::Any, false));
    for direction in [Direction::Put, Direction::Get] {
        let server = Server::new(Arc::clone(&policy), None);
        let mut victim = Victim::declaring(server, vec![6, 6, 0]);
        victim.send(&request(direction));
        let refused = |m: &Message| {
            matches!(
                m,
                Message::Refused {
                    code: Exit::Protocol,
                    ..
                }
            )
        };
        assert!(victim.has_said(refused));
    }
}

/// A client that fetches `f` into a pipe that nobody reads from but that takes everything.
fn drawing() -> Victim<Download> {
    let from = Remote {
        share: "s".into(),
        path: b"f".to_vec(),
    };
    let client = Download::pipe(Box::new(io::sink()), &from, Options::default()).unwrap();
    let mut victim = Victim::new(client);
    victim.send(&Message::Accepted {
        version: OLDEST,
        one_file: true,
    });
    victim
}

#[test]
fn only_the_one_file_is_written_to_a_pipe() {
    let other = Message::Entries {
        first: 0,
        entries: vec![entry(Kind::File, "g", 0o644, 5)],
    };
    let two = Message::Entries {
        first: 0,
        entries: vec![entry(Kind::File, "f", 0o644, 5); 2],
    };
    let folder = Message::Entries {
        first: 0,
        entries: vec![entry(Kind::Dir, "f", 0o755, 0)],
    };
    let early = Message::End { entries: 1 };
    for lie in [other, two, folder, early, grown(0, 5)] {
        let mut victim = drawing();
        victim.send(&lie);
        assert_eq!(code(&victim), Some(20), "{lie:?}");
    }
    let mut victim = drawing();
    victim.send(&listed(5));
    victim.send(&listed(5));
    assert_eq!(code(&victim), Some(20), "listed twice");
}

#[test]
fn a_server_fills_no_more_memory_than_was_requested() {
    let mut victim = drawing();
    victim.send(&listed(1 << 60));
    let mut requested = 0;
    victim.has_said(|m| {
        if let Message::Want { ranges, .. } = m {
            requested = ranges.iter().map(|r| r.end).max().unwrap_or(0);
        }
        false
    });
    assert!((1..=MOST * BLOCK).contains(&requested), "{requested}");
    // A byte of every block but the first keeps all of them waiting, and brings no more requests.
    for block in 1..requested / BLOCK {
        put(&mut victim, block * BLOCK, &[1]).unwrap();
    }
    assert!(!victim.has_said(|m| matches!(m, Message::Want { .. })));
    assert!(put(&mut victim, requested - 1, &[1, 1]).is_err());
    assert!(put(&mut victim, 1 << 59, &[1]).is_err());
}

#[test]
fn what_was_written_to_a_pipe_is_right_or_the_end_says_that_it_is_not() {
    for (root, expected) in [(b"right", None), (b"wrong", Some(7))] {
        let mut victim = drawing();
        let handle = victim.app.handle();
        victim.send(&listed(5));
        put(&mut victim, 0, b"right").unwrap();
        victim.send(&roots(blake3::hash(root).into()));
        victim.send(&Message::End { entries: 1 });
        victim.until_finished();
        let error = handle.outcome().unwrap().error;
        assert_eq!(error.map(|e| e.code.number()), expected);
    }
}

/// A client that sends three blocks from a pipe, all of them listed by now.
fn uploading() -> Victim<Upload> {
    let to = Remote {
        share: "s".into(),
        path: b"f".to_vec(),
    };
    let input = io::Cursor::new(vec![7; usize::try_from(3 * BLOCK).unwrap()]);
    let client = Upload::pipe(Box::new(input), 0o644, &to, Options::default()).unwrap();
    let mut victim = Victim::new(client);
    victim.send(&Message::Accepted {
        version: OLDEST,
        one_file: true,
    });
    while !victim.has_said(|m| matches!(m, Message::End { .. })) {
        victim.app.poll(victim.now, &mut victim.line);
        std::thread::yield_now();
    }
    victim
}

#[test]
fn what_came_through_a_pipe_is_wanted_once_and_in_order() {
    let want = |range: std::ops::Range<u64>| Message::Want {
        upto: 1,
        ranges: vec![range],
    };
    let taken = |upto| Message::Taken { file: 0, upto };
    let cases: [&[Message]; 6] = [
        &[want(0..4 * BLOCK)],
        &[want(BLOCK..2 * BLOCK)],
        &[want(0..BLOCK), want(0..BLOCK)],
        &[taken(BLOCK)],
        &[want(0..BLOCK), taken(2 * BLOCK)],
        &[Message::AskBlocks { file: 0 }],
    ];
    for messages in cases {
        let mut victim = uploading();
        for message in messages {
            assert_eq!(code(&victim), None, "{messages:?}");
            victim.send(message);
        }
        assert_eq!(code(&victim), Some(20), "{messages:?}");
    }
    let mut victim = uploading();
    victim.send(&want(0..3 * BLOCK));
    victim.send(&taken(2 * BLOCK));
    assert_eq!(code(&victim), None);
    let mut batch = [1; 8];
    let extent = Extent {
        object: CONTENT,
        offset: 2 * BLOCK - 4,
        len: 8,
        at: 0,
    };
    victim.app.fill(&[extent], &mut batch).unwrap();
    assert_eq!(batch, [0, 0, 0, 0, 7, 7, 7, 7], "what was taken is gone");
}
