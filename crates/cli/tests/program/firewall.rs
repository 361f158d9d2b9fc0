//! Copies where a firewall drops datagrams: commands in a network of their own, with nftables.

use std::process::{Command, Output};

use serde_json::Value;

use super::kit::environment;

/// An address of a host that is this one, to which rules of a firewall can apply without those of the loopback device.
pub(crate) const HOST: &str = "10.9.9.1";

/// Runs the shell's `words` in the folder and the environment of `like`. Nothing else has a network
/// there, and rules of a firewall can be made. `block` drops UDP from or to [`HOST`], `$cp` copies,
/// and `$farhaul` is the program. Where that cannot be, it says why.
pub(crate) fn behind_a_firewall(like: &mut Command, words: &str) -> Option<Output> {
    let possible = Command::new("unshare")
        .args(["-n", "nft", "list", "ruleset"])
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        println!("skipped: needs root, unshare and nft (nftables)");
        return None;
    }
    let script = format!(
        "set -e; ip link set lo up; ip addr add {HOST}/32 dev lo\n\
         nft add table inet t; nft add chain inet t i '{{ type filter hook input priority 0; }}'\n\
         block() {{ nft add rule inet t i ip $1 {HOST} udp $2 17992-18055 drop; }}\n\
         farhaul={program}; cp='{program} cp'\n{words}",
        program = env!("CARGO_BIN_EXE_farhaul"),
    );
    let place = like.get_current_dir().expect("all have one");
    let mut command = environment::command("unshare", place);
    command.args(["-n", "sh", "-c", &script]);
    for (name, value) in like.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    Some(command.output().expect("it was possible"))
}

/// The objects that it printed, one after the other.
pub(crate) fn objects_of(output: &Output) -> Vec<Value> {
    let objects = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let printed = String::from_utf8_lossy(&output.stderr);
    let objects: Result<_, _> = objects.collect();
    objects.unwrap_or_else(|e| panic!("{e}: {printed}"))
}

/// The only object of the output.
pub(crate) fn object_of(output: &Output) -> Value {
    let mut objects = objects_of(output);
    assert_eq!(objects.len(), 1, "{output:?}");
    objects.remove(0)
}
