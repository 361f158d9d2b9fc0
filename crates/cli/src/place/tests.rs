use super::*;

fn far(text: &str) -> (String, u16, String, String) {
    match parse(OsStr::new(text)).unwrap() {
        Place::Far(f) => {
            let path = String::from_utf8(f.remote.path).unwrap();
            (f.server.host, f.server.port, f.remote.share, path)
        }
        other => panic!("{other:?} is not far"),
    }
}

#[test]
fn servers_are_recognised() {
    let expect =
        |host: &str, port, share: &str, path: &str| (host.into(), port, share.into(), path.into());
    assert_eq!(far("host::data/a/b"), expect("host", PORT, "data", "a/b"));
    assert_eq!(far("host:99::data"), expect("host", 99, "data", ""));
    assert_eq!(
        far("h.example.org::d/x/"),
        expect("h.example.org", PORT, "d", "x/")
    );
    assert_eq!(far("10.0.0.1:5::d/::"), expect("10.0.0.1", 5, "d", "::"));
    assert_eq!(
        far("[2001:db8::1]::d/x"),
        expect("2001:db8::1", PORT, "d", "x")
    );
    assert_eq!(far("[::1]:77::d/x"), expect("::1", 77, "d", "x"));
    assert_eq!(far("farhaul://host/d/x"), expect("host", PORT, "d", "x"));
    assert_eq!(far("farhaul://[::1]:8/d"), expect("::1", 8, "d", ""));
    for zone in ["%eth0", "%25eth0"] {
        let typed = format!("farhaul://[fe80::1{zone}]:8/d");
        assert_eq!(far(&typed), expect("fe80::1%eth0", 8, "d", ""));
    }
    let Place::Far(f) = parse(OsStr::new("[::1]:77::d")).unwrap() else {
        panic!()
    };
    assert_eq!(f.server.to_string(), "[::1]:77");
}

#[test]
fn local_files_may_have_colons() {
    for local in [
        "file", "dir/a:b", "./a::b", "/a::b/c", "../x", ".", "a/b::c", "[x]",
    ] {
        assert_eq!(
            parse(OsStr::new(local)).unwrap(),
            Place::Local(local.into()),
            "{local}"
        );
    }
    let odd = OsStr::from_bytes(b"\xff\xfe");
    assert_eq!(parse(odd).unwrap(), Place::Local(odd.into()));
}

#[test]
fn addresses_of_ipv6_need_brackets() {
    for (bare, written) in [
        ("::1::s/", "[::1]::s/"),
        ("fe80::1::share/path", "[fe80::1]::share/path"),
        ("fe80::1%eth0::share", "[fe80::1%eth0]::share"),
        ("2001:db8::1:2::d/x::y", "[2001:db8::1:2]::d/x::y"),
        ("2001:db8::1:/path", "[2001:db8::1]:/path"),
        ("me@::1:x", "me@[::1]:x"),
    ] {
        let refused = parse(OsStr::new(bare)).unwrap_err();
        let hint = format!("write {written} (");
        assert!(refused.text.contains(&hint), "{bare}: {refused}");
    }
    assert!(
        matches!(parse(OsStr::new("cafe::beef/1")), Ok(Place::Far(far)) if far.server.host == "cafe")
    );
    for local in ["./::1::s/", "a/::1::s", "./::1"] {
        assert_eq!(
            parse(OsStr::new(local)).unwrap(),
            Place::Local(local.into())
        );
    }
}

#[test]
fn one_colon_goes_through_ssh() {
    for (text, host, login, path) in [
        ("host:path", "host", "host", "path"),
        ("me@host:/a/b", "host", "me@host", "/a/b"),
        ("host:", "host", "host", ""),
        ("me@[::1]:x", "::1", "me@[::1]", "x"),
        ("[::1]:x", "::1", "[::1]", "x"),
        ("host:a/../b::c", "host", "host", "a/../b::c"),
    ] {
        let Place::Far(far) = parse(OsStr::new(text)).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(
            (&far.server.host[..], &far.server.to_string()[..]),
            (host, login),
            "{text}"
        );
        assert_eq!(
            (&far.remote.path[..], far.server.port),
            (path.as_bytes(), 0),
            "{text}"
        );
    }
    for bad in [
        "",
        "host::",
        "host::d/../x",
        "farhaul://h/d/a/..",
        "host:x::d",
        "host:0::d",
        "host:70000::d",
        "me@host::d",
        "-oProxyCommand=x:y",
        "a b:c",
        "me@:c",
        "s3://b/x",
        "farhaul://h",
        "::d",
    ] {
        assert!(parse(OsStr::new(bad)).is_err(), "{bad}");
    }
}

#[test]
fn a_host_that_is_missing_is_named() {
    for typed in ["::rw/", "::rw", "::", "::d", "::1"] {
        let e = parse(OsStr::new(typed)).unwrap_err();
        assert!(e.text.starts_with("the host is missing before ::"), "{e}");
        assert!(e.text.contains(&format!("write HOST{typed}")), "{e}");
    }
}

#[test]
fn a_path_below_a_ticket_stays_below_and_nothing_follows_its_letters() {
    let far = |own: &str| match parse(OsStr::new(&format!("h::s/{own}"))).unwrap() {
        Place::Far(far) => far,
        other => panic!("{other:?} is not far"),
    };
    for (own, typed, whole) in [
        ("a", "", "a"),
        ("a", "b/c", "a/b/c"),
        ("a/", "/b/", "a/b/"),
        ("", "b", "b"),
        ("a", "./", "a"),
    ] {
        let at = below(far(own), typed.as_bytes()).unwrap();
        assert_eq!(at.remote.path, whole.as_bytes(), "{own} {typed}");
    }
    assert!(below(far("a"), b"../b").is_err());
    let letters = format!("fh1{}", "a".repeat(60));
    for rest in ["/x/y", ":x/y", "::x/y"] {
        let e = parse(OsStr::new(&format!("{letters}{rest}"))).unwrap_err();
        assert!(e.text.contains("nothing can follow a ticket"), "{e}");
        assert!(e.text.ends_with("--ticket-file FILE ticket:x/y"), "{e}");
    }
}

#[test]
fn what_means_nothing_in_a_path_is_left_out() {
    for (typed, sent) in [
        ("h::in//a2", "a2"),
        ("h::in/a1//b", "a1/b"),
        ("h::in/./sub", "sub"),
        ("h::in/sub//", "sub/"),
        ("h::in/sub/.", "sub/"),
        ("h::in/.", ""),
        ("h::in//", ""),
        ("h::in/.a/b.", ".a/b."),
        ("farhaul://h/in//a/./b", "a/b"),
    ] {
        assert_eq!(far(typed).3, sent, "{typed}");
    }
}

#[test]
fn a_tilde_is_the_home_there() {
    let path = |text: &str| match parse(OsStr::new(text)) {
        Ok(Place::Far(far)) => Ok(String::from_utf8(far.remote.path).unwrap()),
        Ok(other) => panic!("{other:?} is not far"),
        Err(e) => Err(e.text),
    };
    for (typed, sent) in [
        ("h:~", "~/"),
        ("h:~/", "~/"),
        ("h:~/a/", "~/a/"),
        ("h:./~", "./~"),
        ("h:a~", "a~"),
        ("h::s/~x", "~x"),
    ] {
        assert_eq!(path(typed).as_deref(), Ok(sent), "{typed}");
    }
    for user in ["h:~bob", "h:~bob/x", "h:~~"] {
        let text = path(user).unwrap_err();
        assert!(text.contains("./~"), "{text}");
    }
}

#[test]
fn names_that_ssh_or_a_shell_would_take_for_more_are_refused() {
    for option in [
        "-oProxyCommand=touch x:y",
        "-oProxyCommand=x:y",
        "-lroot@host:y",
    ] {
        let refused = parse(OsStr::new(option)).unwrap_err();
        assert!(
            refused.text.contains("ssh would take it for an option"),
            "{refused}"
        );
    }
    // What a shell takes apart, options behind a user, and what ssh expands.
    for bad in [
        "`id`",
        "$(id)",
        "a;b",
        "a|b",
        "a&b",
        "a>b",
        "a<b",
        "a'b",
        "a\"b",
        "a\\b",
        "a{b}",
        "a*",
        "a?",
        "a!b",
        "a~b",
        "a#b",
        "a%h",
        "%d",
        "a\nb",
        "a\u{e9}",
        "me@-oProxyCommand=x",
        "-x@host",
        "a;b@host",
        "%u@host",
        "$USER@host",
        "me@[-x]",
        "me@[::1",
        "me@::1]",
        "[host;x]",
        "fe80::1%eth0;x",
        "me@[fe80::1%-x]",
        "@host",
    ] {
        for text in [
            format!("{bad}:x"),
            format!("{bad}::share/x"),
            format!("farhaul://{bad}/share/x"),
        ] {
            let far = parse(OsStr::new(&text)).is_ok_and(|place| matches!(place, Place::Far(_)));
            assert!(!far, "{text}");
        }
    }
    for (good, host) in [
        ("me.x+y@corp@h-1_a.example:x", "h-1_a.example"),
        ("me@[fe80::1%eth0]:x", "fe80::1%eth0"),
        ("10.0.0.1:x", "10.0.0.1"),
    ] {
        let place = parse(OsStr::new(good)).unwrap();
        assert!(
            matches!(place, Place::Far(far) if far.server.host == host),
            "{good}"
        );
    }
}

#[test]
fn a_server_without_a_share_is_told_from_its_shares() {
    for (typed, found) in [
        ("h::", Some("h:17992")),
        ("h:5::", Some("h:5")),
        ("[::1]::", Some("[::1]:17992")),
        ("[::1]:5::", Some("[::1]:5")),
        ("farhaul://h", Some("h:17992")),
        ("farhaul://h:5/", Some("h:5")),
        ("farhaul://[::1]:5", Some("[::1]:5")),
        ("farhaul://h/s", None),
        ("h::s", None),
        ("h::s::", None),
        ("h:dir/a::", None),
        ("./h::", None),
        ("dir/h::", None),
        ("h:", None),
        ("here", None),
    ] {
        let server = parse_server(OsStr::new(typed)).unwrap();
        assert_eq!(server.map(|s| s.to_string()).as_deref(), found, "{typed}");
    }
    for typed in ["::1::", "h:0::", "me@h::", "farhaul://", "a b::"] {
        let failure = parse_server(OsStr::new(typed)).unwrap_err();
        assert_eq!(failure.exit, crate::exit::Exit::Usage, "{typed}: {failure}");
    }
}

#[test]
fn a_hosts_table_of_the_configuration_is_found() {
    assert_eq!(host_of("far::in/x").as_deref(), Some("far"));
    assert_eq!(host_of("far:7"), None);
}
