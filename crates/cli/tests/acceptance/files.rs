//! Sources and destinations that are odd, that change meanwhile, or that are one another.

use std::{
    ffi::OsStr,
    fs,
    io::Write as _,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, symlink},
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

use farhaul_core::rng::Rng;
use serde_json::Value;

use crate::{
    kit::Names,
    place::{Place, Served, await_part, code, noise, printed},
};

/// A copy that ends with this code; its object.
fn copy(place: &Place, args: &[&str], expected: i32) -> Value {
    let args = [&["cp", "--trust-any", "--json"], args].concat();
    Names::documented().object(&place.run(&args), expected)
}

/// A copy that takes a while.
fn slow_copy(place: &Place, rate: &str, from: &str, to: &str) -> Child {
    let args = ["cp", "--trust-any", "--json", "--max-rate", rate, from, to];
    place.command(&args).spawn().expect("it starts")
}

fn texts(object: &Value, of: &str) -> String {
    object[of].to_string()
}

fn open(place: &Place) -> Served {
    place.serve(&["--allow", "any"])
}

#[test]
fn of_many_missing_sources_ten_are_named_and_of_some_each() {
    let place = Place::new();
    let missing: Vec<_> = (0..12).map(|i| format!("no-{i:02}")).collect();
    let mut args: Vec<&str> = missing.iter().map(String::as_str).collect();
    args.push("h::s/");
    // Nobody is connected: there is no such host.
    let error = texts(&copy(&place, &args, 3), "error");
    assert!(
        error.contains("no-09:") && !error.contains("no-10:"),
        "{error}"
    );
    assert!(error.contains("2 more"), "{error}");

    fs::write(place.path("f"), "f").expect("a file");
    let server = open(&place);
    let word = copy(&place, &["no-00", "f", "no-01", &server.to("")], 5);
    let failures = texts(&word, "failures");
    assert!(
        failures.contains("no-00") && failures.contains("no-01"),
        "{word}"
    );
    assert_eq!(fs::read(place.path("share/f")).expect("it arrived"), b"f");
}

#[test]
fn fifos_and_devices_are_named_and_not_read() {
    let place = Place::new();
    let server = open(&place);
    for source in ["src", "share/back"] {
        fs::create_dir(place.path(source)).expect("a folder");
        fs::write(place.path(source).join("f"), "f").expect("a file");
        let made = Command::new("mkfifo")
            .arg(place.path(source).join("pipe"))
            .status();
        assert!(made.expect("it exists").success());
    }
    for (from, to, arrived) in [
        ("src".to_string(), server.to(""), "share/src"),
        (server.to("back"), "here/".into(), "here/back"),
    ] {
        let word = copy(&place, &[&from, &to], 0);
        let warnings = texts(&word, "warnings");
        assert!(
            warnings.contains("/pipe: a pipe, socket or device"),
            "{word}"
        );
        let names = fs::read_dir(place.path(arrived)).expect("a folder").count();
        assert_eq!(names, 1, "{arrived}: the file and nothing else");
    }
    // As they are typed.
    for (source, code, said) in [
        ("/dev/zero", 5, "which is not copied"),
        ("src/pipe", 2, "is a pipe: write - in its place"),
    ] {
        let word = copy(&place, &[source, &server.to("typed")], code);
        assert!(word.to_string().contains(said), "{word}");
        assert!(!place.path("share/typed").exists());
    }
    copy(&place, &["src/pipe", "src/f", &server.to("some/")], 5);
    assert!(place.path("share/some/f").exists(), "the rest arrives");
}

#[test]
fn links_in_circles_are_links_and_no_way() {
    let place = Place::new();
    let server = open(&place);
    fs::create_dir(place.path("src")).expect("a folder");
    for (link, to) in [("a", "b"), ("b", "a"), ("self", "self"), ("up", ".")] {
        symlink(to, place.path("src").join(link)).expect("a link");
    }
    copy(&place, &["src", &server.to("")], 0);
    for (link, to) in [("a", "b"), ("b", "a"), ("self", "self"), ("up", ".")] {
        let there = fs::read_link(place.path("share/src").join(link));
        assert_eq!(there.expect("a link"), Path::new(to));
    }
    let word = copy(&place, &["src/self", &server.to("x")], 3);
    assert!(word.to_string().contains("symbolic links"), "{word}");
}

#[test]
fn a_path_that_no_system_call_takes_is_refused_alone() {
    let place = Place::new();
    let server = open(&place);
    fs::create_dir(place.path("src")).expect("a folder");
    fs::write(place.path("src/f"), "f").expect("a file");
    let long = vec!["n".repeat(200); 21].join("/");
    assert!(long.len() > 4_096);
    fs::write(place.path("list"), format!("{long}\nf\n")).expect("a file");
    let word = copy(
        &place,
        &["--files-from", "list", "src/", &server.to("to/")],
        5,
    );
    assert!(texts(&word, "failures").contains("nnn"), "{word}");
    assert_eq!(
        fs::read(place.path("share/to/f")).expect("it arrived"),
        b"f"
    );
}

#[test]
fn every_byte_that_a_name_may_have_arrives() {
    let place = Place::new();
    let server = open(&place);
    fs::create_dir(place.path("src")).expect("a folder");
    let mut names: Vec<Vec<u8>> = (1..=255)
        .filter(|b| *b != b'/')
        .map(|b| vec![b'n', b])
        .collect();
    let mut rng = Rng::new(11);
    for _ in 0..200 {
        let len = 1 + rng.below(255);
        let bytes = (0..len).map(|_| 1 + u8::try_from(rng.below(255)).expect("a byte"));
        names.push(bytes.map(|b| if b == b'/' { b'_' } else { b }).collect());
    }
    names.retain(|name| name != b"." && name != b"..");
    for name in &names {
        let path = place.path("src").join(OsStr::from_bytes(name));
        fs::write(path, name).expect("this file system takes it");
    }
    copy(&place, &["src", &server.to("")], 0);
    copy(&place, &[&server.to("src/"), "back"], 0);
    for dir in ["share/src", "back"] {
        for name in &names {
            let path = place.path(dir).join(OsStr::from_bytes(name));
            assert_eq!(&fs::read(path).expect("it arrived"), name);
        }
    }
}

/// A tree of `late` files behind a large one, which all vanish while that is sent. True if towards the server.
fn vanishes(put: bool) {
    let place = Place::new();
    let server = open(&place);
    let source = place.path(if put { "src" } else { "share/src" });
    fs::create_dir_all(source.join("z")).expect("a folder");
    fs::create_dir(place.path("into")).expect("a folder");
    fs::write(source.join("a-large"), noise(1, 16 << 20)).expect("a file");
    for i in 0..40_u64 {
        let len = if i.is_multiple_of(2) { 3_000 } else { 2 << 20 };
        fs::write(source.join(format!("z/{i}")), noise(i, len)).expect("a file");
    }
    let (from, to, into) = if put {
        ("src/".to_string(), server.to("got"), "share/got")
    } else {
        (server.to("src/"), "into/got".into(), "into/got")
    };
    let into = place.path(into);
    let mut client = slow_copy(&place, "100Mbit", &from, &to);
    await_part(&into, 1 << 20, &mut client);
    fs::remove_dir_all(source.join("z")).expect("ours");
    let out = client.wait_with_output().expect("it ends");
    let word = Names::documented().object(&out, 6);
    assert!(printed(&out).contains("vanished"), "{}", printed(&out));
    assert!(printed(&out).contains("at rest"), "{}", printed(&out));
    assert!(
        word["files"]["failed"].as_u64().expect("a number") > 0,
        "{word}"
    );
    assert!(fs::read(into.join("a-large")).expect("it arrived") == noise(1, 16 << 20));
    let left = fs::read_dir(into.join("z")).expect("a folder");
    for entry in left.map(|e| e.expect("an entry")) {
        let name = entry.file_name();
        let i: u64 = name
            .to_str()
            .and_then(|n| n.parse().ok())
            .expect("a whole file, no part");
        let len = if i.is_multiple_of(2) { 3_000 } else { 2 << 20 };
        assert!(
            fs::read(entry.path()).expect("content") == noise(i, len),
            "{i}"
        );
    }
}

#[test]
fn files_that_vanish_are_named_and_the_others_arrive() {
    vanishes(true);
    vanishes(false);
}

/// A file of one byte, again and again: a mix of two states shows.
fn state(rng: &mut Rng) -> Vec<u8> {
    let len =
        [0, 1, 3_000, 70_000, 1 << 20, 3 << 20][usize::try_from(rng.below(6)).expect("small")];
    vec![b'a' + u8::try_from(rng.below(26)).expect("a letter"); len]
}

/// Changes a file or folder of the tree.
fn disturb(dir: &Path, rng: &mut Rng) {
    let at = dir.join(rng.below(8).to_string());
    let path = at.join(rng.below(12).to_string());
    let new = dir.join("new");
    let _changes_may_meet = match rng.below(8) {
        0 => fs::remove_file(&path),
        1 => fs::create_dir_all(&at)
            .and_then(|()| fs::write(&new, state(rng)))
            .and_then(|()| fs::rename(&new, &path)),
        2 => fs::remove_file(&path).and_then(|()| symlink("../../secret", &path)),
        3 => fs::remove_file(&path).and_then(|()| symlink("nowhere", &path)),
        4 if !path.is_symlink() => fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(&state(rng))),
        5 if !path.is_symlink() => fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|f| {
                let half = f.metadata()?.len() / 2;
                f.set_len(half)
            }),
        6 => fs::rename(&at, dir.join(rng.below(8).to_string())),
        _ => fs::remove_dir_all(&at),
    };
}

fn no_secret(dir: &Path) {
    for entry in fs::read_dir(dir)
        .expect("a folder")
        .map(|e| e.expect("an entry"))
    {
        let (path, kind) = (entry.path(), entry.file_type().expect("a kind"));
        if kind.is_dir() {
            no_secret(&path);
        } else if kind.is_file()
            && !entry
                .file_name()
                .as_bytes()
                .starts_with(b".farhaul-journal")
        {
            let bytes = fs::read(&path).expect("content");
            assert!(
                bytes.iter().all(u8::is_ascii_lowercase),
                "{}: followed a link",
                path.display()
            );
        }
    }
}

/// Every file and link below, with its content.
fn all(dir: &Path) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    let mut stack = vec![dir.to_path_buf()];
    while let Some(at) = stack.pop() {
        for entry in fs::read_dir(&at)
            .expect("a folder")
            .map(|e| e.expect("an entry"))
        {
            let path = entry.path();
            let kind = entry.file_type().expect("a kind");
            let name = path
                .strip_prefix(dir)
                .expect("below")
                .as_os_str()
                .as_bytes()
                .to_vec();
            if kind.is_dir() {
                stack.push(path);
            } else if kind.is_file() {
                found.insert(name, fs::read(&path).expect("content"));
            }
        }
    }
    found
}

fn never_rests(put: bool, seed: u64) {
    let place = Place::new();
    let server = open(&place);
    // What no link may lead to.
    for secret in ["secret", "share/secret"] {
        fs::write(place.path(secret), "SECRET 1").expect("a file");
    }
    let source = place.path(if put { "src" } else { "share/src" });
    fs::create_dir(&source).expect("a folder");
    let mut rng = Rng::new(seed);
    for _ in 0..400 {
        disturb(&source, &mut rng);
    }
    let (from, to, into) = if put {
        ("src/".to_string(), server.to("got/"), "share/got")
    } else {
        (server.to("src/"), "got/".into(), "got")
    };
    let mut client = slow_copy(&place, "200Mbit", &from, &to);
    while client.try_wait().expect("our own child").is_none() {
        disturb(&source, &mut rng);
    }
    let out = client.wait_with_output().expect("it ends");
    let ended = code(&out);
    assert!([0, 5, 6].contains(&ended), "seed {seed}: {}", printed(&out));
    Names::documented().object(&out, ended);
    let into = place.path(into);
    if into.exists() {
        no_secret(&into);
    }
    // At rest, it is what the source is.
    let word = copy(&place, &["--delete", "--links=skip", &from, &to], 0);
    let mut there = all(&into);
    // A link is skipped, and what has its name there stays.
    there.retain(|name, _| !source.join(OsStr::from_bytes(name)).is_symlink());
    assert!(all(&source) == there, "seed {seed}: {word}");
}

#[test]
fn a_tree_that_never_rests_is_copied_without_a_wrong_file() {
    for seed in 1..=4 {
        println!("seed {seed}");
        never_rests(seed % 2 == 1, seed);
    }
}

#[test]
fn a_copy_onto_itself_changes_nothing() {
    let place = Place::new();
    let server = open(&place);
    fs::create_dir(place.path("share/d")).expect("a folder");
    fs::write(place.path("share/d/small"), "small").expect("a file");
    fs::write(place.path("share/d/large"), noise(1, 3 << 20)).expect("a file");
    let before = all(&place.path("share"));
    for (from, to) in [
        ("share/d".to_string(), server.to("")),
        ("share/".into(), server.to("")),
        ("share/d/large".into(), server.to("d/large")),
        (server.to("d"), "share/".into()),
        (server.to("d/"), "share/d".into()),
    ] {
        let is_one_file = from.ends_with("large");
        for more in [&[][..], &["--checksum"], &["--delete"]] {
            if is_one_file && more == ["--delete"] {
                continue;
            }
            let word = copy(&place, &[more, &[&from, &to]].concat(), 0);
            assert_eq!(word["bytes_payload"], 0, "{word}");
            assert!(all(&place.path("share")) == before, "{from} {to}: {word}");
        }
    }
}

#[test]
fn a_copy_into_its_own_source_ends_and_has_each_file() {
    let place = Place::new();
    let server = open(&place);
    fs::create_dir(place.path("share/d")).expect("a folder");
    for i in 0..50 {
        fs::write(place.path(&format!("share/d/{i}")), noise(i, 50_000)).expect("a file");
    }
    let before = all(&place.path("share/d"));
    let copied = |dir: &str| {
        for (name, bytes) in &before {
            let path = place.path(dir).join(OsStr::from_bytes(name));
            assert!(fs::read(path).expect("it arrived") == *bytes, "{dir}");
        }
    };
    for (from, to, into) in [
        (
            "share/d/".to_string(),
            server.to("d/within"),
            "share/d/within",
        ),
        (server.to("d/"), "share/d/again".into(), "share/d/again"),
    ] {
        copy(&place, &[&from, &to], 0);
        copied(into);
        copied("share/d");
    }
}

#[test]
fn times_of_any_year_arrive_and_are_recognized() {
    let place = Place::new();
    let server = open(&place);
    fs::create_dir(place.path("src")).expect("a folder");
    let year = Duration::from_hours(365 * 24);
    let epoch = SystemTime::UNIX_EPOCH;
    for (name, time) in [
        ("old", epoch - 30 * year),
        ("just-before", epoch - Duration::from_nanos(1)),
        ("epoch", epoch),
        ("ahead", epoch + 130 * year),
        ("far-ahead", epoch + 400 * year),
    ] {
        let file = fs::File::create(place.path("src").join(name)).expect("a file");
        (&file).write_all(name.as_bytes()).expect("content");
        if let Err(e) = file.set_modified(time) {
            println!("skipped: {name}: {e}");
        }
    }
    let times = |dir: &str| {
        let read = fs::read_dir(place.path(dir)).expect("a folder");
        let mut all: Vec<_> = read
            .map(|e| e.expect("an entry"))
            .map(|e| (e.file_name(), e.metadata().expect("facts")))
            .map(|(name, meta)| (name, meta.mtime(), meta.mtime_nsec()))
            .collect();
        all.sort();
        all
    };
    for (from, to, into) in [
        ("src/".to_string(), server.to("got"), "share/got"),
        (server.to("got/"), "back".into(), "back"),
    ] {
        let word = copy(&place, &[&from, &to], 0);
        assert_eq!(word["files"]["sent"], 5, "{word}");
        assert_eq!(times("src"), times(into));
        for more in [&[][..], &["--update"]] {
            let word = copy(&place, &[more, &[&from, &to]].concat(), 0);
            assert_eq!(word["files"]["skipped"], 5, "{more:?}: {word}");
        }
    }
}

#[test]
fn a_folder_here_that_cannot_be_written_is_named_before_anything_is_sent() {
    let place = Place::new();
    let server = open(&place);
    fs::write(place.path("share/big"), noise(1, 8 << 20)).expect("a file");
    // Not even root writes there.
    for to in ["/proc/none/x", "/sys/x"] {
        let word = copy(&place, &[&server.to("big"), to], 4);
        assert_eq!(word["bytes_payload"], 0, "{word}");
        assert!(
            !word["exit"]["fix"].as_str().unwrap_or_default().is_empty(),
            "{word}"
        );
    }
    let mounted = format!(
        "mount -t tmpfs -o ro none {dir} && exec {program} cp --trust-any --json {from} {dir}/",
        dir = place.path("d").display(),
        program = env!("CARGO_BIN_EXE_farhaul"),
        from = server.to("big"),
    );
    fs::create_dir(place.path("d")).expect("a folder");
    let mut shell = place.command_of(Path::new("unshare"), &["-rm", "sh", "-c", &mounted]);
    let out = shell.stdin(Stdio::null()).output().expect("it starts");
    if out.stdout.is_empty() {
        println!("skipped: no user namespaces: {}", printed(&out));
        return;
    }
    let word = Names::documented().object(&out, 4);
    assert!(word.to_string().contains("Read-only"), "{word}");
}
