//! Clients that remove, move and copy what they may not, and those that may.

use std::{
    os::{fd::BorrowedFd, unix::fs::symlink},
    sync::Mutex,
};

use super::*;
use crate::{
    disk::{Answer, Call, Disk, Interposer},
    server::{Right, Tickets},
    state_names,
    wire::{Change, Features, Place, path},
};

fn share(root: &Path, access: Access) -> Share {
    Share::open("s", root, access).unwrap()
}

fn served(share: Share) -> Arc<Policy> {
    Arc::new(Policy::new(vec![share], Allow::Any, true))
}

/// A session in which entries may be changed.
fn opened(policy: &Arc<Policy>) -> Victim<Server> {
    let mut victim = Victim::new(Server::new(Arc::clone(policy), None));
    victim.send(&Message::WantReads);
    victim
}

fn deleting(root: &Path) -> Victim<Server> {
    opened(&served(share(root, Access::Delete)))
}

fn moved(to: &[u8]) -> Change {
    let (to, replace) = (to.to_vec(), true);
    Change::Move { to, replace }
}

fn copied(to: &[u8]) -> Change {
    let (to, replace) = (to.to_vec(), true);
    Change::Copy { to, replace }
}

/// Changes that have a new path, or not.
fn all(to: &[u8]) -> Vec<Change> {
    vec![
        Change::Remove,
        Change::RemoveFolder,
        Change::MakeFolder { parents: true },
        moved(to),
        copied(to),
    ]
}

impl Victim<Server> {
    /// The outcome of a change.
    fn change(&mut self, path: &[u8], change: Change) -> Result<(), (Exit, String)> {
        static NEXT: Mutex<u32> = Mutex::new(1);
        let mut next = NEXT.lock().unwrap();
        let id = *next;
        *next += 1;
        drop(next);
        let place = Place {
            share: b"s".to_vec(),
            path: path.to_vec(),
        };
        self.send(&Message::Change { id, place, change });
        loop {
            match self.answer() {
                Message::Changed { id: of, more } => {
                    assert_eq!(of, id);
                    if !more {
                        return Ok(());
                    }
                }
                Message::Unanswered { id: of, code, text } => {
                    assert_eq!(of, id);
                    return Err((code, String::from_utf8(text).unwrap()));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn refused(&mut self, path: &[u8], change: Change) -> Exit {
        let what = format!("{} {change:?}", path::show(path));
        self.change(path, change).expect_err(&what).0
    }
}

/// Paths below a folder, with the content of files and the targets of links.
fn tree(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stat = path.symlink_metadata().unwrap();
            let content = if stat.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else if stat.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            found.push((path.strip_prefix(root).unwrap().to_owned(), content));
        }
    }
    found.sort();
    found
}

#[test]
fn entries_are_removed_moved_copied_and_made() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir_all(tmp.path().join("d/e")).unwrap();
    fs::write(tmp.path().join("d/a"), "a").unwrap();
    set_mode(&tmp.path().join("d/a"), 0o640);
    let mut victim = deleting(tmp.path());
    victim
        .change(b"x/y", Change::MakeFolder { parents: true })
        .unwrap();
    victim
        .change(b"x/y", Change::MakeFolder { parents: true })
        .unwrap();
    victim
        .change(b"x/z", Change::MakeFolder { parents: false })
        .unwrap();
    victim.change(b"d/a", copied(b"x/y/b")).unwrap();
    assert_eq!(fs::read(tmp.path().join("x/y/b")).unwrap(), b"a");
    assert_eq!(mode(&tmp.path().join("x/y/b")), 0o640);
    // Up, down, over another, a folder, into one that is made for it.
    victim.change(b"x/y/b", moved(b"n/b")).unwrap();
    victim.change(b"n/b", moved(b"b")).unwrap();
    victim.change(b"n", Change::RemoveFolder).unwrap();
    victim.change(b"b", moved(b"d/e/c")).unwrap();
    victim.change(b"d/e/c", moved(b"d/a")).unwrap();
    victim.change(b"d/e", moved(b"x/d")).unwrap();
    victim.change(b"d/a", moved(b"x/d/a")).unwrap();
    victim.change(b"d", Change::RemoveFolder).unwrap();
    victim.change(b"x/y", Change::RemoveFolder).unwrap();
    victim.change(b"x/z", Change::RemoveFolder).unwrap();
    // To the name that it has.
    assert_eq!(victim.refused(b"x/d/a", moved(b"x/d/a")), Exit::Usage);
    assert_eq!(victim.refused(b"x/d", moved(b"x/d")), Exit::Usage);
    // Two names of one file: the second stays.
    fs::hard_link(tmp.path().join("x/d/a"), tmp.path().join("x/d/b")).unwrap();
    assert_eq!(victim.refused(b"x/d/b", moved(b"x/d/b")), Exit::Usage);
    victim.change(b"x/d/b", moved(b"x/d/a")).unwrap();
    let names: Vec<_> = tree(tmp.path()).into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, ["x", "x/d", "x/d/a"].map(PathBuf::from));
    assert_eq!(fs::read(tmp.path().join("x/d/a")).unwrap(), b"a");
    victim.change(b"x/d/a", Change::Remove).unwrap();
    assert!(!tmp.path().join("x/d/a").exists());
}

#[test]
fn what_is_there_is_neither_replaced_nor_taken_for_something_else() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir_all(tmp.path().join("full/x")).unwrap();
    for name in ["a", "b", "full/hidden"] {
        fs::write(tmp.path().join(name), name).unwrap();
    }
    let before = tree(tmp.path());
    let mut victim = deleting(tmp.path());
    let keep = |to: &[u8]| Change::Move {
        to: to.to_vec(),
        replace: false,
    };
    let keep_copy = |to: &[u8]| Change::Copy {
        to: to.to_vec(),
        replace: false,
    };
    for (path, change, code) in [
        (&b"a"[..], keep(b"b"), Exit::DestError),
        (b"a", keep_copy(b"b"), Exit::DestError),
        (b"a", moved(b"full"), Exit::DestError),
        (b"a", copied(b"full"), Exit::DestError),
        (b"full", moved(b"a"), Exit::DestError),
        (b"full", moved(b"full/x/y"), Exit::Usage),
        (b"full", copied(b"c"), Exit::DestError),
        (b"full", Change::Remove, Exit::DestError),
        (b"full", Change::RemoveFolder, Exit::DestError),
        (b"a", Change::RemoveFolder, Exit::DestError),
        (b"a", Change::MakeFolder { parents: true }, Exit::DestError),
        (
            b"full",
            Change::MakeFolder { parents: false },
            Exit::DestError,
        ),
        (
            b"none/x",
            Change::MakeFolder { parents: false },
            Exit::SourceMissing,
        ),
        (
            b"a/x",
            Change::MakeFolder { parents: true },
            Exit::DestError,
        ),
        (b"a", copied(b"a"), Exit::Usage),
        (b"a", moved(b"b/x"), Exit::DestError),
        (b"none", moved(b"new/x"), Exit::SourceMissing),
        (b"none", copied(b"new/x"), Exit::SourceMissing),
        (b"none", Change::Remove, Exit::SourceMissing),
        (b"none", moved(b"x"), Exit::SourceMissing),
        (b"none", copied(b"x"), Exit::SourceMissing),
    ] {
        assert_eq!(victim.refused(path, change.clone()), code, "{change:?}");
    }
    assert_eq!(tree(tmp.path()), before);
}

#[test]
fn who_may_not_change_a_share_changes_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir(tmp.path().join("d")).unwrap();
    fs::write(tmp.path().join("a"), "a").unwrap();
    let before = tree(tmp.path());
    for access in [Access::Read, Access::Write, Access::Create] {
        let other = Share::open("r", tmp.path(), Access::Read).unwrap();
        let shares = vec![share(tmp.path(), access), other];
        let mut victim = opened(&Arc::new(Policy::new(shares, Allow::Any, true)));
        for change in all(b"b") {
            assert_eq!(victim.refused(b"a", change), Exit::Auth, "{access:?}");
        }
    }
    let mut victim = opened(&served(share(tmp.path(), Access::ReadWrite)));
    for (path, change) in [
        (&b"a"[..], Change::Remove),
        (b"d", Change::RemoveFolder),
        (b"a", moved(b"d/a")),
    ] {
        let (code, text) = victim.change(path, change).unwrap_err();
        assert!(code == Exit::Auth && text.contains("rw,delete"), "{text}");
    }
    assert_eq!(tree(tmp.path()), before);
    // What a delivery could do as well.
    victim
        .change(b"e", Change::MakeFolder { parents: false })
        .unwrap();
    victim.change(b"a", copied(b"e/a")).unwrap();
}

#[test]
fn no_path_leads_out_of_the_share_or_to_what_copies_keep() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("share");
    fs::create_dir_all(tmp.path().join("outside/d")).unwrap();
    fs::write(tmp.path().join("outside/secret"), "secret").unwrap();
    fs::create_dir_all(root.join("d")).unwrap();
    fs::write(root.join("a"), "a").unwrap();
    symlink("../outside", root.join("out")).unwrap();
    let own = [
        state_names::journal_name([7; 8]),
        state_names::part_name(b"a", [7; 8]),
        state_names::stripes_name(b"a", [7; 8]),
    ];
    for name in &own {
        fs::write(root.join(str::from_utf8(name).unwrap()), "state").unwrap();
    }
    let before = tree(tmp.path());
    let mut victim = deleting(&root);
    let mut bad: Vec<Vec<u8>> = own.to_vec();
    bad.extend(own.iter().map(|name| name.to_ascii_uppercase()));
    bad.extend(own.iter().map(|name| [&b"d/"[..], name].concat()));
    bad.extend(own.iter().map(|name| [name, &b"/x"[..]].concat()));
    let paths = [
        &b""[..],
        b"..",
        b"../outside/secret",
        b"/etc/passwd",
        b"d/../a",
        b"./a",
        b"d//a",
        b"a\0b",
    ];
    bad.extend(paths.map(<[u8]>::to_vec));
    for path in &bad {
        for change in all(b"b") {
            assert_eq!(victim.refused(path, change), Exit::Usage);
        }
        for change in [moved(path), copied(path)] {
            assert_eq!(victim.refused(b"a", change), Exit::Usage);
        }
    }
    for path in [&b"out/secret"[..], b"out/d", b"out/new"] {
        for change in all(b"b") {
            assert_eq!(victim.refused(path, change), Exit::Partial);
        }
        for change in [moved(path), copied(path)] {
            assert_eq!(victim.refused(b"a", change), Exit::Partial);
        }
    }
    assert_eq!(victim.refused(b"out", copied(b"b")), Exit::Partial);
    assert_eq!(tree(tmp.path()), before);
    // A link itself may be removed, and replaced: nothing is followed.
    victim.change(b"a", copied(b"d/a")).unwrap();
    symlink("../../outside/secret", root.join("d/l")).unwrap();
    victim.change(b"a", copied(b"d/l")).unwrap();
    victim.change(b"out", Change::Remove).unwrap();
    assert_eq!(
        fs::read(tmp.path().join("outside/secret")).unwrap(),
        b"secret"
    );
    assert!(!root.join("d/l").is_symlink() && !root.join("out").is_symlink());
}

#[test]
fn no_link_leads_out_because_it_was_moved() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("share");
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::write(root.join("a/b/c/f"), "f").unwrap();
    // As a delivery may make it.
    symlink("../../../x", root.join("a/b/c/l")).unwrap();
    let before = tree(&root);
    let mut victim = deleting(&root);
    for (path, to) in [
        (&b"a/b/c/l"[..], &b"a/b/l"[..]),
        (b"a/b/c/l", b"l"),
        (b"a/b/c", b"a/c"),
        (b"a/b/c", b"c"),
        (b"a/b", b"b"),
        // Nor a folder down, in which a link may go up again with another folder.
        (b"a/b", b"a/d/b"),
        (b"a/b/c", b"a/b/x/c"),
    ] {
        assert_eq!(victim.refused(path, moved(to)), Exit::DestError);
    }
    assert_eq!(tree(&root), before, "nor is anything left of it");
    victim.change(b"a/b/c/l", moved(b"a/b/c/k")).unwrap();
    victim.change(b"a/b/c", moved(b"a/b/d")).unwrap();
    victim.change(b"a/b/d/f", moved(b"f")).unwrap();
    assert!(root.join("a/b/d/k").is_symlink());
    let left: Vec<_> = tree(&root).into_iter().map(|(path, _)| path).collect();
    assert_eq!(
        left,
        ["a", "a/b", "a/b/d", "a/b/d/k", "f"].map(PathBuf::from)
    );
}

/// A ticket for `d`.
#[derive(Debug)]
struct ForFolder(Access);

impl Tickets for ForFolder {
    fn knows(&self, _: &[u8]) -> bool {
        true
    }

    fn right(&self, _: &[u8]) -> Result<Option<Right>, TransferError> {
        Ok(Some(Right {
            share: "s".into(),
            path: b"d".to_vec(),
            access: self.0,
            max_rate: None,
        }))
    }

    fn begin(&self, _: &[u8], _: [u8; 8]) -> Result<(), TransferError> {
        Ok(())
    }

    fn end(&self, _: &[u8], _: [u8; 8]) -> Result<(), TransferError> {
        Ok(())
    }
}

#[test]
fn a_ticket_is_for_what_is_below_its_place() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir_all(tmp.path().join("d/e")).unwrap();
    fs::create_dir(tmp.path().join("empty")).unwrap();
    for name in ["d/a", "d/b", "a"] {
        fs::write(tmp.path().join(name), name).unwrap();
    }
    let by = |share: Access, ticket: Access| {
        let shares = vec![self::share(tmp.path(), share).for_tickets(true)];
        let policy = Policy::new(shares, Allow::Any, true);
        opened(&Arc::new(policy.with_tickets(Arc::new(ForFolder(ticket)))))
    };
    let before = tree(tmp.path());
    for (share, ticket) in [
        (Access::Delete, Access::ReadWrite),
        (Access::ReadWrite, Access::Delete),
        (Access::Delete, Access::Read),
    ] {
        assert_eq!(
            by(share, ticket).refused(b"d/a", Change::Remove),
            Exit::Auth
        );
    }
    let mut victim = by(Access::Delete, Access::Delete);
    for (path, change) in [
        (&b"d"[..], Change::RemoveFolder),
        (b"d", Change::Remove),
        (b"d", moved(b"d/e/d")),
        (b"d", moved(b"d2")),
        (b"a", Change::Remove),
        (b"empty", Change::RemoveFolder),
        (b"new", Change::MakeFolder { parents: true }),
        (b"a", copied(b"d/c")),
        (b"d/a", copied(b"c")),
        (b"d/a", moved(b"c")),
        (b"a", moved(b"d/c")),
        (b"d2", Change::MakeFolder { parents: true }),
    ] {
        assert_eq!(victim.refused(path, change), Exit::Auth);
    }
    assert_eq!(tree(tmp.path()), before);
    victim.change(b"d/a", Change::Remove).unwrap();
    victim.change(b"d/b", moved(b"d/e/b")).unwrap();
}

#[test]
fn a_copy_under_way_keeps_its_place() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir_all(tmp.path().join("a/in/sub")).unwrap();
    fs::create_dir(tmp.path().join("other")).unwrap();
    for name in ["a/in/old", "other/x"] {
        fs::write(tmp.path().join(name), name).unwrap();
    }
    let policy = served(share(tmp.path(), Access::Delete));
    let begin = |path: &str, one_file| {
        let options = RequestOptions {
            one_file,
            ..RequestOptions::default()
        };
        let mut copy = Victim::new(Server::new(Arc::clone(&policy), None));
        copy.send(&Message::request_with(Direction::Put, "s", path, options));
        assert!(copy.has_said(|m| matches!(m, Message::Accepted { .. })));
        copy
    };
    let mut victim = opened(&policy);
    let copy = begin("a/in/", false);
    for (path, change) in [
        (&b"a"[..], moved(b"b")),
        (b"a", Change::RemoveFolder),
        (b"a/in", Change::RemoveFolder),
        (b"a/in", moved(b"a/on")),
        (b"a/in/sub", Change::RemoveFolder),
        (b"a/in/sub", moved(b"a/in/on")),
    ] {
        assert_eq!(victim.refused(path, change), Exit::Locked);
    }
    // Files that are there are not what arrives.
    victim.change(b"a/in/old", Change::Remove).unwrap();
    drop(copy);
    let copy = begin("other/x", true);
    for (path, change) in [
        (&b"other"[..], moved(b"b")),
        (b"other/x", moved(b"x")),
        (b"a/in", moved(b"other/x")),
    ] {
        assert_eq!(victim.refused(path, change), Exit::Locked);
    }
    victim.change(b"a/in/sub", Change::RemoveFolder).unwrap();
    drop(copy);
    victim.change(b"other/x", Change::Remove).unwrap();
    victim.change(b"other", moved(b"b")).unwrap();
}

#[test]
fn a_copy_leaves_a_quota_and_a_removal_gives_it_back() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("a"), vec![1; 40 << 10]).unwrap();
    let limited = share(tmp.path(), Access::Delete).within(100 << 10).unwrap();
    let mut victim = opened(&served(limited));
    victim.change(b"a", copied(b"b")).unwrap();
    // What is counted anew after the copy may count twice until then.
    let full = victim.change(b"a", copied(b"c")).unwrap_err();
    assert_eq!(full.0, Exit::NoSpace, "{}", full.1);
    victim.change(b"b", Change::Remove).unwrap();
    // A count that is under way may have seen it.
    while victim.change(b"a", copied(b"c")).is_err() {
        std::thread::yield_now();
    }
    for n in 0.. {
        match victim.change(
            format!("d{n}").as_bytes(),
            Change::MakeFolder { parents: false },
        ) {
            Ok(()) => assert!(n < 6, "folders count"),
            Err((code, _)) => {
                assert_eq!(code, Exit::NoSpace);
                break;
            }
        }
    }
}

/// Names of calls that change a folder, and of syncs, in order.
#[derive(Default)]
struct Calls(Mutex<Vec<&'static str>>);

impl Interposer for Calls {
    fn before(&self, _: BorrowedFd<'_>, _: &Call<'_>) -> Answer {
        Answer::Go
    }

    fn after(&self, _: BorrowedFd<'_>, call: &Call<'_>) {
        let name = match call {
            Call::Remove(_) => "remove",
            Call::RemoveDir(_) => "rmdir",
            Call::MakeDir(..) => "mkdir",
            Call::Rename(..) => "rename",
            Call::Sync => "sync",
            Call::SyncData => "data",
            _ => return,
        };
        self.0.lock().unwrap().push(name);
    }
}

#[test]
fn a_change_is_on_the_disk_before_it_is_answered() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("a"), "a").unwrap();
    let calls = Arc::new(Calls::default());
    let disk = Disk(Some(Arc::<Calls>::clone(&calls)));
    let watched = share(tmp.path(), Access::Delete).on(&disk).unwrap();
    let mut victim = opened(&served(watched));
    for (path, change, wanted) in [
        (
            &b"d"[..],
            Change::MakeFolder { parents: true },
            &["mkdir", "sync"][..],
        ),
        (
            b"a",
            copied(b"d/b"),
            &["data", "sync", "rename", "sync", "remove"],
        ),
        (b"a", moved(b"d/c"), &["rename", "sync", "sync"]),
        (b"d/c", Change::Remove, &["remove", "sync"]),
    ] {
        calls.0.lock().unwrap().clear();
        victim.change(path, change).unwrap();
        let made = calls.0.lock().unwrap().clone();
        assert_eq!(made, wanted, "{}", path::show(path));
    }
}

#[test]
fn a_copy_that_is_given_up_leaves_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("a"), vec![1; 1 << 20]).unwrap();
    let mut victim = deleting(tmp.path());
    let place = Place {
        share: b"s".to_vec(),
        path: b"a".to_vec(),
    };
    let change = copied(b"b");
    victim.send(&Message::Change {
        id: 1,
        place,
        change,
    });
    victim.send(&Message::Release { id: 1 });
    // It may have been done by then.
    while fs::read_dir(tmp.path()).unwrap().count() > 1 + usize::from(tmp.path().join("b").exists())
    {
        victim.app.poll(victim.now, &mut victim.line);
        std::thread::yield_now();
    }
    assert!(!victim.line.is_closed());
}

#[test]
fn a_change_that_was_not_agreed_on_ends_the_session() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("a"), "a").unwrap();
    let policy = served(share(tmp.path(), Access::Delete));
    let server = || Server::new(Arc::clone(&policy), None);
    let place = || Place {
        share: b"s".to_vec(),
        path: b"a".to_vec(),
    };
    let remove = |id| Message::Change {
        id,
        place: place(),
        change: Change::Remove,
    };
    let mut victim = Victim::declaring(server(), crate::wire::offer_of(Features::READS));
    victim.send(&Message::WantReads);
    victim.send(&remove(1));
    assert!(victim.line.is_closed());
    let mut victim = Victim::new(server());
    victim.send(&remove(1));
    assert!(victim.line.is_closed(), "without a session that reads");
    for ids in [[2, 2], [2, 1]] {
        let mut victim = opened(&policy);
        for id in ids {
            victim.send(&Message::Change {
                id,
                place: place(),
                change: Change::MakeFolder { parents: true },
            });
        }
        assert!(victim.line.is_closed(), "{ids:?}");
    }
    assert!(tmp.path().join("a").exists());
}

#[test]
fn a_client_that_knows_no_changes_is_told_of_an_access_that_it_knows() {
    let tmp = tempfile::tempdir().unwrap();
    let policy = served(share(tmp.path(), Access::Delete));
    for (features, access) in [
        (Features::SHARES, Access::ReadWrite),
        (Features::SHARES | Features::CHANGES, Access::Delete),
    ] {
        let server = Server::new(Arc::clone(&policy), None);
        let mut victim = Victim::declaring(server, crate::wire::offer_of(features));
        victim.send(&Message::WantShares);
        let mut told = None;
        victim.has_said(|m| {
            if let Message::Shares(shares) = m {
                told = shares.first().map(|share| share.access);
            }
            told.is_some()
        });
        assert_eq!(told, Some(access));
    }
}
