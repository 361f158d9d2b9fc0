//! Does the doctor find what is there? Real processes in a folder of their own.

use std::fs;

use super::kit::{Served, object, stdout_of};

#[test]
fn the_doctor_visits_servers_of_files_and_of_benches() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let listen = ["--listen", "127.0.0.1:0"];
    let files = [&["serve", "--share", "s=.", "--allow", "any"][..], &listen].concat();
    let bench = [&["bench", "serve"][..], &listen].concat();
    for args in [files, bench] {
        let server = Served::start(place, &args);
        let seen = object(place, &["doctor", &server.1, "--json"], 0);
        let path = &seen["path"];
        assert_eq!(path["sealed"], true);
        let mtu = path["path_mtu_bytes"].as_u64().expect("a number");
        assert!((1_228..=65_535).contains(&mtu), "{mtu}");
        assert!(path["rtt_ms"]["min"].as_f64().is_some_and(|ms| ms > 0.0));
        let samples = path["rtt_ms"]["samples"].as_u64();
        assert!(
            samples.is_some_and(|n| (1..=60).contains(&n)),
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
        let text = stdout_of(place, &["doctor", &server.1], 0);
        assert!(text.contains(&format!("known: {key}")), "{text}");
        let other = stdout_of(place, &["key", "gen", "--out", "other", "--force"], 0);
        stdout_of(place, &["key", "trust", &server.1, other.trim()], 0);
        let text = stdout_of(place, &["doctor", &server.1], 0);
        assert!(text.contains("NOT the one that was accepted"), "{text}");
    }
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
        assert_eq!(seen["disk"], serde_json::Value::Null);
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
        let seen = object(place, &["doctor", &typed, "--json"], 0);
        assert_eq!(seen["path"]["address"].as_str(), Some(&*server.1));
    }
    let refused = object(place, &["doctor", "me@host:dir", "--json"], 2);
    assert!(
        refused["error"]
            .as_str()
            .is_some_and(|e| e.contains("through ssh"))
    );
}
