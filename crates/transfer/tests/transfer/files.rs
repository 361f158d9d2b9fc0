//! Files arrive as they were sent, whatever the order of the segments; existing files are not sent
//! again; an interrupted copy continues.

use std::{cell::Cell, fs, rc::Rc};

use crate::pair::{self, Way, get, mixed, noise, options, put, put_by, tree};
use farhaul_transfer::{Exit, client::Options};

#[test]
fn a_mixed_tree_arrives_both_ways() {
    for seed in 0..3 {
        let tmp = tempfile::tempdir().unwrap();
        let (from, far, back) = (
            tmp.path().join("src"),
            tmp.path().join("far"),
            tmp.path().join("back"),
        );
        mixed(&from);
        fs::create_dir(&far).unwrap();
        let out = put(
            std::slice::from_ref(&from),
            &far,
            "a/b",
            &mut Way::new(seed),
        );
        assert_eq!(out.error, None);
        assert_eq!(tree(&from), tree(&far.join("a/b/src")), "seed {seed}");
        assert_eq!(out.summary.files.sent, 304);
        assert_eq!(out.summary.files.total, 304);
        let names: Vec<_> = fs::read_dir(far.join("a/b"))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["src"], "nothing is left behind");
        let out = get(&far, "a/b/src/", &back, &mut Way::new(seed + 10));
        assert_eq!(out.error, None);
        assert_eq!(tree(&from), tree(&back), "seed {seed}");
    }
}

#[test]
fn a_second_run_sends_nothing_and_a_change_only_itself() {
    let tmp = tempfile::tempdir().unwrap();
    let (from, far) = (tmp.path().join("src"), tmp.path().join("far"));
    mixed(&from);
    fs::create_dir(&far).unwrap();
    assert_eq!(
        put(std::slice::from_ref(&from), &far, "", &mut Way::new(1)).error,
        None
    );
    let mut way = Way::new(2);
    let out = put(std::slice::from_ref(&from), &far, "", &mut way);
    assert_eq!(out.error, None);
    assert_eq!((way.delivered, out.summary.files.skipped), (0, 304));
    // Same size and time, other content: only the digest differs.
    let victim = far.join("src/many/deep/er/big");
    let time = victim.metadata().unwrap().modified().unwrap();
    let mut bytes = fs::read(&victim).unwrap();
    bytes[5_000_000] ^= 1;
    fs::write(&victim, &bytes).unwrap();
    fs::File::options()
        .write(true)
        .open(&victim)
        .unwrap()
        .set_modified(time)
        .unwrap();
    fs::write(from.join("many/9"), "new").unwrap();
    let run = |seed, checksum| {
        let options = Options {
            checksum,
            ..options()
        };
        let out = put_by(
            std::slice::from_ref(&from),
            &far,
            "",
            options,
            &mut Way::new(seed),
        );
        assert_eq!(out.error, None);
        out.summary.files.skipped
    };
    assert_eq!(run(3, false), 303, "what looks unchanged is taken for it");
    assert!(tree(&from) != tree(&far.join("src")));
    assert_eq!(run(4, true), 303);
    assert!(tree(&from) == tree(&far.join("src")));
}

#[test]
fn one_file_gets_the_name_it_is_given() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("one");
    fs::write(&file, noise(1, 3_000_000)).unwrap();
    let far = tmp.path().join("far");
    fs::create_dir(&far).unwrap();
    let out = put(
        std::slice::from_ref(&file),
        &far,
        "x/renamed",
        &mut Way::new(1),
    );
    assert_eq!(out.error, None);
    assert_eq!(
        fs::read(far.join("x/renamed")).unwrap(),
        fs::read(&file).unwrap()
    );
    let root = blake3::hash(&fs::read(&file).unwrap()).to_hex().to_string();
    assert_eq!(out.summary.verify.root, Some(root));
    assert_eq!(
        put(std::slice::from_ref(&file), &far, "x/", &mut Way::new(1)).error,
        None
    );
    assert!(far.join("x/one").exists());
    let out = put(
        &[file.clone(), file.clone()],
        &far,
        "x/one",
        &mut Way::new(1),
    );
    assert_eq!(
        out.error.unwrap().code,
        Exit::DestError,
        "several sources cannot become one file"
    );
    let out = get(
        &far,
        "x/renamed",
        &tmp.path().join("here"),
        &mut Way::new(4),
    );
    assert_eq!(out.error, None);
    assert_eq!(
        fs::read(tmp.path().join("here")).unwrap(),
        fs::read(&file).unwrap()
    );
}

#[test]
fn killed_transfers_continue_and_send_little_twice() {
    let size = 40 << 20;
    for seed in 0..4 {
        let tmp = tempfile::tempdir().unwrap();
        let (from, far) = (tmp.path().join("src"), tmp.path().join("far"));
        mixed(&from);
        fs::write(from.join("a"), noise(9, size)).unwrap();
        fs::create_dir(&far).unwrap();
        let upload = seed % 2 == 0;
        let mut total = 0;
        let mut resumed = 0;
        let mut kills = 0;
        let target = tmp.path().join("back");
        for attempt in 0.. {
            let mut way = Way::new(seed * 100 + attempt);
            way.kill_after = if attempt < 3 { 14 << 20 } else { u64::MAX };
            let out = if upload {
                let mut client = farhaul_transfer::client::Upload::new(
                    std::slice::from_ref(&from),
                    &pair::remote(""),
                    options(),
                )
                .unwrap();
                let handle = client.handle();
                let mut server = pair::server(&far, farhaul_transfer::server::Access::ReadWrite);
                pair::run(&mut client, &mut server, &mut way);
                handle.outcome()
            } else {
                let mut client = farhaul_transfer::client::Download::new(
                    &[pair::remote("src")],
                    &target,
                    options(),
                )
                .unwrap();
                let handle = client.handle();
                let mut server = pair::server(tmp.path(), farhaul_transfer::server::Access::Read);
                pair::run(&mut client, &mut server, &mut way);
                handle.outcome()
            };
            total += way.delivered;
            match out {
                None => kills += 1,
                Some(out) => {
                    assert_eq!(out.error, None);
                    resumed = out.summary.resumed_bytes;
                    break;
                }
            }
        }
        assert_eq!(kills, 3, "seed {seed}");
        let got = if upload {
            far.join("src")
        } else {
            target.join("src")
        };
        assert_eq!(tree(&from), tree(&got), "seed {seed}");
        assert!(resumed > 20 << 20, "resumed only {resumed}");
        // Duplicates and re-reads are part of the fake network: a tenth each at most.
        assert!(total < (size as u64 + (12 << 20)) * 14 / 10, "sent {total}");
    }
}

#[test]
fn a_damaged_part_is_noticed_and_a_foreign_journal_ignored() {
    let tmp = tempfile::tempdir().unwrap();
    let (file, far) = (tmp.path().join("f"), tmp.path().join("far"));
    fs::write(&file, noise(1, 20 << 20)).unwrap();
    fs::create_dir(&far).unwrap();
    let kill = |seed| {
        let mut way = Way::new(seed);
        way.kill_after = 12 << 20;
        let mut client = farhaul_transfer::client::Upload::new(
            std::slice::from_ref(&file),
            &pair::remote(""),
            options(),
        )
        .unwrap();
        pair::run(
            &mut client,
            &mut pair::server(&far, farhaul_transfer::server::Access::Write),
            &mut way,
        );
    };
    kill(1);
    let part = fs::read_dir(&far).unwrap().map(|e| e.unwrap().path());
    let part = part
        .into_iter()
        .find(|p| p.to_string_lossy().ends_with("-part"))
        .expect("a part is left");
    let mut bytes = fs::read(&part).unwrap();
    bytes.iter_mut().step_by(3 << 20).for_each(|b| *b ^= 0xff);
    fs::write(&part, &bytes).unwrap();
    let out = put(std::slice::from_ref(&file), &far, "", &mut Way::new(2));
    assert_eq!(out.error, None);
    assert_eq!(fs::read(far.join("f")).unwrap(), fs::read(&file).unwrap());
    assert!(out.summary.resumed_bytes > 0, "undamaged blocks are kept");
    fs::remove_file(far.join("f")).unwrap();
    kill(3);
    fs::write(&file, noise(77, 20 << 20)).unwrap();
    let out = put(std::slice::from_ref(&file), &far, "", &mut Way::new(4));
    assert_eq!((out.error, out.summary.resumed_bytes), (None, 0));
    assert_eq!(fs::read(far.join("f")).unwrap(), fs::read(&file).unwrap());
    assert_eq!(
        fs::read_dir(&far).unwrap().count(),
        1,
        "nothing is left behind"
    );
}

#[test]
fn a_sparse_file_is_quick_and_stays_sparse() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("sparse");
    let file = fs::File::create(&path).unwrap();
    file.set_len(100 << 30).unwrap();
    let marks = [
        (0, 1000),
        (5 << 30, 3 << 20),
        ((50 << 30) + 12_345, 5),
        ((100 << 30) - 7, 7),
    ];
    for (at, len) in marks {
        file.write_all_at(&noise(at, len), at).unwrap();
    }
    if path.metadata().unwrap().blocks() * 512 > 1 << 30 {
        return; // This file system keeps no holes.
    }
    let far = tmp.path().join("far");
    fs::create_dir(&far).unwrap();
    let mut way = Way::new(1);
    let out = put(&[path], &far, "", &mut way);
    assert_eq!(out.error, None);
    assert!(way.delivered < 8 << 20);
    let got = fs::File::open(far.join("sparse")).unwrap();
    assert_eq!(got.metadata().unwrap().len(), 100 << 30);
    assert!(got.metadata().unwrap().blocks() * 512 < 16 << 20);
    for (at, len) in marks {
        let mut bytes = vec![0; len];
        got.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(bytes, noise(at, len));
    }
}

#[test]
fn wrong_content_is_repaired_once_and_then_set_aside() {
    for (name, len) in [("small", 5000), ("block", 1 << 20), ("big", 6 << 20)] {
        let tmp = tempfile::tempdir().unwrap();
        let (file, far) = (tmp.path().join(name), tmp.path().join("far"));
        fs::write(&file, noise(1, len)).unwrap();
        fs::create_dir(&far).unwrap();
        fs::write(far.join(name), "before").unwrap();
        let hits = Rc::new(Cell::new(0));
        let count = Rc::clone(&hits);
        let mut way = Way::new(5);
        let wrong = (len / 2) as u64;
        let hit =
            move |offset: u64, bytes: &[u8]| (offset..offset + bytes.len() as u64).contains(&wrong);
        way.meddle = Box::new(move |offset, bytes| {
            if hit(offset, bytes) && count.replace(count.get() + 1) == 0 {
                bytes[usize::try_from(wrong - offset).unwrap()] ^= 1;
            }
        });
        let out = put(std::slice::from_ref(&file), &far, name, &mut way);
        assert_eq!(out.error, None, "{name}");
        assert!(out.summary.retries >= 1, "{name}");
        assert_eq!(fs::read(far.join(name)).unwrap(), fs::read(&file).unwrap());
        assert!(hits.get() >= 2);
        fs::write(far.join(name), "before").unwrap();
        let mut way = Way::new(6);
        way.meddle = Box::new(move |offset, bytes| {
            if hit(offset, bytes) {
                bytes[usize::try_from(wrong - offset).unwrap()] ^= 1;
            }
        });
        let out = put(std::slice::from_ref(&file), &far, name, &mut way);
        assert_eq!(out.error.unwrap().code, Exit::VerifyFailed, "{name}");
        assert_eq!(
            fs::read(far.join(name)).unwrap(),
            b"before",
            "the target is untouched"
        );
        assert!(far.join(format!("{name}.bad")).exists());
    }
}

#[test]
fn files_named_like_our_state_are_carried_and_our_state_is_named() {
    let tmp = tempfile::tempdir().unwrap();
    let (from, far, to) = (
        tmp.path().join("src"),
        tmp.path().join("far"),
        tmp.path().join("to"),
    );
    fs::create_dir_all(from.join(".farhaul-journal-0011223344556677/.d.farhaul-part")).unwrap();
    fs::create_dir(&far).unwrap();
    for name in [
        ".x.00112233.farhaul-part",
        ".x.0011223344556677.farhaul-part",
        ".farhaul-journal-8899aabbccddeeff",
        ".farhaul-journal-0011223344556677/f",
    ] {
        fs::write(from.join(name), noise(3, 2000)).unwrap();
    }
    fs::write(from.join("x"), noise(1, 20 << 20)).unwrap();
    let kill = |seed| {
        let mut way = Way::new(seed);
        way.kill_after = 12 << 20;
        let remote = pair::remote("");
        let source = std::slice::from_ref(&from);
        let mut client = farhaul_transfer::client::Upload::new(source, &remote, options()).unwrap();
        let access = farhaul_transfer::server::Access::ReadWrite;
        pair::run(&mut client, &mut pair::server(&far, access), &mut way);
    };
    kill(1);
    // The journal and the part of what was killed are no files of the user.
    let out = get(&far, "", &to, &mut Way::new(2));
    assert_eq!(out.error, None);
    let warnings = out.summary.warnings.join("\n");
    assert_eq!(out.summary.warnings.len(), 2, "{warnings}");
    assert!(
        warnings.contains("src/.x.") && warnings.contains("journal"),
        "{warnings}"
    );
    let out = put(std::slice::from_ref(&from), &far, "", &mut Way::new(3));
    assert_eq!((out.error, out.summary.warnings), (None, Vec::new()));
    assert!(out.summary.resumed_bytes > 0);
    assert_eq!(tree(&from), tree(&far.join("src")));
    assert_eq!(fs::read_dir(&far).unwrap().count(), 1);
}

#[test]
fn what_was_put_in_the_place_of_a_part_does_not_get_the_name() {
    for (name, len) in [("block", 1 << 20), ("big", 6 << 20)] {
        let tmp = tempfile::tempdir().unwrap();
        let (file, far) = (tmp.path().join(name), tmp.path().join("far"));
        fs::write(&file, noise(1, len + 1)).unwrap();
        fs::create_dir(&far).unwrap();
        let mut way = Way::new(5);
        let folder = far.clone();
        way.meddle = Box::new(move |_, _| {
            for found in fs::read_dir(&folder).unwrap() {
                let path = found.unwrap().path();
                if path.to_string_lossy().ends_with("-part") {
                    fs::write(folder.join("evil"), "evil").unwrap();
                    fs::rename(folder.join("evil"), path).unwrap();
                }
            }
        });
        let out = put(std::slice::from_ref(&file), &far, name, &mut way);
        let e = out.error.unwrap();
        assert_eq!(e.code, Exit::DestError, "{name}: {e}");
        assert!(!far.join(name).exists(), "{name}");
    }
}

#[test]
fn files_created_meanwhile_are_not_replaced_nor_saved_ones() {
    for (name, len) in [("small", 5000), ("big", 6 << 20)] {
        let tmp = tempfile::tempdir().unwrap();
        let (file, far) = (tmp.path().join(name), tmp.path().join("far"));
        fs::write(&file, noise(1, len)).unwrap();
        fs::create_dir(&far).unwrap();
        let mut way = Way::new(5);
        let there = far.join(name);
        way.meddle = Box::new(move |_, _| fs::write(&there, "meanwhile").unwrap());
        let out = put(std::slice::from_ref(&file), &far, name, &mut way);
        assert_eq!(out.error.unwrap().code, Exit::DestError, "{name}");
        assert_eq!(fs::read(far.join(name)).unwrap(), b"meanwhile");
        // The user has a file of the name that wrong content is kept under.
        fs::write(far.join(format!("{name}.bad")), "mine").unwrap();
        for seed in [6, 7] {
            let mut way = Way::new(seed);
            way.meddle = Box::new(|_, bytes| bytes[0] ^= 1);
            let out = put(std::slice::from_ref(&file), &far, name, &mut way);
            assert_eq!(out.error.unwrap().code, Exit::VerifyFailed, "{name}");
        }
        assert_eq!(fs::read(far.join(format!("{name}.bad"))).unwrap(), b"mine");
        for kept in ["bad-1", "bad-2"] {
            let kept = fs::read(far.join(format!("{name}.{kept}"))).unwrap();
            assert_eq!(kept.len(), len, "{name}");
        }
        assert_eq!(fs::read_dir(&far).unwrap().count(), 4, "{name}");
    }
}

#[test]
fn holes_of_the_source_are_holes_in_a_part_that_is_continued() {
    let tmp = tempfile::tempdir().unwrap();
    let (path, far) = (tmp.path().join("f"), tmp.path().join("far"));
    fs::create_dir(&far).unwrap();
    let file = fs::File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &noise(1, 24 << 20), 0).unwrap();
    drop(file);
    let source = std::slice::from_ref(&path);
    let mut way = Way::new(1);
    way.kill_after = 12 << 20;
    let mut client =
        farhaul_transfer::client::Upload::new(source, &pair::remote(""), options()).unwrap();
    let access = farhaul_transfer::server::Access::ReadWrite;
    pair::run(&mut client, &mut pair::server(&far, access), &mut way);
    let mut found = fs::read_dir(&far).unwrap().map(|e| e.unwrap().path());
    let part = found
        .find(|p| p.to_string_lossy().ends_with("-part"))
        .expect("a part is left");
    let part = fs::File::options().write(true).open(part).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&part, &noise(9, 5000), 40 << 20).unwrap();
    let out = put(source, &far, "", &mut Way::new(2));
    assert_eq!(out.error, None);
    assert!(out.summary.resumed_bytes > 0);
    assert!(fs::read(far.join("f")).unwrap() == fs::read(&path).unwrap());
}

#[test]
fn both_ends_may_have_much_to_send() {
    let tmp = tempfile::tempdir().unwrap();
    let (from, far) = (tmp.path().join("src"), tmp.path().join("far"));
    let long = "n".repeat(200);
    for dir in 0..40 {
        let dir = format!("{dir:02}{long}/{long}");
        fs::create_dir_all(from.join(&dir)).unwrap();
        for n in 0..200 {
            // A folder is where each is to go: every one is answered with its name.
            let name = format!("{dir}/{n:03}{long}");
            fs::write(from.join(&name), "x").unwrap();
            fs::create_dir_all(far.join("src").join(&name)).unwrap();
        }
    }
    for window in [1_000, 100_000, 4 << 20] {
        for upload in [true, false] {
            let mut way = Way::new(1);
            way.window = window;
            let out = if upload {
                put(std::slice::from_ref(&from), &far, "", &mut way)
            } else {
                get(tmp.path(), "src", &far, &mut way)
            };
            assert_eq!(out.error.unwrap().code, Exit::DestError);
            assert_eq!(out.summary.files.failed, 8_000);
            assert!(way.waited < 2 << 20, "{} waited", way.waited);
        }
    }
}
