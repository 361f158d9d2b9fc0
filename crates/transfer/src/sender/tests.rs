use farhaul_core::{congestion::Sharing, store::Extent};
use farhaul_testkit::FakeSession;

use super::*;
use crate::{ask::Usage, brake::Brake, lanes::Handed, pages::Pages, plan::Lister, table::CONTENT};

fn sources(dir: &std::path::Path) -> Vec<Source> {
    std::fs::write(dir.join("f"), "content").unwrap();
    vec![Source::local(&dir.join("f")).unwrap()]
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
        &Host::default(),
    )
    .unwrap();
    let refused = sender.handle(finished()).unwrap_err();
    assert_eq!(refused.code, Code::Protocol);
    assert!(!sender.finished);
    // Listed to its end, but one entry was never decided on.
    sender.ended = true;
    sender.table.push(0, 1, outgoing());
    assert!(sender.handle(finished()).is_err());
    sender.decided = 1;
    assert!(sender.handle(finished()).is_ok() && sender.finished);
    assert!(sender.handle(finished()).is_err(), "once");

    let mut lister = Lister::new(
        sources(tmp.path()),
        some(),
        Arc::default(),
        None,
        &Host::default(),
    )
    .unwrap();
    assert_eq!(lister.handle(finished()).unwrap_err().code, Code::Protocol);
    assert!(!lister.finished);
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
        let origin = Origin {
            number,
            range: range.clone(),
            root: Arc::clone(&root),
            rel: rel.into(),
            inode: None,
        };
        let mut bytes = Pages::default();
        bytes.fit(1_000);
        bytes.copy_from_slice(&content(number));
        let piece = Handed {
            range: range.clone(),
            bytes,
            origin: Arc::new(origin),
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
    Outgoing {
        entry: Entry {
            kind: Kind::Dir,
            path: b"d".to_vec(),
            mode: 0o755,
            mtime: 0,
            mtime_nanos: 0,
            size: 0,
            allocated: 0,
            target: Vec::new(),
            facts: None,
        },
        source: 0,
        rel: b"d".to_vec(),
        stamp: Stamp::now(&tempfile::tempfile().unwrap().into()).unwrap(),
        again: false,
        settled: true,
        failed: false,
        asked: 0,
        body: Body::None,
    }
}
