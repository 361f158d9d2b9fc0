use super::*;
use crate::facts::{Facts, Preserve};

fn folder(path: &str, attribute: usize) -> Entry {
    let facts = Facts {
        attributes: vec![(b"user.a".to_vec(), vec![7; attribute])],
        ..Facts::default()
    };
    Entry {
        kind: Kind::Dir,
        facts: Some(Box::new(facts)),
        ..entry(path, 0)
    }
}

#[test]
fn folders_with_large_attributes_get_theirs_before_the_end() {
    let tmp = tempfile::tempdir().unwrap();
    let preserve = Preserve {
        xattrs: true,
        ..Preserve::NONE
    };
    let rules = Rules {
        mirror: Mirror {
            preserve,
            ..Mirror::PLAIN
        },
        ..RULES
    };
    let list = |attribute: usize| {
        let mut receiver = receiver(tmp.path(), rules).unwrap();
        let entries = (0..100).map(|i| folder(&format!("d{i}"), attribute));
        let entries = entries.collect();
        receiver
            .handle(Message::Entries { first: 0, entries })
            .unwrap();
        receiver.folders.are_closing()
    };
    assert!(!list(100), "few and small: at the end");
    assert!(list(16_000), "1.6 MB of attributes, and 1 MiB may be kept");
}
