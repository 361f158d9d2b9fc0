//! More files than either end keeps in mind at a time, in one folder, in a bounded memory.

use std::{fs, path::Path};

use serde_json::Value;

use crate::place::{Place, code, printed};

/// The sender lists 65,536 entries ahead of what is over.
const FILES: usize = 100_000;
/// What either end may take, in bytes.
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

fn each(mut of: impl FnMut(String, usize)) {
    for i in 0..FILES {
        of(i.to_string(), i);
    }
}

/// All files are below `dir`, each with its content, and nothing else.
fn arrived(dir: &Path) {
    each(|name, i| {
        let there = fs::read_to_string(dir.join(name)).expect("it is there");
        assert_eq!(there, content(i));
    });
    assert_eq!(fs::read_dir(dir).expect("a folder").count(), FILES);
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

#[test]
fn a_hundred_thousand_files_arrive_and_are_found_there() {
    let place = Place::new();
    fs::create_dir(place.path("src")).unwrap();
    // Links: they are made faster than files.
    for i in 0..CONTENTS {
        fs::write(place.path(&format!("content-{i}")), content(i)).unwrap();
    }
    each(|name, i| {
        let from = place.path(&format!("content-{}", i % CONTENTS));
        fs::hard_link(from, place.path("src").join(name)).unwrap();
    });
    let bytes: usize = (0..FILES).map(|i| content(i).len()).sum();
    let server = place.serve(&["--allow", "any", "--no-sync"]);
    let word = object(&place, &["src", &server.to("")]);
    assert_eq!(word["files"]["sent"], FILES, "{word}");
    assert_eq!(word["bytes_payload"], bytes, "{word}");
    arrived(&place.path("share/src"));
    let word = object(&place, &["src", &server.to("")]);
    assert_eq!(word["files"]["skipped"], FILES, "{word}");
    assert_eq!(word["bytes_payload"], 0, "{word}");
}
