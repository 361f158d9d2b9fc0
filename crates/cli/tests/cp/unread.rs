//! A copy or a server does its work when nobody reads its output.

use std::{
    fs,
    io::{BufRead as _, BufReader, pipe},
    process::Stdio,
};

use crate::place::{Place, Served, code, printed};

#[test]
fn a_copy_without_a_progress_listener_succeeds() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let server = place.serve(&["--allow", "any"]);
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = place.command(&["cp", "-v", "--trust-any", "f", &server.to("")]);
    let status = command.stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(fs::read(place.path("share/f")).unwrap(), b"content");
}

#[test]
fn a_server_whose_log_is_gone_goes_on() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let share = format!("s={}:rw", place.path("share").display());
    let args = ["serve", "--listen", "127.0.0.1:0", "--allow", "any"];
    let mut command = place.command(&[&args[..], &["--share", &share]].concat());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines
        .by_ref()
        .map_while(Result::ok)
        .find(|l| l.starts_with("listening on"))
        .unwrap();
    drop(lines);
    let at = line.split([' ', '/']).nth(2).unwrap().to_string();
    let server = Served {
        child,
        at,
        key: String::new(),
        said: std::sync::mpsc::channel().1,
    };
    for name in ["one", "two"] {
        let out = place.run(&["cp", "--trust-any", "f", &server.to(name)]);
        assert_eq!(code(&out), 0, "{}", printed(&out));
        assert_eq!(
            fs::read(place.path("share").join(name)).unwrap(),
            b"content"
        );
    }
}

#[test]
fn a_closed_pipe_ends_output_silently() {
    let place = Place::new();
    for args in [
        &["completions", "bash"][..],
        &["protocols"],
        &["lab", "list"],
        &["--help"],
        &["cp", "--help"],
        &["--version"],
    ] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let child = place.command(args).stdout(writer).spawn().unwrap();
        let out = child.wait_with_output().unwrap();
        assert_eq!((code(&out), printed(&out).as_str()), (141, ""), "{args:?}");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let child = place.command(args).stdout(Stdio::from(full)).spawn();
        let out = child.unwrap().wait_with_output().unwrap();
        assert_eq!(code(&out), 8, "{args:?}");
        assert!(printed(&out).contains("cannot write to stdout"), "{args:?}");
    }
}
