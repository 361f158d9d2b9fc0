use super::*;
use crate::message::{Entry, Kind};

#[test]
fn two_files_listed_by_one_name_are_not_mixed() {
    let tmp = tempfile::tempdir().unwrap();
    let rules = Rules {
        sync: false,
        existing: Existing::Replace,
        checksum: false,
    };
    let base = Base::local(tmp.path(), false).unwrap();
    let mut receiver = Receiver::new(base, [1; 8], rules, Arc::default(), None).unwrap();
    let entry = |path: &str, size| Entry {
        kind: Kind::File,
        path: path.as_bytes().to_vec(),
        mode: 0o644,
        mtime: 0,
        mtime_nanos: 0,
        size,
        allocated: size,
        target: Vec::new(),
    };
    let entries = vec![
        entry("a", 3 << 20),
        entry("b", 5),
        entry("a", 2 << 20),
        entry("b", 5),
    ];
    let listed = Message::Entries { first: 0, entries };
    receiver.handle(listed).unwrap();
    assert_eq!(receiver.tally.files_failed, 2);
    let wanted: u64 = receiver.missing.iter().map(|r| r.end - r.start).sum();
    assert_eq!(wanted, (3 << 20) + 5, "only the first of each is wanted");
}
