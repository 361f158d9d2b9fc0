//! Clients that read what they may not, too much, or out of order; and a client and a server that do it right.

use std::{
    sync::{Arc, Barrier},
    time::Duration,
};

use farhaul_core::store::Store as _;

use super::*;
use crate::{
    client::{Found, Question, Reader, Reads},
    read::REQUESTS,
    wire::{BLOCK, Hash, Place},
};

/// One share that may be read, `s`, and one `w` that may not.
fn server(root: &Path) -> Victim<Server> {
    let of = |name, access| Share::open(name, root, access).unwrap();
    let shares = vec![of("s", Access::ReadWrite), of("w", Access::Write)];
    reading(shares)
}

fn reading(shares: Vec<Share>) -> Victim<Server> {
    let policy = Policy::new(shares, Allow::Any, false);
    let mut victim = Victim::new(Server::new(Arc::new(policy), None));
    victim.send(&Message::WantReads);
    victim
}

fn at(path: &str) -> Place {
    Place {
        share: b"s".to_vec(),
        path: path.into(),
    }
}

const fn read(id: u32, place: Place, offset: u64, len: u64) -> Message {
    Message::Read {
        id,
        place,
        offset,
        len,
    }
}

impl Victim<Server> {
    /// The next message but the first, waiting for workers.
    pub(super) fn answer(&mut self) -> Message {
        loop {
            let mut found = None;
            self.has_said(|m| {
                found = (!matches!(m, Message::Reads)).then(|| m.clone());
                found.is_some()
            });
            if let Some(found) = found {
                return found;
            }
            self.app.poll(self.now, &mut self.line);
            std::thread::yield_now();
        }
    }

    pub(super) fn refusal(&mut self, message: &Message) -> (Exit, String) {
        self.send(message);
        match self.answer() {
            Message::Unanswered { code, text, .. } => (code, String::from_utf8(text).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Bytes that the session would send of an object.
    fn content(&mut self, object: u32) -> Vec<u8> {
        let mut all = Vec::new();
        for (of, offset, len) in std::mem::take(&mut self.line.sends) {
            assert_eq!(of, object);
            let (offset, len) = (
                usize::try_from(offset).unwrap(),
                usize::try_from(len).unwrap(),
            );
            all.resize(all.len().max(offset + len), 0);
            let extent = Extent::new(object, offset as u64, len, 0).unwrap();
            self.app
                .fill(&[extent], &mut all[offset..offset + len])
                .unwrap();
        }
        all
    }
}

#[test]
fn what_a_copy_could_not_fetch_cannot_be_read() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("share");
    fs::create_dir(&root).unwrap();
    fs::write(tmp.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
    let mut victim = server(&root);
    for (id, path, code) in [
        (1, "../secret", Exit::Usage),
        (2, "link", Exit::Partial),
        (3, "none", Exit::SourceMissing),
        (4, "/etc/passwd", Exit::Usage),
        (5, "", Exit::Partial),
    ] {
        let (found, text) = victim.refusal(&read(id, at(path), 0, 100));
        assert_eq!(found, code, "{path}: {text}");
    }
    let place = || Place {
        share: b"w".to_vec(),
        ..at("a")
    };
    for message in [
        read(6, place(), 0, 1),
        Message::List {
            id: 7,
            place: place(),
        },
        Message::Stat {
            id: 8,
            place: place(),
        },
    ] {
        assert_eq!(victim.refusal(&message).0, Exit::Auth);
    }
    assert!(!victim.line.is_closed());
    // Where there is nothing to read there is no session for it.
    let writable = Share::open("w", &root, Access::Write).unwrap();
    let refusal = reading(vec![writable]).answer();
    assert!(matches!(
        refusal,
        Message::Refused {
            code: Exit::Auth,
            ..
        }
    ));
}

#[test]
fn a_policy_that_holds_no_longer_ends_the_session() {
    let tmp = tempfile::tempdir().unwrap();
    let share = || vec![Share::open("s", tmp.path(), Access::Read).unwrap()];
    let policy = Arc::new(Policy::new(share(), Allow::Any, false));
    let mut victim = Victim::new(Server::new(Arc::clone(&policy), None));
    victim.send(&Message::WantReads);
    victim.app.poll(victim.now, &mut victim.line);
    assert!(!victim.line.is_closed());
    let next = Policy::new(share(), Allow::None, false).succeeding(&policy);
    victim.app.poll(victim.now, &mut victim.line);
    let (code, _) = victim.line.closed.clone().expect("it is over");
    assert_eq!(code, u32::from(Exit::ConnectionLost.number()));
    drop(next);
}

#[test]
fn numbers_count_up_and_requests_are_bounded() {
    let tmp = tempfile::tempdir().unwrap();
    for (first, second) in [(2, 2), (2, 1)] {
        let mut victim = server(tmp.path());
        victim.send(&read(first, at("a"), 0, 1));
        victim.send(&read(second, at("a"), 0, 1));
        assert!(victim.line.is_closed(), "{first} {second}");
    }
    fs::write(tmp.path().join("a"), "a").unwrap();
    let mut victim = server(tmp.path());
    for id in 1..=u32::try_from(REQUESTS).unwrap() {
        victim.send(&read(id, at("a"), 0, 1));
    }
    assert!(!victim.line.is_closed());
    // One is over when it is released, and not before.
    victim.send(&Message::Release { id: 1 });
    victim.send(&read(5_000, at("a"), 0, 1));
    assert!(!victim.line.is_closed());
    victim.send(&read(5_001, at("a"), 0, 1));
    assert!(victim.line.is_closed());
}

#[test]
fn a_repair_reads_the_same_file_or_the_read_fails() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("a");
    let bytes: Vec<u8> = (0..BLOCK + 5_000).map(|n| (n % 251) as u8).collect();
    fs::write(&path, &bytes).unwrap();
    let mut victim = server(tmp.path());
    victim.send(&read(1, at("a"), 100, u64::MAX >> 3));
    let Message::ReadEnd {
        id: 1, len, hash, ..
    } = victim.answer()
    else {
        panic!("no end");
    };
    let wanted = &bytes[100..];
    assert_eq!(
        (len, hash),
        (wanted.len() as u64, Hash::from(blake3::hash(wanted)))
    );
    assert!(victim.content(1) == wanted);
    // Lost, and sent again.
    let again = Extent::new(1, 7, 50, 0).unwrap();
    let mut batch = [0; 50];
    victim.app.fill(&[again], &mut batch).unwrap();
    assert_eq!(batch, wanted[7..57]);
    let other = tmp.path().join("b");
    fs::write(&other, &bytes).unwrap();
    fs::rename(&other, &path).unwrap();
    victim.send(&read(2, at("none"), 0, 1));
    victim.answer();
    // The file that is open for repairs is of another read by then.
    victim.send(&read(3, at("a"), 0, 9));
    victim.answer();
    victim
        .app
        .fill(&[Extent::new(3, 0, 9, 0).unwrap()], &mut batch)
        .unwrap();
    victim
        .app
        .fill(&[Extent::new(3, 0, 9, 0).unwrap()], &mut batch)
        .unwrap();
    victim.app.fill(&[again], &mut batch).unwrap();
    let Message::Unanswered { id: 1, code, .. } = victim.answer() else {
        panic!("another file was sent");
    };
    assert_eq!(code, Exit::SourceChanged);
}

#[test]
fn a_folder_is_listed_without_what_deliveries_leave() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir(tmp.path().join("d")).unwrap();
    for name in [
        "a",
        ".b.0123456789abcdef.farhaul-part",
        ".farhaul-journal-0123456789abcdef",
    ] {
        fs::write(tmp.path().join(name), "1").unwrap();
    }
    let mut victim = server(tmp.path());
    victim.send(&Message::List {
        id: 1,
        place: at(""),
    });
    let Message::Found {
        more: false,
        entries,
        ..
    } = victim.answer()
    else {
        panic!("no list");
    };
    let names: Vec<_> = entries.iter().map(|e| (e.kind, &e.path[..])).collect();
    assert_eq!(names, [(Kind::File, &b"a"[..]), (Kind::Dir, b"d")]);
    let root = Place {
        share: Vec::new(),
        path: Vec::new(),
    };
    victim.send(&Message::List { id: 2, place: root });
    let Message::Found { entries, .. } = victim.answer() else {
        panic!("no shares");
    };
    assert_eq!(entries[0].path, b"s");
}

/// A client that has asked for ten bytes.
fn client() -> (Victim<Reader>, Reads) {
    let reads = Reads::default();
    let mut victim = Victim::new(Reader::new(&reads, None, None));
    victim.send(&Message::Reads);
    let remote = Remote {
        share: "s".into(),
        path: b"a".to_vec(),
    };
    reads.ask(Question::Read(remote, 0, 10)).unwrap();
    victim.app.poll(victim.now, &mut victim.line);
    (victim, reads)
}

fn extent(object: u32, offset: u64, len: usize) -> Extent {
    Extent::new(object, offset, len, 0).unwrap()
}

#[test]
fn a_client_takes_content_only_as_it_was_asked_for() {
    let end = |len, of: &[u8]| Message::ReadEnd {
        id: 1,
        len,
        hash: blake3::hash(of).into(),
        version: [1; 8],
    };
    let answer = |reads: &Reads| {
        reads
            .answers(Duration::ZERO, 9)
            .pop()
            .map(|(_, found)| found)
    };

    let (mut victim, reads) = client();
    victim.app.place(&[extent(1, 0, 3)], b"abc").unwrap();
    victim.send(&end(3, b"abc"));
    assert_eq!(
        answer(&reads),
        Some(Ok(Found::Content(b"abc".to_vec(), 0x0101_0101_0101_0101)))
    );
    // What still arrives is of a read that is over.
    victim.app.place(&[extent(1, 0, 3)], b"abc").unwrap();
    victim.send(&Message::Unanswered {
        id: 1,
        code: Exit::Partial,
        text: Vec::new(),
    });
    assert_eq!(answer(&reads), None, "one answer");

    let (mut victim, reads) = client();
    victim.app.place(&[extent(1, 0, 3)], b"abd").unwrap();
    victim.send(&end(3, b"abc"));
    assert_eq!(
        answer(&reads).unwrap().unwrap_err().code,
        Exit::SourceChanged
    );

    let (mut victim, _reads) = client();
    assert!(
        victim.app.place(&[extent(1, 8, 3)], b"abc").is_err(),
        "beyond"
    );
    assert!(
        victim.app.place(&[extent(2, 0, 3)], b"abc").is_err(),
        "another"
    );
    victim.send(&end(11, b""));
    assert!(victim.line.is_closed(), "longer than was asked for");

    let (mut victim, reads) = client();
    victim.app.place(&[extent(1, 0, 5)], b"abcde").unwrap();
    victim.send(&end(3, b"abc"));
    assert!(victim.line.is_closed(), "more than the read has");
    drop(reads);
}

#[test]
fn content_is_a_sign_of_life_and_silence_is_not() {
    let (mut victim, _reads) = client();
    for _ in 0..2 {
        victim.now += Duration::from_secs(100);
        victim.app.place(&[extent(1, 0, 3)], b"abc").unwrap();
        victim.app.poll(victim.now, &mut victim.line);
        assert_eq!(victim.line.closed, None);
    }
    victim.now += Duration::from_mins(2);
    victim.app.poll(victim.now, &mut victim.line);
    assert!(victim.line.is_closed());
}

/// The session of many requests ends while another thread waits for answers.
fn end_while_somebody_waits() {
    let (mut victim, reads) = client();
    for _ in 1..REQUESTS {
        let remote = Remote {
            share: "s".into(),
            path: b"a".to_vec(),
        };
        reads.ask(Question::Stat(remote)).unwrap();
    }
    victim.app.poll(victim.now, &mut victim.line);
    let closed = Event::Closed(CloseReason::TimedOut);
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            both.wait();
            for _ in 0..100_000_000 {
                if let Some((_, answer)) = reads.answers(Duration::ZERO, 1).pop() {
                    return (answer, reads.ended());
                }
            }
            panic!("no answer");
        });
        both.wait();
        victim.app.on_event(victim.now, closed, &mut victim.line);
        let (answer, ended) = asker.join().unwrap();
        assert_eq!(answer, Err(ended.unwrap()));
    });
    let left = reads.answers(Duration::ZERO, REQUESTS);
    assert_eq!(left.len(), REQUESTS - 1, "each is answered");
}

#[test]
fn who_hears_that_a_request_is_lost_sees_that_the_session_has_ended() {
    // The threads rarely meet at the worst moment.
    for _ in 0..50 {
        end_while_somebody_waits();
    }
}
