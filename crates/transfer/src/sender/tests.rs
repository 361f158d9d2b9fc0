use super::*;
use crate::{ask::Usage, plan::Lister};

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
        fate: Fate::Arrives,
        asked: 0,
        body: Body::None,
    }
}
