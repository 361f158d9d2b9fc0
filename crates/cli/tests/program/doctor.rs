//! Findings of the doctor: real processes in a folder of their own.

use std::fs;

use serde_json::Value;

use super::{
    kit::{Served, command, memory, object, run, side_by_side, stdout_of},
    port::free_port,
};

#[test]
fn the_doctor_visits_servers_of_files_and_of_benches() {
    let listen = ["--listen", "127.0.0.1:0"];
    let files = [&["serve", "--share", "s=.", "--allow", "any"][..], &listen].concat();
    let bench = [&["bench", "serve"][..], &listen].concat();
    side_by_side(&[files, bench], |args| {
        let place = tempfile::tempdir().expect("a temporary folder");
        let place = place.path();
        let server = Served::start(place, args);
        if args[0] == "serve" {
            let refused = object(place, &["bench", &server.1, "-t", "1", "--json"], 2);
            let said = refused["error"].as_str().expect("a reason");
            assert!(said.contains("farhaul doctor HOST"), "{said}");
        }
        let seen = object(place, &["doctor", &server.1, "-t", "0", "--json"], 0);
        let path = &seen["path"];
        assert_eq!(path["sealed"], true);
        let mtu = path["path_mtu_bytes"].as_u64().expect("a number");
        assert!((1_228..=65_535).contains(&mtu), "{mtu}");
        assert!(path["rtt_ms"]["min"].as_f64().is_some_and(|ms| ms > 0.0));
        let samples = path["rtt_ms"]["samples"].as_u64();
        assert!(
            samples.is_some_and(|n| (1..=40).contains(&n)),
            "{samples:?}"
        );
        let jitter = path["jitter_ms"].as_f64().expect("a number");
        let [p95, max] = ["p95", "max"].map(|k| path["rtt_ms"][k].as_f64().expect("a number"));
        assert!(jitter < p95 && p95 <= max, "{jitter} {p95} {max}");
        assert!(
            path["key"]
                .as_str()
                .is_some_and(|k| k.starts_with("fh-pub1"))
        );
        assert!(path["offloads"]["gso"].is_boolean());
        // A key that was accepted is known, another one is not let pass in silence.
        let key = path["key"].as_str().expect("a key").to_string();
        stdout_of(place, &["key", "trust", &server.1, &key], 0);
        let text = stdout_of(place, &["doctor", &server.1, "-t", "0"], 0);
        assert!(text.contains(&format!("known: {key}")), "{text}");
        let other = stdout_of(place, &["key", "gen", "--out", "other", "--force"], 0);
        stdout_of(place, &["key", "trust", &server.1, other.trim()], 0);
        let stranger = run(place, &["doctor", &server.1, "-t", "0"]);
        let text = String::from_utf8(stranger.stdout).expect("text");
        assert_eq!(stranger.status.code(), Some(15), "{text}");
        assert!(text.contains("BAD  server's key"), "{text}");
        let told = String::from_utf8(stranger.stderr).expect("text");
        assert!(told.contains("the lines that begin with BAD"), "{told}");
        assert!(!told.contains("another key"), "said above: {told}");
        assert!(
            text.contains("another key than the one that you trusted"),
            "{text}"
        );
        assert!(!text.contains(&key), "nothing to be pasted unread: {text}");
        // A key is known under the name that was typed, as for cp, not under what the name leads to.
        let port = server.1.rsplit_once(':').expect("a port").1;
        let by_name = format!("localhost:{port}");
        stdout_of(place, &["key", "trust", &server.1, &key], 0);
        stdout_of(place, &["key", "trust", &by_name, other.trim()], 0);
        object(place, &["doctor", &server.1, "-t", "0", "--json"], 0);
        let seen = object(place, &["doctor", &by_name, "-t", "0", "--json"], 15);
        assert_eq!(seen["exit"]["name"], "auth");
    });
}

#[test]
fn a_disk_is_measured_and_what_is_none_is_named() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    fs::create_dir(place.join("d")).expect("a folder");
    let seen = object(place, &["doctor", "--disk", "d", "--json"], 0);
    for of in ["write_bits_per_second", "read_bits_per_second", "bytes"] {
        assert!(seen["disk"][of].as_u64().is_some_and(|n| n > 0), "{seen}");
    }
    assert_eq!(
        fs::read_dir(place.join("d")).expect("it is there").count(),
        0
    );
    for odd in ["none", "/dev/null"] {
        let seen = object(place, &["doctor", "--disk", odd, "--json"], 4);
        assert_eq!(seen["disk"], Value::Null);
        let error = seen["error"].as_str().unwrap_or_default();
        assert!(
            error.contains(odd) && error.contains("name a folder"),
            "{error}"
        );
        assert_eq!(seen["schema"], "farhaul.doctor/1");
    }
}

#[test]
fn kernel_settings_are_written_to_a_file_of_ours_and_to_no_other() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let seen = object(place, &["doctor", "--fix-sysctl=our.conf", "--json"], 0);
    let settings = seen["settings"].as_array().expect("a list");
    let low = settings
        .iter()
        .any(|s| s["now"].as_u64() < s["value"].as_u64() && !s["now"].is_null());
    // Where nothing is too low, nothing is written.
    assert_eq!(place.join("our.conf").exists(), low);
    assert_eq!(seen["settings_file"].as_str(), low.then_some("our.conf"));
    if !low {
        println!("skipped: the settings of this machine are high enough");
        return;
    }
    let written = fs::read_to_string(place.join("our.conf")).expect("it is there");
    for setting in settings {
        let key = setting["key"].as_str().expect("a key");
        let line = format!("{key} = {}", setting["value"]);
        assert!(written.lines().any(|l| l == line), "{written}");
    }
    fs::write(place.join("other.conf"), "# mine\n").expect("a file");
    for (file, error) in [
        ("other.conf", "not written by farhaul"),
        ("none/x.conf", "none/x.conf"),
    ] {
        let flag = format!("--fix-sysctl={file}");
        let seen = object(place, &["doctor", &flag, "--json"], 4);
        assert!(
            seen["error"].as_str().is_some_and(|e| e.contains(error)),
            "{seen}"
        );
    }
    assert_eq!(
        fs::read_to_string(place.join("other.conf")).expect("kept"),
        "# mine\n"
    );
    let text = stdout_of(place, &["doctor"], 0);
    assert!(text.contains("--fix-sysctl"), "{text}");
}

#[test]
fn a_server_is_named_as_for_cp() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let args = [
        "serve",
        "--share",
        "s=.",
        "--allow",
        "any",
        "--listen",
        "127.0.0.1:0",
    ];
    let server = Served::start(place, &args);
    for typed in [
        format!("{}::s/folder", server.1),
        format!("farhaul://{}/s", server.1),
    ] {
        let seen = object(place, &["doctor", &typed, "-t", "0", "--json"], 0);
        assert_eq!(seen["path"]["address"].as_str(), Some(&*server.1));
    }
    let unreached = ["doctor", "me@nowhere.invalid:dir", "--json"];
    let failed = object(place, &unreached, 12);
    let said = failed["error"].as_str();
    assert!(said.is_some_and(|e| e.contains("ssh")), "{failed}");
}

/// Checks the measured rate of a path in this machine: some, with nothing lost or little.
fn is_measured(way: &Value) {
    let goodput = way["goodput_bits_per_second"].as_f64();
    assert!(goodput.is_some_and(|bps| bps > 1e5), "{way}");
    let loss = way["loss_ratio"].as_f64();
    assert!(
        loss.is_some_and(|ratio| (0.0..0.9).contains(&ratio)),
        "{way}"
    );
    assert!(way["packets_sent"].as_u64().is_some_and(|n| n > 3), "{way}");
    assert!(way["limited_by"].is_object(), "{way}");
}

#[test]
fn capacity_is_measured_both_ways_against_either_server() {
    let listen = ["--listen", "127.0.0.1:0"];
    let files = [&["serve", "--share", "s=.", "--allow", "any"][..], &listen].concat();
    let bench = [&["bench", "serve"][..], &listen].concat();
    side_by_side(&[files, bench], |args| {
        let place = tempfile::tempdir().expect("a temporary folder");
        let place = place.path();
        let server = Served::start(place, args);
        let probe = ["doctor", &server.1, "-t", "0.3", "--json"];
        let path = object(place, &probe, 0)["path"].clone();
        for way in ["upload", "download"] {
            is_measured(&path[way]);
        }
        assert!(path["upload"]["seconds"].as_f64().is_some_and(|s| s > 0.0));
        let without = object(place, &["doctor", &server.1, "-t", "0", "--json"], 0);
        assert_eq!(without["path"]["upload"], Value::Null);
    });
}

#[test]
fn a_probe_is_as_long_and_as_fast_as_the_server_allows() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let serve = [
        "serve",
        "--share",
        "s=.",
        "--allow",
        "any",
        "--listen",
        "127.0.0.1:0",
    ];
    let limited = [&serve[..], &["--max-rate", "40Mbit", "--max-probe", "1s"]].concat();
    let server = Served::start(place, &limited);
    let path = object(place, &["doctor", &server.1, "-t", "30", "--json"], 0)["path"].clone();
    for way in ["upload", "download"] {
        is_measured(&path[way]);
        assert_eq!(path[way]["allowed_bits_per_second"], 40_000_000);
    }
    // No more than the rate allows in the longest session; loopback carries a hundred times as much.
    for way in ["upload", "download"] {
        let bytes = path[way]["wire_bytes"].as_f64().expect("a number");
        assert!(bytes * 8.0 < 40e6 * 10.5, "{way}: {bytes}");
    }
    let off = [&serve[..], &["--max-probe", "0s"]].concat();
    let server = Served::start(place, &off);
    let seen = object(place, &["doctor", &server.1, "--json"], 0);
    let findings = seen["findings"].as_array().expect("a list");
    let why = findings
        .iter()
        .find(|f| f["name"] == "upload")
        .expect("it is told");
    assert_eq!(why["grade"], "fair");
    assert!(
        why["text"]
            .as_str()
            .is_some_and(|t| t.contains("allows no probes")),
        "{why}"
    );
    assert!(
        why["fix"]
            .as_str()
            .is_some_and(|t| t.contains("--max-probe")),
        "{why}"
    );
    for (bad, why) in [("2h", "1min"), ("-1s", "max-probe")] {
        let args = [&serve[..], &["--max-probe", bad]].concat();
        let refused = run(place, &args);
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(2) && text.contains(why),
            "{bad}: {text}"
        );
    }
}

/// Checks that a visitor that only looks has not failed.
fn has_visits(log: &[Value]) {
    for visit in ["doctor", "list"] {
        let found = log.iter().find(|line| line["visit"] == visit);
        let found = found.unwrap_or_else(|| panic!("{visit}: {log:?}"));
        assert_eq!(
            (&found["outcome"], &found["code"]),
            (&"ok".into(), &0.into())
        );
    }
}

#[test]
fn a_probe_is_in_the_servers_log_and_its_file_turns_it_off() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let config =
        "max-probe = \"0s\"\nallow = [\"any\"]\n[[share]]\nname = \"s\"\npath = \"/tmp\"\n";
    fs::write(place.join("serve.toml"), config).expect("a file");
    let listen = ["--listen", "127.0.0.1:0"];
    let off = [&["serve", "--config", "serve.toml"][..], &listen].concat();
    let server = Served::start(place, &off);
    let seen = object(place, &["doctor", &server.1, "--json"], 0);
    assert_eq!(seen["path"]["upload"], Value::Null);
    let log = fs::File::create(place.join("log")).expect("a file");
    let at = format!("127.0.0.1:{}", free_port());
    let on = [
        "serve",
        "--share",
        "s=.",
        "--allow",
        "any",
        "--log-format",
        "json",
        "-v",
        "--listen",
        &at,
    ];
    let mut server = command(place, &on).stderr(log).spawn().expect("it starts");
    // It is retried until the server listens.
    while run(place, &["doctor", &at, "-t", "0"]).status.code() != Some(0) {
        assert_eq!(
            server.try_wait().expect("a child"),
            None,
            "the server goes on"
        );
    }
    object(place, &["doctor", &at, "-t", "0.2", "--json"], 0);
    stdout_of(place, &["ls", "--trust-any", &format!("{at}::")], 0);
    // The server writes the last session's line after its client has ended.
    let mut log = String::new();
    while !(log.contains("\"visit\":\"list\"") && log.ends_with('\n')) {
        assert_eq!(server.try_wait().expect("a child"), None, "{log}");
        log = fs::read_to_string(place.join("log")).expect("a log");
    }
    let _gone = server.kill();
    let _reaped = server.wait();
    let lines = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lines: Vec<Value> = lines.collect();
    has_visits(&lines);
    let probes: Vec<&Value> = lines
        .iter()
        .filter(|line| line["probe"].is_string())
        .collect();
    let of = |event: &str| {
        probes
            .iter()
            .filter(|l| l["event"] == event)
            .collect::<Vec<_>>()
    };
    let asked: Vec<_> = of("request")
        .iter()
        .map(|l| l["direction"].clone())
        .collect();
    assert_eq!(asked, ["put", "get"], "{log}");
    for line in of("session") {
        assert_eq!(line["outcome"], "ok", "{line}");
        assert!(
            line["bytes_wire"].as_u64().is_some_and(|n| n > 10_000),
            "{line}"
        );
    }
}

#[test]
fn the_disk_of_a_share_is_measured_by_the_server() {
    let place = memory::folder().expect("a temporary folder");
    let place = place.path();
    for name in ["in", "out", "here"] {
        fs::create_dir(place.join(name)).expect("a folder");
    }
    let serve = [
        "serve",
        "--share",
        "in=in:create",
        "--share",
        "out=out",
        "--allow",
        "any",
    ];
    let server = Served::start(place, &[&serve[..], &["--listen", "127.0.0.1:0"]].concat());
    let seen = |share: &str, code: i32| {
        let typed = format!("{}::{share}", server.1);
        object(
            place,
            &["doctor", &typed, "-t", "0", "--disk", "here", "--json"],
            code,
        )
    };
    let disk = seen("in", 0)["path"]["disk"].clone();
    for of in ["write_bits_per_second", "read_bits_per_second", "bytes"] {
        assert!(disk[of].as_u64().is_some_and(|n| n > 0), "{disk}");
    }
    assert!(
        disk["bytes"].as_u64().is_some_and(|n| n <= 256 << 20),
        "{disk}"
    );
    assert_eq!(
        fs::read_dir(place.join("in")).expect("it is there").count(),
        0
    );
    for (share, code, name, grade, said) in [
        ("out", 0, "disk there", "fair", "may not be written"),
        ("none", 15, "share", "bad", "unknown or not allowed"),
    ] {
        let seen = seen(share, code);
        assert_eq!(seen["path"]["disk"], Value::Null);
        let findings = seen["findings"].as_array().expect("a list");
        let why = findings.iter().find(|f| f["name"] == name);
        let why = why.expect("it is told");
        assert_eq!(why["grade"], grade);
        let text = why["text"].as_str().unwrap_or_default();
        assert!(text.contains(share) && text.contains(said), "{text}");
    }
}

#[test]
fn a_quota_that_leaves_too_little_to_measure_the_disk_is_named() {
    let place = memory::folder().expect("a temporary folder");
    let place = place.path();
    for name in ["in", "here"] {
        fs::create_dir(place.join(name)).expect("a folder");
    }
    let config = format!(
        "listen = '127.0.0.1:0'\n[[share]]\nname = 'in'\npath = '{}'\nmode = 'create'\n\
         quota = '20MiB'\nallow = 'any'\n",
        place.join("in").display()
    );
    fs::write(place.join("serve.toml"), config).expect("a file");
    let server = Served::start(place, &["serve", "--config", "serve.toml"]);
    let typed = format!("{}::in", server.1);
    let args = ["doctor", &typed, "-t", "0", "--disk", "here", "--json"];
    let seen = object(place, &args, 0);
    let findings = seen["findings"].as_array().expect("a list");
    let told = findings.iter().find(|f| f["name"] == "disk there");
    let told = told.expect("it is told").to_string();
    for words in [
        "20.0 MiB of the share's quota of 20.0 MiB are free, a tenth of which may be written",
        "too little to measure, which takes 8.0 MiB",
        "a higher quota",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}
