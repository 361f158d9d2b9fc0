//! Copies through a real ssh and a real sshd. The sshd has a port of its own, with keys and a
//! configuration that live as long as the test. Where there is no sshd the test says so and passes.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
};

use super::{kit::command, port::free_port};

const SSHD: &str = "/usr/sbin/sshd";
/// Made by the service that usually starts sshd; it insists when it runs as root.
const EMPTY: &str = "/run/sshd";

/// An sshd and how to reach it.
struct Daemon {
    child: Child,
    place: tempfile::TempDir,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let fine = output.status.success();
    fine.then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Daemon {
    /// Starts it; why not, where that cannot be.
    fn start() -> Result<Self, String> {
        if !Path::new(SSHD).exists() {
            return Err(format!("no {SSHD}: install openssh-server"));
        }
        let user = output("id", &["-un"]).ok_or("no name for this user")?;
        if user == "root" {
            fs::create_dir_all(EMPTY).map_err(|e| format!("{EMPTY}: {e}"))?;
        }
        let place = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| place.path().join(name);
        for key in ["host", "user", "stranger"] {
            let file = path(key);
            let file = file.to_str().expect("text");
            output("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", file])
                .ok_or("no ssh-keygen: install openssh-client")?;
        }
        fs::copy(path("user.pub"), path("authorized")).expect("ours");
        let port = free_port();
        let at = place.path().display();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized\n\
             PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nPrintMotd no\n\
             SetEnv XDG_CONFIG_HOME={at}/config XDG_CACHE_HOME={at}/cache XDG_RUNTIME_DIR={at}/run\n"
        );
        fs::write(path("sshd_config"), config).expect("ours");
        let host = fs::read_to_string(path("host.pub")).expect("ours");
        fs::write(path("known"), format!("[127.0.0.1]:{port} {host}")).expect("ours");
        let config = format!(
            "Host box other\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n  IdentityFile {at}/user\n\
             Host *\n  UserKnownHostsFile {at}/known\n  GlobalKnownHostsFile /dev/null\n\
             \x20 StrictHostKeyChecking yes\n  IdentitiesOnly yes\n  BatchMode yes\n"
        );
        fs::write(path("ssh_config"), config).expect("ours");
        let mut child = Command::new(SSHD)
            .args(["-D", "-e", "-f"])
            .arg(path("sshd_config"))
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| format!("{SSHD}: {e}"))?;
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut printed = Vec::new();
        for line in lines.by_ref().map_while(Result::ok) {
            let ready = line.contains("Server listening on");
            printed.push(line);
            if ready {
                thread::spawn(move || lines.for_each(drop));
                return Ok(Self { child, place });
            }
        }
        panic!("sshd did not start: {printed:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A copy for which `remote` is the program there.
    fn command(&self, remote: &Path, args: &[&str]) -> Command {
        let config = self.path("ssh_config");
        let config = config.to_str().expect("text");
        let remote = remote.to_str().expect("text");
        let ours = ["cp", "-F", config, "--remote-bin", remote];
        command(self.place.path(), &[&ours[..], args].concat())
    }

    fn cp(&self, args: &[&str]) -> Output {
        let remote = Path::new(env!("CARGO_BIN_EXE_farhaul"));
        let output = self.command(remote, args).output();
        output.expect("the program starts")
    }

    fn copy(&self, args: &[&str], code: i32) -> String {
        let output = self.cp(args);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {printed}");
        printed
    }
}

#[test]
fn files_go_through_a_real_sshd_both_ways() {
    let daemon = match Daemon::start() {
        Ok(daemon) => daemon,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let read = |name: &str| fs::read(daemon.path(name)).expect("it is there");
    fs::create_dir_all(daemon.path("src/deep")).expect("ours");
    fs::write(daemon.path("src/big"), vec![5; 5_000_000]).expect("ours");
    fs::write(daemon.path("src/deep/it's $HOME"), "odd").expect("ours");
    let far = |name: &str| format!("box:{}", daemon.path(name).display());

    daemon.copy(&["src", &far("new/far/")], 0);
    assert!(read("new/far/src/big") == read("src/big"));
    assert_eq!(read("new/far/src/deep/it's $HOME"), b"odd");
    daemon.copy(&[&far("new/far/src/"), "back"], 0);
    assert!(read("back/big") == read("src/big"));
    assert_eq!(read("back/deep/it's $HOME"), b"odd");
    daemon.copy(
        &[&far("src/deep/it's $HOME"), &far("new/far/src/big"), "two"],
        0,
    );
    assert!(read("two/big") == read("src/big"));
    assert_eq!(read("two/it's $HOME"), b"odd");
    let other = |name: &str| format!("other:{}", daemon.path(name).display());
    let printed = daemon.copy(&[&far("src/deep"), &far("src/big"), &other("between/")], 0);
    assert!(printed.contains("path: direct"), "{printed}");
    assert!(read("between/big") == read("src/big"));
    assert_eq!(read("between/deep/it's $HOME"), b"odd");
    daemon.copy(
        &["--udp-timeout", "0", &far("src/big"), &other("relayed")],
        0,
    );
    assert!(read("relayed") == read("src/big"));
    daemon.copy(&["-n", "src", &far("dry")], 0);
    assert!(!daemon.path("dry").exists());

    let printed = daemon.copy(&[&far("none"), "here"], 3);
    assert!(printed.contains("none"), "{printed}");
    // It is given before, too: the last one counts.
    let printed = daemon.copy(&["--remote-bin", "/none", "src", "box:x"], 13);
    assert!(printed.contains("--install-remote"), "{printed}");
    // Another host's key, and a user who is not let in: what ssh says is shown, and the code is its.
    let known = fs::read_to_string(daemon.path("known")).expect("ours");
    let other = fs::read_to_string(daemon.path("stranger.pub")).expect("ours");
    let (name, _) = known.split_once(' ').expect("a name and a key");
    fs::write(daemon.path("known"), format!("{name} {other}")).expect("ours");
    let printed = daemon.copy(&["src/big", &far("x")], 12);
    assert!(
        printed.contains("Host key verification failed"),
        "{printed}"
    );
    fs::write(daemon.path("known"), known).expect("ours");
    fs::write(daemon.path("authorized"), other).expect("ours");
    let printed = daemon.copy(&["src/big", &far("x")], 12);
    assert!(printed.contains("Permission denied"), "{printed}");
    let key = daemon.path("stranger");
    daemon.copy(
        &["-i", key.to_str().expect("text"), "src/big", &far("x")],
        0,
    );
    assert!(read("x") == read("src/big"));
}

#[test]
fn both_far_ends_of_a_copy_between_hosts_end_with_the_machine_that_ordered_it() {
    let daemon = match Daemon::start() {
        Ok(daemon) => daemon,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    // They are known by this name.
    let there = daemon.path("farhaul-there");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_farhaul"), &there).expect("ours");
    fs::write(daemon.path("f"), vec![7; 60_000_000]).expect("ours");
    let at = daemon.place.path().display();
    let from = format!("box:{at}/f");
    for signal in ["INT", "TERM", "KILL"] {
        let to = format!("other:{at}/{signal}/g");
        let mut command = daemon.command(&there, &["--max-rate", "10MB", &from, &to]);
        let mut copying = command.stderr(Stdio::null()).spawn().expect("it starts");
        let pid = copying.id();
        let script = format!(
            "until [ -s {at}/{signal}/.g*-part ]; do sleep .05; done; kill -{signal} {pid}; \
             while grep -qs {at}/farhaul-ther[e]._ /proc/[0-9]*/cmdline; do sleep .05; done"
        );
        let watched = Command::new("sh").args(["-c", &script]).status();
        assert!(watched.expect("sh").success());
        let ended = copying.wait().expect("our child");
        match signal {
            "INT" => assert_eq!(ended.code(), Some(130)),
            "TERM" => assert_eq!(ended.code(), Some(143)),
            _ => assert_eq!(ended.code(), None),
        }
        assert!(!daemon.path(signal).join("g").exists());
    }
}
