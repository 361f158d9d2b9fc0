//! Scenario files do what their page says, and a bad one is refused where it is wrong.

mod environment;

use std::{fs, path::Path, process::Output};

use serde_json::Value;

fn run(args: &[&str]) -> Output {
    farhaul(&[&["sim", "run"], args].concat())
}

fn farhaul(args: &[&str]) -> Output {
    let place = tempfile::tempdir().expect("a folder can be made");
    let mut command = environment::command(env!("CARGO_BIN_EXE_farhaul"), place.path());
    let output = command.args(args).output();
    output.expect("the binary can be started")
}

fn stored(name: &str) -> String {
    let file = format!("../../lab/scenarios/{name}.toml");
    fs::read_to_string(file).expect("the scenario is stored")
}

/// A short form of a stored scenario, in a folder of its own.
fn short(name: &str, from: &str, to: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let path = dir.path().join("scenario.toml");
    let text = stored(name);
    assert!(text.contains(from), "{name} has changed: {from}");
    let text = text.replacen(from, to, 1);
    let text = text.replacen("duration = \"40s\"", "duration = \"2s\"", 1);
    fs::write(&path, text).expect("the file can be written");
    let path = path.to_string_lossy().into_owned();
    (dir, path)
}

/// Lines of the file, the mistake, its place, and words of the complaint.
const MISTAKES: [(&str, &str, &str, &str); 11] = [
    (
        "queue = \"1BDP\"",
        "qeue = \"1BDP\"",
        ":22:1: ",
        "did you mean 'queue'?",
    ),
    (
        "queue = \"1BDP\"",
        "queue = \"0packets\"",
        ":22:9: ",
        "holds no packet",
    ),
    (
        "queue = \"1BDP\"",
        "loss = \"101%\"",
        ":22:8: ",
        "0% to 100%",
    ),
    (
        "delay = \"20ms\"",
        "delay = \"-20ms\"",
        ":21:9: ",
        "must not be negative",
    ),
    ("delay = \"20ms\"", "delay = 20", ":21:9: ", "unit"),
    (
        "law = \"cubic\"",
        "law = \"qubic\"",
        ":26:7: ",
        "did you mean 'cubic'?",
    ),
    (
        "law = \"cubic\"",
        "law = \"cubic:betta=1\"",
        ":26:7: ",
        "did you mean 'beta'?",
    ),
    (
        "law = \"cubic\"",
        "protocol = \"houl\"",
        ":26:12: ",
        "did you mean 'haul'?",
    ),
    (
        "seeds = \"1..5\"",
        "seeds = \"5..1\"",
        ":4:9: ",
        "write 1..5",
    ),
    (
        "from = \"server1\"",
        "from = \"server3\"",
        ":27:8: ",
        "did you mean 'server",
    ),
    (
        "metric = \"utilisation\"",
        "metric = \"utilization\"",
        ":37:10: ",
        "did you mean 'utilisation'?",
    ),
];

#[test]
fn a_mistake_is_refused_with_file_line_and_the_nearest_name() {
    for (from, to, place, expected) in MISTAKES {
        let (_dir, path) = short("two-flows", from, to);
        let output = run(&[&path]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(&format!("{path}{place}")), "{to}: {text}");
        assert!(text.contains(expected), "{to}: {text}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let (_dir, path) = short("two-flows", "40s", "2s");
    let cases: [(&[&str], i32, &str); 6] = [
        (&["nowhere.toml"], 3, "nowhere.toml"),
        (&[&path, "--seed", "9..1"], 2, "write 1..9"),
        (&[&path, "--seed", "one"], 2, "1..5"),
        (&[&path, "--case", "law=reno"], 2, "no such case"),
        (
            &[&path, "--out", "/tmp", "--pcap", "botleneck"],
            2,
            "bottleneck:back",
        ),
        (&[&path, "--pcap", "bottleneck"], 2, "--out"),
    ];
    for (args, code, expected) in cases {
        let output = run(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
    }
}

#[test]
fn runs_repeat_and_are_printed_as_one_object() {
    let (dir, path) = short("cross-traffic", "\"haul\"]", "]");
    let out = dir.path().join("out").to_string_lossy().into_owned();
    let object = |args: &[&str]| -> Value {
        let output = run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}");
        serde_json::from_slice(&output.stdout).expect("stdout is one object")
    };
    let seeds = [&path, "--seed", "1..2", "--json"];
    let one = object(&seeds);
    assert_eq!(one, object(&[&seeds[..], &["--jobs", "1"]].concat()));
    let cases = one["scenarios"][0]["cases"].as_array().expect("a list");
    assert_eq!(cases.len(), 2);
    assert_ne!(cases[0]["trace_hash"]["1"], cases[0]["trace_hash"]["2"]);
    object(&[
        &path, "--seed", "3", "--case", "law=reno", "--json", "--out", &out, "--pcap", "line",
        "--qlog",
    ]);
    for name in [
        "flow.csv",
        "flow.sqlog",
        "line.pcapng",
        "cross-steady.csv",
        "report.json",
    ] {
        assert!(
            Path::new(&out).join("law=reno/seed-3").join(name).exists(),
            "{name}"
        );
    }
}

#[test]
fn an_expectation_that_does_not_hold_fails_a_check_only() {
    let (_dir, path) = short("two-flows", "min = \"90%\"", "min = \"100%\"");
    let output = run(&[&path, "--seed", "1"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("DEVIATES"), "{text}");
    let output = run(&[&path, "--seed", "1", "--check"]);
    assert_eq!(output.status.code(), Some(22));
    let output = run(&[&path, "--seed", "1", "--check", "--json"]);
    let object: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(
        (&object["ok"], &object["exit"]["code"]),
        (&false.into(), &22.into())
    );
    assert!(object["scenarios"][0]["verdicts"][0]["holds"] == false);
}

/// True if the file is one figure of the flows over time.
fn is_figure(path: &Path, flow: &str) -> bool {
    let text = fs::read_to_string(path).expect("a figure was drawn");
    text.starts_with("<svg")
        && [flow, "goodput, ", "time, s"]
            .iter()
            .all(|t| text.contains(t))
}

#[test]
fn a_simulation_is_drawn_over_time() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    for (name, start) in [("a.svg", &b"<svg"[..]), ("a.png", b"\x89PNG")] {
        let path = dir.path().join(name);
        let to = path.to_string_lossy();
        let output = farhaul(&["sim", "--secs", "1", "--flows", "2", "--plot", &to]);
        assert!(output.status.success(), "{output:?}");
        assert!(fs::read(&path).expect("it was drawn").starts_with(start));
    }
    assert!(is_figure(&dir.path().join("a.svg"), "flow 1"));
}

#[test]
fn every_run_of_a_scenario_is_drawn_in_its_folder() {
    let (dir, file) = short("two-flows", "seeds = \"1..5\"", "seeds = \"1..2\"");
    let below = dir.path().join("figures");
    let to = below.to_string_lossy();
    assert!(run(&[&file, "--plot", &to, "--out", &to]).status.success());
    for seed in ["seed-1", "seed-2"] {
        assert!(is_figure(&below.join(seed).join("series.svg"), "second"));
        assert!(below.join(seed).join("report.json").is_file());
    }
    let one = dir.path().join("one.svg");
    let to = one.to_string_lossy();
    assert!(run(&[&file, "--plot", &to, "--seed", "7"]).status.success());
    assert!(is_figure(&one, "seed 7"));
}

#[test]
fn figures_that_cannot_be_are_refused_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let refused = |args: &[&str], code: i32, why: &str| {
        let output = run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(why), "{args:?}: {text}");
        assert!(output.stdout.is_empty(), "{args:?} ran");
    };
    let unsampled = "name = \"u\"\nduration = \"1s\"\nsample = \"0ms\"\n[[link]]\nname = \"l\"\n\
                     rate = \"9Mbit\"\n[[flow]]\nname = \"f\"\n";
    let file = path("unsampled.toml");
    fs::write(&file, unsampled).expect("a file can be written");
    refused(&[&file, "--plot", &path("a.svg")], 2, "sample = \"100ms\"");
    let (_dir, file) = short("two-flows", "seeds = \"1..5\"", "seeds = \"1..2\"");
    refused(&[&file, "--plot", &path("a.svg")], 2, "2 runs");
    refused(&[&file, "--plot", &path("a.pdf")], 2, "svg or png");
    refused(
        &[&file, "--plot", &path("a"), "--keep", &path("k")],
        2,
        "cannot be used",
    );
    refused(
        &[&file, "--seed", "1", "--plot", &path("no/a.svg")],
        4,
        "no folder",
    );
    fs::write(path("taken"), "").expect("a file can be written");
    refused(&[&file, "--plot", &path("taken")], 4, "cannot write");
}
