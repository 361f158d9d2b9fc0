use std::{ffi::OsString, path::PathBuf};

use super::*;

const KEY: &str = "fh-pub1gdndcyt2567c44qmjkqf4q1mdpyxypp771evvgjg28jav29bbt1yceqa";

/// A folder with a file of this text, in which `DIR` is the folder and `KEY` a key.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("serve.toml");
    let text = text
        .replace("DIR", dir.path().to_str().unwrap())
        .replace("KEY", KEY);
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn read(text: &str, more: &[&str]) -> Result<(Args, Tables), Failure> {
    let (_dir, path) = file(text);
    let words = [
        &["farhaul", "serve", "--config", path.to_str().unwrap()],
        more,
    ]
    .concat();
    let line = Line {
        words: words.iter().map(OsString::from).collect(),
        off: Vec::new(),
        definition: crate::definition,
    };
    merged(&path, crate::definition(), &line)
}

#[test]
fn flags_in_the_file_are_defaults_of_those_on_the_command_line() {
    let text = "listen = '127.0.0.1:5'\nmax_sessions = 7\nno-sync = true\ndrain = '1s'\n";
    let (args, _) = read(text, &["--max-sessions", "9"]).unwrap();
    assert_eq!((args.listen.port(), args.max_sessions), (5, 9));
    assert!(args.no_sync);
    assert_eq!(args.drain.as_secs(), 1);
}

#[test]
fn shares_are_for_the_peers_that_they_name() {
    let text = "[[peer]]\nname = 'alice'\nkey = 'KEY'\nmax_rate = '1Gbit'\nmax-sessions = 2\n\
                [[share]]\nname = 'a'\npath = 'DIR'\nallow = 'alice'\n\
                [[share]]\nname = 'b'\npath = 'DIR'\nmode = 'create'\n\
                [[share]]\nname = 'c'\npath = 'DIR'\nmode = 'rw,delete'\n";
    let (_, tables) = read(text, &[]).unwrap();
    let [a, b, c] = &tables.shares[..] else {
        panic!("{tables:?}")
    };
    assert_eq!(c.mode(), Access::Delete);
    assert_eq!((a.name(), b.access()), ("a", "deliver new files (create)"));
    assert_eq!(tables.peers[0].limits.max_sessions, Some(2));
    assert!(names(&tables).values().eq(["alice"]));
}

/// Files with a mistake, and words of the complaint.
const MISTAKES: &[(&str, &str)] = &[
    (
        "listen = '127.0.0.1:5'\nmax-sesions = 7\n",
        ":2: serve.max-sesions: no flag 'max-sesions' (did you mean 'max-sessions'?)",
    ),
    (
        "\nmax-rate = '100'\n",
        ":2: serve.max-rate: invalid value '100'",
    ),
    (
        "config = 'x'\n",
        ":1: config: it can only be set on the command line",
    ),
    (
        "[limits]\nmax-rate = '1Gbit'\n",
        ":2: limits.max-rate: no table 'limits'",
    ),
    (
        "[[shares]]\nname = 'a'\n",
        ":1: no list of tables 'shares' (did you mean 'share'?)",
    ),
    (
        "[[share]]\nname = 'a'\npaht = '/x'\n",
        ":3: share.paht: no key 'paht' (did you mean 'path'?)",
    ),
    ("[[share]]\nname = 'a'\n", ":1: a [[share]] needs 'path'"),
    ("[[share]]\npath = 'DIR'\n", ":1: a [[share]] needs 'name'"),
    (
        "[[share]]\nname = 'a/b'\npath = 'DIR'\n",
        ":2: share.name: write a name without /",
    ),
    (
        "[[share]]\nname = 'a'\npath = 'tmp'\n",
        ":3: share.path: tmp: write an absolute path",
    ),
    (
        "[[share]]\nname = 'a'\npath = '/nonexistent'\n",
        "it must be a directory that exists",
    ),
    (
        "[[share]]\nname = 'a'\npath = 'DIR'\nmode = 'rwx'\n",
        ":4: share.mode: write ro, wo, create, rw or rw,delete",
    ),
    (
        "[[share]]\nname = 'a'\npath = 'DIR'\n[[share]]\nname = 'a'\npath = 'DIR'\n",
        ":5: share.name: there is a [[share]] 'a' already",
    ),
    (
        "[[peer]]\nname = 'alice'\nkey = 'KEY'\n[[share]]\nname = 'a'\npath = 'DIR'\nallow = ['alcie']\n",
        ":7: share.allow: no peer 'alcie' (did you mean 'alice'?)",
    ),
    (
        "[[peer]]\nname = 'alice'\nkey = 'fh-pub1x'\n",
        ":3: peer.key: not a public key",
    ),
    (
        "[[peer]]\nname = 'any'\nkey = 'KEY'\n",
        ":2: peer.name: write a name",
    ),
    (
        "[[peer]]\nname = 'a'\nkey = 'KEY'\n[[peer]]\nname = 'b'\nkey = 'KEY'\n",
        ":6: peer.key: peer 'a' has the same key",
    ),
    (
        "[[peer]]\nname = 'a'\nkey = 'KEY'\nmax-sessions = 0\n",
        ":4: peer.max-sessions: give a whole number",
    ),
    (
        "[[peer]]\nname = 'a'\nkey = 'KEY'\nmax-rate = '7'\n",
        ":4: peer.max-rate: ",
    ),
    (
        "[[share]]\nname = 'a'\npath = 'DIR'\nquota = '5x'\n",
        ":4: share.quota: ",
    ),
    ("[[peer]\n", ":1: "),
];

#[test]
fn what_is_wrong_has_its_line_and_the_nearest_name() {
    for (text, expected) in MISTAKES {
        let refused = read(text, &[]).unwrap_err();
        assert_eq!(refused.exit, Exit::Config, "{text}");
        assert!(refused.text.contains(expected), "{text}: {refused}");
    }
}
