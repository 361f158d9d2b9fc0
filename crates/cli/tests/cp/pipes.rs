//! Pipes: from the standard input, to the standard output.

use std::{
    fs,
    io::{Read as _, Write as _},
    process::{Output, Stdio},
};

use crate::place::{Place, await_part, code, kill, noise, printed, soon};

/// Sizes around those at which something changes, and more than the smallest window holds.
const SIZES: [usize; 8] = [
    0,
    1,
    1 << 20,
    (1 << 20) + 1,
    2 << 20,
    (2 << 20) + 1,
    3 << 20,
    150_000_001,
];

fn upload(place: &Place, args: &[&str], content: &[u8]) -> Output {
    let args = [&["cp", "--trust-any"], args].concat();
    let mut command = place.command(&args);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    // One that is refused reads nothing.
    let _refused = stdin.write_all(content);
    drop(stdin);
    child.wait_with_output().expect("our own child")
}

#[test]
fn content_of_any_length_goes_through_pipes_in_both_directions() {
    let place = Place::in_memory();
    let server = place.serve(&["--allow", "any"]);
    for (seed, len) in (0..).zip(SIZES) {
        let content = noise(seed, len);
        let to = server.to(&format!("in/{len}"));
        let out = upload(&place, &["-", &to], &content);
        assert_eq!(code(&out), 0, "{len}: {}", printed(&out));
        assert!(out.stdout.is_empty());
        let there = fs::read(place.path(&format!("share/in/{len}"))).unwrap();
        assert!(there == content, "{len}");
        let back = place.run(&["cp", "--trust-any", &to, "-"]);
        assert_eq!(code(&back), 0, "{len}: {}", printed(&back));
        assert!(back.stdout == content, "{len}");
        assert!(printed(&back).contains("received"), "{}", printed(&back));
    }
    let left = fs::read_dir(place.path("share/in")).unwrap().count();
    assert_eq!(left, SIZES.len(), "nothing else is left");
}

#[test]
fn holes_of_a_file_are_zeros_in_a_pipe() {
    let place = Place::new();
    let file = fs::File::create(place.path("share/sparse")).unwrap();
    file.set_len(100 << 20).unwrap();
    for at in [3 << 20, (70 << 20) + 5] {
        std::os::unix::fs::FileExt::write_all_at(&file, &noise(at, 70_000), at).unwrap();
    }
    drop(file);
    let server = place.serve(&["--allow", "any"]);
    let out = place.run(&["cp", "--trust-any", &server.to("sparse"), "-"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(out.stdout == fs::read(place.path("share/sparse")).unwrap());
}

#[test]
fn a_file_is_replaced_when_all_is_there_and_not_before() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("share/f"), "old").unwrap();
    let to = server.to("f");
    let mut command = place.command(&["cp", "--trust-any", "--backup", "-", &to]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&noise(1, 8 << 20)).unwrap();
    await_part(&place.path("share"), 1, &mut child);
    assert_eq!(fs::read(place.path("share/f")).unwrap(), b"old");
    stdin.write_all(&noise(2, 9)).unwrap();
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let new = [noise(1, 8 << 20), noise(2, 9)].concat();
    assert!(fs::read(place.path("share/f")).unwrap() == new);
    assert_eq!(fs::read(place.path("share/f~")).unwrap(), b"old");
}

#[test]
fn what_was_not_complete_is_removed_and_the_old_file_stays() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("share/f"), "old").unwrap();
    let mut command = place.command(&["cp", "--trust-any", "-", &server.to("f")]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&noise(1, 8 << 20)).unwrap();
    await_part(&place.path("share"), 1, &mut child);
    kill(child.id(), "-INT");
    let out = child.wait_with_output().unwrap();
    assert_eq!(code(&out), 130, "{}", printed(&out));
    assert!(
        printed(&out).contains("from the beginning"),
        "{}",
        printed(&out)
    );
    server.says("interrupted");
    let left = || fs::read_dir(place.path("share")).unwrap().count();
    soon(|| left() == 1);
    assert_eq!(fs::read(place.path("share/f")).unwrap(), b"old");
}

#[test]
fn a_reader_that_has_enough_ends_the_copy_quietly() {
    let place = Place::in_memory();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("share/f"), noise(1, 200 << 20)).unwrap();
    let mut command = place.command(&["cp", "--trust-any", &server.to("f"), "-"]);
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 1000];
    stdout.read_exact(&mut first).unwrap();
    assert!(first[..] == noise(1, 1000)[..]);
    drop(stdout);
    let out = child.wait_with_output().unwrap();
    assert_eq!((code(&out), printed(&out)), (141, String::new()));
}

#[test]
fn a_stream_that_is_closed_is_neither_empty_nor_a_place_for_content() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("share/f"), "content").unwrap();
    let at = server.to("f");
    for (from, to, how, said) in [
        ("-", &*at, "<&-", "the standard input is closed"),
        (&*at, "-", ">&-", "the standard output is closed"),
    ] {
        let like = place.command(&["cp", "--trust-any", from, to]);
        let mut shell = place.script(&format!("exec \"$@\" {how}"));
        shell.arg("sh");
        shell.arg(like.get_program()).args(like.get_args());
        let out = shell.output().unwrap();
        assert_eq!(code(&out), 2, "{how}: {}", printed(&out));
        assert!(printed(&out).contains(said), "{}", printed(&out));
        assert_eq!(fs::read(place.path("share/f")).unwrap(), b"content");
    }
    // Content meant to be lost, or empty, is.
    let mut command = place.command(&["cp", "--trust-any", &at, "-"]);
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let out = upload(&place, &["-", &server.to("empty")], b"");
    assert_eq!(code(&out), 0, "{}", printed(&out));
}

#[test]
fn names_and_folders() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::create_dir(place.path("share/d")).unwrap();
    let refused = |args: &[&str], code_: i32, words: &str| {
        let out = upload(&place, args, b"x");
        assert_eq!(code(&out), code_, "{args:?}: {}", printed(&out));
        assert!(printed(&out).contains(words), "{args:?}: {}", printed(&out));
        assert!(out.stdout.is_empty(), "{args:?}: where content goes");
    };
    refused(&["--json", &server.to("d/x"), "-"], 2, "exit code");
    refused(
        &[
            "--max-rate",
            "08:00 1Gbit 19:00 off",
            &server.to("d/x"),
            "-",
        ],
        2,
        "give one rate",
    );
    refused(&["-", &server.to("d")], 2, "--name");
    refused(&["-", &server.to("d/")], 2, "--name");
    refused(&[&server.to("d"), "-"], 2, "is a folder");
    let at = server.to("");
    refused(
        &[at.trim_end_matches('/'), "-"],
        2,
        "the whole share is a folder",
    );
    refused(&[&server.to("none"), "-"], 3, "none");
    let out = upload(&place, &["--name", "x", "-", &server.to("d")], b"content");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(fs::read(place.path("share/d/x")).unwrap(), b"content");
    std::os::unix::fs::symlink("d/x", place.path("share/link")).unwrap();
    refused(&[&server.to("link"), "-"], 3, "links are not followed");
}

#[test]
fn a_quota_holds_for_what_nobody_knows_the_length_of() {
    let place = Place::in_memory();
    let server = crate::policy::serve(
        &place,
        "listen = '127.0.0.1:0'\n[[share]]\nname = 's'\npath = 'DIR/share'\nmode = 'rw'\nquota = '20MiB'\nallow = 'any'\n",
    );
    let out = upload(&place, &["-", &server.to("f")], &noise(1, 40 << 20));
    assert_eq!(code(&out), 8, "{}", printed(&out));
    assert!(printed(&out).contains("quota"), "{}", printed(&out));
    drop(server);
    let left = fs::read_dir(place.path("share")).unwrap().count();
    assert_eq!(left, 0, "nothing is left of it");
}
