//! Faults of the files at either end. Each has its message, its code, and leaves nothing
//! half-written under a final name.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, Output},
};

use crate::place::{Place, Served, await_part, code, json, noise, pause, printed};

/// A server whose share is a file system of its own, mounted with `options`; `None` where that is not
/// allowed.
fn serve_on(place: &Place, options: &str) -> Option<Served> {
    let may = Command::new("unshare").args(["-rm", "true"]).output();
    if !may.is_ok_and(|o| o.status.success()) {
        return None;
    }
    let share = place.path("share");
    let serve = format!(
        "mount -t tmpfs -o {options} none {share} && exec {program} serve --listen 127.0.0.1:0 --allow any --share s={share}:rw",
        share = share.display(),
        program = env!("CARGO_BIN_EXE_farhaul"),
    );
    let unshare = place.command_of(Path::new("unshare"), &["-rm", "sh", "-c", &serve]);
    Some(Place::serve_by(unshare))
}

/// Command that makes the share a disk that fails: a file system of 300 MB in a file that has room
/// for 24. Only the super-user may mount such a thing.
fn failing_disk(place: &Place, then: &str) -> Command {
    let (back, share) = (place.path("back"), place.path("share"));
    fs::create_dir_all(&back).expect("a folder");
    let (back, share) = (back.display(), share.display());
    let make = format!(
        "mount -t tmpfs -o size=24m none {back} && truncate -s 300M {back}/disk && \
         mkfs.ext4 -q -F -O ^has_journal -E nodiscard {back}/disk && \
         mount -o loop {back}/disk {share} && mkdir {share}/in && {then}"
    );
    place.command_of(Path::new("unshare"), &["-m", "sh", "-c", &make])
}

#[test]
fn a_disk_that_fails_is_no_success_and_is_not_trusted_later() {
    let place = Place::new();
    fs::create_dir(place.path("src")).unwrap();
    for i in 0..600 {
        fs::write(place.path(&format!("src/{i}")), noise(i, 100_000)).unwrap();
    }
    let probe = failing_disk(&place, "true").output();
    if !probe.is_ok_and(|o| o.status.success()) {
        println!("skipped: no such disk can be mounted");
        return;
    }
    let serve = format!(
        "exec {program} serve --listen 127.0.0.1:0 --allow any --share s={share}:rw",
        program = env!("CARGO_BIN_EXE_farhaul"),
        share = place.path("share/in").display(),
    );
    let server = Place::serve_by(failing_disk(&place, &serve));
    let out = copy(&place, &["src", &server.to("")]);
    assert_eq!(code(&out), 4, "{}", printed(&out));
    let word = json(&out);
    assert_eq!(
        (&word["ok"], &word["files"]["sent"]),
        (&false.into(), &0.into())
    );
    assert!(
        printed(&out).contains("did not write everything: Input/output error"),
        "{}",
        printed(&out)
    );
    // Quiet, and with everything in the page cache: nothing of it counts.
    let to = server.to("");
    let out = place.run(&["cp", "--trust-any", "-q", "src", &to]);
    assert_eq!(code(&out), 4, "{}", printed(&out));
    assert!(
        printed(&out).contains("Input/output error"),
        "{}",
        printed(&out)
    );
}

#[test]
fn what_was_written_is_read_again_if_requested() {
    let place = Place::new();
    fs::create_dir(place.path("src")).unwrap();
    for (name, len) in [("small", 5000), ("empty", 0), ("large", 3_000_001)] {
        fs::write(place.path("src").join(name), noise(1, len)).unwrap();
    }
    let server = place.serve(&["--allow", "any"]);
    for (args, what) in [(&["--verify-disk"][..], "disk"), (&[], "received")] {
        for (from, to) in [
            ("src".to_string(), server.to("")),
            (server.to("src"), "back".into()),
        ] {
            for sent in [3, 0] {
                let out = copy(&place, &[args, &[&from, &to]].concat());
                assert_eq!(code(&out), 0, "{}", printed(&out));
                assert_eq!(json(&out)["verify"]["what"], what);
                assert_eq!(json(&out)["files"]["sent"], sent);
            }
        }
        fs::remove_dir_all(place.path("share/src")).unwrap();
        fs::remove_dir_all(place.path("back")).unwrap();
    }
}

/// The share as its server sees it.
fn inside(server: &Served, place: &Place) -> std::path::PathBuf {
    let root = format!("/proc/{}/root", server.child.id());
    Path::new(&root).join(place.path("share").strip_prefix("/").expect("absolute"))
}

fn copy(place: &Place, args: &[&str]) -> Output {
    place.run(&[&["cp", "--trust-any", "--json"], args].concat())
}

#[test]
fn a_disk_too_small_is_refused_before_anything_is_sent() {
    let place = Place::new();
    fs::write(place.path("big"), noise(1, 20 << 20)).unwrap();
    let Some(server) = serve_on(&place, "size=8m") else {
        println!("skipped: no user namespaces");
        return;
    };
    let out = copy(&place, &["big", &server.to("")]);
    assert_eq!(code(&out), 8, "{}", printed(&out));
    assert!(printed(&out).contains("are free"), "{}", printed(&out));
    assert_eq!(json(&out)["bytes_payload"], 0);
    assert_eq!(fs::read_dir(inside(&server, &place)).unwrap().count(), 0);
}

#[test]
fn a_disk_that_fills_up_stops_the_file_and_it_continues_later() {
    let place = Place::new();
    fs::write(place.path("big"), noise(1, 24 << 20)).unwrap();
    let Some(server) = serve_on(&place, "size=40m") else {
        println!("skipped: no user namespaces");
        return;
    };
    let share = inside(&server, &place);
    let to = server.to("");
    let args = [
        "cp",
        "--trust-any",
        "--json",
        "--max-rate",
        "60Mbit",
        "big",
        &to,
    ];
    let mut client = place.command(&args).spawn().unwrap();
    await_part(&share, 4 << 20, &mut client);
    // Somebody else takes the rest.
    let filler = share.join("filler");
    let filled = fs::write(&filler, vec![1; 40 << 20]).unwrap_err();
    assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull);
    let out = client.wait_with_output().unwrap();
    assert_eq!(code(&out), 8, "{}", printed(&out));
    assert!(
        printed(&out).contains("free some space"),
        "{}",
        printed(&out)
    );
    assert!(!share.join("big").exists());
    fs::remove_file(&filler).unwrap();
    let out = copy(&place, &["big", &to]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(
        json(&out)["resumed_bytes"].as_u64().unwrap() > 1 << 20,
        "{out:?}"
    );
    assert!(fs::read(share.join("big")).unwrap() == fs::read(place.path("big")).unwrap());
}

#[test]
fn a_read_only_destination_is_reported() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let Some(server) = serve_on(&place, "ro") else {
        println!("skipped: no user namespaces");
        return;
    };
    let out = copy(&place, &["f", &server.to("")]);
    assert_eq!(code(&out), 4, "{}", printed(&out));
    assert!(printed(&out).contains("Read-only"), "{}", printed(&out));
    assert!(
        printed(&out).contains("writable destination"),
        "{}",
        printed(&out)
    );
}

#[test]
fn what_is_in_the_way_stays_and_missing_parents_are_made() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    fs::create_dir_all(place.path("share/dir/f")).unwrap();
    fs::write(place.path("share/file"), "old").unwrap();
    let server = place.serve(&["--allow", "any"]);
    let out = copy(&place, &["f", &server.to("dir/")]);
    assert_eq!(code(&out), 4, "{}", printed(&out));
    assert!(printed(&out).contains("directory"), "{}", printed(&out));
    assert_eq!(fs::read_dir(place.path("share/dir")).unwrap().count(), 1);
    let out = copy(&place, &["f", &server.to("file/f")]);
    assert_eq!(code(&out), 4, "{}", printed(&out));
    assert_eq!(fs::read(place.path("share/file")).unwrap(), b"old");
    let out = copy(&place, &["f", &server.to("new/and/deep/g")]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(
        fs::read(place.path("share/new/and/deep/g")).unwrap(),
        b"content"
    );
}

#[test]
fn a_source_that_cannot_be_read_is_named_and_the_others_arrive() {
    let place = Place::new();
    fs::create_dir(place.path("src")).unwrap();
    for name in ["a", "b", "shut"] {
        fs::write(place.path(&format!("src/{name}")), name).unwrap();
    }
    let bits = fs::Permissions::from_mode;
    fs::set_permissions(place.path("src/shut"), bits(0)).unwrap();
    fs::set_permissions(place.0.path(), bits(0o755)).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("");
    let args = ["cp", "--trust-any", "--json", "src", &to];
    let mut command = place.command(&args);
    if fs::File::open(place.path("src/shut")).is_ok() {
        // The super-user reads everything.
        command = place.copied_command(&args);
        command.uid(65_534).env("XDG_CONFIG_HOME", "/nonexistent");
    }
    let out = command.output().unwrap();
    assert_eq!(code(&out), 5, "{}", printed(&out));
    assert!(
        printed(&out).contains("shut: Permission denied"),
        "{}",
        printed(&out)
    );
    assert_eq!(json(&out)["files"]["failed"], 1);
    assert_eq!(fs::read(place.path("share/src/b")).unwrap(), b"b");
    assert_eq!(fs::read_dir(place.path("share/src")).unwrap().count(), 2);
}

#[test]
fn if_no_source_can_be_read_nothing_is_made() {
    let place = Place::new();
    fs::create_dir_all(place.path("dir/deep")).unwrap();
    fs::write(place.path("f"), "content").unwrap();
    let bits = fs::Permissions::from_mode;
    for shut in ["dir", "f"] {
        fs::set_permissions(place.path(shut), bits(0)).unwrap();
    }
    fs::set_permissions(place.0.path(), bits(0o755)).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("new/");
    let super_user = fs::File::open(place.path("f")).is_ok();
    for sources in [&["dir"][..], &["dir/"], &["f"], &["f", "dir", "none"]] {
        let args = [&["cp", "--trust-any"], sources, &[to.as_str()]].concat();
        let mut command = place.command(&args);
        if super_user {
            command = place.copied_command(&args);
            command.uid(65_534).env("XDG_CONFIG_HOME", "/nonexistent");
        }
        let out = command.output().unwrap();
        let text = printed(&out);
        assert_eq!(code(&out), 3, "{sources:?}: {text}");
        for source in sources.iter().filter(|s| **s != "none") {
            let named = format!("{source}: Permission denied");
            assert!(text.contains(&named), "{sources:?}: {text}");
        }
        assert!(!place.path("share/new").exists(), "{sources:?}");
    }
    fs::set_permissions(place.path("dir"), bits(0o755)).unwrap();
}

#[test]
fn a_source_that_keeps_changing_is_not_left_under_its_name() {
    let place = Place::new();
    fs::write(place.path("log"), noise(1, 80 << 20)).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("");
    let args = [
        "cp",
        "--trust-any",
        "--json",
        "--max-rate",
        "800Mbit",
        "log",
        &to,
    ];
    let mut client = place.command(&args).spawn().unwrap();
    let file = fs::OpenOptions::new()
        .append(true)
        .open(place.path("log"))
        .unwrap();
    await_part(&place.path("share"), 1 << 20, &mut client);
    let mut time = std::time::UNIX_EPOCH;
    while client.try_wait().unwrap().is_none() {
        time += std::time::Duration::from_secs(1);
        file.set_modified(time).unwrap();
        pause();
    }
    let out = client.wait_with_output().unwrap();
    assert_eq!(code(&out), 6, "{}", printed(&out));
    assert!(
        printed(&out).contains("changed while it was read"),
        "{}",
        printed(&out)
    );
    assert!(printed(&out).contains("at rest"), "{}", printed(&out));
    assert_eq!(fs::read_dir(place.path("share")).unwrap().count(), 0);
}

#[test]
fn a_full_server_and_a_stopping_one_send_a_close() {
    let place = Place::new();
    fs::write(place.path("big"), noise(1, 60_000_000)).unwrap();
    fs::write(place.path("small"), "x").unwrap();
    let mut server = place.serve(&["--allow", "any", "--max-sessions", "1"]);
    let to = server.to("");
    let slow = ["cp", "--trust-any", "--json", "--max-rate", "50Mbit"];
    let slow = [&slow[..], &["big", &to]].concat();
    let mut first = place.command(&slow).spawn().unwrap();
    await_part(&place.path("share"), 1 << 20, &mut first);

    let out = copy(&place, &["small", &to]);
    assert_eq!(code(&out), 18, "{}", printed(&out));
    let exit = &json(&out)["exit"];
    assert_eq!(
        (&exit["name"], &exit["retryable"]),
        (&"busy".into(), &true.into())
    );
    assert!(
        printed(&out).contains("--max-sessions"),
        "{}",
        printed(&out)
    );

    server.signal("-INT");
    let out = first.wait_with_output().unwrap();
    assert_eq!(code(&out), 18, "{}", printed(&out));
    assert!(
        printed(&out).contains("the server stops"),
        "{}",
        printed(&out)
    );
    assert!(server.child.wait().unwrap().code().is_some());

    let server = place.serve(&["--allow", "any", "--max-sessions", "1"]);
    let out = copy(&place, &["big", &server.to("")]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(json(&out)["resumed_bytes"].as_u64().unwrap() > 0);
}
