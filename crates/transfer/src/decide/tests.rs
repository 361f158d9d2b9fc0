use super::*;
use crate::wire::{Delete, Preserve};

const PLAIN: Rules = Rules {
    alone: false,
    sync: true,
    existing: Existing::Replace,
    checksum: false,
    verify_disk: false,
    reach: Reach::All,
    strangers: false,
    mirror: Mirror {
        preserve: Preserve {
            links: true,
            ..Preserve::NONE
        },
        ..Mirror::PLAIN
    },
    pipe: false,
    stripe_scope: None,
};
const DELETES: Rules = Rules {
    mirror: Mirror {
        delete: Some(Delete {
            most: None,
            excluded: false,
        }),
        ..PLAIN.mirror
    },
    ..PLAIN
};
const KEEPS: Rules = Rules {
    existing: Existing::Keep,
    ..PLAIN
};
/// The columns of the tables, in this order.
const COLUMNS: [Rules; 8] = [
    PLAIN,
    KEEPS,
    Rules {
        existing: Existing::KeepNewer,
        ..PLAIN
    },
    Rules {
        checksum: true,
        ..PLAIN
    },
    Rules {
        verify_disk: true,
        ..PLAIN
    },
    DELETES,
    Rules {
        reach: Reach::Content,
        ..PLAIN
    },
    Rules {
        reach: Reach::New,
        ..PLAIN
    },
];

/// An entry of ten bytes, if it is a file.
fn entry(kind: Kind) -> Entry {
    let size = if kind == Kind::File { 10 } else { 0 };
    Entry {
        mtime: 100,
        mtime_nanos: 7,
        target: b"target".to_vec(),
        ..Entry::of(kind, "d/name", size)
    }
}

fn empty() -> Entry {
    Entry {
        size: 0,
        allocated: 0,
        ..entry(Kind::File)
    }
}

/// The destination, by the first word of a row.
fn there(word: &str) -> There {
    let (kind, size, mtime, nanos) = match word {
        "nothing" => return There::default(),
        "same" => (0o100_000, 10, 100, 7),
        "coarse" => (0o100_000, 10, 100, 0),
        "older" => (0o100_000, 10, 99, 7),
        "newer" => (0o100_000, 10, 101, 7),
        "longer" => (0o100_000, 11, 100, 7),
        "empty" => (0o100_000, 0, 101, 7),
        "folder" => (0o040_000, 4096, 101, 7),
        "link" | "ours" => (0o120_000, 6, 99, 7),
        "device" => (0o060_000, 0, 99, 7),
        "pipe" => (0o010_000, 0, 101, 7),
        "socket" => (0o140_000, 0, 99, 7),
        other => panic!("{other}"),
    };
    let mut stat = rustix::fs::stat(".").unwrap();
    stat.st_mode = kind | 0o644;
    (stat.st_size, stat.st_mtime, stat.st_mtime_nsec) = (size, mtime, nanos);
    // Its file system stores seconds.
    (stat.st_ctime, stat.st_ctime_nsec) = (200, 0);
    There {
        stat: Some(stat),
        same_link: word == "ours",
        ..There::default()
    }
}

fn letter(decision: &Result<Decision, Refusal>) -> char {
    match decision {
        Ok(Decision::Stay) => 'k',
        Ok(Decision::Same) => '=',
        Ok(Decision::Compare) => '?',
        Ok(Decision::Make) => '+',
        Ok(Decision::Replace) => 'r',
        Ok(Decision::Wait) => 'w',
        Err(_) => '!',
    }
}

/// Compares each row with what is decided: `k` stays, `=` is the same, `?` is compared, `+` is made, `r`
/// replaces, `w` waits, `!` fails.
fn check(entry: &Entry, table: &[&str]) {
    for row in table {
        let (word, expected) = row.split_once(' ').unwrap();
        let there = there(word);
        let decided = COLUMNS.map(|rules| letter(&decide(entry, &there, &rules)));
        let expected: Vec<char> = expected.chars().filter(|c| *c != ' ').collect();
        assert_eq!(decided[..], expected[..], "{:?}, {word}", entry.kind);
    }
}

// In each table: plain, keep, update, checksum, verify, delete; peers that may not read, and that may only add.

#[test]
fn files() {
    check(
        &entry(Kind::File),
        &[
            "nothing +++ ++ + ++",
            "same    =k= ?? = ??",
            "coarse  ?k? ?? ? ??",
            "older   rkr ?r r r!",
            "newer   rkk ?r r r!",
            "longer  rkr rr r r!",
            "empty   rkk rr r r!",
            "folder  !!! !! w !!",
            "link    rkr rr r !!",
            "device  !k! !! ! !!",
            "pipe    !kk !! ! !!",
            "socket  !k! !! ! !!",
        ],
    );
    check(
        &empty(),
        &[
            "nothing +++ ++ + ++",
            "same    rkr rr r r!",
            "older   rkr rr r r!",
            "newer   rkk rr r r!",
            "empty   =kk == = r=",
            "folder  !!! !! w !!",
            "link    rkr rr r !!",
            "socket  !k! !! ! !!",
        ],
    );
}

#[test]
fn folders() {
    check(
        &entry(Kind::Dir),
        &[
            "nothing +++ ++ + ++",
            "folder  === == = ==",
            "same    !!! !! r !!",
            "newer   !!! !! r !!",
            "link    !!! !! r !!",
            "device  !!! !! ! !!",
            "pipe    !!! !! ! !!",
        ],
    );
    let root = Entry::of(Kind::Dir, "", 0);
    check(&root, &["nothing === == = =="]);
}

#[test]
fn links() {
    check(
        &entry(Kind::Symlink),
        &[
            "nothing +++ ++ + ++",
            "ours    === == = ==",
            "link    rrr rr r !!",
            "older   rrr rr r !!",
            "newer   rrr rr r !!",
            "folder  !!! !! w !!",
            "pipe    !!! !! ! !!",
        ],
    );
    check(
        &entry(Kind::HardLink),
        &[
            "nothing +++ ++ + ++",
            "ours    === == = ==",
            "link    rkr rr r !!",
            "older   rkr rr r !!",
            "newer   rkk rr r !!",
            "folder  !!! !! w !!",
            "pipe    !kk !! ! !!",
        ],
    );
}

/// Decisions about a file that an earlier run has named.
fn after(earlier: Earlier, word: &str, rules: &Rules) -> char {
    let there = There {
        earlier,
        ..there(word)
    };
    letter(&decide(&entry(Kind::File), &there, rules))
}

#[test]
fn after_a_run_that_did_not_sync_its_files() {
    let fast = Rules {
        sync: false,
        ..KEEPS
    };
    for (earlier, word, expected) in [
        (Earlier::Unsure, "same", "???"),
        (Earlier::Unsure, "coarse", "???"),
        (Earlier::Unsure, "older", "rkk"),
        (Earlier::Unsure, "longer", "rrr"),
        (Earlier::Unsure, "empty", "rrr"),
        (Earlier::Unsure, "nothing", "+++"),
        (Earlier::Suspect, "same", "rrr"),
        (Earlier::Suspect, "older", "rrr"),
        (Earlier::Suspect, "link", "rrr"),
        (Earlier::Suspect, "folder", "!!!"),
    ] {
        let decided = [PLAIN, KEEPS, fast].map(|rules| after(earlier, word, &rules));
        assert_eq!(String::from_iter(decided), expected, "{earlier:?} {word}");
    }
    // A long file is synced before it gets its name.
    let long = Entry {
        size: 2 << 20,
        ..entry(Kind::File)
    };
    let mut there = there("same");
    there.earlier = Earlier::Unsure;
    if let Some(stat) = &mut there.stat {
        stat.st_size = 2 << 20;
    }
    assert_eq!(letter(&decide(&long, &there, &KEEPS)), 'k');
    assert_eq!(letter(&decide(&long, &there, &PLAIN)), '?');
}

#[test]
fn pipes_and_stripes() {
    let pipe = Rules {
        pipe: true,
        ..PLAIN
    };
    let same = there("same");
    assert_eq!(letter(&decide(&entry(Kind::File), &same, &pipe)), 'r');
    let collected = There {
        collected: true,
        ..same
    };
    assert_eq!(letter(&decide(&entry(Kind::File), &collected, &PLAIN)), 'r');
    let stripe = Entry::of(Kind::File, "d/name", 3 << 20).striped(0, 0);
    let folder = there("folder");
    assert_eq!(letter(&decide(&stripe, &folder, &DELETES)), '!');
}

#[test]
fn the_reasons() {
    let only = |reach| Rules { reach, ..PLAIN };
    let (content, new) = (only(Reach::Content), only(Reach::New));
    let mut protected = there("older");
    if let Some(stat) = &mut protected.stat {
        stat.st_mode = 0o100_444;
    }
    let suspect = There {
        earlier: Earlier::Suspect,
        ..there("same")
    };
    let file = Kind::File;
    for (kind, there, rules, expected) in [
        (file, there("folder"), PLAIN, "is a directory"),
        (Kind::HardLink, there("folder"), KEEPS, "is a directory"),
        (
            file,
            there("device"),
            PLAIN,
            "a device has this name: it is not replaced",
        ),
        (
            file,
            there("pipe"),
            DELETES,
            "a pipe has this name: it is not replaced",
        ),
        (
            Kind::Dir,
            there("same"),
            PLAIN,
            "Not a directory (os error 20)",
        ),
        (
            Kind::Dir,
            there("pipe"),
            DELETES,
            "Not a directory (os error 20)",
        ),
        (
            Kind::Dir,
            there("link"),
            PLAIN,
            "Too many levels of symbolic links (os error 40)",
        ),
        (file, there("older"), new, TAKEN),
        (Kind::Symlink, there("folder"), content, TAKEN),
        (Kind::HardLink, there("folder"), content, "is a directory"),
        (Kind::HardLink, there("older"), content, TAKEN),
        (
            file,
            there("link"),
            content,
            "a link has this name: this share does not replace links",
        ),
        (
            file,
            protected,
            content,
            "a write-protected file has this name: this share does not replace it",
        ),
        (file, suspect, new, UNSURE),
    ] {
        let refusal = decide(&entry(kind), &there, &rules).unwrap_err();
        assert_eq!(refusal, Refusal::from(expected));
    }
}

#[test]
fn what_no_destination_takes() {
    let of = |kind, target: &str| Entry {
        target: target.into(),
        ..entry(kind)
    };
    let keeps_links = |symlinks| Rules {
        mirror: Mirror {
            symlinks,
            ..PLAIN.mirror
        },
        ..PLAIN
    };
    let bare = Rules {
        mirror: Mirror::PLAIN,
        ..PLAIN
    };
    for (entry, rules, expected) in [
        (of(Kind::Symlink, "f"), PLAIN, None),
        (of(Kind::Symlink, "/f"), PLAIN, Some(Exit::Partial)),
        (of(Kind::Symlink, "/f"), keeps_links(Symlinks::Keep), None),
        (
            of(Kind::Symlink, ""),
            keeps_links(Symlinks::Keep),
            Some(Exit::Partial),
        ),
        (of(Kind::HardLink, "f"), PLAIN, None),
        (of(Kind::HardLink, "f"), bare, Some(Exit::DestError)),
        (of(Kind::File, ""), bare, None),
    ] {
        let refused = admit(&entry, &rules).err().map(|refusal| refusal.code);
        assert_eq!(refused, expected, "{entry:?}");
    }
}
