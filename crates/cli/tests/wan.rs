//! `farhaul wan` answers a person who mistypes, and keeps its promises to scripts.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests; a skipped one says why"
)]

mod environment;

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Output, Stdio},
};

/// `farhaul wan run` with an empty cache, so that no calibration interferes.
fn wan_run(arguments: &[&str]) -> Output {
    let place = tempfile::tempdir().unwrap();
    environment::command(env!("CARGO_BIN_EXE_farhaul"), place.path())
        .args(["wan", "run"])
        .args(arguments)
        .output()
        .unwrap()
}

/// True if this machine lets us build networks; otherwise prints why not.
fn possible(output: &Output) -> bool {
    let refused = output.status.code() == Some(11);
    if refused {
        println!("skipped: {}", String::from_utf8_lossy(&output.stderr));
    }
    !refused
}

#[test]
fn bad_networks_are_refused_with_cause_and_fix() {
    let cases: [(&[&str], &str); 14] = [
        (
            &["--rtt", "100"],
            "100 what? a unit is needed: write 100ms or 100s",
        ),
        (&["--rtt", "-5ms"], "it must not be negative"),
        (&["--rtt", "3h"], "the delay is too large"),
        (
            &["--rate", "10"],
            "10 what? a unit is needed: write 10Mbit or 10MB",
        ),
        (&["--rate", "1.5G"], "could mean bits or bytes"),
        (&["--rate", "0bit"], "out of range"),
        (&["--loss", "101%"], "0% to 100%"),
        (&["--loss", "1"], "write 1%"),
        (&["--loss", "ge:1%"], "ge:0.1%,8"),
        (
            &["--loss", "trace:/no/such/file"],
            "cannot read /no/such/file",
        ),
        (&["--queue", "0"], "the queue must be more than zero"),
        (&["--queue", "1000B"], "cannot hold one packet of 1500 B"),
        (&["--mtu", "70000"], "give 576 to 65521"),
        (&["--profile", "mars"], "known are lan, metro"),
    ];
    for (arguments, expected) in cases {
        let output = wan_run(&[arguments, &["--", "true"]].concat());
        let reported = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {reported}");
        assert!(reported.contains(expected), "{arguments:?}: {reported}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_command_and_whole_flags_are_needed() {
    assert_eq!(wan_run(&["--rtt", "1ms"]).status.code(), Some(2));
    assert_eq!(
        wan_run(&["--rt", "1ms", "--", "true"]).status.code(),
        Some(2)
    );
}

#[test]
fn the_exit_code_and_stdout_are_the_programs() {
    let output = wan_run(&["--json", "--", "sh", "-c", "echo hello; exit 7"]);
    if !possible(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"hello\n");
    let report: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(report["schema"], "farhaul.wan/1");
    assert_eq!(report["exit"]["code"], 7);
    assert!(report["health"]["valid"].is_boolean());
    let allowed = std::fs::File::options()
        .write(true)
        .open("/dev/cpu_dma_latency")
        .is_ok();
    assert_eq!(report["health"]["pm_qos"], allowed);
}

#[test]
fn the_report_can_go_to_a_file_and_the_far_program_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let file = file.to_str().unwrap();
    let far = "sleep 1000 & sleep 1000";
    let output = wan_run(&["--json", "--report", file, "--far", far, "--", "true"]);
    if !possible(&output) {
        return;
    }
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
    let report = std::fs::read(file).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["ok"], true);
}

#[test]
fn the_report_can_go_to_stdout_and_has_one_kind_of_units() {
    let output = wan_run(&["--rate", "1Gbit", "--report", "-", "--", "true"]);
    if !possible(&output) {
        return;
    }
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.starts_with("wan: "), "{report}");
    assert!(report.contains("packets, 0 B; delivered"), "{report}");
    assert!(!report.contains(" MB"), "{report}");
}

#[test]
fn a_failing_far_program_is_reported_and_fails_the_run() {
    let far = "echo starting >&2; echo no such share >&2; exit 9";
    let output = wan_run(&["--far", far, "--", "true"]);
    if !possible(&output) {
        return;
    }
    let reported = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{reported}");
    assert!(
        reported.contains("the far program ended with 9"),
        "{reported}"
    );
    assert!(
        reported.contains("\n  starting\n  no such share\n"),
        "{reported}"
    );

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let to_file = ["--json", "--report", file.to_str().unwrap(), "--far", far];
    let report = |near: &str| -> serde_json::Value {
        wan_run(&[&to_file[..], &["--", "sh", "-c", near]].concat());
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
    };
    let of_far = report("true");
    assert_eq!(
        (&of_far["ok"], &of_far["exit"]["code"]),
        (&false.into(), &9.into())
    );
    assert_eq!(of_far["far"]["stderr"], "starting\nno such share");
    assert_eq!(
        report("exit 7")["exit"]["code"],
        7,
        "the near one's code is told first"
    );

    let ended_well = wan_run(&["--far", "true", "--", "true"]);
    assert_eq!(ended_well.status.code(), Some(0));
}

#[test]
fn everything_it_started_goes_with_it_when_it_is_killed() {
    let away = "setsid sh -c 'echo up; sleep 1000; :' & wait";
    let place = tempfile::tempdir().unwrap();
    let mut run = environment::command(env!("CARGO_BIN_EXE_farhaul"), place.path())
        .args(["wan", "run", "--far", away, "--", "sh", "-c", away])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(run.stdout.take().unwrap());
    let mut complaint = run.stderr.take().unwrap();
    let mut lines = [String::new(), String::new()];
    for line in &mut lines {
        printed.read_line(line).unwrap();
    }
    if lines[0].is_empty() {
        let output = run.wait_with_output().unwrap();
        assert!(!possible(&output));
        return;
    }
    assert_eq!(lines, ["up\n", "up\n"]);
    run.kill().unwrap();
    run.wait().unwrap();
    // Ends only when the last process that holds the other end is gone.
    printed.read_to_string(&mut lines[0]).unwrap();
    complaint.read_to_string(&mut lines[1]).unwrap();
}

#[test]
fn a_missing_program_is_named() {
    let output = wan_run(&["--", "/no/such/program"]);
    if !possible(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(3));
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(reported.contains("/no/such/program"), "{reported}");
}

#[test]
fn a_rate_above_the_calibrated_ceiling_needs_i_know() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("cache/farhaul");
    std::fs::create_dir_all(&folder).unwrap();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let point = serde_json::json!({
        "mtu": 1500, "capacity_bps": 2e9, "ceiling_bps": 1e9,
        "late_p50_us": 1.0, "late_p99_us": 2.0, "router_cores": 1.0,
    });
    let calibration = serde_json::json!({
        "schema": "farhaul.calibration/1", "kernel": kernel.trim(), "points": [point],
    });
    std::fs::write(folder.join("calibration.json"), calibration.to_string()).unwrap();
    let run = |more: &[&str]| {
        environment::command(env!("CARGO_BIN_EXE_farhaul"), place.path())
            .args(["wan", "run", "--json"])
            .args(more)
            .args(["--", "true"])
            .output()
            .unwrap()
    };
    let refused = run(&[]);
    if !possible(&refused) {
        return;
    }
    assert_eq!(refused.status.code(), Some(2));
    let reported = String::from_utf8_lossy(&refused.stderr);
    assert!(reported.contains("--i-know"), "{reported}");
    let stamped = run(&["--i-know"]);
    let report: serde_json::Value = serde_json::from_slice(&stamped.stderr).unwrap();
    assert_eq!(report["emulator_limited"], true);
    let below = run(&["--rate", "1Gbit"]);
    let report: serde_json::Value = serde_json::from_slice(&below.stderr).unwrap();
    assert_eq!(report["emulator_limited"], false);
}

#[test]
fn each_host_knows_the_other_by_its_name() {
    let output = wan_run(&["--rtt", "2ms", "--", "getent", "hosts", "near", "far"]);
    if !possible(&output) {
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Vec<_>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines,
        [["10.99.0.1", "near"], ["10.99.0.2", "far"]],
        "{output:?}"
    );
    let before = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    assert!(
        !before.contains("10.99.0.2"),
        "the machine's own names stay"
    );
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(
        report.contains("rtt 2 ms, 10.00 Gbit/s, queue "),
        "{report}"
    );
    assert!(report.contains("mtu 1500"), "{report}");
}
