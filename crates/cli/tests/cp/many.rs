//! Copies more files than either end keeps in mind at a time, in one folder, in a bounded memory.

use std::{fs, path::Path};

use serde_json::Value;

use crate::place::{Place, code, printed};

/// Memory that either end may take, bytes.
const MEMORY: u64 = 64 << 20;

/// Different contents.
const CONTENTS: usize = 98;

/// The content of file `i`, not that of its neighbours; every seventh has none.
fn content(i: usize) -> String {
    match i % CONTENTS {
        i if i.is_multiple_of(7) => String::new(),
        i => i.to_string(),
    }
}

/// Checks that so many files are below `dir`, each with its content, and nothing else.
fn arrived(dir: &Path, files: usize) {
    for i in 0..files {
        let there = fs::read_to_string(dir.join(i.to_string())).expect("it is there");
        assert_eq!(there, content(i));
    }
    assert_eq!(fs::read_dir(dir).expect("a folder").count(), files);
}

fn object(place: &Place, args: &[&str]) -> Value {
    let out = place.run(&[&["cp", "--trust-any", "--json"], args].concat());
    assert_eq!(code(&out), 0, "{args:?}: {}", printed(&out));
    let word: Value = serde_json::from_slice(&out.stdout).expect("one object");
    for end in ["sender", "receiver"] {
        let most = word[end]["max_rss_bytes"].as_u64().expect("a number");
        assert!(most < MEMORY, "{end}: {word}");
    }
    word
}

/// Copies so many, twice.
fn arrive_and_are_found(files: usize) {
    let place = Place::in_memory();
    fs::create_dir(place.path("src")).expect("ours");
    // Links: they are made faster than files.
    for i in 0..CONTENTS {
        fs::write(place.path(&format!("content-{i}")), content(i)).expect("ours");
    }
    for i in 0..files {
        let from = place.path(&format!("content-{}", i % CONTENTS));
        fs::hard_link(from, place.path("src").join(i.to_string())).expect("ours");
    }
    let bytes: usize = (0..files).map(|i| content(i).len()).sum();
    let server = place.serve(&["--allow", "any", "--no-sync"]);
    let word = object(&place, &["src", &server.to("")]);
    println!("sent: {word}");
    assert_eq!(word["files"]["sent"], files, "{word}");
    assert_eq!(word["bytes_payload"], bytes, "{word}");
    arrived(&place.path("share/src"), files);
    let word = object(&place, &["src", &server.to("")]);
    println!("found there: {word}");
    assert_eq!(word["files"]["skipped"], files, "{word}");
    assert_eq!(word["bytes_payload"], 0, "{word}");
}

/// The sender lists 65,536 entries ahead of those that are over.
#[test]
fn more_files_than_are_listed_ahead_arrive_and_are_found_there() {
    arrive_and_are_found(70_000);
}

#[test]
#[ignore = "takes minutes, and 6 GB in TMPDIR"]
fn a_million_files_arrive_and_are_found_there() {
    arrive_and_are_found(1_000_000);
}
