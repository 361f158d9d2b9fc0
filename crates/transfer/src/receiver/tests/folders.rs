use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::wire::{Facts, Preserve};

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
        receiver.entries.dest.folders.are_closing()
    };
    assert!(!list(100), "few and small: at the end");
    assert!(list(16_000), "1.6 MB of attributes, and 1 MiB may be kept");
}

#[test]
fn a_stranger_makes_no_folder_that_its_owner_cannot_read() {
    let mode_of = |strangers: bool, mode: u16, there: Option<u32>| {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("d");
        if let Some(there) = there {
            fs::create_dir(&dir).unwrap();
            fs::set_permissions(&dir, fs::Permissions::from_mode(there)).unwrap();
        }
        let rules = Rules { strangers, ..RULES };
        let mut receiver = receiver(tmp.path(), rules).unwrap();
        let folder = Entry {
            kind: Kind::Dir,
            mode,
            ..entry("d", 0)
        };
        let entries = vec![folder];
        receiver
            .handle(Message::Entries { first: 0, entries })
            .unwrap();
        receiver.handle(Message::End { entries: 1 }).unwrap();
        let told = finish(&mut receiver).into_iter().any(|m| {
            matches!(m, Message::Trouble { text, .. }
                if String::from_utf8_lossy(&text).contains("the owner of a share can read"))
        });
        let mode = fs::metadata(&dir).unwrap().permissions().mode() & 0o777;
        (mode, told)
    };
    assert_eq!(mode_of(false, 0, None), (0, false));
    assert_eq!(mode_of(true, 0, None), (0o500, true));
    assert_eq!(mode_of(true, 0o055, Some(0o750)), (0o550, false));
    assert_eq!(mode_of(true, 0o555, None), (0o555, false));
    assert_eq!(mode_of(true, 0o755, Some(0o300)), (0o300, false));
}

#[test]
fn where_copies_change_nothing_a_new_folder_takes_what_later_ones_add() {
    for reach in [Reach::Content, Reach::New] {
        let tmp = tempfile::tempdir().unwrap();
        let rules = Rules { reach, ..RULES };
        let mut receiver = receiver(tmp.path(), rules).unwrap();
        let folder = Entry {
            kind: Kind::Dir,
            mode: 0o555,
            ..entry("d", 0)
        };
        let entries = vec![folder];
        let listed = Message::Entries { first: 0, entries };
        receiver.handle(listed).unwrap();
        receiver.handle(Message::End { entries: 1 }).unwrap();
        let told = finish(&mut receiver).into_iter().any(|m| {
            matches!(m, Message::Trouble { text, .. }
                if String::from_utf8_lossy(&text).contains("later copies can add to it"))
        });
        let mode = fs::metadata(tmp.path().join("d")).unwrap().permissions();
        assert_eq!((mode.mode() & 0o777, told), (0o755, true));
    }
}
