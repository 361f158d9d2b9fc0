use super::*;
use crate::wire::{Delete, Suffix};

fn rules(delete: bool) -> Rules {
    let backup = Some(Suffix::new(b"~").unwrap());
    let delete = delete.then(Delete::default);
    let mirror = Mirror {
        delete,
        backup,
        ..Mirror::PLAIN
    };
    Rules { mirror, ..RULES }
}

/// Copies files of sevens; its errors.
fn copy(dir: &Path, files: &[(&str, u64)], delete: bool) -> Vec<Exit> {
    let mut receiver = receiver(dir, rules(delete)).unwrap();
    if delete {
        let root = Entry {
            kind: Kind::Dir,
            ..entry("", 0)
        };
        receiver
            .entries
            .dest
            .mirror
            .listed
            .add(&root.path, root.kind);
    }
    send_all(&mut receiver, files);
    finish(&mut receiver);
    let failures = receiver.entries.core.log.failures.iter();
    failures.map(|failure| failure.code).collect()
}

fn read(dir: &Path, name: &str) -> Option<String> {
    let text = fs::read(dir.join(name)).ok()?;
    Some(String::from_utf8_lossy(&text).into())
}

#[test]
fn a_backup_does_not_take_the_name_of_a_file_of_the_same_copy() {
    for (files, lost) in [
        (&[("f", 3), ("f~", 5)][..], "f"),
        (&[("f~", 5), ("f", 3)][..], "f"),
        (&[("f", 2 << 20), ("f~", 5)][..], "f"),
    ] {
        for there in [false, true] {
            let tmp = tempfile::tempdir().unwrap();
            fs::write(tmp.path().join("f"), "old").unwrap();
            if there {
                fs::write(tmp.path().join("f~"), "older").unwrap();
            }
            assert_eq!(copy(tmp.path(), files, false), [Exit::DestError]);
            assert_eq!(read(tmp.path(), lost).unwrap(), "old");
            assert_eq!(read(tmp.path(), "f~").unwrap(), "\u{7}".repeat(5));
            let kept = read(tmp.path(), "f~~");
            assert_eq!(kept.as_deref(), there.then_some("older"));
        }
    }
}

#[test]
fn a_name_that_was_given_to_a_backup_is_not_replaced() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("f"), "old").unwrap();
    let mut receiver = receiver(tmp.path(), rules(false)).unwrap();
    receiver.entries.dest.mirror.backups.make(b"f").unwrap();
    receiver.entries.dest.mirror.backups.list(b"f").unwrap();
    assert!(receiver.entries.dest.mirror.backups.list(b"f~").is_err());
    assert!(receiver.entries.dest.mirror.backups.make(b"f").is_err());
}

#[test]
fn an_extra_file_is_not_renamed_over_one_that_was_copied() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("x"), "old").unwrap();
    fs::write(tmp.path().join("y"), "extra").unwrap();
    let failed = copy(tmp.path(), &[("x~", 5)], true);
    assert_eq!(failed, [Exit::DestError]);
    assert_eq!(read(tmp.path(), "x").unwrap(), "old");
    assert_eq!(read(tmp.path(), "x~").unwrap(), "\u{7}".repeat(5));
    assert_eq!(read(tmp.path(), "y~").unwrap(), "extra");
}

#[test]
fn what_is_the_same_already_needs_no_backup() {
    let tmp = tempfile::tempdir().unwrap();
    let files = [("f", 3), ("f~", 5)];
    assert_eq!(copy(tmp.path(), &files, false), []);
    assert_eq!(copy(tmp.path(), &files, false), []);
    assert_eq!(read(tmp.path(), "f~~"), None);
}
