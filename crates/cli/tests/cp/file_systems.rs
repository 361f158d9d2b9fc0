//! Copies to file systems and folders that permit less than the source has.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::Value;

use crate::place::{Place, Served, code, json, noise, printed};

/// Command that runs once the share is a new file system, in a file of 64 MB; only the super-user
/// may mount one.
fn mounted(place: &Place, mount: &str, then: &str) -> Command {
    let (disk, share) = (place.path("disk"), place.path("share"));
    let (disk, share) = (disk.display().to_string(), share.display().to_string());
    let mount = mount.replace("DISK", &disk).replace("SHARE", &share);
    let make = format!("truncate -s 64M {disk} && {mount} && mkdir {share}/in && {then}");
    place.command_of(Path::new("unshare"), &["-m", "sh", "-c", &make])
}

/// A server of such a share; `None`, with the reason, where it cannot be.
fn serve_on(place: &Place, mount: &str) -> Option<Served> {
    let probe = mounted(place, mount, "true").output();
    if !probe.is_ok_and(|o| o.status.success()) {
        println!("skipped: cannot be mounted here: {mount}");
        return None;
    }
    let serve = format!(
        "exec {program} serve --listen 127.0.0.1:0 --allow any --share s={share}:rw",
        program = env!("CARGO_BIN_EXE_farhaul"),
        share = place.path("share/in").display(),
    );
    Some(Place::serve_by(mounted(place, mount, &serve)))
}

/// Files short, long and empty, with all of a time, and links.
fn source(place: &Place) {
    let src = place.path("src");
    fs::create_dir_all(src.join("d")).expect("ours");
    for (name, len) in [("short", 5), ("long", 3_000_000), ("empty", 0)] {
        fs::write(src.join(name), noise(7, len)).expect("ours");
        let file = File::options()
            .write(true)
            .open(src.join(name))
            .expect("ours");
        let time = UNIX_EPOCH + Duration::new(1_714_885_505, 123_456_789);
        file.set_modified(time).expect("ours");
    }
    fs::hard_link(src.join("short"), src.join("d/hard")).expect("ours");
    symlink("short", src.join("link")).expect("ours");
}

fn run(place: &Place, server: &Served, flags: &[&str]) -> Value {
    let paths: [&str; 2] = ["src/", &server.to("")];
    let out = place.run(&[&["cp", "--trust-any", "--json", "-H"], flags, &paths].concat());
    assert_eq!(code(&out), 0, "{}", printed(&out));
    json(&out)
}

#[test]
fn a_second_run_sends_nothing_where_times_are_coarse() {
    let mounts = [
        "mkfs.ext4 -q -I 128 DISK && mount -o loop DISK SHARE",
        "mkfs.vfat DISK && mount -o loop DISK SHARE",
        "mkfs.exfat DISK && mount -o loop DISK SHARE",
        "mkfs.exfat DISK && L=$(losetup -f --show DISK) && mount.exfat-fuse $L SHARE && losetup -d $L",
    ];
    for mount in mounts {
        let place = Place::new();
        source(&place);
        let Some(server) = serve_on(&place, mount) else {
            continue;
        };
        assert_eq!(run(&place, &server, &[])["files"]["sent"], 4, "{mount}");
        for flags in [&[][..], &["--update"]] {
            let again = run(&place, &server, flags);
            assert_eq!(again["files"]["sent"], 0, "{mount}: {again}");
            assert_eq!(again["bytes_payload"], 0, "{mount}: {again}");
        }
    }
}

/// A server of the user nobody.
fn serve_as_nobody(place: &Place) -> Option<Served> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, which may be another user");
        return None;
    }
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(place.path("."), open).expect("ours");
    Some(Place::serve_by(place.server_of_nobody()))
}

#[test]
fn folders_of_another_user_take_files_and_keep_their_times() {
    let place = Place::new();
    source(&place);
    for dir in ["share", "share/d"] {
        fs::create_dir_all(place.path(dir)).unwrap();
        // The content of one may not even be read.
        let mode = if dir.ends_with('d') { 0o733 } else { 0o777 };
        let open = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path(dir), open).unwrap();
    }
    let Some(server) = serve_as_nobody(&place) else {
        return;
    };
    for sent in [4, 0] {
        let told = run(&place, &server, &[]);
        assert_eq!(told["files"]["sent"], sent, "{told}");
        assert_eq!(told["warnings"].as_array().map(Vec::len), Some(1), "{told}");
    }
}

#[test]
fn a_mirror_deletes_in_read_only_folders_of_its_own() {
    let place = Place::new();
    source(&place);
    let shut = place.path("share/shut/deep");
    fs::create_dir_all(&shut).unwrap();
    fs::write(shut.join("x"), "x").unwrap();
    for dir in [
        shut.as_path(),
        &place.path("share/shut"),
        &place.path("share"),
    ] {
        let mode = if dir.ends_with("share") { 0o755 } else { 0o555 };
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(dir, Some(65_534), None).unwrap();
    }
    let Some(server) = serve_as_nobody(&place) else {
        return;
    };
    assert_eq!(run(&place, &server, &["--delete"])["files"]["deleted"], 3);
    assert!(!place.path("share/shut").exists());
}

#[test]
fn a_share_whose_folder_was_deleted_is_called_that() {
    let place = Place::new();
    source(&place);
    let server = place.serve(&["--allow", "any"]);
    fs::remove_dir_all(place.path("share")).unwrap();
    fs::create_dir(place.path("share")).unwrap();
    let out = place.run(&["cp", "--trust-any", "src/", &server.to("")]);
    assert_eq!(code(&out), 4);
    let text = printed(&out);
    assert!(
        text.contains("the folder of share 's' was deleted"),
        "{text}"
    );
    assert!(text.contains("server restarted"), "{text}");
}
