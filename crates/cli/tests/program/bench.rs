//! Measures between two ends of this machine as people who know iperf3 type it.

use std::{
    io::{BufRead as _, BufReader, Lines},
    path::Path,
    process::{Child, ChildStderr, Output, Stdio},
};

use serde_json::Value;

use crate::kit::{Served, command, environment, object, run};

/// A server that ends after one client, its address, and what it says from then on.
struct OneOff(Child, String, Lines<BufReader<ChildStderr>>);

impl OneOff {
    fn start(place: &Path, more: &[&str]) -> Self {
        let args = ["bench", "serve", "-1", "--listen", "127.0.0.1:0"];
        let mut server = command(place, &[&args, more].concat())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(server.stderr.take().expect("piped")).lines();
        let first = lines.next().expect("a line").expect("text");
        let at = first.split(' ').nth(3).expect("an address").to_string();
        Self(server, at, lines)
    }

    /// Waits for its end.
    fn said(mut self) -> Vec<String> {
        let rest = self.2.by_ref().map_while(Result::ok).collect();
        assert!(self.0.wait().expect("a child").success());
        rest
    }
}

impl Drop for OneOff {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn a_test_at_a_constant_rate_counts_datagrams_both_ways() {
    let place = tempfile::tempdir().expect("a temporary folder");
    for (way, does) in [(&[][..], "sends"), (&["-R"], "receives")] {
        let server = OneOff::start(place.path(), &[]);
        let args = [
            "bench", "-c", &server.1, "-u", "-b", "40M", "-n", "2M", "--json",
        ];
        let report = object(place.path(), &[&args, way].concat(), 0);
        let datagrams = &report["datagrams"];
        let count = |name: &str| datagrams[name].as_u64().expect("a count");
        assert!(count("sent") >= 2_000_000 / 65_507, "{datagrams}");
        assert!(
            (1..=count("sent")).contains(&count("received")),
            "{datagrams}"
        );
        assert!(datagrams["jitter_ns"].is_u64(), "{datagrams}");
        assert_eq!(
            (&report["cc"], &report["complete"]),
            (&"constant".into(), &true.into())
        );
        let rate = report["goodput_bits_per_second"].as_f64().expect("a rate");
        assert!(rate < 41e6, "{rate}");
        let said = server.said();
        let asked = format!("{does} 2.0 MiB at a constant 40.0 Mbit/s");
        assert!(
            said[0].ends_with(&asked) && said[0].contains(" 127.0.0.1:"),
            "{said:?}"
        );
        assert!(said.len() == 2 && said[1].contains("bit/s"), "{said:?}");
    }
}

#[test]
fn both_directions_run_at_once() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let server = Served::start(place.path(), &["bench", "serve", "--listen", "127.0.0.1:0"]);
    let args = ["bench", &server.1, "--bidir", "-n", "1MB", "--json"];
    let both = object(place.path(), &args, 0);
    assert_eq!(both["schema"], "farhaul.bench.bidir/1");
    for (way, reverse) in [("up", false), ("down", true)] {
        assert_eq!(both[way]["bytes"], 1_000_000, "{way}");
        assert_eq!(both[way]["reverse"], reverse);
    }
    let args = [
        "bench",
        &server.1,
        "-d",
        "-u",
        "-t",
        "0.3",
        "-i",
        "0.1",
        "--json-stream",
    ];
    let output = run(place.path(), &args);
    let events = String::from_utf8(output.stdout).expect("text");
    let events: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for way in ["up", "down"] {
        let of = |kind: &str| {
            events
                .iter()
                .any(|e| e["type"] == kind && e["direction"] == way)
        };
        assert!(of("connected") && of("interval"), "{way}: {events:?}");
    }
    let last = events.last().expect("a summary");
    assert!(
        last["down"]["datagrams"]["sent"].as_u64() > Some(0),
        "{last}"
    );
    // One that fails ends the other.
    let args = ["bench", &server.1, "-d", "-t", "2h", "--json"];
    assert_eq!(object(place.path(), &args, 15)["ok"], false);
}

#[test]
fn the_kernels_tcp_is_a_competitor_under_its_own_law() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let server = OneOff::start(place.path(), &["--tcp"]);
    let at = server.1.clone();
    // The law of this kernel, whatever it is.
    let args = ["bench", "--tcp", &at, "-n", "3MB", "--json"];
    let report = object(place.path(), &args, 0);
    assert_eq!(
        (&report["protocol"], &report["bytes"]),
        (&"tcp".into(), &3_000_000.into())
    );
    let args = [
        "bench", "--tcp", &at, "-C", "reno", "-t", "0.3", "-i", "0.1",
    ];
    let text = run(place.path(), &args);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(
        text.starts_with("kernel TCP, law reno, to 127.0.0.1:"),
        "{text}"
    );
    assert!(
        text.contains("    0.") && text.contains("goodput"),
        "{text}"
    );
    assert!(!text.contains("datagrams of 0"), "{text}");
    let refused = object(
        place.path(),
        &["bench", "--tcp", &at, "-C", "warp", "--json"],
        2,
    );
    let error = refused["error"].as_str().unwrap_or_default();
    assert!(
        error.contains("'warp'") && error.contains("--cc"),
        "{error}"
    );
    object(place.path(), &["bench", &at, "-n", "1MB", "--json"], 0);
    assert!(
        server
            .said()
            .iter()
            .any(|line| line.starts_with("kernel TCP from 127.0.0.1:"))
    );
    // Nobody listens there any more.
    let gone = object(place.path(), &["bench", "--tcp", &at, "--json"], 11);
    let error = gone["error"].as_str().unwrap_or_default();
    assert!(error.contains("bench serve --tcp"), "{error}");
}

#[test]
fn what_a_constant_rate_or_the_kernel_cannot_do_is_refused() {
    let place = tempfile::tempdir().expect("a temporary folder");
    for (args, expected) in [
        (&["-u", "--protocol", "tcp"][..], "omit --protocol"),
        (&["-u", "--cc", "cubic"], "--cc"),
        (&["--tcp", "-R"], "--reverse"),
        (&["--tcp", "-b", "1M"], "--rate"),
        (&["--bidir", "-R"], "--reverse"),
        (&["-u", "-b", "100"], "100M"),
        (&["-u", "-b", "0"], "write -u -b RATE"),
        (&["-u", "-b", "-5"], "-5"),
    ] {
        let output = run(place.path(), &[&["bench", "127.0.0.1:9"], args].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn the_losses_of_a_path_are_found_at_a_constant_rate() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let program = env!("CARGO_BIN_EXE_farhaul");
    let far = format!("{program} bench serve");
    let mut wan = environment::command(program, place.path());
    wan.args([
        "wan",
        "run",
        "--i-know",
        "--rtt",
        "20ms",
        "--rate",
        "100Mbit",
        "--loss",
        "10%",
        "--jitter",
        "1ms,reorder",
    ])
    .args(["--report", "report", "--far", &far, "--", program])
    .args(["bench", "far", "-u", "-b", "20M", "-n", "5MB", "--json"]);
    let output: Output = wan.output().expect("it starts");
    if output.status.code() == Some(11) {
        println!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let count = |name: &str| report["datagrams"][name].as_f64().expect("a count");
    let lost = 1.0 - count("received") / count("sent");
    assert!((0.07..0.13).contains(&lost), "{}", report["datagrams"]);
    assert!(
        count("reordered") > 0.0 && count("jitter_ns") > 100_000.0,
        "{}",
        report["datagrams"]
    );
}

#[test]
fn a_copy_to_a_server_of_benches_names_the_server_that_is_needed() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let server = Served::start(place.path(), &["bench", "serve", "--listen", "127.0.0.1:0"]);
    std::fs::write(place.path().join("f"), "x").expect("a file");
    let there = format!("{}::x/", server.1);
    for args in [
        &["cp", "--trust-any", "--json", "f", &there][..],
        &["ls", "--trust-any", "--json", &there],
    ] {
        let refused = object(place.path(), args, 14);
        let error = refused["error"].as_str().unwrap_or_default();
        assert!(error.contains("farhaul serve"), "{error}");
    }
}

#[test]
fn rbudp_tells_the_rate_of_its_first_blast_and_spins_if_asked() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let bench = |protocol: &str| {
        let server = ["--protocol", protocol, "--listen", "127.0.0.1:0"];
        let server = Served::start(place.path(), &[&["bench", "serve"][..], &server].concat());
        let amount = ["--protocol", protocol, "-n", "100kB", "--json"];
        let args = [&["bench", &server.1][..], &amount].concat();
        object(place.path(), &args, 0)
    };
    // 69 packets in 68 gaps of 11.68 ms, 0.79 s.
    let spent = ["off", "on"].map(|spin| {
        let report = bench(&format!("rbudp:rate=1Mbit,payload=1460,spin={spin}"));
        let rate = report["first_blast_bits_per_second"].as_f64();
        let rate = rate.expect("it has a blast");
        assert!(rate < 1.02e6, "{rate}");
        let seconds = &report["sender"]["cpu_seconds"];
        seconds.as_f64().expect("a time")
    });
    assert!(spent[1] > 2.0 * spent[0], "{spent:?}");
    let other = bench("tcp");
    assert!(other.get("first_blast_bits_per_second").is_none());
}
