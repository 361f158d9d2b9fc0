//! Servers that list what was not asked for.

use super::*;

/// Outcome of a fetch of `typed` to `to` from a server that answers `one_file` and lists `entries`.
pub(super) fn fetch(
    typed: &[&str],
    to: &Path,
    options: Options,
    one_file: bool,
    entries: &[(Entry, &[u8])],
) -> Outcome {
    let remote = |path: &&str| Remote {
        share: "s".into(),
        path: path.as_bytes().to_vec(),
    };
    let from: Vec<Remote> = typed.iter().map(remote).collect();
    let options = Options {
        server: "evil:1".into(),
        sync: false,
        ..options
    };
    let client = Download::new(&from, to, options).unwrap();
    let handle: Handle = client.handle();
    let mut victim = Victim::new(client);
    victim.send(&Message::Accepted {
        version: OLDEST,
        one_file,
    });
    victim.deliver(0, entries);
    handle.outcome().expect("the client knows how it ended")
}

fn home() -> (tempfile::TempDir, PathBuf) {
    let tmp = tempfile::tempdir().unwrap();
    let home = tmp.path().join("home");
    fs::create_dir_all(home.join(".ssh")).unwrap();
    set_mode(&home.join(".ssh"), 0o700);
    fs::write(home.join(".bashrc"), "mine").unwrap();
    (tmp, home)
}

fn untouched(home: &Path, what: &str) {
    assert_eq!(fs::read(home.join(".bashrc")).unwrap(), b"mine", "{what}");
    assert_eq!(mode(&home.join(".ssh")), 0o700, "{what}");
    assert_eq!(
        fs::read_dir(home.join(".ssh")).unwrap().count(),
        0,
        "{what}"
    );
}

#[test]
fn names_that_were_not_requested_end_the_transfer() {
    let lies: [&[(Entry, &[u8])]; 8] = [
        &[
            dir(".ssh", 0o777),
            file(".ssh/authorized_keys", 0o777, b"evil"),
        ],
        &[file(".ssh/authorized_keys", 0o777, b"evil")],
        &[file(".bashrc", 0o644, b"evil")],
        &[
            file("report.txt", 0o644, b"good"),
            file(".bashrc", 0o644, b"evil"),
        ],
        &[dir("", 0o777), file(".bashrc", 0o644, b"evil")],
        &[file("report.txt2", 0o644, b"evil")],
        &[file("docs/report.txt", 0o644, b"evil")],
        &[link(".bashrc", ".ssh/x")],
    ];
    for (entries, one_file) in lies.iter().flat_map(|l| [(l, false), (l, true)]) {
        for plan in [false, true] {
            let (_tmp, home) = home();
            let options = Options {
                plan: plan.then(|| -> crate::client::Plan { Arc::new(|_| {}) }),
                ..Options::default()
            };
            let what = format!("{one_file} {plan} {:?}", entries.last().unwrap().0);
            let out = fetch(&["docs/report.txt"], &home, options, one_file, entries);
            let e = out.error.expect(&what);
            assert_eq!(e.code, Exit::Protocol, "{what}");
            assert!(
                e.text.contains("evil:1") && e.text.contains("'report.txt'"),
                "{e}"
            );
            untouched(&home, &what);
            let left = fs::read_dir(&home).unwrap().count();
            assert!(left <= 3 && (!plan || left == 2), "{what}: {left}");
        }
    }
}

#[test]
fn what_was_requested_arrives() {
    let (_tmp, home) = home();
    let entries = [file("report.txt", 0o644, b"good")];
    for one_file in [false, true] {
        let out = fetch(
            &["docs/report.txt"],
            &home,
            Options::default(),
            one_file,
            &entries,
        );
        assert_eq!(out.error, None);
        assert_eq!(fs::read(home.join("report.txt")).unwrap(), b"good");
        fs::remove_file(home.join("report.txt")).unwrap();
    }
    let entries = [
        dir("docs", 0o755),
        file("docs/a", 0o644, b"a"),
        file("b", 0o600, b"bb"),
    ];
    let out = fetch(&["x/docs", "b"], &home, Options::default(), false, &entries);
    assert_eq!(out.error, None);
    assert_eq!(fs::read(home.join("b")).unwrap(), b"bb");
    untouched(&home, "several");
}

#[test]
fn the_client_decides_what_can_be_a_single_file() {
    for typed in [&["docs/"][..], &[""], &["a", "b"]] {
        let (_tmp, home) = home();
        let to = home.join("new");
        let entries = [file("x", 0o644, b"evil")];
        let out = fetch(typed, &to, Options::default(), true, &entries);
        assert_eq!(out.error.unwrap().code, Exit::Protocol, "{typed:?}");
        assert!(!to.exists());
    }
    // A new name is given to that file only, once.
    let (_tmp, home) = home();
    let to = home.join("new");
    let entries = [file("x", 0o644, b"good"), file("y", 0o644, b"evil")];
    let out = fetch(&["docs/x"], &to, Options::default(), true, &entries);
    assert_eq!(out.error.unwrap().code, Exit::Protocol);
    assert_ne!(fs::read(&to).ok().as_deref(), Some(&b"evil"[..]));
}

#[test]
fn a_path_that_the_far_end_translated_permits_what_was_typed() {
    let (_tmp, home) = home();
    let typed = |typed: &str| Options {
        typed: Some(vec![typed.as_bytes().to_vec()]),
        ..Options::default()
    };
    let entries = [file(".bashrc", 0o644, b"evil")];
    for (said, path) in [
        (".bashrc", "report.txt"),
        ("docs/", "docs"),
        ("", "report.txt"),
    ] {
        let out = fetch(&[said], &home, typed(path), false, &entries);
        assert_eq!(out.error.unwrap().code, Exit::Protocol, "{said}");
        untouched(&home, said);
    }
    let entries = [file("report.txt", 0o644, b"good")];
    let out = fetch(
        &["d/report.txt"],
        &home,
        typed("../d/report.txt"),
        true,
        &entries,
    );
    assert_eq!(out.error, None);
}

#[test]
fn filters_hold_whatever_the_server_lists() {
    let filter = Filter::new(&["*.key".into()], &[], (None, Some(4))).unwrap();
    let options = || Options {
        filter: filter.clone(),
        ..Options::default()
    };
    let (_tmp, home) = home();
    let entries = [dir("d", 0o755), file("d/a.key", 0o644, b"evil")];
    let out = fetch(&["d"], &home, options(), false, &entries);
    assert_eq!(out.error.unwrap().code, Exit::Protocol);
    assert!(!home.join("d/a.key").exists());
    let entries = [
        dir("d", 0o755),
        file("d/long", 0o644, b"12345"),
        file("d/ok", 0o644, b"1234"),
    ];
    let out = fetch(&["d/"], &home, options(), false, &entries);
    assert_eq!(out.error.unwrap().code, Exit::SourceChanged);
    assert!(!home.join("d/long").exists() && home.join("d/ok").exists());
}

#[test]
fn folders_that_were_there_are_not_opened_to_others() {
    let (_tmp, home) = home();
    let made = home.join("new");
    let entries = [
        dir("", 0o777),
        dir(".ssh", 0o777),
        dir("new", 0o775),
        file(".ssh/config", 0o644, b"x"),
    ];
    let out = fetch(&["docs/"], &home, Options::default(), false, &entries);
    assert_eq!(out.error, None);
    assert_eq!(mode(&home.join(".ssh")), 0o700);
    assert_eq!(mode(&made), 0o775);
    let warned = out.summary.warnings.join("\n");
    assert!(
        warned.contains(".ssh") && warned.contains("0700"),
        "{warned}"
    );
    // They may be closed: permissions narrower at the source are narrower here.
    let out = fetch(
        &["docs/"],
        &home,
        Options::default(),
        false,
        &[dir("new", 0o750)],
    );
    assert_eq!(out.error, None);
    assert_eq!(mode(&made), 0o750);
    // A folder that hands its group on still does, and so do those made in it; a peer gives no such
    // bits.
    set_mode(&made, 0o2750);
    let entries = [
        dir("new", 0o700),
        dir("new/d", 0o4755),
        dir("other", 0o7755),
    ];
    let out = fetch(&["docs/"], &home, Options::default(), false, &entries);
    assert_eq!(out.error, None);
    let bits = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((bits(&made), bits(&made.join("d"))), (0o2700, 0o2755));
    assert_eq!(bits(&home.join("other")), 0o755);
}

#[test]
fn links_do_not_lead_out_through_each_other() {
    for links in [
        &[link("d/x", ".."), link("y", "d/x/../secret")][..],
        &[
            link("d/e/f/x", "../../.."),
            link("y", "d/e/f/x/../../secret"),
        ],
        &[
            link("d/x", ".."),
            link("d/z", "x"),
            link("y", "d/z/../secret"),
        ],
        &[link("d/x", "e/../.."), link("y", "d/x/secret")],
        &[link("y", "./../secret")],
        &[link("d/e/y", "..//../../secret")],
        &[link("d/x", "../."), link("d/y", "x/./../secret")],
    ] {
        let (tmp, home) = home();
        fs::write(tmp.path().join("secret"), "secret").unwrap();
        let mut entries = vec![dir("d", 0o755), dir("d/e", 0o755), dir("d/e/f", 0o755)];
        entries.extend_from_slice(links);
        let out = fetch(&["docs/"], &home, Options::default(), false, &entries);
        assert!(!out.summary.failures.is_empty(), "{links:?}");
        let top = home.canonicalize().unwrap();
        for (entry, _) in links {
            let path = home.join(String::from_utf8(entry.path.clone()).unwrap());
            assert_ne!(
                fs::read(&path).ok().as_deref(),
                Some(&b"secret"[..]),
                "{links:?}"
            );
            if let Ok(real) = path.canonicalize() {
                assert!(real.starts_with(&top), "{links:?}: {}", real.display());
            }
        }
    }
}

#[test]
fn a_file_that_was_to_be_listed_again_and_was_not_is_no_success() {
    let (_tmp, home) = home();
    let from = Remote {
        share: "s".into(),
        path: b"docs/".to_vec(),
    };
    let options = Options {
        sync: false,
        ..Options::default()
    };
    let client = Download::new(&[from], &home, options).unwrap();
    let handle = client.handle();
    let mut victim = Victim::new(client);
    victim.send(&Message::Accepted {
        version: OLDEST,
        one_file: false,
    });
    let entries = vec![file("a", 0o644, b"aa").0];
    victim.send(&Message::Entries { first: 0, entries });
    victim.send(&Message::Failed {
        file: 0,
        code: Exit::SourceChanged,
        again: true,
        text: Vec::new(),
    });
    victim.send(&Message::End { entries: 1 });
    victim.until_finished();
    let out = handle.outcome().unwrap();
    assert_eq!(out.error.unwrap().code, Exit::SourceChanged);
}

#[test]
fn a_client_is_not_interrupted_by_a_signal_that_ended_its_server() {
    let (_tmp, home) = home();
    let from = Remote {
        share: "s".into(),
        path: b"x".to_vec(),
    };
    for (heard, expected) in [
        (129, Exit::ConnectionLost),
        (130, Exit::ConnectionLost),
        (143, Exit::ConnectionLost),
        (18, Exit::Busy),
    ] {
        let make = || {
            let from = std::slice::from_ref(&from);
            let client = Download::new(from, &home, Options::default()).unwrap();
            let handle: Handle = client.handle();
            (Victim::new(client), handle)
        };
        let (mut closed, outcome) = make();
        let text = "interrupted".to_string();
        let reason = CloseReason::Peer {
            code: heard.into(),
            text,
        };
        let (now, line) = (closed.now, &mut closed.line);
        closed.app.on_event(now, Event::Closed(reason), line);
        let code = |handle: &Handle| handle.outcome().unwrap().error.unwrap().code;
        assert_eq!(code(&outcome), expected);
        let (mut refused, outcome) = make();
        refused.send(&Message::Refused {
            code: Exit::from_number(heard).unwrap(),
            text: b"no".to_vec(),
            fix: Vec::new(),
        });
        assert_eq!(code(&outcome), expected);
    }
}
