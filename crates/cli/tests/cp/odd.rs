//! Trees and files of odd shapes: many small files, one huge file of holes, deep folders, nothing at
//! all, and things that are no files.

use std::{
    fs,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::{fs::MetadataExt as _, net::UnixListener},
    path::PathBuf,
};

use serde_json::Value;

use crate::place::{Place, code, noise, printed};

fn object(place: &Place, args: &[&str], expected: i32) -> Value {
    let out = place.run(&[&["cp", "--trust-any", "--json"], args].concat());
    assert_eq!(code(&out), expected, "{args:?}: {}", printed(&out));
    serde_json::from_slice(&out.stdout).expect("one object")
}

#[test]
fn a_hundred_gib_of_holes_cost_what_is_in_them() {
    const GIB: u64 = 1 << 30;
    let place = Place::new();
    let mut file = fs::File::create(place.path("sparse")).unwrap();
    if let Err(e) = file.set_len(100 * GIB) {
        println!("skipped: no file so long here: {e}");
        return;
    }
    let pieces = [
        0,
        (1 << 20) + 5,
        7 * GIB,
        50 * GIB + 12_345,
        100 * GIB - 300_000,
    ];
    for (seed, at) in (0..).zip(pieces) {
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&noise(seed, 300_000)).unwrap();
    }
    drop(file);
    let server = place.serve(&["--allow", "any"]);
    let word = object(&place, &["sparse", &server.to("")], 0);
    assert!(word["bytes_payload"].as_u64().unwrap() < 32 << 20, "{word}");
    object(&place, &[&server.to("sparse"), "back"], 0);
    // Nor does it cost more to see that it is there, even where what was a hole is stored zeros.
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(place.path("share/sparse"))
        .unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.seek(SeekFrom::Start(3 * GIB)).unwrap();
    file.write_all(&vec![0; 3 << 20]).unwrap();
    file.set_modified(time).unwrap();
    drop(file);
    let word = object(&place, &["sparse", &server.to("")], 0);
    assert_eq!(
        (&word["bytes_payload"], &word["files"]["skipped"]),
        (&0.into(), &1.into())
    );
    for name in ["share/sparse", "back"] {
        let mut file = fs::File::open(place.path(name)).unwrap();
        let facts = file.metadata().unwrap();
        assert_eq!(facts.len(), 100 * GIB);
        assert!(
            facts.blocks() * 512 < 64 << 20,
            "{name}: its holes are filled"
        );
        for (seed, at) in (0..).zip(pieces) {
            let mut bytes = vec![0; 300_000];
            file.seek(SeekFrom::Start(at)).unwrap();
            file.read_exact(&mut bytes).unwrap();
            assert!(bytes == noise(seed, 300_000), "{name} at {at}");
        }
    }
}

#[test]
fn thousands_of_small_files_arrive_each_with_its_content() {
    let place = Place::in_memory();
    for dir in 0..30 {
        fs::create_dir_all(place.path(&format!("src/{dir}"))).unwrap();
        for i in 0..100 {
            let text = format!("{dir} {i}").repeat(i);
            fs::write(place.path(&format!("src/{dir}/{i}")), text).unwrap();
        }
        fs::write(place.path(&format!("src/{dir}/64k")), noise(dir, 65_536)).unwrap();
    }
    let server = place.serve(&["--allow", "any"]);
    let word = object(&place, &["src", &server.to("")], 0);
    assert_eq!(word["files"]["sent"], 30 * 101);
    object(&place, &[&server.to("src/"), "back"], 0);
    for dir in 0..30 {
        for i in 0..100 {
            let read = fs::read_to_string(place.path(&format!("back/{dir}/{i}"))).unwrap();
            assert_eq!(read, format!("{dir} {i}").repeat(i));
        }
        let read = fs::read(place.path(&format!("back/{dir}/64k"))).unwrap();
        assert!(read == noise(dir, 65_536));
    }
    let word = object(&place, &["src/", &server.to("src/")], 0);
    assert_eq!(word["bytes_payload"], 0);
}

#[test]
fn nothing_deep_and_empty_simply_work() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    fs::write(place.path("zero"), "").unwrap();
    let deep: PathBuf = std::iter::repeat_n("d", 255).collect();
    fs::create_dir_all(place.path("deep").join(&deep)).unwrap();
    fs::write(place.path("deep").join(&deep).join("f"), "at the bottom").unwrap();
    let server = place.serve(&["--allow", "any"]);
    let word = object(&place, &["empty", "zero", "deep", &server.to("")], 0);
    assert_eq!(
        (&word["ok"], &word["files"]["sent"]),
        (&Value::Bool(true), &Value::from(2))
    );
    assert_eq!(fs::read_dir(place.path("share/empty")).unwrap().count(), 0);
    assert_eq!(fs::metadata(place.path("share/zero")).unwrap().len(), 0);
    let bottom = place.path("share/deep").join(&deep).join("f");
    assert_eq!(fs::read(bottom).unwrap(), b"at the bottom");
    object(&place, &[&server.to("empty/"), "back"], 0);
    assert_eq!(fs::read_dir(place.path("back")).unwrap().count(), 0);
}

#[test]
fn what_is_no_file_is_named_and_the_rest_arrives() {
    let place = Place::new();
    fs::create_dir(place.path("src")).unwrap();
    fs::write(place.path("src/f"), "content").unwrap();
    let _socket = UnixListener::bind(place.path("src/socket")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", place.path("src/out")).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let word = object(&place, &["src", &server.to("")], 5);
    let failures = word["failures"].to_string();
    assert!(
        failures.contains("out") && failures.contains("skipped"),
        "{word}"
    );
    let warnings = word["warnings"].to_string();
    assert!(
        warnings.contains("src/socket: a pipe, socket or device"),
        "{word}"
    );
    assert_eq!(fs::read(place.path("share/src/f")).unwrap(), b"content");
    assert_eq!(fs::read_dir(place.path("share/src")).unwrap().count(), 1);
}

#[test]
fn pipes_and_sockets_are_not_replaced_by_files() {
    let place = Place::new();
    fs::write(place.path("f"), noise(1, 2_000_000)).unwrap();
    fs::write(place.path("small"), "content").unwrap();
    std::os::unix::fs::symlink("f", place.path("link")).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let _there = UnixListener::bind(place.path("share/name")).unwrap();
    fs::create_dir(place.path("tree")).unwrap();
    std::os::unix::fs::symlink("x", place.path("tree/name")).unwrap();
    for source in ["f", "small"] {
        for dry in [&[][..], &["-n"]] {
            let to = server.to("name");
            let word = object(&place, &[dry, &[source, &to]].concat(), 4);
            assert!(
                word.to_string().contains("a socket has this name"),
                "{word}"
            );
        }
    }
    let word = object(&place, &["tree/", &server.to("")], 4);
    assert!(
        word.to_string().contains("a socket has this name"),
        "{word}"
    );
    assert_eq!(object(&place, &["f", &server.to("")], 0)["ok"], true);
    // And on this side.
    let _here = UnixListener::bind(place.path("here")).unwrap();
    let word = object(&place, &[&server.to("f"), "here"], 4);
    assert!(word.to_string().contains("not replaced"), "{word}");
    for kept in ["share/name", "here"] {
        let kind = fs::symlink_metadata(place.path(kept)).unwrap().mode() & 0o170_000;
        assert_eq!(kind, 0o140_000, "{kept}");
    }
}

#[test]
fn what_the_kernel_makes_when_it_is_read_is_named_and_skipped() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    let word = object(&place, &["/proc/version", &server.to("v")], 5);
    assert!(word.to_string().contains("reports a size of 0"), "{word}");
    assert!(!place.path("share/v").exists());
    // Files of sysfs are a page long by what they say; a hole of a page is one.
    let word = object(
        &place,
        &[
            "/sys/kernel/mm/transparent_hugepage/enabled",
            &server.to("t"),
        ],
        5,
    );
    assert!(
        word.to_string().contains("fewer bytes than its size"),
        "{word}"
    );
    assert!(!place.path("share/t").exists());
    let hole = fs::File::create(place.path("hole")).unwrap();
    hole.set_len(4_096).unwrap();
    object(&place, &["hole", &server.to("hole")], 0);
    assert_eq!(fs::read(place.path("share/hole")).unwrap(), [0; 4_096]);
}

#[test]
fn a_link_on_the_way_is_called_one() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    fs::create_dir(place.path("share/dir")).unwrap();
    std::os::unix::fs::symlink("dir", place.path("share/link")).unwrap();
    let server = place.serve(&["--allow", "any"]);
    for (from, to, code) in [
        ("f".to_string(), server.to("link/"), 4),
        ("f".to_string(), server.to("link/x/y"), 4),
        (server.to("link"), "here".to_string(), 3),
    ] {
        let word = object(&place, &[&from, &to], code);
        assert!(word.to_string().contains("a link"), "{word}");
        assert!(word.to_string().contains("not followed"), "{word}");
    }
}

#[test]
fn attributes_that_a_share_does_not_send_are_warned_of_once() {
    let place = Place::new();
    for name in ["a", "b"] {
        let file = place.path("share").join(name);
        fs::write(&file, name).expect("ours");
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(e) = rustix::fs::setxattr(&file, "trusted.farhaul-test", b"x", flags) {
            println!("skipped: needs root and attributes: {e}");
            return;
        }
    }
    let server = place.serve(&["--allow", "any"]);
    for (flags, warned) in [("-a", 1), ("-X", 1), ("-p", 0)] {
        let to = format!("got{flags}/");
        let out = place.run(&["cp", "--trust-any", flags, &server.to(""), &to]);
        let text = printed(&out);
        assert_eq!(code(&out), 0, "{text}");
        assert_eq!(
            text.matches("a share does not send").count(),
            warned,
            "{flags}: {text}"
        );
        assert!(place.path(&to).join("b").is_file());
    }
}
