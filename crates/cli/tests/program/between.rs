//! `farhaul cp a:x b:y` copies from one host to another, neither of them this one. A script in
//! ssh's place runs the far commands as login shells of other homes, in network namespaces of their
//! own where hosts must differ.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use super::kit::{Served, command, environment, run, side_by_side, stdout_of};

/// Homes of this machine and of two others, and an ssh between them.
struct Three {
    place: tempfile::TempDir,
    ssh: PathBuf,
}

impl Three {
    fn new() -> Self {
        Self::with("", |_| "127.0.0.1".into())
    }

    /// Makes three hosts; before a far command the script does `before`, in which `$host` is the
    /// host's name.
    fn with(before: &str, address: fn(&str) -> String) -> Self {
        let place = tempfile::tempdir().expect("a temporary folder");
        let at = place.path().display();
        for home in ["near", "a", "b"] {
            fs::create_dir(place.path().join(home)).expect("ours");
        }
        let ssh = place.path().join("ssh");
        let (a, b) = (address("a"), address("b"));
        let script = format!(
            "#!/bin/sh\n\
             while :; do case \"$1\" in -F|-i|-o) shift 2;; -4|-6) shift;; -G) asked=yes; shift;; *) break;; esac; done\n\
             [ \"$1\" = -- ] || exit 255; host=${{2#*@}}\n\
             case $host in a) address={a};; b) address={b};; *) echo \"no host $host\" >&2; exit 255;; esac\n\
             if [ \"$asked\" ]; then echo hostname $address; exit 0; fi\n\
             in=\n\
             {before}\n\
             cd {at}/$host && exec $in env -i HOME={at}/$host PATH='{path}' \
             SSH_CONNECTION=\"$address 5 $address 22\" sh -c \"$3\"\n",
            path = environment::path(place.path()).display(),
        );
        fs::write(&ssh, script).expect("ours");
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("ours");
        Self { place, ssh }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(&self.at("near"), &[&["cp"], args].concat());
        command
            .env("FARHAUL_SSH", &self.ssh)
            .env("FARHAUL_REMOTE_BIN", env!("CARGO_BIN_EXE_farhaul"));
        command
    }

    fn cp(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// A copy that ends with `code`; what it printed for people.
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

fn objects(output: &Output) -> Vec<Value> {
    let objects = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    objects.collect::<Result<_, _>>().expect("objects")
}

#[test]
fn files_go_from_one_host_to_another() {
    let three = Three::new();
    fs::create_dir_all(three.at("a/d/e")).expect("ours");
    fs::write(three.at("a/f"), vec![7; 5_000_000]).expect("ours");
    fs::write(three.at("a/d/e/g 'quoted' $HOME"), "odd").expect("ours");
    fs::write(three.at("a/-"), "dash").expect("ours");
    fs::write(three.at("a/d/x.tmp"), "excluded").expect("ours");
    let printed = three.copy(
        &[
            "--exclude",
            "*.tmp",
            "me@a:f",
            "me@a:d",
            "me@a:-",
            "you@b:new/place/",
        ],
        0,
    );
    assert!(printed.contains("path: direct"), "{printed}");
    same(&three.at("a/f"), &three.at("b/new/place/f"));
    same(&three.at("a/-"), &three.at("b/new/place/-"));
    same(
        &three.at("a/d/e/g 'quoted' $HOME"),
        &three.at("b/new/place/d/e/g 'quoted' $HOME"),
    );
    assert!(!three.at("b/new/place/d/x.tmp").exists());
    // A mirror, to be looked at first: existing files that are not at the source would be deleted.
    fs::write(three.at("b/new/place/d/old"), "x").expect("ours");
    let dry = three.cp(&["-n", "--delete", "a:d/", "b:new/place/d"]);
    let listed = String::from_utf8(dry.stdout).expect("text");
    assert!(
        listed
            .lines()
            .any(|l| l.starts_with("delete") && l.ends_with("old")),
        "{listed}"
    );
    assert!(three.at("b/new/place/d/old").exists());
    let output = three.cp(&["--json", "--delete", "a:d/", "b:new/place/d"]);
    let [object] = &objects(&output)[..] else {
        panic!("one object: {output:?}")
    };
    assert_eq!(
        (&object["ok"], &object["path"]),
        (&true.into(), &"direct".into())
    );
    assert_eq!(
        (&object["files"]["deleted"], output.status.code()),
        (&1.into(), Some(0))
    );
    assert!(!three.at("b/new/place/d/old").exists());
    // All of a home, and nothing left of keys.
    three.copy(&["a:", "b:all"], 0);
    same(&three.at("a/f"), &three.at("b/all/f"));
    assert!(!three.at("near/config").exists());
}

#[test]
fn events_are_passed_on_and_the_last_is_the_summary() {
    let three = Three::new();
    fs::write(three.at("a/f"), vec![7; 5_000_000]).expect("ours");
    let output = three.cp(&["--json-stream", "a:f", "b:"]);
    let events = objects(&output);
    let kinds: Vec<_> = events
        .iter()
        .map(|e| e["type"].as_str().unwrap_or(""))
        .collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&"start"), Some(&"summary"))
    );
    assert_eq!(kinds.iter().filter(|k| **k == "summary").count(), 1);
    let last = events.last().expect("some");
    assert_eq!(
        (&last["ok"], &last["bytes_payload"]),
        (&true.into(), &5_000_000.into())
    );
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_copy_that_fails_there_fails_here_with_its_code() {
    let three = Three::new();
    fs::write(three.at("a/f"), "some").expect("ours");
    let printed = three.copy(&["a:none", "b:"], 3);
    assert!(
        printed.contains("a: ") && printed.contains("none"),
        "{printed}"
    );
    let output = three.cp(&["--json", "a:none", "b:"]);
    let [object] = &objects(&output)[..] else {
        panic!("one object: {output:?}")
    };
    assert_eq!(
        (&object["exit"]["code"], output.status.code()),
        (&3.into(), Some(3))
    );
    let printed = three.copy(&["a:f", "a:none", "b:"], 5);
    assert!(printed.contains("none"), "{printed}");
    same(&three.at("a/f"), &three.at("b/f"));
    three.copy(&["a:f", "b:/proc/none/x"], 4);
    for (args, code, why) in [
        (&["a:f", "c:"][..], 12, "no host c"),
        (&["c:f", "b:"], 12, "no host c"),
        (&["a:f", "b:f", "b:"], 2, "different servers"),
        (&["f", "a:f", "b:"], 2, "each machine a command"),
        (&["host::share/f", "b:"], 2, "copy to this machine first"),
        (&["a:f", "host::share/f"], 2, "farhaul ticket new"),
        (&["--files-from", "x", "a:f", "b:"], 2, "--files-from"),
        (&["--name", "x", "a:f", "b:"], 2, "--name"),
        (&["--exclude", "[", "a:f", "b:"], 2, "has a ["),
        (&["--delete", "a:f", "b:"], 2, "needs a folder"),
    ] {
        let printed = three.copy(args, code);
        assert!(printed.contains(why), "{args:?}: {printed}");
    }
    let many: Vec<_> = (0..3_000)
        .map(|n| format!("a:some/long/name/{n}"))
        .collect();
    let mut many: Vec<_> = many.iter().map(String::as_str).collect();
    many.push("b:");
    let printed = three.copy(&many, 2);
    assert!(printed.contains("copy in parts"), "{printed}");
}

#[test]
fn an_older_farhaul_there_is_called_one() {
    let three = Three::new();
    let old = three.at("old");
    fs::write(
        &old,
        "#!/bin/sh\necho \"error: unrecognized subcommand '$1'\" >&2; exit 2\n",
    )
    .expect("ours");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).expect("ours");
    let output = three
        .command(&["a:f", "b:"])
        .env("FARHAUL_REMOTE_BIN", &old)
        .output()
        .expect("it starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(14), "{printed}");
    assert!(printed.contains("install the same version"), "{printed}");
}

#[test]
fn a_ticket_is_handed_over() {
    let three = Three::new();
    fs::write(three.at("a/f"), vec![3; 300_000]).expect("ours");
    fs::create_dir(three.at("in")).expect("ours");
    let near = three.at("near");
    run(&near, &["key", "gen", "--out", "server.key"]);
    let config = format!(
        "identity = '{at}/server.key'\ntickets = '{at}/tickets.json'\nlisten = '127.0.0.1:0'\n\
         [[share]]\nname = 'in'\npath = '{}'\nmode = 'rw'\nallow = ['ticket']\n",
        three.at("in").display(),
        at = near.display()
    );
    fs::write(near.join("serve.toml"), config).expect("ours");
    let server = Served::start(&near, &["serve", "--config", "serve.toml"]);
    let made = [
        "ticket",
        "new",
        "--config",
        "serve.toml",
        "--share",
        "in",
        "--mode",
        "rw",
        "--address",
        &server.1,
    ];
    let ticket = stdout_of(&near, &made, 0);
    fs::write(near.join("ticket"), &ticket).expect("ours");
    let printed = three.copy(&["--ticket-file", "ticket", "a:f", "ticket:"], 0);
    assert!(printed.contains("path: direct"), "{printed} {ticket}");
    same(&three.at("a/f"), &three.at("in/f"));
}

#[test]
fn a_copy_ends_with_the_machine_that_ordered_it() {
    for signal in ["INT", "KILL"] {
        let three = Three::new();
        fs::write(three.at("a/f"), vec![7; 60_000_000]).expect("ours");
        let mut copying = three
            .command(&["--max-rate", "10MB", "a:f", "b:g"])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        let pid = copying.id();
        // Something has arrived; then both far ends are gone, which hold their folders.
        let at = three.place.path().display();
        let script = format!(
            "until [ -s {at}/b/.g*-part ]; do sleep .05; done; kill -{signal} {pid}; \
             while grep -qs -e HOME={at}/a -e HOME={at}/b /proc/[0-9]*/environ; do sleep .05; done"
        );
        let watched = Command::new("sh").args(["-c", &script]).status();
        assert!(watched.expect("sh").success());
        let ended = copying.wait().expect("our child");
        if signal == "INT" {
            assert_eq!(ended.code(), Some(130));
        }
        assert!(!three.at("b/g").exists());
        let printed = three.copy(&["a:f", "b:g"], 0);
        same(&three.at("a/f"), &three.at("b/g"));
        let again = three.cp(&["--json", "a:f", "b:g"]);
        assert_eq!(objects(&again)[0]["bytes_payload"], 0, "{printed}");
    }
}

/// Runs the shell's `words` on a host that is joined with those of `a` and `b`; all of them are
/// this machine. `$cp` copies, and `block` has b drop UDP from and to $1. Where that cannot be, it
/// says why.
fn on_three_hosts(three: &Three, words: &str) -> Option<Output> {
    let possible = Command::new("unshare")
        .args(["-n", "nft", "list", "ruleset"])
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        println!("skipped: needs root, unshare and nft (nftables)");
        return None;
    }
    let script = format!(
        "set -e; mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns\n\
         ip link set lo up; ip link add name br0 type bridge; ip addr add 10.9.0.1/24 dev br0; ip link set br0 up\n\
         for host in a b; do ip netns add $host\n\
         ip link add name to_$host type veth peer name eth0 netns $host; ip link set dev to_$host master br0 up\n\
         ip -n $host link set dev lo up; ip -n $host link set dev eth0 up; done\n\
         ip -n a addr add 10.9.0.2/24 dev eth0; ip -n b addr add 10.9.0.3/24 dev eth0\n\
         in_b() {{ ip netns exec b \"$@\"; }}\n\
         in_b nft add table inet t; in_b nft add chain inet t i '{{ type filter hook input priority 0; }}'\n\
         in_b nft add chain inet t o '{{ type filter hook output priority 0; }}'\n\
         block() {{ in_b nft add rule inet t i ip saddr $1 udp dport 17992-18055 drop\n\
         in_b nft add rule inet t o ip daddr $1 udp sport 17992-18055 drop; }}\n\
         a=10.9.0.2; near=10.9.0.1; cp='{program} cp'\n{words}",
        program = env!("CARGO_BIN_EXE_farhaul"),
    );
    let mut command = environment::command("unshare", &three.at("near"));
    command.args(["-n", "-m", "sh", "-c", &script]);
    for (name, value) in three.command(&[]).get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    Some(command.output().expect("it was possible"))
}

/// Three hosts; `before` is done at each command that ssh starts.
fn three_hosts() -> Three {
    let address = |host: &str| format!("10.9.0.{}", if host == "a" { 2 } else { 3 });
    Three::with("in=\"ip netns exec $host\"", address)
}

#[test]
fn what_is_sent_directly_is_not_carried_by_this_machine() {
    let three = three_hosts();
    fs::write(three.at("a/f"), vec![7; 30_000_000]).expect("ours");
    let words = "$cp --json a:f b:g; ip -j -s link show br0";
    let Some(output) = on_three_hosts(&three, words) else {
        return;
    };
    let [object, link] = &objects(&output)[..] else {
        panic!("two objects: {output:?}")
    };
    assert_eq!(object["ok"], true, "{object}");
    assert_eq!(object["path"], "direct");
    same(&three.at("a/f"), &three.at("b/g"));
    // What the bridge passes on is not received by its own host.
    let received = link[0]["stats64"]["rx"]["bytes"]
        .as_u64()
        .expect("a number");
    assert!(received < 1_000_000, "{received}");
}

#[test]
fn where_udp_is_blocked_between_them_this_machine_relays() {
    // By UDP from here, or by ssh where that is blocked, too.
    // As long as is waited for by default, and shorter.
    let cases = [
        ("block $a", true, ""),
        ("block $a; block $near", false, "--udp-timeout 1s"),
    ];
    side_by_side(&cases, |&(blocks, by_udp, wait)| {
        let three = three_hosts();
        fs::write(three.at("a/f"), vec![7; 30_000_000]).expect("ours");
        let words = format!(
            "{blocks}; $cp {wait} --json a:f b:g; ip -j -s link show br0; $cp --udp-timeout 0 a:f b:h"
        );
        let Some(output) = on_three_hosts(&three, &words) else {
            return;
        };
        let printed = String::from_utf8_lossy(&output.stderr);
        let [object, link] = &objects(&output)[..] else {
            panic!("two objects: {output:?}")
        };
        assert_eq!(object["ok"], true, "{object}");
        assert_eq!(object["path"], "relayed");
        let warning = object["warnings"][0].as_str().unwrap_or_default();
        assert!(
            warning.contains("from a to b does not get through"),
            "{warning}"
        );
        same(&three.at("a/f"), &three.at("b/g"));
        let sent = link[0]["stats64"]["tx"]["bytes"]
            .as_u64()
            .expect("a number");
        assert_eq!(sent > 30_000_000, by_udp, "{sent}");
        same(&three.at("a/f"), &three.at("b/h"));
        assert!(printed.contains("path: relayed"), "{printed}");
        assert!(!printed.contains("killed"), "{printed}");
    });
}

#[test]
fn a_copy_that_is_not_to_be_relayed_fails() {
    let three = three_hosts();
    fs::write(three.at("a/f"), "some").expect("ours");
    let Some(output) = on_three_hosts(&three, "block $a; $cp --fallback never --json a:f b:g")
    else {
        return;
    };
    assert_eq!(output.status.code(), Some(16), "{output:?}");
    assert_eq!(objects(&output)[0]["exit"]["code"], 16);
    assert!(!three.at("b/g").exists());
}

#[test]
fn a_copy_is_relayed_from_where_udp_is_blocked_meanwhile() {
    let three = three_hosts();
    fs::write(three.at("a/f"), vec![7; 60_000_000]).expect("ours");
    let words = format!(
        "$cp --idle 5s --max-rate 20MB --json a:f b:g > copied & \
         until [ \"$(cat {}/.*-part 2>/dev/null | head -c 8000000 | wc -c)\" = 8000000 ]; do sleep .05; done; \
         block $a; wait $!; cat copied",
        three.at("b").display()
    );
    let Some(output) = on_three_hosts(&three, &words) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let object = &objects(&output)[0];
    same(&three.at("a/f"), &three.at("b/g"));
    assert_eq!(object["path"], "relayed");
    let warning = object["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.contains("no longer"), "{warning}");
}

#[test]
fn an_address_that_means_another_host_there_is_not_the_end() {
    // As where ssh here goes through a port of this machine: the same address is that of a server on a.
    let three = Three::with("in=\"ip netns exec $host\"", |host| match host {
        "a" => "10.9.0.2".into(),
        _ => "127.0.0.1".into(),
    });
    fs::write(three.at("a/f"), vec![7; 3_000_000]).expect("ours");
    let words = format!(
        "ip netns exec a {} serve --allow any --share x=/tmp:ro --listen 127.0.0.1:17992 2> served & \
         until grep -qs listening served; do sleep .05; done; $cp --json a:f b:g; kill $!",
        env!("CARGO_BIN_EXE_farhaul")
    );
    let Some(output) = on_three_hosts(&three, &words) else {
        return;
    };
    let object = &objects(&output)[0];
    assert_eq!(object["ok"], true, "{object}");
    assert_eq!(object["path"], "relayed");
    same(&three.at("a/f"), &three.at("b/g"));
}

#[test]
fn a_copy_that_is_relayed_ends_with_an_interrupt() {
    side_by_side(&["block $a", "block $a; block $near"], |blocks| {
        let three = three_hosts();
        fs::write(three.at("a/f"), vec![7; 60_000_000]).expect("ours");
        let at = three.place.path().display();
        let words = format!(
            "{blocks}; $cp --udp-timeout 1s --max-rate 10MB --json a:f b:g & \
             until [ -s {at}/b/.g*-part ]; do sleep .05; done; kill -TERM $!; wait $! || echo $? >&2; \
             while grep -qs -e HOME={at}/a -e HOME={at}/b /proc/[0-9]*/environ; do sleep .05; done"
        );
        let Some(output) = on_three_hosts(&three, &words) else {
            return;
        };
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.ends_with("143\n"), "{printed}");
        assert_eq!(objects(&output)[0]["exit"]["code"], 143, "{output:?}");
        assert!(!three.at("b/g").exists());
    });
}
