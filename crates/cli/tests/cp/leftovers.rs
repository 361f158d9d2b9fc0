//! Leftovers of a copy that was killed, removed by `farhaul clean` unless a copy has them.

use std::fs;

use serde_json::Value;

use crate::place::{Place, await_that, code, noise, printed};

/// Names at the destination, hidden ones too.
fn names(place: &Place) -> Vec<String> {
    let all = fs::read_dir(place.path("share")).expect("a scratch folder");
    let mut all: Vec<_> = all
        .map(|entry| {
            entry
                .expect("a scratch folder")
                .file_name()
                .into_string()
                .expect("a scratch folder")
        })
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn what_a_killed_copy_left_is_listed_and_removed() {
    let place = Place::new();
    fs::write(place.path("f"), noise(1, 24 << 20)).unwrap();
    fs::write(place.path("share/kept"), "kept").unwrap();
    std::os::unix::fs::symlink("share", place.path("link")).unwrap();
    let mut server = place.serve(&["--allow", "any"]);
    let to = server.to("");
    let args = ["cp", "--trust-any", "--max-rate", "4MB", "f", &to];
    let mut copy = place.command(&args).spawn().unwrap();
    let is_under_way = || names(&place).iter().any(|name| name.ends_with("-part"));
    await_that(&mut copy, is_under_way);
    // It runs: nothing is removed.
    let out = place.run(&["clean", "--delete", "--json", "share"]);
    let object: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((code(&out), &object["in_use"]), (0, &2.into()), "{object}");
    assert_eq!(object["entries"][0]["state"], "in_use");
    copy.kill().unwrap();
    copy.wait().unwrap();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let before = names(&place);
    assert_eq!(before.len(), 3, "{before:?}");
    let out = place.run(&["clean", "link"]);
    let listed = String::from_utf8(out.stdout.clone()).unwrap();
    assert_eq!(listed.matches("abandoned").count(), 2, "{listed}");
    assert!(
        printed(&out).contains("--delete removes"),
        "{}",
        printed(&out)
    );
    assert_eq!(names(&place), before);
    let out = place.run(&["clean", "-n", "--delete", "link"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(names(&place), before);
    let out = place.run(&["clean", "--delete", "link"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(names(&place), ["kept"]);
    for (args, expected) in [
        (&["clean", "gone"][..], 3),
        (&["clean", "share/kept"], 3),
        (&["clean"], 2),
    ] {
        let out = place.run(args);
        assert_eq!(code(&out), expected, "{args:?}: {}", printed(&out));
    }
}
