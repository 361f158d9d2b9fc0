use std::{
    os::{fd::BorrowedFd, unix::ffi::OsStrExt as _},
    path::PathBuf,
    sync::Mutex,
};

use super::*;
use crate::{
    disk::{Answer, Call, Disk, Interposer},
    receiver::open_journal,
    wire::{BLOCK, Entry, Kind},
};

const TAG: Tag = [7; 8];

fn name(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

fn said(dir: &Path, delete: bool) -> Vec<(String, LeftoverState)> {
    let mut all = Vec::new();
    clean(dir, delete, &mut |left| {
        all.push((String::from_utf8(left.path).unwrap(), left.state));
    })
    .unwrap();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// A journal, two parts of its copy, and files that only look so.
fn left() -> tempfile::TempDir {
    let tmp = tempfile::tempdir().unwrap();
    let at = |dir: &str, bytes: Vec<u8>| tmp.path().join(dir).join(name(&bytes));
    fs::create_dir_all(tmp.path().join("to/sub")).unwrap();
    let dir = confine::open_root(&tmp.path().join("to")).unwrap();
    // As that of a copy that was killed: one that ends removes a journal without claims.
    let running = open_journal(&dir, TAG);
    let journal = fs::read(at("to", state_names::journal_name(TAG))).unwrap();
    drop(running);
    fs::write(at("to", state_names::journal_name(TAG)), journal).unwrap();
    fs::write(at("to", state_names::part_name(b"a", TAG)), [1; 5000]).unwrap();
    fs::write(at("to/sub", state_names::part_name(b"b", TAG)), "b").unwrap();
    fs::write(at("", state_names::part_name(b"above", TAG)), "no journal").unwrap();
    fs::write(
        at("to", state_names::part_name(b"other", [8; 8])),
        "no journal",
    )
    .unwrap();
    fs::write(at("to", state_names::journal_name([9; 8])), "a user's").unwrap();
    fs::write(tmp.path().join("to/kept"), "kept").unwrap();
    tmp
}

#[test]
fn what_was_abandoned_is_listed_and_removed_and_nothing_else() {
    let tmp = left();
    let listed = said(tmp.path(), false);
    assert_eq!(listed.len(), 3, "{listed:?}");
    assert!(
        listed
            .iter()
            .all(|(_, state)| *state == LeftoverState::Abandoned)
    );
    // Listing locks nothing and changes nothing.
    assert_eq!(said(tmp.path(), false), listed);
    let link = tmp.path().join("link");
    std::os::unix::fs::symlink("to", &link).unwrap();
    let removed = said(&link, true);
    assert!(
        removed
            .iter()
            .all(|(_, state)| *state == LeftoverState::Removed)
    );
    assert_eq!(removed.len(), 3, "{removed:?}");
    assert_eq!(said(tmp.path(), true), []);
    assert_eq!(fs::read_dir(tmp.path().join("to")).unwrap().count(), 4);
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 3);
}

#[test]
fn what_a_copy_has_stays() {
    let tmp = left();
    let dir = confine::open_root(&tmp.path().join("to")).unwrap();
    let running = open_journal(&dir, TAG);
    for delete in [false, true] {
        let all = said(tmp.path(), delete);
        assert_eq!(all.len(), 3);
        assert!(
            all.iter().all(|(_, state)| *state == LeftoverState::InUse),
            "{all:?}"
        );
    }
    drop(running);
    // A copy that begins during a report finds its journal free.
    clean(tmp.path(), true, &mut |_| {
        drop(open_journal(&dir, TAG));
    })
    .unwrap();
    assert!(clean(&tmp.path().join("to/kept"), false, &mut |_| {}).is_err());
}

#[test]
fn a_part_belongs_to_the_nearest_journal() {
    let tmp = left();
    let at = |dir: &str, bytes: Vec<u8>| tmp.path().join(dir).join(name(&bytes));
    let dir = confine::open_root(&tmp.path().join("to/sub")).unwrap();
    let running = open_journal(&dir, TAG);
    fs::create_dir(tmp.path().join("to/sub/deep")).unwrap();
    fs::write(at("to/sub/deep", state_names::part_name(b"c", TAG)), "c").unwrap();
    let all = said(tmp.path(), true);
    assert_eq!(all.len(), 5, "{all:?}");
    for (path, state) in all {
        let below = path.starts_with("to/sub/");
        let expected = if below {
            LeftoverState::InUse
        } else {
            LeftoverState::Removed
        };
        assert_eq!(state, expected, "{path}");
    }
    assert!(at("to/sub", state_names::part_name(b"b", TAG)).exists());
    drop(running);
}

/// Records removals and syncs; syncs fail if it is to `refuse` them.
struct Seen {
    refuse: bool,
    calls: Mutex<Vec<&'static str>>,
}

impl Interposer for Seen {
    fn before(&self, _: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        let call = match call {
            Call::Sync if self.refuse => return Answer::Fail(Errno::IO),
            Call::Sync => "sync",
            Call::Remove(name) if name.ends_with(b"-part") => "part",
            Call::Remove(_) => "journal",
            _ => return Answer::Go,
        };
        self.calls.lock().unwrap().push(call);
        Answer::Go
    }

    fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
}

#[test]
fn the_disk_has_it_that_the_parts_are_gone_before_the_journal_goes() {
    for (refuse, expected) in [
        (false, &["part", "part", "sync", "sync", "journal"][..]),
        (true, &["part", "part"]),
    ] {
        let tmp = left();
        let calls = Mutex::default();
        let seen = Arc::new(Seen { refuse, calls });
        let disk = Disk(Some(Arc::clone(&seen) as Arc<dyn Interposer>));
        let root = confine::open_root(tmp.path()).unwrap().on(&disk).unwrap();
        let root = Arc::new(root);
        let copies = find(&root).unwrap().copies;
        let states = copies[0].remove(&root);
        assert_eq!(*seen.calls.lock().unwrap(), expected);
        let failed = matches!(states.last(), Some(LeftoverState::Failed(_)));
        assert_eq!(failed, refuse, "{states:?}");
    }
}

#[test]
fn only_what_was_found_is_removed() {
    let tmp = left();
    let root = confine::open_root(tmp.path()).unwrap();
    let copies = find(&root).unwrap().copies;
    let part = &copies[0].found[0];
    assert!(part.remove(&root, Some(part.is.owner + 1)).is_err());
    assert!(part.remove(&root, None).is_err());
    // Another run began it anew: the old inode stays in use under another name.
    let there = tmp.path().join(name(&part.path));
    fs::rename(&there, tmp.path().join("kept")).unwrap();
    fs::write(&there, "another").unwrap();
    let states = copies[0].remove(&root);
    assert!(matches!(states[0], LeftoverState::Failed(_)), "{states:?}");
    assert_eq!(states.last(), Some(&LeftoverState::Abandoned));
    assert!(there.exists());
}

#[test]
fn a_lock_is_found_in_the_kernels_table() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = confine::open_root(file.path().parent().unwrap()).unwrap();
    let stat = confine::stat(&open, file.path().file_name().unwrap().as_bytes());
    let stat = stat.unwrap().unwrap();
    let line = |inode| {
        let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
        format!("1: FLOCK  ADVISORY  WRITE 7 {major:02x}:{minor:02x}:{inode} 0 EOF\n")
    };
    assert!(is_locked(&stat, &line(stat.st_ino)));
    assert!(!is_locked(&stat, &line(stat.st_ino + 1)));
    assert!(!is_locked(&stat, ""));
}

#[test]
fn stripes_that_nobody_writes_to_any_more_are_abandoned() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = confine::open_root(tmp.path()).unwrap();
    let entry = Entry::of(Kind::File, "f", 2 * BLOCK).striped(0, 0);
    let stripe = entry.stripe.unwrap();
    let collected = state_names::stripes_name(b"f", TAG);
    stripe
        .open(&dir, &collected, |_| Ok(()), |_| Ok(()))
        .unwrap();
    fs::write(
        tmp.path().join(name(&state_names::stripes_name(b"g", TAG))),
        "a user's",
    )
    .unwrap();
    let all = |delete| said(tmp.path(), delete).into_iter().map(|(_, state)| state);
    assert!(all(true).eq([LeftoverState::InUse]));
    let file = fs::File::open(tmp.path().join(name(&collected))).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert!(all(false).eq([LeftoverState::Abandoned]));
    assert!(all(true).eq([LeftoverState::Removed]));
    assert!(all(true).eq([]));
}
