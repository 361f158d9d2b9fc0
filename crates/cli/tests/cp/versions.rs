//! Copies between today's program and that of the previous version, in both roles. `cargo xtask
//! versions` builds the previous one and names it in `PREVIOUS_FARHAUL`; alone these tests have
//! nothing to compare with.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::Value;

use crate::{
    copies::tree,
    place::{Place, Served, code, end_when, noise, printed},
};

const NEEDS: &str = "run by `cargo xtask versions`, which builds the previous version";

/// The two programs, and which is where.
struct Ends {
    place: Place,
    client: PathBuf,
    server: PathBuf,
}

impl Ends {
    /// Today's client and the previous server, then the other way round.
    fn both_ways() -> [Self; 2] {
        let today = PathBuf::from(env!("CARGO_BIN_EXE_farhaul"));
        let previous = PathBuf::from(env::var_os("PREVIOUS_FARHAUL").expect(NEEDS));
        let with = |client: &Path, server: &Path| Self {
            place: Place::new(),
            client: client.into(),
            server: server.into(),
        };
        [with(&today, &previous), with(&previous, &today)]
    }

    fn serve_by(&self, server: &Path) -> Served {
        let share = format!("s={}:rw", self.place.path("share").display());
        let args = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--allow",
            "any",
            "--share",
        ];
        let command = self
            .place
            .command_of(server, &[&args[..], &[&share]].concat());
        Place::serve_by(command)
    }

    fn serve(&self) -> Served {
        self.serve_by(&self.server)
    }

    fn cp(&self, args: &[&str]) -> Output {
        let args = [&["cp", "--trust-any", "--json"], args].concat();
        let mut command = self.place.command_of(&self.client, &args);
        let out = command.output().expect("the program starts");
        let ends = (&self.client, &self.server);
        assert_eq!(code(&out), 0, "{ends:?} {args:?}: {}", printed(&out));
        out
    }

    fn same(&self, source: &str, copy: &str) {
        let (source, copy) = (self.place.path(source), self.place.path(copy));
        assert_eq!(
            tree(&source),
            tree(&copy),
            "{:?}",
            (&self.client, &self.server)
        );
    }

    fn files(&self, folder: &str) {
        let folder = self.place.path(folder);
        fs::create_dir_all(folder.join("deep/er")).unwrap();
        for i in 0..40 {
            let len = usize::try_from(i * i * 90).unwrap();
            fs::write(folder.join(format!("{i}")), noise(i, len)).unwrap();
        }
        fs::write(folder.join("deep/er/big"), noise(99, 9_000_001)).unwrap();
    }
}

#[test]
#[ignore = "needs a build of the previous version"]
fn files_and_trees_go_both_ways() {
    for ends in Ends::both_ways() {
        ends.files("src");
        let server = ends.serve();
        ends.cp(&["src/deep/er/big", &server.to("one/big")]);
        let sent = fs::read(ends.place.path("share/one/big")).unwrap();
        assert!(sent == noise(99, 9_000_001));
        ends.cp(&["src", &server.to("tree/")]);
        ends.same("src", "share/tree/src");
        ends.cp(&[&server.to("tree/src/"), "back"]);
        ends.same("src", "back");
        ends.cp(&[&server.to("one/big"), "renamed"]);
        assert!(fs::read(ends.place.path("renamed")).unwrap() == sent);
    }
}

#[test]
#[ignore = "needs a build of the previous version"]
fn what_the_source_lacks_is_deleted_and_only_changed_blocks_are_sent() {
    for ends in Ends::both_ways() {
        ends.files("src");
        let server = ends.serve();
        ends.cp(&["src/", &server.to("mirror")]);
        fs::remove_file(ends.place.path("src/7")).unwrap();
        let mut big = noise(99, 9_000_001);
        big[5 << 20] ^= 1;
        fs::write(ends.place.path("src/deep/er/big"), big).unwrap();
        let out = ends.cp(&["--delete", "--backup", "src/", &server.to("mirror")]);
        let word: Value = serde_json::from_slice(&out.stdout).unwrap();
        let payload = word["bytes_payload"].as_u64().unwrap();
        assert!((1..4 << 20).contains(&payload), "{word}");
        assert!(!ends.place.path("share/mirror/7").exists());
        ends.cp(&["--delete", &server.to("mirror/"), "src"]);
        ends.same("share/mirror", "src");
    }
}

/// A client that was killed is continued, also when the server is of the other version by then.
#[test]
#[ignore = "needs a build of the previous version"]
fn copies_resume_across_versions() {
    const LEN: usize = 80 << 20;
    for ends in Ends::both_ways() {
        fs::write(ends.place.path("f"), noise(3, LEN)).unwrap();
        let servers = [&ends.server, &ends.client, &ends.server];
        let mut port = String::from("127.0.0.1:0");
        let mut kept = 0;
        for (run, program) in servers.iter().enumerate() {
            let share = format!("s={}:rw", ends.place.path("share").display());
            let args = [
                "serve", "--listen", &port, "--allow", "any", "--share", &share,
            ];
            let server = Place::serve_by(ends.place.command_of(program, &args));
            // The same command: the journal knows it by the server's address.
            port.clone_from(&server.at);
            let to = server.to("f");
            if run + 1 < servers.len() {
                let slow = ["cp", "--trust-any", "--max-rate", "300Mbit", "f", &to];
                let mut client = ends.place.command_of(&ends.client, &slow);
                let mut client = client.spawn().expect("the program starts");
                kept += 16 << 20;
                end_when(&ends.place, kept, "share", &mut client, "-KILL");
                let _killed = client.wait().expect("our own child");
                continue;
            }
            let out = ends.cp(&["f", &to]);
            let word: Value = serde_json::from_slice(&out.stdout).unwrap();
            let payload = word["bytes_payload"].as_u64().unwrap();
            assert!(payload < (LEN as u64) - (16 << 20), "{word}");
        }
        assert!(fs::read(ends.place.path("share/f")).unwrap() == noise(3, LEN));
    }
}

/// The lines that both ends exchange through ssh, whose place a shell takes here.
#[test]
#[ignore = "needs a build of the previous version"]
fn ends_that_ssh_starts_understand_each_other() {
    for ends in Ends::both_ways() {
        ends.files("src");
        let ssh = ends.place.path("ssh");
        fs::create_dir(ends.place.path("home")).unwrap();
        let home = ends.place.path("home");
        let script = format!(
            "#!/bin/sh\nfor last; do :; done\n[ \"$1\" = -G ] && {{ echo hostname 127.0.0.1; exit; }}\n\
             cd {} && SSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' exec sh -c \"$last\"\n",
            home.display()
        );
        fs::write(&ssh, script).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        for args in [["src", "far:tree/"], ["far:tree/src/", "back"]] {
            let mut command = ends
                .place
                .command_of(&ends.client, &["cp", args[0], args[1]]);
            command
                .env("FARHAUL_SSH", &ssh)
                .env("FARHAUL_REMOTE_BIN", &ends.server);
            let out = command.output().expect("the program starts");
            assert_eq!(code(&out), 0, "{}", printed(&out));
        }
        ends.same("src", "back");
    }
}

/// Features that a server lacks are refused before anything is sent, and named.
#[test]
#[ignore = "needs a build of the previous version"]
fn pipes_are_refused_by_an_older_server_unless_it_need_not_know_them() {
    let [ends, _] = Ends::both_ways();
    let previous = ends
        .place
        .command_of(&ends.server, &["protocols", "--json"])
        .output();
    let previous: Value = serde_json::from_slice(&previous.unwrap().stdout).unwrap();
    let features = previous["versions"]["transfer"]["features"].as_array();
    let knows = features.is_some_and(|all| all.contains(&Value::from("pipes")));
    let server = ends.serve();
    let to = server.to("f");
    let mut pour = ends
        .place
        .command_of(&ends.client, &["cp", "--trust-any", "-", &to]);
    let out = pour.output().expect("the program starts");
    let said = printed(&out);
    if knows {
        assert_eq!(code(&out), 0, "{said}");
    } else {
        assert_eq!(code(&out), 14, "{said}");
        assert!(
            said.contains("'pipes'") && said.contains("install farhaul"),
            "{said}"
        );
        assert!(!ends.place.path("share/f").exists());
    }
    fs::write(ends.place.path("share/big"), noise(5, 90 << 20)).unwrap();
    let to = server.to("big");
    let mut draw = ends
        .place
        .command_of(&ends.client, &["cp", "--trust-any", &to, "-"]);
    let out = draw.output().expect("the program starts");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(out.stdout == noise(5, 90 << 20));
}
