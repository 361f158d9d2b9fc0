//! `farhaul cp FILE user@host:path` works when ssh does. A script in ssh's place runs the far
//! command here, as the login shell of another home.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use super::{
    firewall::{HOST, behind_a_firewall, object_of},
    kit::{command, environment, side_by_side},
    port::free_port,
};

/// A home here, one there, and an ssh between them that does `before` first.
struct Two {
    near: tempfile::TempDir,
    far: tempfile::TempDir,
    ssh: PathBuf,
}

impl Two {
    fn new(before: &str) -> Self {
        Self::at("127.0.0.1", before)
    }

    /// Makes the hosts; the one over there has this address.
    fn at(address: &str, before: &str) -> Self {
        let near = tempfile::tempdir().expect("a temporary folder");
        let far = tempfile::tempdir().expect("a temporary folder");
        let ssh = near.path().join("ssh");
        // Questions with -G are answered. Anything else must be one host and one command. The
        // command finds programs in that home and in no other place of this machine where a farhaul
        // may be.
        let script = format!(
            "#!/bin/sh\n\
             while :; do case \"$1\" in -F|-i|-o) echo \"$1 $2\" >> {near}/flags; shift 2;; \
             -4|-6) shift;; -G) asked=yes; shift;; --) shift; end=yes; break;; *) break;; esac; done\n\
             [ \"$end\" ] || {{ echo 'ssh: the host may be a flag' >&2; exit 255; }}\n\
             if [ \"$asked\" ]; then echo user me; echo hostname {address}; exit 0; fi\n\
             [ $# -eq 2 ] || {{ echo \"ssh: $# words\" >&2; exit 255; }}\n\
             echo \"$1\" >> {near}/hosts\n\
             hold=exec\n\
             {before}\n\
             line=$(printf '%s\\n' \"$2\" | sed '1s#^PATH=\"[^\"]*\"#PATH=\"$PATH:$HOME/.local/bin\"#')\n\
             cd {far} && $hold env -i HOME={far} PATH='{path}' \
             SSH_CONNECTION='{address} 5 {address} 22' sh -c \"$line\"\n\
             exec sleep 1000\n",
            near = near.path().display(),
            far = far.path().display(),
            path = environment::path(near.path()).display(),
        );
        fs::write(&ssh, script).expect("our own folder");
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("ours");
        Self { near, far, ssh }
    }

    fn near(&self, name: &str) -> PathBuf {
        self.near.path().join(name)
    }

    fn far(&self, name: &str) -> PathBuf {
        self.far.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.near.path(), args);
        command
            .env("FARHAUL_SSH", &self.ssh)
            .env("FARHAUL_REMOTE_BIN", env!("CARGO_BIN_EXE_farhaul"));
        command
    }

    fn cp(&self, args: &[&str]) -> Output {
        let args = [&["cp"], args].concat();
        self.command(&args).output().expect("the program starts")
    }

    /// A copy that ends with `code`; what it said.
    fn copy(&self, args: &[&str], code: i32) -> String {
        let output = self.cp(args);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {printed}");
        printed
    }
}

fn same(one: &Path, other: &Path) {
    let read = |p: &Path| fs::read(p).unwrap_or_else(|e| panic!("{}: {e}", p.display()));
    assert!(read(one) == read(other), "{} differs", other.display());
}

#[test]
fn files_go_there_and_back() {
    let two = Two::new("");
    fs::write(two.near("f"), vec![7; 3_000_000]).expect("ours");
    fs::create_dir_all(two.near("d/e")).expect("ours");
    fs::write(two.near("d/e/g 'quoted' $HOME"), "odd").expect("ours");
    two.copy(&["f", "me@somewhere:"], 0);
    same(&two.near("f"), &two.far("f"));
    two.copy(&["f", "d", "somewhere:new/place/"], 0);
    same(&two.near("f"), &two.far("new/place/f"));
    same(
        &two.near("d/e/g 'quoted' $HOME"),
        &two.far("new/place/d/e/g 'quoted' $HOME"),
    );
    let whole = format!("somewhere:{}", two.far("named; rm -rf x").display());
    two.copy(&["f", &whole], 0);
    same(&two.near("f"), &two.far("named; rm -rf x"));
    two.copy(&["somewhere:new/place/d/e/g 'quoted' $HOME", "back"], 0);
    same(&two.near("d/e/g 'quoted' $HOME"), &two.near("back"));
    two.copy(&["somewhere:new/../new/place/d/", "contents"], 0);
    same(
        &two.near("d/e/g 'quoted' $HOME"),
        &two.near("contents/e/g 'quoted' $HOME"),
    );
    for nowhere in ["/nowhere/../tmp/x", "none/../x"] {
        let out = two.cp(&["f", &format!("somewhere:{nowhere}")]);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(4), "{text}");
        assert!(text.contains("'..' leads nowhere"), "{text}");
    }
    // A second run has nothing to send.
    let again = two.cp(&["--json", "f", "somewhere:new/place/"]);
    let word: Value = serde_json::from_slice(&again.stdout).expect("one object");
    assert_eq!(
        (&word["ok"], &word["bytes_payload"]),
        (&Value::Bool(true), &Value::from(0))
    );
    let hosts = fs::read_to_string(two.near("hosts")).expect("ssh was asked");
    assert!(hosts.starts_with("me@somewhere\nsomewhere\n"), "{hosts}");
    assert!(
        !two.near("config/farhaul").exists(),
        "one-time keys are not kept"
    );
}

#[test]
fn a_tilde_is_the_home_there_and_no_folder_of_that_name() {
    let two = Two::new("");
    fs::write(two.near("f"), "some").expect("ours");
    two.copy(&["f", "far:~/new/"], 0);
    two.copy(&["f", "far:~"], 0);
    two.copy(&["f", "far:~//named"], 0);
    for name in ["new/f", "f", "named"] {
        same(&two.near("f"), &two.far(name));
    }
    assert!(!two.far("~").exists());
    two.copy(&["far:~/new/f", "far:~/named", "got"], 0);
    two.copy(&["far:~", "all"], 0);
    for name in ["got/f", "got/named", "all/new/f", "all/named"] {
        same(&two.near("f"), &two.near(name));
    }
    let listed = two.command(&["ls", "--json", "far:~/new/f"]).output();
    let listed = object_of(&listed.expect("it starts"));
    assert_eq!(listed["entries"][0]["path"], "f", "{listed}");
    // Between two hosts, where either may be meant.
    two.copy(&["far:~/named", "other:~/between/"], 0);
    same(&two.near("f"), &two.far("between/named"));
    let printed = two.copy(&["f", "far:~bob/x"], 2);
    assert!(printed.contains("./~bob/x"), "{printed}");
    two.copy(&["f", "far:./~"], 0);
    same(&two.near("f"), &two.far("~"));
}

#[test]
fn a_name_of_the_configuration_of_ssh_is_no_name_of_a_server() {
    let two = Two::new("");
    fs::write(two.near("f"), "some").expect("ours");
    for args in [
        &["ls", "far.invalid::"][..],
        &["ls", "far.invalid::s"],
        &["cp", "f", "far.invalid::s/"],
    ] {
        let output = two.command(args).output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(11), "{args:?}: {printed}");
        assert!(printed.contains("far.invalid:PATH"), "{args:?}: {printed}");
    }
}

#[test]
fn several_sources_come_from_one_host() {
    let two = Two::new("");
    for folder in ["a/deep", "b"] {
        fs::create_dir_all(two.far(folder)).expect("ours");
    }
    for (name, content) in [
        ("a/x", "1"),
        ("a/deep/y", "22"),
        ("b/x", "333"),
        ("b/z", "4"),
    ] {
        fs::write(two.far(name), content).expect("ours");
    }
    let z = format!("there:{}", two.far("b/z").display());
    two.copy(&["there:a/x", &z, "there:a/deep/", "to"], 0);
    for (from, to) in [("a/x", "to/x"), ("b/z", "to/z"), ("a/deep/y", "to/y")] {
        same(&two.far(from), &two.near(to));
    }
    let hosts = fs::read_to_string(two.near("hosts")).expect("ssh was asked");
    assert_eq!(hosts, "there\n", "one ssh for all of them");
    // A missing source, or one with a name that is taken, is named as it is there; the rest
    // arrives.
    let printed = two.copy(&["there:none/q", "there:b/x", "there:a/x", "some"], 5);
    for name in ["none/q", "a/x"] {
        let name = two.far(name).display().to_string();
        assert!(printed.contains(&name), "{name}: {printed}");
    }
    same(&two.far("b/x"), &two.near("some/x"));
    let printed = two.copy(&["there:none", "there:b/none", "nothing"], 3);
    assert!(
        printed.contains("none: ") && printed.contains("b/none: "),
        "{printed}"
    );
    assert!(!two.near("nothing").exists());
    // Who is asked must be one.
    fs::remove_file(two.near("hosts")).expect("ours");
    let printed = two.copy(&["there:a/x", "me@there:b/z", "to"], 2);
    assert!(printed.contains("there and me@there"), "{printed}");
    assert!(!two.near("hosts").exists(), "nobody was asked");
}

#[test]
fn another_version_there_is_called_one() {
    let two = Two::new("");
    let old = two.near("old");
    let answer =
        r#"farhaul-ssh/1 {"port":0,"key":"","path":"","address":null,"refusal":["no",14]}"#;
    fs::write(&old, format!("#!/bin/sh\necho '{answer}'; exit 14\n")).expect("ours");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).expect("ours");
    let output = two
        .command(&["cp", "there:a", "there:b", "to"])
        .env("FARHAUL_REMOTE_BIN", &old)
        .output()
        .expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(14), "{printed}");
    assert!(
        printed.contains("version 1") && printed.contains("same version"),
        "{printed}"
    );
}

#[test]
fn what_the_far_end_says_does_not_steer_the_terminal() {
    let two = Two::new("");
    let odd = two.near("odd");
    // As JSON has it: an escape character, and a line of its own.
    let answer = r#"farhaul-ssh/2 {"port":0,"key":"","paths":[],"refusal":["\u001b[31mno\nok   reached",4]}"#;
    fs::write(
        &odd,
        format!("#!/bin/sh\ncat <<'END'\n{answer}\nEND\nexit 4\n"),
    )
    .expect("ours");
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o755)).expect("ours");
    for args in [&["doctor", "there:"][..], &["cp", "there:a", "to"]] {
        let mut command = two.command(args);
        let output = command.env("FARHAUL_REMOTE_BIN", &odd).output();
        let output = output.expect("the program starts");
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        for said in [output.stdout, output.stderr] {
            let said = String::from_utf8(said).expect("text");
            assert!(!said.contains('\u{1b}'), "{said:?}");
            assert!(
                !said.lines().any(|l| l.starts_with("ok   reached")),
                "{said}"
            );
        }
    }
}

#[test]
fn flags_of_ssh_reach_it_and_ports_the_far_end() {
    let two = Two::new("");
    fs::write(two.near("f"), "content").expect("ours");
    let port = free_port();
    let taken = std::net::UdpSocket::bind(("127.0.0.1", port)).expect("it is free");
    let range = format!("{port}-{port}");
    let flags = [
        "-i",
        "key",
        "-F",
        "config",
        "-o",
        "A=b",
        "-4",
        "--remote-port",
        &range,
        "f",
        "there:",
    ];
    let printed = two.copy(&flags, 11);
    assert!(
        printed.contains(&format!("from {port} to {port}")),
        "{printed}"
    );
    drop(taken);
    two.copy(&flags, 0);
    same(&two.near("f"), &two.far("f"));
    let reported = fs::read_to_string(two.near("flags")).expect("ssh was asked");
    assert!(
        reported.starts_with("-F config\n-i key\n-o A=b\n"),
        "{reported}"
    );
    let ssh = two.ssh.to_str().expect("text").to_owned();
    let program = env!("CARGO_BIN_EXE_farhaul");
    let named = ["--ssh", &ssh, "--remote-bin", program, "f", "there:g"];
    let args = [&["cp"], &named[..]].concat();
    let output = command(two.near.path(), &args).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    same(&two.near("f"), &two.far("g"));
}

#[test]
fn what_a_login_shell_prints_is_skipped() {
    let two = Two::new("echo 'Welcome to somewhere!'; echo");
    fs::write(two.near("f"), "content").expect("ours");
    two.copy(&["f", "somewhere:"], 0);
    same(&two.near("f"), &two.far("f"));
}

#[test]
fn what_can_go_wrong_there_has_its_code() {
    let two = Two::new("");
    fs::write(two.near("f"), "content").expect("ours");
    two.copy(&["none", "somewhere:"], 3);
    assert!(
        !two.near("hosts").exists(),
        "what is missing here is said before ssh is asked"
    );
    let printed = two.copy(&["somewhere:none", "here"], 3);
    assert!(printed.contains("none"), "{printed}");
    let printed = two.copy(&["somewhere:f*", "here"], 3);
    assert!(printed.contains("patterns are not expanded"), "{printed}");
    assert_eq!(printed.matches("No such file").count(), 1, "{printed}");
    two.copy(&["f", "--", "-oProxyCommand=x:y"], 2);
    let printed = two.copy(&["f", "somewhere:/proc/none/x"], 4);
    assert!(printed.contains("'somewhere:/proc/none/x'"), "{printed}");
    fs::create_dir(two.far("z")).expect("ours");
    for typed in ["somewhere:z/", "somewhere:~/z", "somewhere:"] {
        let printed = two.copy(&["-n", "f", typed], 0);
        assert!(
            printed.trim_end().ends_with(&format!("to {typed}")),
            "{printed}"
        );
    }
    let output = two
        .command(&["cp", "--json", "f", "somewhere:"])
        .env("FARHAUL_REMOTE_BIN", "/no/such/farhaul")
        .output()
        .expect("the program starts");
    let word: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(
        (output.status.code(), &word["exit"]["name"]),
        (Some(13), &Value::from("remote_missing"))
    );
    let output = two
        .command(&["cp", "f", "somewhere:"])
        .env("FARHAUL_SSH", "/no/such/ssh")
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(12));

    let shut = Two::new("echo 'Permission denied (publickey).' >&2; exit 255");
    fs::write(shut.near("f"), "content").expect("ours");
    let printed = shut.copy(&["f", "somewhere:"], 12);
    assert!(
        printed.contains("Permission denied") && printed.contains("status 255"),
        "{printed}"
    );
    let port = "write somewhere:18500::SHARE, for ssh at that port -o Port=18500 me@somewhere:PATH";
    for (to, is_told) in [
        ("me@somewhere:18500", true),
        ("me@somewhere:18500:/x", true),
        ("me@somewhere:18500x", false),
    ] {
        let printed = shut.copy(&["f", to], 12);
        assert_eq!(printed.contains(port), is_told, "{printed}");
    }
    let chatty = Two::new("echo This account is disabled.; exit 1");
    fs::write(chatty.near("f"), "content").expect("ours");
    let printed = chatty.copy(&["f", "somewhere:"], 12);
    assert!(printed.contains("This account is disabled."), "{printed}");
}

#[test]
fn a_program_that_would_not_run_there_is_not_copied() {
    // This one is built for tests, and needs libraries.
    let two = Two::new("");
    fs::write(two.near("f"), "content").expect("ours");
    let copy = |consent: &str| {
        let mut command = two.command(&["cp", consent, "f", "somewhere:"]);
        let output = command.env_remove("FARHAUL_REMOTE_BIN").output();
        let output = output.expect("the program starts");
        assert_eq!(output.status.code(), Some(13), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    for consent in ["--install-remote", "--install-remote=yes"] {
        let printed = copy(consent);
        assert!(printed.contains("needs libraries"), "{printed}");
    }
    assert!(!two.far(".local").exists());
    let named = two
        .command(&["cp", "--install-remote=yes", "f", "somewhere:"])
        .env("FARHAUL_REMOTE_BIN", "/none")
        .output()
        .expect("the program starts");
    let printed = String::from_utf8(named.stderr).expect("text");
    assert!(printed.contains("--remote-bin names another"), "{printed}");
    two.copy(&["--install-remote=no", "f", "somewhere:"], 2);
}

#[test]
fn an_ssh_that_does_not_end_is_not_waited_for() {
    // It outlives what it ran, as one does whose network is gone; so it is when it was never answered.
    for deaf in ["", "trap '' TERM;"] {
        let two = Two::new(&format!("{deaf} hold="));
        fs::write(two.near("f"), "content").expect("ours");
        let printed = two.copy(&["f", "somewhere:"], 0);
        same(&two.near("f"), &two.far("f"));
        assert!(
            printed.contains("did not end within 2 s and was killed"),
            "{printed}"
        );
        let printed = two.copy(&["somewhere:none", "here"], 3);
        assert!(printed.contains("was killed"), "{printed}");
    }
    let mute = Two::new("exec 1>&-; exec sleep 1000");
    fs::write(mute.near("f"), "content").expect("ours");
    let printed = mute.copy(&["f", "somewhere:"], 12);
    assert!(
        printed.contains("did not end within 2 s and was killed"),
        "{printed}"
    );
}

#[test]
fn only_the_requesting_peer_is_admitted() {
    // A server as ssh would start it, with another key than the one that then comes.
    let two = Two::new("");
    fs::write(two.near("f"), "content").expect("ours");
    let key = two
        .command(&["key", "gen", "--out", "other"])
        .output()
        .expect("it starts");
    let key = String::from_utf8(key.stdout).expect("text");
    let mut server = command(two.far.path(), &["_serve"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = server.stdin.take().expect("piped");
    writeln!(
        stdin,
        "farhaul-ssh/2 {{\"key\":\"{}\",\"put\":true,\"paths\":[\"\"]}}",
        key.trim()
    )
    .expect("it reads");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("it answers");
    let json = line.strip_prefix("farhaul-ssh/2 ").expect("the magic word");
    let answer: Value = serde_json::from_str(json).expect("JSON");
    let to = format!("127.0.0.1:{}::ssh/", answer["port"]);
    two.copy(&["--trust-any", "f", &to], 15);
    assert!(!two.far("f").exists());
    two.copy(&["--trust-any", "-i", "other", "f", &to], 0);
    same(&two.near("f"), &two.far("f"));
    drop(stdin);
    assert!(
        server.wait().expect("our child").success(),
        "it ends with its input"
    );
}

#[test]
fn a_strangers_bytes_start_nothing() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let output = command(place.path(), &["_serve"])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(14));
    let line = String::from_utf8(output.stdout).expect("text");
    assert!(line.contains("versions of both ends must agree"), "{line}");
}

#[test]
fn a_copy_into_a_new_folder_continues_when_it_exists() {
    let two = Two::new("");
    fs::write(two.near("f"), vec![7; 30_000_000]).expect("ours");
    let first = [
        "--json",
        "--max-rate",
        "40Mbit",
        "--max-time",
        "2s",
        "f",
        "far:new/",
    ];
    let cut = object_of(&two.cp(&first));
    assert_eq!(cut["exit"]["name"], "limit", "{cut}");
    let whole = object_of(&two.cp(&["--json", "f", "far:new/"]));
    assert_eq!(whole["ok"], true, "{whole}");
    assert!(whole["resumed_bytes"].as_u64() > Some(0), "{whole}");
    same(&two.near("f"), &two.far("new/f"));
    let left = fs::read_dir(two.far("new")).expect("a folder");
    assert_eq!(left.count(), 1, "nothing is left of the first");
}

#[test]
fn where_udp_is_blocked_ssh_carries_the_copy() {
    // As long as is waited for by default, and shorter.
    let cases = [
        ("block daddr dport", "UDP from here to there is blocked", ""),
        (
            "block saddr sport",
            "UDP from there to here is blocked",
            "--udp-timeout 1s",
        ),
    ];
    side_by_side(&cases, |(rule, said, first)| {
        let two = Two::at(HOST, "");
        fs::write(two.near("f"), vec![7; 30_000_000]).expect("ours");
        let words = format!(
            "{rule}; cp=\"$cp --json\"; $cp {first} f far:g; cp=\"$cp --udp-timeout 1s\"; $cp far:g back; $cp -n f far:h"
        );
        let Some(output) = behind_a_firewall(&mut two.command(&[]), &words) else {
            return;
        };
        assert_eq!(output.status.code(), Some(0), "{rule}: {output:?}");
        same(&two.near("f"), &two.far("g"));
        same(&two.near("f"), &two.near("back"));
        let objects = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let objects: Vec<_> = objects.collect::<Result<_, _>>().expect("objects");
        assert_eq!(objects.len(), 3);
        for object in objects {
            assert_eq!(object["path"], "ssh");
            let warning = object["warnings"][0].as_str().unwrap_or_default();
            assert!(warning.contains(said), "{rule}: {warning}");
        }
    });
}

#[test]
fn a_copy_that_is_not_to_go_through_ssh_fails_where_udp_is_blocked() {
    let two = Two::at(HOST, "");
    fs::write(two.near("f"), "some").expect("ours");
    let words = "block daddr dport; $cp --json --fallback never f far:g";
    let Some(output) = behind_a_firewall(&mut two.command(&[]), words) else {
        return;
    };
    let object = object_of(&output);
    assert_eq!(output.status.code(), Some(16), "{object}");
    assert_eq!(object["exit"]["code"], 16);
    assert!(!two.far("g").exists());
}

#[test]
fn a_copy_goes_on_through_ssh_when_udp_is_blocked_meanwhile() {
    let two = Two::at(HOST, "");
    fs::write(two.near("f"), vec![7; 60_000_000]).expect("ours");
    // Its rate keeps it from being over before something has arrived.
    let words = format!(
        "$cp --json --idle 5s --max-rate 20MB f far:g > copied & \
         until [ \"$(cat {far}/.*-part 2>/dev/null | head -c 8000000 | wc -c)\" = 8000000 ]; do sleep .05; done; \
         block daddr dport; block saddr sport; wait $!; cat copied",
        far = two.far.path().display()
    );
    let Some(output) = behind_a_firewall(&mut two.command(&[]), &words) else {
        return;
    };
    let object = object_of(&output);
    assert_eq!(output.status.code(), Some(0), "{object}");
    same(&two.near("f"), &two.far("g"));
    assert_eq!(object["path"], "ssh");
    let warning = object["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.contains("no longer"), "{warning}");
}

#[test]
fn a_copy_that_is_to_try_again_has_ssh_start_the_far_end_anew_and_asks_nothing() {
    // The second time there is no network.
    let two = Two::new(
        "place=${0%/*}; echo $$ >> $place/pids\n\
         [ $(wc -l < $place/pids) -ne 2 ] || { echo 'no route to host' >&2; exit 255; }",
    );
    fs::write(two.near("f"), vec![7; 12_000_000]).expect("ours");
    let flags = ["--retry", "--json-stream", "--idle=2s", "--max-rate=40Mbit"];
    let mut copy = two
        .command(&[&["cp"][..], &flags, &["f", "me@far:to/"]].concat())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(copy.stdout.take().expect("piped")).lines();
    let mut event = |kind: &str, is: &dyn Fn(&Value) -> bool| loop {
        let line = lines.next().expect("another event").expect("text");
        let event: Value = serde_json::from_str(&line).expect("an object");
        if event["type"] == kind && is(&event) {
            return event;
        }
    };
    event("progress", &|e| e["bytes_done"].as_u64() > Some(2_000_000));
    let pid = fs::read_to_string(two.near("pids")).expect("written");
    let killed = Command::new("kill").args(["-9", pid.trim()]).status();
    assert!(killed.expect("kill exists").success());
    for (attempt, code) in [(2, 17), (3, 12)] {
        let retry = event("retry", &|_| true);
        let said = (&retry["attempt"], &retry["exit"]["code"]);
        assert_eq!(said, (&attempt.into(), &code.into()), "{retry}");
    }
    let end = event("summary", &|_| true);
    assert_eq!(end["ok"], true, "{end}");
    assert_eq!(end["attempts"], 3, "{end}");
    assert!(copy.wait().expect("our own child").success());
    same(&two.near("f"), &two.far("to/f"));
    let flags = fs::read_to_string(two.near("flags")).expect("ssh has seen some");
    assert!(flags.contains("-o BatchMode=yes"), "{flags}");
}

#[test]
fn the_doctor_visits_hosts_of_ssh_and_lists_are_of_them_too() {
    let two = Two::new("");
    fs::write(two.far("f"), "some").expect("ours");
    let doctor = ["doctor", "me@somewhere:", "-t", "200ms", "--json"];
    let output = two.command(&doctor).output().expect("it starts");
    let seen = object_of(&output);
    assert_eq!(output.status.code(), Some(0), "{seen}");
    assert_eq!(seen["path"]["sealed"], true, "{seen}");
    assert_eq!(seen["path"]["carrier"], "udp");
    assert!(seen["path"]["download"].is_object(), "{seen}");
    let flags = ["-F", "config", "-o", "Port=7"];
    let ls = [&["ls", "--json"][..], &flags, &["me@somewhere:."]].concat();
    let output = two.command(&ls).output().expect("it starts");
    let listed = object_of(&output);
    assert_eq!(listed["entries"][0]["path"], "f", "{listed}");
    let said = fs::read_to_string(two.near("flags")).expect("it was called");
    assert!(said.contains("-F config\n-o Port=7"), "{said}");
}

#[test]
fn the_doctor_says_in_which_direction_udp_is_blocked_and_what_goes_around() {
    let two = Two::at(HOST, "");
    let mut like = two.command(&[]);
    let words = "block daddr dport; $farhaul doctor --udp-timeout 1s --json somewhere:";
    let Some(output) = behind_a_firewall(&mut like, words) else {
        return;
    };
    let seen = object_of(&output);
    assert_eq!(output.status.code(), Some(0), "{seen}");
    assert_eq!(seen["path"]["carrier"], "ssh", "{seen}");
    let found = seen["findings"].to_string();
    assert!(
        found.contains("UDP from here to there is blocked"),
        "{found}"
    );
}
