//! Checks refusals. The program runs twice, once with `--json`. Code and sentence are the same, and
//! the object has the name that the documents give to the code.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, process::Output};

use serde_json::Value;

use crate::place::{Place, code, printed};

/// Codes and names as `docs/reference.md` has them.
pub(crate) struct Names(BTreeMap<i32, String>);

impl Names {
    pub(crate) fn documented() -> Self {
        let text =
            fs::read_to_string(crate::workspace().join("docs/reference.md")).expect("a page");
        let (_, table) = text.split_once("## Exit codes").expect("its last part");
        let mut names = BTreeMap::new();
        for line in table.lines() {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            if let [_, codes, words, ..] = &cells[..] {
                for (code, name) in codes.split(", ").zip(words.split(", ")) {
                    if let Ok(code) = code.parse() {
                        names.insert(code, name.to_string());
                    }
                }
            }
        }
        assert!(names.len() > 20, "the table is read: {names:?}");
        Self(names)
    }

    /// Checks that the output is one object about a failure with this code, and nothing else.
    pub(crate) fn object(&self, out: &Output, expected: i32) -> Value {
        let object: Value = serde_json::from_slice(&out.stdout)
            .unwrap_or_else(|e| panic!("not one object: {e}: {out:?}"));
        assert_eq!(code(out), expected, "{}", printed(out));
        let exit = &object["exit"];
        let name = self.0.get(&expected).expect("a documented code");
        assert_eq!(
            (&object["ok"], &exit["code"], &exit["name"]),
            (
                &(expected == 0).into(),
                &expected.into(),
                &name.as_str().into()
            ),
            "{object}"
        );
        let schema = object["schema"].as_str().expect("a schema");
        assert!(schema.starts_with("farhaul."), "{schema}");
        object
    }
}

/// A folder with something of everything, and the program run in it.
pub(crate) struct Fixture {
    pub(crate) place: Place,
    pub(crate) names: Names,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        for name in ["f", "g"] {
            fs::write(place.path(name), name).expect("a file");
        }
        fs::create_dir(place.path("d")).expect("a folder");
        fs::write(place.path("no.key"), "not a key").expect("a file");
        let shut = fs::Permissions::from_mode(0o600);
        fs::set_permissions(place.path("no.key"), shut).expect("our own");
        let made = place.run(&["key", "gen", "--out", "open.key"]);
        assert_eq!(code(&made), 0, "{}", printed(&made));
        let open = fs::Permissions::from_mode(0o644);
        fs::set_permissions(place.path("open.key"), open).expect("our own");
        Self {
            place,
            names: Names::documented(),
        }
    }

    /// Checks that both ways of output say all of `words`.
    pub(crate) fn refuses(&self, args: &[&str], expected: i32, words: &[&str]) {
        self.refuses_in_text(args, expected, words);
        self.refuses_as_object(args, expected, words);
    }

    /// Checks the refusal as text, with nothing on stdout.
    pub(crate) fn refuses_in_text(&self, args: &[&str], expected: i32, words: &[&str]) {
        let out = self.place.run(args);
        let text = printed(&out);
        assert_eq!(code(&out), expected, "{args:?}: {text}");
        for words in words {
            assert!(text.contains(words), "{args:?}: {text}");
        }
        assert!(out.stdout.is_empty(), "{args:?} wrote to stdout");
    }

    /// Checks the refusal as the one object that is on stdout.
    pub(crate) fn refuses_as_object(&self, args: &[&str], expected: i32, words: &[&str]) {
        // Before a "--", after which the words are another program's.
        let at = args.iter().position(|a| *a == "--").unwrap_or(args.len());
        let with = [&args[..at], &["--json"], &args[at..]].concat();
        let out = self.place.run(&with);
        let object = self.names.object(&out, expected);
        let said = [
            &object["error"],
            &object["exit"]["text"],
            &object["exit"]["fix"],
        ];
        for words in words {
            let says = |said: &Value| said.as_str().is_some_and(|said| said.contains(words));
            assert!(said.into_iter().any(says), "{with:?}: {object}");
        }
    }
}
