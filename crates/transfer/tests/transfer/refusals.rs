//! Requests that cannot or may not be met are refused with their code, and touch nothing else.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    sync::Arc,
};

use crate::pair::{self, Way, get, noise, put, remote, tree};
use farhaul_transfer::{
    Exit, Outcome, TransferError,
    client::{Download, Upload},
    server::{Access, Allow, Policy, Server, Share},
};

fn ask(policy: Policy, share: &str, put: bool) -> TransferError {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("f");
    fs::write(&file, "content").unwrap();
    let mut to = remote("");
    to.share = share.into();
    let mut server = Server::new(Arc::new(policy), None);
    let handle = if put {
        let mut client = Upload::new(&[file], &to, pair::options()).unwrap();
        pair::run(&mut client, &mut server, &mut Way::new(1));
        client.handle()
    } else {
        let mut client = Download::new(&[to], &tmp.path().join("to"), pair::options()).unwrap();
        pair::run(&mut client, &mut server, &mut Way::new(1));
        client.handle()
    };
    handle.outcome().unwrap().error.unwrap()
}

#[test]
fn unknown_and_forbidden_sound_the_same() {
    let tmp = tempfile::tempdir().unwrap();
    let share = |access| Share::open("s", tmp.path(), access).unwrap();
    let policy = |access, allow| Policy::new(vec![share(access)], allow, false);
    let unknown = ask(policy(Access::ReadWrite, Allow::Any), "t", true);
    assert_eq!(unknown.code, Exit::Auth);
    let same =
        |e: &TransferError| e.text.replace("'s'", "'t'") == unknown.text && e.fix == unknown.fix;
    // A peer that may use a share finds it in the list of shares, too.
    for (access, put) in [(Access::Read, true), (Access::Write, false)] {
        let other_way = ask(policy(access, Allow::Any), "s", put);
        assert_eq!(other_way.code, Exit::Auth);
        assert!(
            other_way.text.contains("is not for that: peers may"),
            "{other_way:?}"
        );
        let forbidden = policy(access, Allow::Keys(vec![vec![8]]));
        assert!(same(&ask(forbidden, "s", put)));
    }
    assert!(same(&ask(
        policy(Access::ReadWrite, Allow::None),
        "s",
        true
    )));
    assert!(same(&ask(
        policy(Access::ReadWrite, Allow::Keys(vec![vec![8]])),
        "s",
        false
    )));
    assert!(same(&ask(Policy::default(), "s", false)));
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
}

#[test]
fn paths_do_not_leave_the_share() {
    let tmp = tempfile::tempdir().unwrap();
    let far = tmp.path().join("far");
    fs::create_dir(&far).unwrap();
    fs::write(tmp.path().join("secret"), "s").unwrap();
    symlink("..", far.join("up")).unwrap();
    symlink("../secret", far.join("leak")).unwrap();
    let file = tmp.path().join("f");
    fs::write(&file, "content").unwrap();
    for path in ["../x", "/etc/x", "up/x", "up/", "a/../../x"] {
        let e = put(std::slice::from_ref(&file), &far, path, &mut Way::new(1))
            .error
            .unwrap();
        assert_eq!(e.code, Exit::DestError, "{path}: {e}");
    }
    for path in ["../secret", "/etc/passwd", "up/secret", "leak", "none"] {
        let e = get(&far, path, &tmp.path().join("to"), &mut Way::new(1))
            .error
            .unwrap();
        assert_eq!(e.code, Exit::SourceMissing, "{path}: {e}");
    }
    assert!(!tmp.path().join("x").exists() && !tmp.path().join("to").exists());
}

#[test]
fn links_are_sent_as_they_are_or_not_at_all() {
    let tmp = tempfile::tempdir().unwrap();
    let (from, far) = (tmp.path().join("src"), tmp.path().join("far"));
    fs::create_dir_all(from.join("d")).unwrap();
    fs::create_dir_all(far.join("src")).unwrap();
    fs::write(from.join("d/f"), "new").unwrap();
    symlink("d/f", from.join("good")).unwrap();
    symlink("/etc/passwd", from.join("absolute")).unwrap();
    symlink("../../../x", from.join("d/out")).unwrap();
    // The receiver has a link where the sender has a directory.
    symlink(tmp.path(), far.join("src/d")).unwrap();
    let out = put(std::slice::from_ref(&from), &far, "", &mut Way::new(1));
    let failed = |code| {
        let failures = out.summary.failures.iter();
        failures.filter(|failure| failure.code == code).count()
    };
    assert_eq!(failed(Exit::Partial), 2, "{:?}", out.summary.failures);
    assert!(failed(Exit::DestError) > 0, "{:?}", out.summary.failures);
    assert_eq!(out.summary.warnings, [""; 0]);
    assert!(!tmp.path().join("f").exists(), "the link was not followed");
    assert_eq!(
        fs::read_link(far.join("src/good")).unwrap().to_str(),
        Some("d/f")
    );
    assert!(far.join("src/absolute").symlink_metadata().is_err());
}

#[test]
fn a_file_where_a_directory_should_be_fails_alone() {
    let tmp = tempfile::tempdir().unwrap();
    let (from, far) = (tmp.path().join("src"), tmp.path().join("far"));
    fs::create_dir_all(from.join("d")).unwrap();
    for (name, len) in [("x", 10), ("y", 3 << 20), ("d/z", 10), ("ok", 10)] {
        fs::write(from.join(name), noise(1, len)).unwrap();
    }
    fs::create_dir_all(far.join("src/x")).unwrap();
    fs::create_dir_all(far.join("src/y")).unwrap();
    fs::write(far.join("src/d"), "a file").unwrap();
    let out = put(std::slice::from_ref(&from), &far, "", &mut Way::new(1));
    assert_eq!(out.summary.files.sent, 1);
    assert_eq!(out.error.unwrap().code, Exit::DestError);
    assert_eq!(
        fs::read(far.join("src/ok")).unwrap(),
        fs::read(from.join("ok")).unwrap()
    );
    assert_eq!(fs::read(far.join("src/d")).unwrap(), b"a file");
    let names: Vec<_> = tree(&far).into_iter().map(|e| e.0).collect();
    assert!(names.iter().all(|n| !n.contains("farhaul")), "{names:?}");
}

#[test]
fn unreadable_sources_do_not_stop_the_others() {
    let tmp = tempfile::tempdir().unwrap();
    let (from, far) = (tmp.path().join("src"), tmp.path().join("far"));
    fs::create_dir_all(from.join("shut")).unwrap();
    fs::create_dir(&far).unwrap();
    for i in 0..5 {
        fs::write(from.join(i.to_string()), noise(i, 100)).unwrap();
    }
    fs::write(from.join("big"), noise(9, 2 << 20)).unwrap();
    fs::write(from.join("shut/in"), "x").unwrap();
    for name in ["1", "3", "big", "shut"] {
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let mut sources = vec![from.clone(), tmp.path().join("none")];
    if fs::File::open(from.join("1")).is_ok() {
        // The super-user reads everything: a special file that is named is what cannot be sent.
        sources.push(from.join("fifo"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            from.join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
    }
    let out = put(&sources, &far, "", &mut Way::new(1));
    let error = out.error.unwrap();
    assert_eq!(error.code, Exit::Partial, "{error}");
    assert!(
        out.summary
            .failures
            .iter()
            .any(|f| f.code == Exit::SourceMissing)
    );
    assert!(out.summary.failures.len() >= 2);
    for name in ["0", "2", "4"] {
        assert_eq!(
            fs::read(far.join("src").join(name)).unwrap(),
            fs::read(from.join(name)).unwrap()
        );
    }
    fs::set_permissions(from.join("shut"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_changing_source_is_tried_again_and_then_named() {
    let tmp = tempfile::tempdir().unwrap();
    let (file, far) = (tmp.path().join("log"), tmp.path().join("far"));
    fs::write(&file, noise(1, 8 << 20)).unwrap();
    fs::create_dir(&far).unwrap();
    // Changed once: sent as it is then.
    let mut client =
        Upload::new(std::slice::from_ref(&file), &remote(""), pair::options()).unwrap();
    let mut way = Way::new(1);
    let path = file.clone();
    let mut once = Some(());
    way.meddle = Box::new(move |_, _| {
        if once.take().is_some() {
            let mut bytes = fs::read(&path).unwrap();
            bytes.truncate(5 << 20);
            bytes[0] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    });
    pair::run(
        &mut client,
        &mut pair::server(&far, Access::Write),
        &mut way,
    );
    let out = client.handle().outcome().unwrap();
    assert_eq!(out.error, None);
    assert!(out.summary.retries > 0);
    assert_eq!(fs::read(far.join("log")).unwrap(), fs::read(&file).unwrap());
    // Changing all the time.
    fs::write(&file, noise(3, 5 << 20)).unwrap();
    let before = fs::read(far.join("log")).unwrap();
    let mut way = Way::new(2);
    let path = file.clone();
    way.meddle = Box::new(move |_, _| {
        use std::io::Write;
        fs::File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"x")
            .unwrap();
    });
    let out = put(std::slice::from_ref(&file), &far, "", &mut way);
    assert_eq!(out.error.unwrap().code, Exit::SourceChanged);
    assert_eq!(
        fs::read(far.join("log")).unwrap(),
        before,
        "the target is untouched"
    );
    assert_eq!(
        fs::read_dir(&far).unwrap().count(),
        1,
        "nothing is left behind"
    );
}

#[test]
fn a_second_run_on_the_same_target_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let (file, far) = (tmp.path().join("f"), tmp.path().join("far"));
    fs::write(&file, noise(1, 3 << 20)).unwrap();
    fs::create_dir(&far).unwrap();
    let mut first = Upload::new(std::slice::from_ref(&file), &remote(""), pair::options()).unwrap();
    let mut holder = pair::server(&far, Access::Write);
    let mut way = Way::new(1);
    way.kill_after = 1 << 20;
    pair::run(&mut first, &mut holder, &mut way);
    let e = put(std::slice::from_ref(&file), &far, "", &mut Way::new(2))
        .error
        .unwrap();
    assert_eq!(e.code, Exit::Locked);
    assert!(e.text.contains(&std::process::id().to_string()), "{e}");
    drop(holder);
    assert_eq!(put(&[file], &far, "", &mut Way::new(3)).error, None);
}

#[test]
fn an_interrupted_client_prints_how_to_continue() {
    let tmp = tempfile::tempdir().unwrap();
    let (file, far) = (tmp.path().join("f"), tmp.path().join("far"));
    fs::write(&file, noise(1, 20 << 20)).unwrap();
    fs::create_dir(&far).unwrap();
    let options = pair::options();
    let cancel = Arc::clone(&options.cancel);
    let mut client = Upload::new(std::slice::from_ref(&file), &remote(""), options).unwrap();
    let mut way = Way::new(1);
    let mut seen = 0;
    way.meddle = Box::new(move |_, bytes| {
        seen += bytes.len();
        if seen > 10 << 20 {
            cancel.store(
                Exit::TERMINATED.number(),
                std::sync::atomic::Ordering::Relaxed,
            );
        }
    });
    pair::run(
        &mut client,
        &mut pair::server(&far, Access::Write),
        &mut way,
    );
    let e = client.handle().outcome().unwrap().error.unwrap();
    assert_eq!(e.code, Exit::TERMINATED);
    assert!(e.fix.contains("same command"));
    let out = put(std::slice::from_ref(&file), &far, "", &mut Way::new(2));
    assert_eq!(out.error, None);
    assert!(out.summary.resumed_bytes > 0);
    assert_eq!(fs::read(far.join("f")).unwrap(), fs::read(&file).unwrap());
}

/// Bytes of `file` are overwritten in place and its time put back, once the first bytes arrive. Says what
/// came of the copy.
fn rewritten(file: &std::path::Path, far: &std::path::Path, content: bool) -> Outcome {
    use std::os::unix::fs::FileExt;
    let mut way = Way::new(3);
    let open = fs::File::options().write(true).open(file).unwrap();
    let mut once = Some(());
    let path = file.to_path_buf();
    way.meddle = Box::new(move |_, _| {
        if once.take().is_some() {
            let time = open.metadata().unwrap().modified().unwrap();
            if content {
                open.write_all_at(b"changed in place", 100).unwrap();
                let end = path.metadata().unwrap().len() - 100;
                open.write_all_at(b"changed in place", end).unwrap();
            }
            open.set_modified(time).unwrap();
        }
    });
    put(&[file.to_path_buf()], far, "", &mut way)
}

#[test]
fn a_source_rewritten_in_place_with_its_time_put_back_is_no_mix() {
    let tmp = tempfile::tempdir().unwrap();
    let (file, far) = (tmp.path().join("f"), tmp.path().join("far"));
    fs::create_dir(&far).unwrap();
    fs::write(&file, noise(1, 30 << 20)).unwrap();
    let out = rewritten(&file, &far, true);
    assert_eq!(out.error, None);
    assert!(out.summary.retries > 0);
    assert!(
        fs::read(far.join("f")).unwrap() == fs::read(&file).unwrap(),
        "one state of the file, not two"
    );
    // What was only touched is not sent twice.
    fs::remove_file(far.join("f")).unwrap();
    let out = rewritten(&file, &far, false);
    assert_eq!(out.error, None);
    assert_eq!(out.summary.bytes_payload, 30 << 20);
    assert!(fs::read(far.join("f")).unwrap() == fs::read(&file).unwrap());
}
