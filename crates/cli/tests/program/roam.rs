//! Copies go on where this host gets another address: two hosts, each a network namespace, with a
//! cable between them.

use std::{fs, path::Path, process::Command};

use farhaul_core::rng::Rng;

use super::kit::{command, environment, side_by_side};

/// The far host: what it runs, and the words by which it says that it listens.
const SERVE: &str = "serve --share in=$PWD/in:rw --allow any --listen";
const BENCH: &str = "bench serve --listen";

/// Runs the shell's `words` on a host that has the address `$near` on the device `va`. At the other
/// end of the cable, at `$far`, the program runs `server`. `moved` prints how many bytes have
/// passed. `readdress` gives the host the address `$next` in place of `$near`, after running its
/// arguments between.
fn beside_a_far_host(place: &Path, v6: bool, server: &str, words: &str) -> Option<String> {
    let possible = Command::new("unshare")
        .args(["-n", "ip", "link", "add", "va", "type", "veth"])
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        println!("skipped: needs root, unshare and ip");
        return None;
    }
    let [near, next, far, bits] = if v6 {
        ["fd77::1", "fd77::9", "fd77::2", "64"]
    } else {
        ["10.77.0.1", "10.77.0.9", "10.77.0.2", "24"]
    };
    let at = if v6 { format!("[{far}]") } else { far.into() };
    let dad = if v6 { "nodad" } else { "" };
    let script = format!(
        "set -e; farhaul={program}; near={near}; next={next}; far={at}; mkfifo begin; mkdir in\n\
         unshare -n sh -c \"read _ < begin; exec $farhaul {server} $far:17992\" > /dev/null 2> log & server=$!\n\
         trap 'kill $server $copy 2> /dev/null || true' EXIT\n\
         while [ $(readlink /proc/$server/ns/net) = $(readlink /proc/$$/ns/net) ]; do kill -0 $server; sleep .05; done\n\
         there() {{ nsenter -t $server -n \"$@\"; }}\n\
         ip link add va type veth peer name vb; ip link set vb netns $server; ip link set lo up; there ip link set lo up\n\
         ip addr add $near/{bits} dev va {dad}; there ip addr add {far}/{bits} dev vb {dad}\n\
         ip link set va up; there ip link set vb up; echo > begin\n\
         until grep -qE '17992(/udp| with)' log; do kill -0 $server; sleep .05; done\n\
         moved() {{ ip -s link show va | awk '/RX:|TX:/ {{ getline; n += $1 }} END {{ print n }}'; }}\n\
         readdress() {{ ip addr del $near/{bits} dev va; \"$@\"; ip addr add $next/{bits} dev va {dad}; }}\n\
         {words}",
        program = env!("CARGO_BIN_EXE_farhaul"),
    );
    let like = command(place, &[]);
    let mut host = environment::command("unshare", place);
    host.args(["-n", "sh", "-c", &script]);
    for (name, value) in like.get_envs() {
        host.env(name, value.unwrap_or_default());
    }
    let output = host.output().expect("it was possible");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = fs::read_to_string(place.join("log")).unwrap_or_default();
    assert!(output.status.success(), "{words}: {output:?}\n{log}");
    Some(said)
}

/// A copy that goes on with another address, once a part of it has passed.
fn with_another_address(command: &str, between: &str) -> String {
    format!(
        "{command} > events 2>&1 & copy=$!\n\
         until [ $(moved) -gt 4000000 ]; do kill -0 $copy || {{ cat events; exit 1; }}; sleep .05; done\n\
         readdress {between}\n\
         wait $copy || {{ echo ended with $?; cat events; exit 1; }}"
    )
}

#[test]
fn a_copy_goes_on_from_the_new_address_of_this_host() {
    let put = "$farhaul cp --json-stream --trust-any --max-rate 40Mbit f $far::in/g";
    let get = "$farhaul cp --json-stream --trust-any --max-rate 40Mbit $far::in/f g";
    let lanes = "$farhaul cp -P 3 --json-stream --trust-any --max-rate 40Mbit f $far::in/g";
    let at_once = ":";
    // The copy itself says so after five seconds of silence.
    let silent = "sh -c 'until grep -q silent events; do sleep .05; done'";
    let cases = [
        (put, false, at_once),
        (put, true, at_once),
        (put, false, silent),
        (get, false, at_once),
        (get, true, at_once),
        (get, false, silent),
        (lanes, false, at_once),
    ];
    side_by_side(&cases, |(copy, v6, between)| {
        let place = tempfile::tempdir().expect("a folder");
        let mut content = vec![0; 20_000_000];
        Rng::new(7).fill(&mut content);
        fs::write(place.path().join("f"), &content).expect("ours");
        let words = with_another_address(copy, between);
        let words = format!("cp f in/f\n{words}");
        if beside_a_far_host(place.path(), *v6, SERVE, &words).is_none() {
            return;
        }
        let got = if *copy == get { "g" } else { "in/g" };
        let got = fs::read(place.path().join(got)).expect("it is there");
        assert!(got == content, "{copy}, v6: {v6}");
        let events = fs::read_to_string(place.path().join("events")).expect("written");
        let last = events.lines().last().unwrap_or_default();
        assert!(last.contains("\"path\":\"udp\""), "{last}");
        assert!(last.contains("\"warnings\":[]"), "{last}");
        // It is one session still: a second one would find parts in place.
        assert!(last.contains("\"resumed_bytes\":0"), "{last}");
    });
}

#[test]
fn a_bench_goes_on_from_the_new_address_of_this_host() {
    let bench = "$farhaul bench $far -P 2 -n 20MB --rate 40Mbit --json";
    side_by_side(&[bench.to_string(), format!("{bench} -R")], |bench| {
        let place = tempfile::tempdir().expect("a folder");
        let words = with_another_address(bench, ":");
        if beside_a_far_host(place.path(), false, BENCH, &words).is_none() {
            return;
        }
        let events = fs::read_to_string(place.path().join("events")).expect("written");
        assert!(events.contains("\"bytes\": 20000000"), "{events}");
    });
}

#[test]
fn an_address_that_comes_back_is_used_again() {
    let place = tempfile::tempdir().expect("a folder");
    fs::write(place.path().join("f"), vec![7; 20_000_000]).expect("ours");
    let copy = "$farhaul cp --json-stream --trust-any --max-rate 40Mbit f $far::in/g";
    let silent = "sh -c 'until grep -q silent events; do sleep .05; done'";
    let words = format!("next=$near\n{}", with_another_address(copy, silent));
    if beside_a_far_host(place.path(), false, SERVE, &words).is_none() {
        return;
    }
    let got = fs::read(place.path().join("in/g")).expect("it is there");
    assert!(got == vec![7; 20_000_000]);
}
