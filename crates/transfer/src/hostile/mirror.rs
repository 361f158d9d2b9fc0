//! Peers that lie in copies that preserve more, or delete.

use std::os::unix::fs::MetadataExt as _;

use farhaul_core::store::Store as _;

use super::{
    client::{deliver, deliver_and_keep},
    server::fetch,
    *,
};
use crate::{
    Action, Delete, Mirror, Preserve, Suffix,
    digest::block_hash,
    endpoint::IDLE,
    wire::{Facts, Hash, OLDEST, Owner},
};

const ALL: Preserve = Preserve {
    ownership: true,
    numeric_ids: true,
    links: true,
    xattrs: true,
    acls: true,
};

fn preserving(preserve: Preserve) -> Mirror {
    Mirror {
        preserve,
        ..Mirror::PLAIN
    }
}

fn deleting() -> Mirror {
    Mirror {
        delete: Some(Delete::default()),
        ..Mirror::PLAIN
    }
}

fn hard_link(path: &str, to: &str) -> (Entry, &'static [u8]) {
    let mut link = entry(Kind::HardLink, path, 0o644, 0);
    link.target = to.into();
    (link, b"")
}

fn with_facts((mut entry, content): (Entry, &[u8]), linked: bool) -> (Entry, &[u8]) {
    entry.facts = Some(Box::new(Facts {
        owner: Some(Owner {
            uid: 4321,
            gid: 4321,
            user: Vec::new(),
            group: Vec::new(),
        }),
        attributes: vec![
            (b"user.evil".to_vec(), b"x".to_vec()),
            (b"trusted.evil".to_vec(), b"x".to_vec()),
        ],
        linked,
    }));
    (entry, content)
}

#[test]
fn a_hard_link_leads_to_nothing_but_a_file_of_the_transfer() {
    let tmp = tempfile::tempdir().unwrap();
    let share = tmp.path().join("share");
    fs::create_dir_all(share.join("in")).unwrap();
    fs::write(share.join("in/there"), "not of the transfer").unwrap();
    fs::write(share.join("above"), "not ours").unwrap();
    let good = || with_facts(file("d/f", 0o644, b"f"), true);
    for (options, to, expected) in [
        (preserving(ALL), "there", Some(Exit::SourceChanged)),
        (preserving(ALL), "d/none", Some(Exit::SourceChanged)),
        (preserving(ALL), "d", Some(Exit::SourceChanged)),
        (preserving(ALL), "unlinked", Some(Exit::SourceChanged)),
        (preserving(Preserve::NONE), "d/f", Some(Exit::DestError)),
        (preserving(ALL), "d/f", None),
    ] {
        let entries = [
            dir("d", 0o755),
            good(),
            file("unlinked", 0o644, b"u"),
            hard_link("link", to),
        ];
        let options = RequestOptions {
            mirror: options,
            ..RequestOptions::default()
        };
        let (error, failures) = deliver(&share, Access::ReadWrite, "in", options, &entries);
        assert_eq!(error.map(|e| e.code), expected, "{to}: {failures:?}");
        assert_eq!(share.join("in/link").exists(), expected.is_none(), "{to}");
    }
    assert_eq!(fs::metadata(share.join("above")).unwrap().nlink(), 1);
    assert_eq!(fs::metadata(share.join("in/there")).unwrap().nlink(), 1);
    // A path that leaves is no path at all.
    for to in ["../above", "/etc/passwd", "", "a//b"] {
        let (listed, _) = hard_link("link2", to);
        let message = Message::Entries {
            first: 0,
            entries: vec![listed],
        };
        let mut wire = Vec::new();
        message.encode(&mut Vec::new(), &mut wire);
        let mut inbox = Inbox::default();
        inbox.tail().extend_from_slice(&wire);
        assert!(inbox.next().is_err(), "{to}");
    }
}

#[test]
fn a_strangers_facts_are_not_believed() {
    for access in [Access::ReadWrite, Access::Write, Access::Create] {
        let tmp = tempfile::tempdir().unwrap();
        let options = RequestOptions {
            mirror: preserving(ALL),
            ..RequestOptions::default()
        };
        let entries = [with_facts(file("f", 0o4755, b"f"), false)];
        let (error, _) = deliver(tmp.path(), access, "", options, &entries);
        assert_eq!(error, None, "{access:?}");
        let at = tmp.path().join("f");
        let stat = fs::metadata(&at).unwrap();
        assert_ne!(stat.uid(), 4321, "{access:?}");
        assert_eq!(stat.mode() & 0o7000, 0, "{access:?}");
        let mut value = [0; 9];
        assert!(rustix::fs::getxattr(&at, "trusted.evil", &mut value[..]).is_err());
        if access != Access::ReadWrite {
            assert!(rustix::fs::getxattr(&at, "user.evil", &mut value[..]).is_err());
        }
    }
}

#[test]
fn facts_that_were_not_asked_for_are_not_set() {
    let tmp = tempfile::tempdir().unwrap();
    let entries = [with_facts(file("f", 0o4755, b"f"), true)];
    let out = fetch(&["f"], tmp.path(), Options::default(), false, &entries);
    assert_eq!(out.error, None);
    let stat = fs::metadata(tmp.path().join("f")).unwrap();
    assert_ne!(stat.uid(), 4321);
    assert_eq!(stat.mode() & 0o7777, 0o755);
}

#[test]
fn only_a_share_for_both_directions_lets_files_be_deleted_or_renamed() {
    let backup = Mirror {
        backup: Some(Suffix::new(b"~").unwrap()),
        ..Mirror::PLAIN
    };
    for access in [Access::Write, Access::Create] {
        for mirror in [deleting(), backup] {
            for dry in [false, true] {
                let tmp = tempfile::tempdir().unwrap();
                fs::write(tmp.path().join("old"), "old").unwrap();
                let options = RequestOptions {
                    dry,
                    mirror,
                    ..RequestOptions::default()
                };
                let entries = [dir("", 0o755), file("f", 0o644, b"f")];
                let (error, _) = deliver(tmp.path(), access, "", options, &entries);
                assert_eq!(error.unwrap().code, Exit::Auth, "{access:?}");
                assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 1);
            }
        }
    }
}

#[test]
fn nothing_is_deleted_outside_what_was_listed() {
    let tmp = tempfile::tempdir().unwrap();
    let share = tmp.path().join("share");
    for path in ["in/d/old", "in/e/old", "in/old", "beside/old"] {
        let at = share.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, "old").unwrap();
    }
    std::os::unix::fs::symlink("../../beside", share.join("in/d/way out")).unwrap();
    let options = RequestOptions {
        mirror: deleting(),
        ..RequestOptions::default()
    };
    // Nothing but files: no folder is the source's.
    let entries = [file("new", 0o644, b"n")];
    let (error, _) = deliver(&share, Access::ReadWrite, "in", options.clone(), &entries);
    assert_eq!(error, None);
    assert!(share.join("in/old").exists() && share.join("in/d/old").exists());
    // One folder, not those beside it; a link in it is removed, and not what it leads to.
    let entries = [dir("d", 0o755), file("d/new", 0o644, b"n")];
    let (error, _) = deliver(&share, Access::ReadWrite, "in", options.clone(), &entries);
    assert_eq!(error, None);
    assert!(!share.join("in/d/old").exists() && share.join("in/d/new").exists());
    assert!(share.join("in/d/way out").symlink_metadata().is_err());
    assert!(share.join("in/e/old").exists() && share.join("in/old").exists());
    assert!(share.join("beside/old").exists());
    // A file that fails keeps everything.
    let entries = [
        dir("", 0o755),
        file("new", 0o644, b"n"),
        file("new", 0o644, b"another of this name"),
    ];
    let (error, _) = deliver(&share, Access::ReadWrite, "in", options, &entries);
    assert!(error.is_some());
    assert!(share.join("in/old").exists() && share.join("in/e/old").exists());
}

/// A file at each of `paths` beneath `root`.
fn plant(root: &Path, paths: &[&str]) {
    for path in paths {
        let at = root.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, "old").unwrap();
    }
}

/// Fetches `run7` to `to`, deleting, from a server that says it has `kept` and lists `entries`.
/// Returns the outcome and, for a `plan`, what it says would be deleted.
fn fetch_and_keep(
    to: &Path,
    plan: bool,
    kept: &[&str],
    entries: &[(Entry, &[u8])],
) -> (Outcome, Vec<String>) {
    let doomed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = Arc::clone(&doomed);
    let sink: crate::client::Plan = Arc::new(move |planned| {
        if planned.action == Action::Delete {
            told.lock()
                .unwrap()
                .push(crate::wire::path::show(&planned.path));
        }
    });
    let options = Options {
        server: "evil:1".into(),
        sync: false,
        mirror: deleting(),
        plan: plan.then_some(sink),
        ..Options::default()
    };
    let from = Remote {
        share: "data".into(),
        path: b"run7".to_vec(),
    };
    let client = Download::new(&[from], to, options).unwrap();
    let handle = client.handle();
    let mut victim = Victim::new(client);
    victim.send(&Message::Accepted {
        version: OLDEST,
        one_file: false,
    });
    victim.keep(kept);
    victim.deliver(0, entries);
    let out = handle.outcome().expect("the client knows how it ended");
    let doomed = std::mem::take(&mut *doomed.lock().unwrap());
    (out, doomed)
}

#[test]
fn what_a_server_keeps_was_requested() {
    for kept in ["", "Documents", "Documents/old", "run77"] {
        for plan in [false, true] {
            let tmp = tempfile::tempdir().unwrap();
            let there = ["old", "Documents/old", "run7/old"];
            plant(tmp.path(), &there);
            let entries = [dir("run7", 0o755)];
            let (out, doomed) = fetch_and_keep(tmp.path(), plan, &[kept], &entries);
            assert_eq!(out.error.unwrap().code, Exit::Protocol, "{kept:?}");
            assert_eq!(doomed, [""; 0], "{kept:?}");
            for path in there {
                assert!(tmp.path().join(path).exists(), "{kept:?}: {path}");
            }
        }
    }
}

#[test]
fn what_is_no_folder_at_the_source_is_not_emptied() {
    // Links that are not sent; one of them is listed.
    let (kept, stay) = (
        ["run7/data"],
        ["run7/data/old", "run7/link/old", "run7/link/d/old"],
    );
    let entries = [dir("run7", 0o755), link("run7/link", "/etc")];
    let check = |root: &Path, deletes: bool| {
        for path in stay {
            assert!(root.join(path).exists(), "{path}");
        }
        assert_eq!(root.join("run7/old").exists(), !deletes);
    };
    for plan in [false, true] {
        let tmp = tempfile::tempdir().unwrap();
        plant(tmp.path(), &stay);
        plant(tmp.path(), &["run7/old"]);
        let (out, doomed) = fetch_and_keep(tmp.path(), plan, &kept, &entries);
        assert_eq!(
            out.error.map(|e| e.code),
            Some(Exit::Partial),
            "for the link"
        );
        let told: &[&str] = if plan { &["run7/old"] } else { &[] };
        assert_eq!(doomed, told);
        check(tmp.path(), !plan);
    }
    let tmp = tempfile::tempdir().unwrap();
    plant(tmp.path(), &stay);
    plant(tmp.path(), &["run7/old"]);
    let options = RequestOptions {
        mirror: deleting(),
        ..RequestOptions::default()
    };
    let access = Access::ReadWrite;
    // The client of a share says what it likes; it does not make a folder of the source of it.
    let all = ["", "run7", "run7/data"];
    let (error, _) = deliver_and_keep(tmp.path(), access, "", options.clone(), &all, &[]);
    assert_eq!(error, None);
    check(tmp.path(), false);
    let (error, _) = deliver_and_keep(tmp.path(), access, "", options, &kept, &entries);
    assert_eq!(error.map(|e| e.code), Some(Exit::Partial), "for the link");
    check(tmp.path(), true);
}

#[test]
fn a_single_file_deletes_nothing_beside_it() {
    for (is_file, dry) in [(false, false), (false, true), (true, false), (true, true)] {
        let tmp = tempfile::tempdir().unwrap();
        plant(tmp.path(), &["in/old", "in/d/old"]);
        if is_file {
            plant(tmp.path(), &["in/run7"]);
        }
        let options = RequestOptions {
            one_file: true,
            dry,
            mirror: deleting(),
            ..RequestOptions::default()
        };
        let access = Access::ReadWrite;
        let (error, _) = deliver_and_keep(tmp.path(), access, "in/run7", options, &[""], &[]);
        assert_eq!(error.map(|e| e.code), Some(Exit::Usage), "{is_file} {dry}");
        for path in ["in/old", "in/d/old"] {
            assert!(tmp.path().join(path).exists(), "{path}");
        }
        assert_eq!(tmp.path().join("in/run7").exists(), is_file);
    }
}

#[test]
fn a_plan_rests_while_nobody_reads_what_it_found() {
    const FILES: usize = 600;
    let tmp = tempfile::tempdir().unwrap();
    let deep = [&"d".repeat(250)[..]; 10].join("/");
    let names: Vec<_> = (0..FILES).map(|i| format!("{deep}/{i}")).collect();
    plant(
        tmp.path(),
        &names.iter().map(|n| &n[..]).collect::<Vec<_>>(),
    );
    for reads in [true, false] {
        let shares = vec![Share::open("s", tmp.path(), Access::ReadWrite).unwrap()];
        let server = Server::new(Arc::new(Policy::new(shares, Allow::Any, false)), None);
        let mut victim = Victim::new(server);
        let options = RequestOptions {
            dry: true,
            mirror: deleting(),
            ..RequestOptions::default()
        };
        victim.send(&Message::request_with(Direction::Put, "s", "", options));
        victim.send(&Message::Entries {
            first: 0,
            entries: vec![dir("", 0o755).0],
        });
        victim.send(&Message::End { entries: 1 });
        let mut polls = 0;
        while victim.app.next_wake().is_some_and(|at| at <= victim.now) {
            polls += 1;
            assert!(polls < FILES, "it spins");
            victim.app.poll(victim.now, &mut victim.line);
        }
        if !reads {
            // Nor does it keep the session for good.
            victim.now += IDLE;
            victim.app.poll(victim.now, &mut victim.line);
            assert!(victim.line.is_closed());
            continue;
        }
        let mut found = 0;
        await_message(&mut victim, |m| {
            if let Message::Deletions { paths } = m {
                found += paths.len();
            }
            matches!(m, Message::Finished { .. })
        });
        // With the folders around them.
        assert_eq!(found, FILES + 10);
    }
}

/// Waits until the other end has said something of that kind.
fn await_message<A: App>(victim: &mut Victim<A>, mut wanted: impl FnMut(&Message) -> bool) {
    while !victim.has_said(&mut wanted) {
        assert!(!victim.line.is_closed(), "{:?}", victim.line.closed);
        // Slowly, so that workers do not seem to be stuck.
        victim.now += std::time::Duration::from_micros(50);
        victim.app.poll(victim.now, &mut victim.line);
        std::thread::yield_now();
    }
}

/// A client that fetches the file `f`, which is listed as if it were `new`.
fn fetching(to: &Path, new: &[u8]) -> (Victim<Download>, Handle) {
    let from = Remote {
        share: "s".into(),
        path: b"f".to_vec(),
    };
    let options = Options {
        server: "evil:1".into(),
        sync: false,
        ..Options::default()
    };
    let client = Download::new(&[from], to, options).unwrap();
    let handle = client.handle();
    let mut victim = Victim::new(client);
    victim.send(&Message::Accepted {
        version: OLDEST,
        one_file: false,
    });
    victim.send(&Message::Entries {
        first: 0,
        entries: vec![file("f", 0o644, new).0],
    });
    (victim, handle)
}

#[test]
fn blocks_of_an_old_file_count_only_if_the_whole_is_right() {
    const BLOCK: usize = 1 << 20;
    let old = vec![1; 2 * BLOCK + 5];
    let mut new = old.clone();
    new[BLOCK + 7] = 2;
    let of = |content: &[u8]| -> Vec<Hash> {
        let blocks = (0..).zip(content.chunks(BLOCK));
        blocks
            .map(|(i, bytes)| block_hash(i, content.len() as u64, bytes))
            .collect()
    };
    for honest in [true, false] {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("f"), &old).unwrap();
        let (mut victim, handle) = fetching(tmp.path(), &new);
        let asks = |m: &Message| matches!(m, Message::AskBlocks { file: 0 });
        await_message(&mut victim, asks);
        // More blocks than the file has are not even compared.
        victim.send(&Message::Blocks {
            file: 0,
            first: 0,
            values: vec![[0; 32]; 4],
        });
        let told = Message::Blocks {
            file: 0,
            first: 0,
            values: if honest { of(&new) } else { of(&old) },
        };
        let root = Message::Roots(vec![Root {
            file: 0,
            sparse: false,
            hash: blake3::hash(&new).into(),
        }]);
        victim.send(&told);
        let (block, end) = (BLOCK as u64, 2 * BLOCK as u64);
        if honest {
            let only = block..end;
            let wants = move |m: &Message| match m {
                Message::Repair { ranges, .. } => ranges.first() == Some(&only),
                _ => false,
            };
            await_message(&mut victim, wants);
            let extent = Extent {
                object: CONTENT,
                offset: block,
                len: u32::try_from(BLOCK).unwrap(),
                at: 0,
            };
            let content = &new[BLOCK..2 * BLOCK];
            victim.app.place(&[extent], content).unwrap();
        } else {
            // All of it is the old file's, it says; its root is another's.
            victim.send(&root);
            await_message(&mut victim, asks);
            victim.send(&told);
            await_message(&mut victim, |m| matches!(m, Message::Repair { .. }));
        }
        victim.send(&root);
        victim.send(&Message::End { entries: 1 });
        victim.until_finished();
        let out = handle.outcome().expect("the client knows how it ended");
        let there = fs::read(tmp.path().join("f")).unwrap();
        if honest {
            assert_eq!(out.error, None);
            assert!(there == new, "the new file");
            assert_eq!(out.summary.resumed_bytes, block + 5);
        } else {
            assert_eq!(out.error.unwrap().code, Exit::VerifyFailed);
            assert!(there == old, "the old file is kept");
        }
    }
}
