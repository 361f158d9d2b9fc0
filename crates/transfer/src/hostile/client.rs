//! Clients that deliver what a share does not take.

use std::os::unix::fs::MetadataExt as _;

use farhaul_core::store::Store as _;

use super::*;

/// Result at a server of `root` as `access` for a client that asks `ask` for `to` and lists
/// `entries`.
pub(super) fn deliver(
    root: &Path,
    access: Access,
    to: &str,
    options: RequestOptions,
    entries: &[(Entry, &[u8])],
) -> (Option<TransferError>, Vec<String>) {
    deliver_and_keep(root, access, to, options, &[], entries)
}

/// Result as for [`deliver`], at a server that says first that it has `kept`.
pub(super) fn deliver_and_keep(
    root: &Path,
    access: Access,
    to: &str,
    options: RequestOptions,
    kept: &[&str],
    entries: &[(Entry, &[u8])],
) -> (Option<TransferError>, Vec<String>) {
    let shares = vec![Share::open("s", root, access).unwrap()];
    deliver_by(
        Policy::new(shares, Allow::Any, false),
        to,
        options,
        kept,
        entries,
    )
}

/// Delivers to a server with this policy; the error and the failures that it saw.
pub(super) fn deliver_by(
    policy: Policy,
    to: &str,
    options: RequestOptions,
    kept: &[&str],
    entries: &[(Entry, &[u8])],
) -> (Option<TransferError>, Vec<String>) {
    let server = Server::new(Arc::new(policy), None);
    let handle = server.handle();
    let mut victim = Victim::new(server);
    victim.send(&Message::request_with(Direction::Put, "s", to, options));
    let mut refusal = None;
    victim.has_said(|m| {
        if let Message::Refused { code, text, .. } = m {
            refusal = Some(TransferError::new(*code, crate::wire::path::show(text)));
        }
        matches!(m, Message::Refused { .. } | Message::Accepted { .. })
    });
    if refusal.is_some() {
        return (refusal, Vec::new());
    }
    victim.keep(kept);
    victim.deliver(0, entries);
    // The client's last word ends nothing here; the session's end does.
    let reason = CloseReason::Peer {
        code: 0,
        text: String::new(),
    };
    victim
        .app
        .on_event(victim.now, Event::Closed(reason), &mut victim.line);
    let out = handle.outcome().expect("the server knows how it ended");
    let failures = out.summary.failures.iter().map(|f| f.text.clone());
    (out.error, failures.collect())
}

const CLOSED: [Access; 2] = [Access::Write, Access::Create];

fn put(
    root: &Path,
    access: Access,
    entries: &[(Entry, &[u8])],
) -> (Option<TransferError>, Vec<String>) {
    deliver(root, access, "", RequestOptions::default(), entries)
}

#[test]
fn new_names_arrive_writable_by_nobody_else() {
    for (access, file_mode, dir_mode) in [
        (Access::Write, 0o755, 0o755),
        (Access::Create, 0o755, 0o755),
        (Access::ReadWrite, 0o777, 0o777),
    ] {
        let tmp = tempfile::tempdir().unwrap();
        let entries = [
            dir("d", 0o777),
            file("d/f", 0o777, b"new"),
            link("l", "d/f"),
        ];
        let (error, _) = put(tmp.path(), access, &entries);
        assert_eq!(error, None, "{access:?}");
        assert_eq!(mode(&tmp.path().join("d")), dir_mode, "{access:?}");
        assert_eq!(mode(&tmp.path().join("d/f")), file_mode, "{access:?}");
        assert_eq!(fs::read(tmp.path().join("l")).unwrap(), b"new");
        // The same again is the same command continued.
        let (error, _) = put(tmp.path(), access, &entries);
        assert_eq!(error, None, "{access:?}");
    }
}

#[test]
fn what_is_there_keeps_its_permissions_in_a_share_for_delivery() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name);
    fs::create_dir(at("d")).unwrap();
    set_mode(&at("d"), 0o700);
    for (name, bits) in [("d/open", 0o640), ("d/shut", 0o400)] {
        fs::write(at(name), "before").unwrap();
        set_mode(&at(name), bits);
    }
    std::os::unix::fs::symlink("open", at("d/link")).unwrap();
    let entries = [
        dir("d", 0o777),
        file("d/open", 0o777, b"replaced"),
        file("d/shut", 0o666, b"replaced"),
        file("d/link", 0o666, b"replaced"),
        link("d/open2", "open"),
        link("d/shut", "open"),
    ];
    let (error, failures) = put(tmp.path(), Access::Write, &entries);
    assert_eq!(error.unwrap().code, Exit::DestError);
    assert_eq!(failures.len(), 3, "{failures:?}");
    assert_eq!(mode(&at("d")), 0o700);
    assert_eq!(fs::read(at("d/open")).unwrap(), b"replaced");
    assert_eq!((mode(&at("d/open")), mode(&at("d/shut"))), (0o640, 0o400));
    assert_eq!(fs::read(at("d/shut")).unwrap(), b"before");
    assert!(at("d/link").symlink_metadata().unwrap().is_symlink());
}

#[test]
fn a_share_for_new_names_replaces_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name);
    fs::create_dir(at("d")).unwrap();
    set_mode(&at("d"), 0o700);
    fs::write(at("d/f"), "before").unwrap();
    fs::write(at("d/same size"), "before").unwrap();
    std::os::unix::fs::symlink("f", at("d/link")).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let there = fs::File::options()
        .write(true)
        .open(at("d/same size"))
        .unwrap();
    there.set_modified(old).unwrap();
    let entries = [
        dir("d", 0o777),
        file("d/f", 0o644, b"other"),
        file("d/f", 0o644, b""),
        file("d/same size", 0o644, b"differs"),
        file("d/same size", 0o644, b"beforE"),
        file("d/link", 0o644, b"other"),
        link("d/link", "new"),
        file("d/new", 0o644, b"new"),
    ];
    for (i, entry) in entries[1..].iter().enumerate() {
        let both = [entries[0].clone(), entry.clone()];
        let (error, failures) = put(tmp.path(), Access::Create, &both);
        assert_eq!(error.is_none(), i == 6, "{entry:?} {error:?}");
        assert!(
            failures.iter().all(|f| f.contains("accepts only new ones")),
            "{failures:?}"
        );
    }
    assert_eq!(fs::read(at("d/f")).unwrap(), b"before");
    assert_eq!(fs::read(at("d/same size")).unwrap(), b"before");
    assert_eq!(fs::read(at("d/new")).unwrap(), b"new");
    assert_eq!(fs::read_link(at("d/link")).unwrap(), Path::new("f"));
    assert_eq!(mode(&at("d")), 0o700);
    let keep = RequestOptions {
        existing: Existing::Keep,
        ..RequestOptions::default()
    };
    let (error, _) = deliver(tmp.path(), Access::Create, "", keep, &entries[..2]);
    assert_eq!(error, None, "what is there may be left alone");
}

#[test]
fn shares_that_cannot_be_read_disclose_nothing() {
    for access in CLOSED {
        let tmp = tempfile::tempdir().unwrap();
        for (dry, existing) in [(true, Existing::Replace), (false, Existing::KeepNewer)] {
            let options = RequestOptions {
                dry,
                existing,
                ..RequestOptions::default()
            };
            let entries = [file("f", 0o644, b"x")];
            let (error, _) = deliver(tmp.path(), access, "", options, &entries);
            assert_eq!(error.unwrap().code, Exit::Auth, "{access:?} {dry}");
            assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
        }
    }
}

#[test]
fn a_delivery_writes_beneath_what_it_named_and_nowhere_else() {
    let tmp = tempfile::tempdir().unwrap();
    let share = tmp.path().join("share");
    fs::create_dir_all(share.join("in")).unwrap();
    fs::write(share.join("f"), "before").unwrap();
    std::os::unix::fs::symlink("..", share.join("in/up")).unwrap();
    let entries = [
        file("up/f", 0o644, b"evil"),
        file("up/g", 0o644, b"evil"),
        link("out", "../f"),
        dir("up", 0o777),
        file("ok", 0o644, b"ok"),
    ];
    let (error, failures) = deliver(
        &share,
        Access::ReadWrite,
        "in",
        RequestOptions::default(),
        &entries,
    );
    assert!(error.is_some());
    assert_eq!(failures.len(), 4, "{failures:?}");
    assert_eq!(fs::read(share.join("f")).unwrap(), b"before");
    assert_eq!(fs::read(share.join("in/ok")).unwrap(), b"ok");
    assert!(!share.join("g").exists() && share.join("in/out").symlink_metadata().is_err());
    assert_eq!(fs::read_dir(&share).unwrap().count(), 2);
}

#[test]
fn state_of_other_transfers_is_not_delivered() {
    let own = |name: Vec<u8>| String::from_utf8(name).unwrap();
    let journal = own(crate::state_names::journal_name([9; 8]));
    let part = own(crate::state_names::part_name(b"x", [9; 8]));
    for access in [Access::Write, Access::Create, Access::ReadWrite] {
        let tmp = tempfile::tempdir().unwrap();
        let entries = [
            file(&journal, 0o644, b"forged"),
            file(&part, 0o644, b"forged"),
            dir("d", 0o755),
            link(&format!("d/{journal}"), "x"),
            dir(&format!("d/{part}"), 0o755),
            file("good", 0o644, b"good"),
        ];
        let (error, failures) = put(tmp.path(), access, &entries);
        assert_eq!(error.unwrap().code, Exit::DestError, "{access:?}");
        assert_eq!(failures.len(), 4, "{failures:?}");
        let left = fs::read_dir(tmp.path()).unwrap().count();
        assert_eq!(left, 2, "{access:?}");
        assert_eq!(fs::read_dir(tmp.path().join("d")).unwrap().count(), 0);
    }
}

#[test]
fn an_empty_file_that_is_there_is_the_same() {
    for (access, kept) in [
        (Access::Create, true),
        (Access::ReadWrite, true),
        (Access::Write, false),
    ] {
        let tmp = tempfile::tempdir().unwrap();
        let at = tmp.path().join("empty");
        let entries = [file("empty", 0o640, b""), file("f", 0o644, b"f")];
        assert_eq!(put(tmp.path(), access, &entries).0, None, "{access:?}");
        let before = fs::metadata(&at).unwrap();
        let (error, failures) = put(tmp.path(), access, &entries);
        assert_eq!((error, failures.len()), (None, 0), "{access:?}");
        let after = fs::metadata(&at).unwrap();
        assert_eq!(before.ino() == after.ino(), kept, "{access:?}");
        // Of another time: that is set where it may be.
        fs::File::create(&at).unwrap();
        let error = put(tmp.path(), access, &entries).0;
        assert_eq!(error, None, "{access:?}");
        let after = fs::metadata(&at).unwrap();
        assert_eq!(
            after.mtime() == 1_000_000_000,
            access != Access::Create,
            "{access:?}"
        );
        fs::write(&at, "something").unwrap();
        let error = put(tmp.path(), access, &entries).0;
        assert_eq!(error.is_some(), access == Access::Create, "{access:?}");
    }
}

#[test]
fn keeping_what_is_there_is_no_way_to_learn_what_is_there() {
    let options = |existing| RequestOptions {
        existing,
        ..RequestOptions::default()
    };
    for existing in [Existing::Keep, Existing::KeepNewer] {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("secret"), "secret").unwrap();
        let entries = [file("secret", 0o644, b"x")];
        let (error, _) = deliver(tmp.path(), Access::Write, "", options(existing), &entries);
        let error = error.unwrap();
        assert_eq!(error.code, Exit::Auth, "{error}");
        assert_eq!(fs::read(tmp.path().join("secret")).unwrap(), b"secret");
    }
    // A peer that may only add learns of each name that is taken anyway.
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("there"), "there").unwrap();
    let entries = [file("there", 0o644, b"x"), file("new", 0o644, b"x")];
    let (error, _) = deliver(
        tmp.path(),
        Access::Create,
        "",
        options(Existing::Keep),
        &entries,
    );
    assert_eq!(error, None);
    assert!(tmp.path().join("new").exists());
}

#[test]
fn an_upload_with_another_key_continues_where_all_keys_are_one_persons() {
    let tmp = tempfile::tempdir().unwrap();
    let share = Share::open("s", tmp.path(), Access::ReadWrite).unwrap();
    let policy = Policy::new(vec![share], Allow::Any, true).of_one_person();
    let policy = Arc::new(policy);
    let size = 3 << 20;
    let content = vec![7; size];
    let begin = |key: u8| {
        let mut server = Server::new(Arc::clone(&policy), None);
        let mut line = FakeSession {
            peer_app: crate::wire::offer(),
            ..FakeSession::default()
        };
        let peer_key = Some(vec![key; 32]);
        server.on_event(Instant::EPOCH, Event::Connected { peer_key }, &mut line);
        let mut victim = Victim {
            app: server,
            line,
            inbox: Inbox::default(),
            now: Instant::EPOCH,
        };
        victim.send(&Message::request(Direction::Put, "s", ""));
        let entries = vec![file("large", 0o644, &content).0];
        victim.send(&Message::Entries { first: 0, entries });
        let mut wanted = None;
        victim.has_said(|m| {
            if let Message::Want { ranges, .. } = m {
                wanted = Some(ranges.clone());
            }
            wanted.is_some()
        });
        (victim, wanted.unwrap())
    };
    let (mut first, wanted) = begin(1);
    assert_eq!(wanted.first(), Some(&(0..size as u64)));
    let extent = Extent {
        object: CONTENT,
        offset: 0,
        len: 2 << 20,
        at: 0,
    };
    first.app.place(&[extent], &content[..2 << 20]).unwrap();
    let journal = || {
        let left = fs::read_dir(tmp.path()).unwrap().map(|e| e.unwrap());
        let mut left = left.filter(|e| e.file_name().to_string_lossy().contains("journal"));
        let len = left.next().unwrap().metadata().unwrap().len();
        assert!(left.next().is_none(), "one journal");
        len
    };
    let begun = journal();
    // Two blocks are noted.
    while journal() < begun + 2 * 40 {
        first.now += std::time::Duration::from_millis(1);
        first.app.poll(first.now, &mut first.line);
        std::thread::yield_now();
    }
    drop(first);
    let (_second, wanted) = begin(2);
    assert_eq!(wanted.first(), Some(&(2 << 20..size as u64)));
}

#[test]
fn a_sender_that_reads_no_answers_gets_that_error_and_not_the_disks() {
    let tmp = tempfile::tempdir().unwrap();
    let shares = vec![Share::open("s", tmp.path(), Access::ReadWrite).unwrap()];
    let policy = Policy::new(shares, Allow::Any, false);
    let mut deaf = Victim::new(Server::new(Arc::new(policy), None));
    deaf.send(&Message::request(Direction::Put, "s", ""));
    let size = 64 << 20;
    deaf.send(&Message::Entries {
        first: 0,
        entries: vec![entry(Kind::File, "large", 0o644, size)],
    });
    // Each of these is answered at length.
    let journal = String::from_utf8(crate::state_names::journal_name([9; 8])).unwrap();
    let long = format!("{}{journal}", format!("{}/", "x".repeat(200)).repeat(19));
    for first in (1..=400).step_by(10) {
        let entries = vec![entry(Kind::File, &long, 0o644, 5); 10];
        deaf.send(&Message::Entries { first, entries });
    }
    let load = vec![7; 512 << 10];
    for at in (0..size).step_by(load.len()) {
        if deaf.line.is_closed() {
            break;
        }
        let extent = Extent {
            object: CONTENT,
            offset: at as u64,
            len: u32::try_from(load.len()).unwrap(),
            at: 0,
        };
        deaf.app.place(&[extent], &load).unwrap();
        deaf.now += std::time::Duration::from_millis(30);
        deaf.app.poll(deaf.now, &mut deaf.line);
    }
    let (code, text) = deaf.line.closed.as_ref().expect("it is closed");
    assert_eq!(*code, u32::from(Exit::ConnectionLost.number()), "{text}");
    assert!(text.contains("has not read an answer"), "{text}");
}
