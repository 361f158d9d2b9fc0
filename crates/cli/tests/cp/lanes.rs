//! One copy over several sessions: `-P N`.

use std::fs;

use serde_json::Value;

use crate::place::{Place, code, json, noise, printed};

/// A tree with large and small files in the folder `name`.
fn tree(place: &Place, name: &str) {
    let at = |file: &str| place.path(name).join(file);
    fs::create_dir_all(at("many")).expect("a folder");
    for i in 0..200 {
        fs::write(at(&format!("many/{i}")), noise(i, 3_000)).expect("a file");
    }
    for (i, size) in [40_000_001, 5 << 20, 9_999_999].into_iter().enumerate() {
        fs::write(at(&format!("large{i}")), noise(i as u64, size)).expect("a file");
    }
}

fn same(place: &Place, one: &str, other: &str) {
    let files = |dir: &str| {
        let mut all = Vec::new();
        for at in [place.path(dir), place.path(dir).join("many")] {
            for entry in fs::read_dir(at).expect("a folder").flatten() {
                if entry.path().is_file() {
                    all.push((entry.file_name(), fs::read(entry.path()).expect("a file")));
                }
            }
        }
        all.sort();
        all
    };
    let (one, other) = (files(one), files(other));
    assert_eq!(one.len(), 203);
    assert!(one == other);
}

#[test]
fn a_tree_goes_over_as_many_lanes_as_were_given() {
    let place = Place::new();
    tree(&place, "from");
    let server = place.serve(&["--allow", "any", "-v"]);
    for lanes in ["2", "4"] {
        let (far, back) = (format!("there{lanes}"), format!("back{lanes}"));
        let args = ["cp", "--trust-any", "--json", "-P", lanes];
        let to = server.to(&far);
        for pair in [["from/", &to], [&server.to(&format!("{far}/")), &back]] {
            let out = place.run(&[&args[..], &pair].concat());
            assert_eq!(code(&out), 0, "{}", printed(&out));
            let word = json(&out);
            assert_eq!(word["lanes"].to_string(), lanes, "{word}");
            assert_eq!(word["warnings"], Value::Array(Vec::new()), "{word}");
            assert_eq!(word["bytes_payload"], 55_842_880, "{word}");
        }
        same(&place, "from", &format!("share/{far}"));
        same(&place, "from", &back);
    }
    server.says("a further lane");
}

#[test]
fn lanes_that_a_server_has_no_room_for_are_missed_and_no_more() {
    let place = Place::new();
    fs::write(place.path("big"), noise(5, 50_000_000)).expect("a file");
    let server = place.serve(&["--allow", "any", "--max-sessions", "2"]);
    let to = server.to("");
    let out = place.run(&["cp", "--trust-any", "--json", "-P", "4", "big", &to]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let word = json(&out);
    assert_eq!(word["lanes"], 2, "{word}");
    let warnings = word["warnings"].as_array().expect("a list");
    let lost = |w: &&Value| {
        w.as_str()
            .is_some_and(|w| w.contains("was lost, the copy went on"))
    };
    assert_eq!(warnings.iter().filter(lost).count(), 2, "{word}");
    assert!(fs::read(place.path("share/big")).unwrap() == noise(5, 50_000_000));
}

#[test]
fn a_number_of_lanes_that_cannot_be_is_refused() {
    let place = Place::new();
    for bad in ["0", "65", "-1", "two", ""] {
        let out = place.run(&["cp", &format!("--lanes={bad}"), "a", "127.0.0.1:1::s/"]);
        assert_eq!(code(&out), 2, "{bad}: {}", printed(&out));
    }
}

#[test]
fn a_plan_has_one_lane() {
    let place = Place::new();
    fs::write(place.path("big"), noise(5, 3_000_000)).expect("a file");
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("");
    let out = place.run(&["cp", "--trust-any", "--json", "-n", "-P", "4", "big", &to]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(json(&out)["lanes"], 1);
}
