//! Runs the laboratory and the configuration and checks what their help says: real processes in a
//! folder of their own.

use std::fs;

use serde_json::Value;

use super::kit::{Served, command, object, run, stdout_of};

#[test]
fn a_server_without_allowed_keys_is_distinguished_from_a_missing_one() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let other = stdout_of(place.path(), &["key", "gen", "--out", "nobody"], 0);
    let mut args = vec!["serve", "--share", "s=.", "--listen", "127.0.0.1:0"];
    args.extend(["--allow", other.trim()]);
    let server = Served::start(place.path(), &args);
    let refused = object(place.path(), &["doctor", &server.1, "--json"], 15);
    assert_eq!(refused["exit"]["name"], "auth");
    assert!(
        refused["error"]
            .as_str()
            .is_some_and(|e| e.contains("--allow fh-pub1"))
    );
    let stranger = stdout_of(place.path(), &["key", "gen", "--out", "other"], 0);
    let bench = [
        "bench",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--allow",
        stranger.trim(),
    ];
    let server = Served::start(place.path(), &bench);
    let refused = object(place.path(), &["bench", &server.1, "-t", "1", "--json"], 15);
    assert_eq!(refused["exit"]["name"], "auth");
    let invited = [
        "bench",
        &server.1,
        "-n",
        "1MB",
        "--json",
        "--identity",
        "other",
    ];
    assert_eq!(object(place.path(), &invited, 0)["complete"], true);
}

#[test]
fn a_bench_request_above_the_allowed_limits_is_refused_permanently() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let server = Served::start(place.path(), &["bench", "serve", "--listen", "127.0.0.1:0"]);
    let greedy = ["bench", &server.1, "--policy", "high", "--json"];
    let refused = object(place.path(), &greedy, 15);
    assert_eq!(refused["exit"]["name"], "auth");
    let error = refused["error"].as_str().unwrap_or_default();
    assert!(error.contains("--max-policy"), "{error}");
}

#[test]
fn defaults_come_from_the_file_and_the_environment() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path().join("config/farhaul");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(
        folder.join("config.toml"),
        "[sim]\nsecs = 2\nrate = \"20Mbit\"\n",
    )
    .expect("a file");
    let sim = ["sim", "--json", "--rtt", "5ms"];
    assert_eq!(object(place.path(), &sim, 0)["seconds"], 2.0);
    let printed = [&sim[..], &["--secs", "1"]].concat();
    assert_eq!(object(place.path(), &printed, 0)["seconds"], 1.0);
    let output = command(place.path(), &sim)
        .env("FARHAUL_SIM_SECS", "3")
        .output();
    let output: Value = serde_json::from_slice(&output.expect("it starts").stdout).expect("JSON");
    assert_eq!(output["seconds"], 3.0);
    let show = stdout_of(place.path(), &["config", "show"], 0);
    assert!(
        show.contains("sim.rate = 20Mbit") && show.contains("config.toml:3"),
        "{show}"
    );
    // A fault is found by the command that uses the value, and `config` still works.
    fs::write(folder.join("config.toml"), "[sim]\nrate = 20\n").expect("a file");
    let failed = object(place.path(), &sim, 10);
    assert!(
        failed["error"]
            .as_str()
            .is_some_and(|e| e.contains("config.toml:2: sim.rate"))
    );
    let check = run(place.path(), &["config", "check"]);
    assert_eq!(check.status.code(), Some(10));
    assert!(String::from_utf8_lossy(&check.stderr).contains("20Mbit or 20MB"));
    let path = stdout_of(place.path(), &["config", "path"], 0);
    assert_eq!(path.lines().count(), 2);
}

#[test]
fn a_bench_is_drawn_over_time() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let server = Served::start(place.path(), &["bench", "serve", "--listen", "127.0.0.1:0"]);
    let bench = |more: &[&str], code| {
        let args = [&["bench", &server.1, "-t", "0.5", "--json"], more].concat();
        object(place.path(), &args, code)
    };
    let report = bench(&["--plot", "one.svg"], 0);
    let intervals = report["intervals"].as_array().map_or(0, Vec::len);
    assert!(intervals >= 3, "sampled every 0.1 s: {report}");
    bench(&["--plot", "two.svg", "-P", "2", "-i", "0"], 0);
    let read = |name| fs::read_to_string(place.path().join(name)).expect("it was drawn");
    let one = read("one.svg");
    assert!(one.contains("goodput, ") && one.contains("rtt, ms") && !one.contains("lane"));
    assert!(read("two.svg").contains("lane 1"));
    let refused = bench(&["--plot", "no/one.svg"], 4);
    assert_eq!(refused["exit"]["name"], "dest_error");
}

#[test]
fn a_study_is_listed_with_the_size_of_its_runs() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let listed = object(place.path(), &["lab", "list", "masirap-2014", "--json"], 0);
    let all = object(place.path(), &["lab", "list", "--json"], 0);
    let studies = all["studies"].as_array().expect("a list");
    let experiments = |study: &Value| study["experiments"].as_array().expect("a list").clone();
    let same = studies.iter().find(|s| s["name"] == "masirap-2014");
    let (same, sized) = (
        experiments(same.expect("it is there")),
        experiments(&listed["studies"][0]),
    );
    assert_eq!(same.len(), sized.len());
    for (plain, sized) in same.iter().zip(&sized) {
        assert_eq!(plain["id"], sized["id"]);
        let runs = |version: &str| sized[version]["runs"].as_u64().expect("a count");
        assert!((1..=runs("full")).contains(&runs("quick")), "{sized}");
        let time = |version: &str| {
            let of = |world: &str| {
                sized[version][format!("{world}_seconds")]
                    .as_f64()
                    .expect("a time")
            };
            of("simulated") + of("emulated")
        };
        assert!(
            0.0 < time("quick") && time("quick") <= time("full"),
            "{sized}"
        );
    }
    // Each has the runs of its own scenario: M1 is simulated, M2 runs on the emulator.
    let time = |at: usize, world: &str| sized[at]["full"][format!("{world}_seconds")].as_f64();
    assert_eq!(
        (time(0, "emulated"), time(1, "simulated")),
        (Some(0.0), Some(0.0))
    );
    let text = stdout_of(place.path(), &["lab", "list", "masirap-2014"], 0);
    assert!(
        text.contains(" runs, ") && text.contains("with --quick"),
        "{text}"
    );
    let unknown = object(place.path(), &["lab", "list", "masirap", "--json"], 2);
    let error = unknown["error"].as_str().unwrap_or_default();
    assert!(error.contains("did you mean"), "{error}");
}
