//! Names from a list that cannot be: refused and named, and the others arrive.

use std::{
    fs,
    io::Write as _,
    process::{Output, Stdio},
};

use serde_json::Value;

use crate::place::{Place, Served, code, printed};

/// Sends what `list` names below `src`.
fn send(place: &Place, server: &Served, list: &[u8], more: &[&str], to: &str) -> Output {
    let to = server.to(to);
    let args = ["cp", "--trust-any", "--json", "--files-from", "-"];
    let args = [&args[..], more, &["src", &to]].concat();
    let mut client = place
        .command(&args)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = client.stdin.take().expect("piped");
    stdin.write_all(list).expect("it reads");
    drop(stdin);
    client.wait_with_output().expect("it ends")
}

/// Failures: path and reason.
fn failures(out: &Output) -> Vec<String> {
    let word: Value = serde_json::from_slice(&out.stdout).expect("one object");
    let failures = word["failures"].as_array().expect("a list");
    let text = |f: &Value| f["text"].as_str().expect("text").to_string();
    failures.iter().map(text).collect()
}

fn place() -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path("src/dir")).expect("a folder");
    for name in ["secret", "src/a", "src/dir/b"] {
        fs::write(place.path(name), name).expect("a file");
    }
    place
}

#[test]
fn names_that_cannot_be_are_named_with_the_reason() {
    let place = place();
    let server = place.serve(&["--allow", "any"]);
    let secret = place.path("secret").display().to_string();
    let long = "n".repeat(256);
    let cases: [(&str, &str, &str); 6] = [
        ("a\0b", "a\\u{0}b", "NUL in name"),
        (&secret, &secret, "absolute path"),
        ("../secret", "../secret", "'.' or '..' in path"),
        ("dir/../a", "dir/../a", "'.' or '..' in path"),
        (&long, &long, "name longer than 255 bytes"),
        ("none", "none", "not in the source"),
    ];
    let names = cases.map(|(name, _, _)| name).join("\n");
    let list = format!("a\n{names}\n./dir/b\n");
    let out = send(&place, &server, list.as_bytes(), &[], "to/");
    assert_eq!(code(&out), 5, "{}", printed(&out));
    let found = failures(&out);
    assert_eq!(found.len(), cases.len(), "{found:?}");
    for ((_, shown, why), text) in cases.iter().zip(&found) {
        assert!(text.contains(&format!("{shown}: {why}")), "{text}: {why}");
        assert!(printed(&out).contains(text), "{text}: {}", printed(&out));
    }
    assert_eq!(fs::read(place.path("share/to/src/a")).unwrap(), b"src/a");
    assert_eq!(
        fs::read(place.path("share/to/src/dir/b")).unwrap(),
        b"src/dir/b"
    );
    for dir in ["share", "share/to"] {
        assert_eq!(fs::read_dir(place.path(dir)).unwrap().count(), 1, "{dir}");
    }
}

#[test]
fn where_names_end_in_nul_a_line_feed_is_part_of_one() {
    let place = place();
    fs::write(place.path("src/a\nb"), "odd").unwrap();
    let server = place.serve(&["--allow", "any"]);
    let out = send(&place, &server, b"a\nb\0/etc/hostname\0a\0", &["-0"], "");
    assert_eq!(code(&out), 5, "{}", printed(&out));
    let found = failures(&out);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("/etc/hostname: absolute path"),
        "{found:?}"
    );
    assert_eq!(fs::read(place.path("share/src/a\nb")).unwrap(), b"odd");
    assert_eq!(fs::read(place.path("share/src/a")).unwrap(), b"src/a");
}

#[test]
fn a_list_whose_names_end_in_something_else_is_refused_with_the_flag() {
    let place = place();
    let server = place.serve(&["--allow", "any"]);
    for (list, more, words) in [
        (
            &b"a\0dir/b\0"[..],
            &[][..],
            "end in NUL, not in newlines: add -0",
        ),
        (b"a\nb\0a\0", &[], "add -0"),
        (b"a\0dir/b", &[], "add -0"),
        (b"a\ndir/b\n", &["-0"], "omit -0, or end each in NUL"),
    ] {
        let out = send(&place, &server, list, more, "to/");
        assert_eq!(code(&out), 2, "{}", printed(&out));
        assert!(printed(&out).contains(words), "{}", printed(&out));
    }
    for (list, more) in [(&b"a"[..], &["-0"][..]), (b"a", &[]), (b"", &["-0"])] {
        let out = send(&place, &server, list, more, "to/");
        assert!(!printed(&out).contains("-0"), "{}", printed(&out));
    }
    assert!(place.path("share/to/src/a").exists());
}

#[test]
fn a_list_of_nothing_but_such_names_is_no_success() {
    let place = place();
    let server = place.serve(&["--allow", "any"]);
    let out = send(&place, &server, b"../secret\n", &[], "to/");
    assert_eq!(code(&out), 5, "{}", printed(&out));
    assert_eq!(failures(&out), ["../secret: '.' or '..' in path"]);
    assert!(!place.path("share/to/src").exists());
}
