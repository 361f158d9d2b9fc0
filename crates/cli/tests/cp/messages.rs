//! Messages about a copy that did not come about: whose fault, what to do about it, and the same to
//! programs.

use std::{fs, process::Stdio};

use serde_json::Value;

use crate::place::{Place, code, printed};

#[test]
fn a_changed_key_and_a_refused_client_are_distinguished() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let shut = place.serve_others();
    let other = place.run(&["key", "gen", "--out", "other"]);
    let other = String::from_utf8(other.stdout).unwrap();
    let trust = |key: &str| assert_eq!(code(&place.run(&["key", "trust", &shut.at, key])), 0);
    trust(other.trim());
    let out = place.run(&["cp", "f", &shut.to("")]);
    let text = printed(&out);
    assert_eq!(code(&out), 15, "{text}");
    assert!(
        text.contains("another key") && text.contains("impersonate"),
        "{text}"
    );
    assert!(
        text.contains("farhaul key trust") && !text.contains("--allow"),
        "{text}"
    );
    trust(&shut.key);
    for more in [&[][..], &["--trust-any"]] {
        let out = place.run(&[&["cp"][..], more, &["f", &shut.to("")]].concat());
        let text = printed(&out);
        assert_eq!(code(&out), 15, "{text}");
        assert!(
            text.contains("does not accept your key fh-pub1") && text.contains("--allow fh-pub1"),
            "{text}"
        );
        assert!(
            text.contains("--allow") && !text.contains("key trust"),
            "{text}"
        );
    }
}

#[test]
fn advice_about_another_key_file_does_not_touch_the_users_own() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let out = place.run(&["key", "gen"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let own = fs::read(place.path("config/farhaul/id")).unwrap();
    for bad in ["f", "share", "/dev/null", "none"] {
        let commands = [
            &["cp", "-i", bad, "f", "h::s/"][..],
            &["serve", "-i", bad, "--share", "s=share", "--allow", "any"],
            &["key", "show", bad],
        ];
        for args in commands {
            let text = printed(&place.run(args));
            assert!(text.contains("key gen --out FILE"), "{args:?}: {text}");
            assert!(!text.contains("--force"), "{args:?}: {text}");
        }
    }
    for there in ["share", "/dev/null"] {
        let out = place.run(&["key", "gen", "--force", "--out", there]);
        assert_eq!(code(&out), 10, "{there}: {}", printed(&out));
        assert!(
            printed(&out).contains("not a regular file"),
            "{}",
            printed(&out)
        );
    }
    assert_eq!(fs::read(place.path("config/farhaul/id")).unwrap(), own);
    fs::write(place.path("config/farhaul/id"), "broken").unwrap();
    let text = printed(&place.run(&["cp", "f", "h::s/"]));
    assert!(text.contains("key gen --force"), "{text}");
}

#[test]
fn a_failure_has_its_sentence_and_its_fix_for_programs_too() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let shut = place.serve_others();
    let to = shut.to("");
    let cases = [
        (
            &["cp", "--json", "--trust-any", "f", to.as_str()][..],
            "farhaul.transfer/1",
            15,
        ),
        (
            &["cp", "--json", "none", to.as_str()],
            "farhaul.transfer/1",
            3,
        ),
        (&["bench", "--json", "127.0.0.1:1"], "farhaul.failure/1", 16),
        (
            &["sim", "--json", "--secs", "2", "--loss", "100%"],
            "farhaul.sim/1",
            16,
        ),
    ];
    for (args, schema, exit) in cases {
        let out = place.run(args);
        let object: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(object["schema"], schema, "{args:?}");
        assert_eq!(object["ok"], false, "{args:?}");
        assert_eq!(
            (code(&out), &object["exit"]["code"]),
            (exit, &exit.into()),
            "{args:?}"
        );
        let (error, fix) = (object["error"].as_str(), object["exit"]["fix"].as_str());
        let (error, fix) = (error.unwrap(), fix.unwrap());
        assert!(!fix.is_empty() && error.ends_with(fix), "{args:?}: {error}");
        assert!(
            printed(&out).contains(error),
            "{args:?}: {error}: {}",
            printed(&out)
        );
    }
}

#[test]
fn warnings_are_printed_for_a_copy_that_fails_too() {
    let place = Place::new();
    fs::create_dir_all(place.path("in")).unwrap();
    fs::write(place.path("in/f"), "content").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", place.path("in/out")).unwrap();
    let fifo = place.path("in/pipe");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let server = place.serve(&["--allow", "any"]);
    let out = place.run(&["cp", "--trust-any", "in", &server.to("")]);
    assert_eq!(code(&out), 5, "{}", printed(&out));
    let warning = "farhaul: warning: in/pipe: ";
    assert!(printed(&out).contains(warning), "{}", printed(&out));
    let out = place.run(&["cp", "--trust-any", "-q", "in", &server.to("")]);
    let text = printed(&out);
    assert!(!text.contains("warning"), "{text}");
    assert_eq!(
        text.matches("in/out: absolute link (/etc/hostname)")
            .count(),
        1,
        "{text}"
    );
}

#[test]
fn links_that_are_left_out_are_counted() {
    let place = Place::new();
    fs::create_dir_all(place.path("in")).unwrap();
    for i in 0..30 {
        let link = place.path(&format!("in/{i}"));
        std::os::unix::fs::symlink("/etc/hostname", link).unwrap();
    }
    let server = place.serve(&["--allow", "any"]);
    for quiet in [None, Some("-q")] {
        let mut args = vec!["cp", "--trust-any", "-a", "in"];
        args.extend(quiet);
        let to = server.to("");
        args.push(&to);
        let out = place.run(&args);
        let text = printed(&out);
        assert_eq!(code(&out), 5, "{text}");
        assert!(text.contains("30 of 30 files failed"), "{text}");
        assert!(text.contains("--links=follow or --links=skip"), "{text}");
    }
}

#[test]
fn invalid_values_are_refused_in_every_form() {
    let place = Place::new();
    fs::write(place.path("patterns"), "# fine\n\n*.tmp\n[a\n").unwrap();
    fs::write(place.path("f"), "content").unwrap();
    for (more, what) in [
        (["--exclude", "["], "[ without a ]"),
        (["--exclude", ""], "matches nothing"),
        (["--include", ""], "matches nothing"),
        (["--exclude-from", "patterns"], "patterns:4"),
    ] {
        let out = place.run(&[&["cp"][..], &more, &["f", "h::s/"]].concat());
        assert_eq!(code(&out), 2, "{more:?}: {}", printed(&out));
        assert!(printed(&out).contains(what), "{more:?}: {}", printed(&out));
    }
    for (name, value, exit) in [
        ("FARHAUL_CP_BOGUS", "1", 10),
        ("FARHAUL_BENCH_SERVE_BOGUS", "1", 10),
        ("FARHAUL_CP_MAX_RATE", "fast", 10),
        ("FARHAUL_CP_TRUST_ANY", "true", 10),
        ("FARHAUL_CP_MAX_RATE", "1Gbit", 0),
        ("FARHAUL_BENCH_SERVE_MAX_TIME", "1h", 0),
        ("FARHAUL_OF_SOMEBODY", "1", 0),
    ] {
        let mut command = place.command(&["config", "check"]);
        let child = command.env(name, value).stdout(Stdio::null()).spawn();
        let out = child.unwrap().wait_with_output().unwrap();
        assert_eq!(code(&out), exit, "{name}: {}", printed(&out));
        assert!(
            exit == 0 || printed(&out).contains(name),
            "{name}: {}",
            printed(&out)
        );
    }
}
