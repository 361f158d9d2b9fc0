use std::os::{fd::BorrowedFd, unix::fs::MetadataExt as _};

use farhaul_core::{congestion::Sharing, store::Extent};
use farhaul_testkit::FakeSession;
use rustix::io::Errno;

use super::*;
use crate::{
    brake::Brake,
    confine,
    disk::{Answer, Call, Disk, Interposer},
    lanes::{Handed, Lanes},
    pages::Pages,
    table::CONTENT,
    wire::{Kind, Tally, Usage, testing::said},
};

fn sources(dir: &std::path::Path) -> (Vec<Source>, Vec<Problem>) {
    std::fs::write(dir.join("f"), "content").unwrap();
    let source = Source::local(&dir.join("f"), None).unwrap();
    (vec![source], Vec::new())
}

fn finished() -> Message {
    Message::Finished {
        tally: Tally::default(),
        usage: Usage::default(),
    }
}

#[test]
fn no_end_is_finished_before_the_manifest_is() {
    let tmp = tempfile::tempdir().unwrap();
    let some = Selection::default;
    let mut sender = Sender::new(
        sources(tmp.path()),
        some(),
        Arc::default(),
        None,
        &Host::default(),
    )
    .unwrap();
    let refused = sender.handle(finished()).unwrap_err();
    assert_eq!(refused.code, Exit::Protocol);
    assert!(!sender.core.is_finished());
    // Listed to its end, but one entry was never decided on.
    sender.ended = true;
    sender.table.push(0, 1, outgoing());
    assert!(sender.handle(finished()).is_err());
    sender.decided = 1;
    assert!(sender.handle(finished()).is_ok() && sender.core.is_finished());
    assert!(sender.handle(finished()).is_err(), "once");

    let mut lister = Sender::new(
        sources(tmp.path()),
        some(),
        Arc::default(),
        Some(Planning::default()),
        &Host::default(),
    )
    .unwrap();
    assert_eq!(lister.handle(finished()).unwrap_err().code, Exit::Protocol);
    assert!(!lister.core().is_finished());
}

#[test]
fn a_lane_reads_again_what_is_confirmed_until_its_file_is_over() {
    const FILES: u64 = 200;
    const LEN: u64 = 1_000;
    let tmp = tempfile::tempdir().unwrap();
    let root = confine::open_root(tmp.path()).unwrap();
    let content = |n: u64| vec![n.to_le_bytes()[0] | 1; 1_000];
    let lanes = Arc::new(Lanes::new(true, Brake::new(Sharing::Fair), None, 1));
    let link = lanes.enter().unwrap();
    let (mut sends, mut session) = (Sends::default(), FakeSession::default());
    for number in 0..FILES {
        let rel = number.to_string();
        std::fs::write(tmp.path().join(&rel), content(number)).unwrap();
        let range = number * LEN..(number + 1) * LEN;
        let entry = Entry::of(Kind::File, &rel, LEN);
        let at = (Arc::clone(&root), rel.into());
        let mut bytes = Pages::default();
        bytes.fit(1_000);
        bytes.copy_from_slice(&content(number));
        let piece = Handed {
            range: range.clone(),
            bytes,
            origin: Origin::of(&entry, at, number, range.start),
        };
        assert!(link.hand(piece, &mut Vec::new()).is_ok());
        sends.poll(&link, &lanes, &mut session);
        sends.confirm(&[range]).unwrap();
    }
    let sent = |sends: &mut Sends, number: u64| {
        let extent = Extent {
            object: CONTENT,
            offset: number * LEN,
            len: 1_000,
            at: 0,
        };
        let mut batch = vec![0; 1_000];
        sends.fill(&[extent], &mut batch, &lanes).unwrap();
        batch
    };
    // Once from memory, and then from the file.
    for _ in 0..2 {
        for number in 0..FILES {
            assert_eq!(sent(&mut sends, number), content(number), "{number}");
        }
    }
    lanes.set_over(150 * LEN);
    sends.poll(&link, &lanes, &mut session);
    assert_eq!(sent(&mut sends, 149), vec![0; 1_000], "nobody asks for it");
    assert_eq!(sent(&mut sends, 150), content(150));
    assert!(lanes.take_events().is_empty(), "nothing was unreadable");
}

fn outgoing() -> Outgoing {
    let entry = Entry::of(Kind::Dir, "d", 0);
    let at = (confine::open_root("/".as_ref()).unwrap(), b"d".to_vec());
    Outgoing {
        origin: Origin::of(&entry, at, 0, 0),
        entry,
        stamp: Stamp::now(&tempfile::tempfile().unwrap().into()).unwrap(),
        collected: false,
        again: false,
        settled: true,
        disposition: Disposition::Sending,
        asked: 0,
        body: Body::None,
    }
}

/// A disk that cannot read these files any more.
struct Worn(Vec<u64>);

impl Interposer for Worn {
    fn before(&self, file: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        let of_them = || rustix::fs::fstat(file).is_ok_and(|s| self.0.contains(&s.st_ino));
        match call {
            Call::Read(..) if of_them() => Answer::Fail(Errno::IO),
            _ => Answer::Go,
        }
    }

    fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
}

#[test]
fn what_the_disk_does_not_read_is_named_and_the_others_are_sent() {
    let tmp = tempfile::tempdir().unwrap();
    let files = [("bad", 5_000), ("good", 5_000), ("large", 3 << 20)];
    for (name, len) in files {
        std::fs::write(tmp.path().join(name), vec![7; len]).unwrap();
    }
    let inode = |name: &str| std::fs::metadata(tmp.path().join(name)).unwrap().ino();
    let disk = Disk(Some(Arc::new(Worn(vec![inode("bad"), inode("large")]))));
    let mut source = Source::local(&tmp.path().join(""), None).unwrap();
    source.root = Arc::new(source.root.on(&disk).unwrap());
    let (some, host) = (Selection::default(), Host::default());
    let mut sender = Sender::new(
        (vec![source], Vec::new()),
        some,
        Arc::default(),
        None,
        &host,
    )
    .unwrap();
    let mut session = FakeSession {
        swallows: true,
        ..FakeSession::default()
    };
    while !sender.found.is_over() {
        sender.poll(Instant::EPOCH, &mut session);
        std::thread::yield_now();
    }
    let all: usize = files.iter().map(|(_, len)| len).sum();
    let want = Message::Want {
        upto: sender.table.next(),
        ranges: std::iter::once(0..all as u64).collect(),
    };
    sender.handle(want).unwrap();
    while !sender.ended {
        sender.poll(Instant::EPOCH, &mut session);
        std::thread::yield_now();
    }
    let said = said(&session);
    let mut failed: Vec<_> = said
        .iter()
        .filter_map(|m| match m {
            Message::Failed {
                code: Exit::Partial,
                again: false,
                text,
                ..
            } => Some(path::show(text)),
            _ => None,
        })
        .collect();
    failed.sort();
    assert_eq!(failed.len(), 2, "{said:?}");
    for (text, name) in failed.iter().zip(["bad", "large"]) {
        assert!(text.starts_with(name), "{text}");
        assert!(text.contains("Input/output error"), "{text}");
    }
    let roots = said.iter().map(|m| match m {
        Message::Roots(roots) => roots.len(),
        _ => 0,
    });
    assert_eq!(roots.sum::<usize>(), 1, "{said:?}");
}
