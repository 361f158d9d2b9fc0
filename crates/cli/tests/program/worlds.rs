//! Simulator and emulator agree, and the program shows itself. The emulator measures
//! what the simulator says of a path, on links slow enough that the processor is not the limit.

use std::{fs, path::Path};

use serde_json::Value;

use crate::kit::{object, run};

/// Round-trip time (ms), loss (%), seconds.
const CELLS: [(u32, f64, u64); 3] = [(50, 0.1, 6), (100, 1.0, 6), (400, 2.0, 20)];
const RATE: &str = "100Mbit";
/// Attempts of a run. A run is tried again if the emulator dropped packets of its own, or released
/// one in a hundred later than a fifth of the round trip.
const ATTEMPTS: usize = 3;

fn goodput(word: &Value) -> f64 {
    word["goodput_bits_per_second"].as_f64().expect("a rate")
}

fn simulated(place: &Path, (rtt, loss, secs): (u32, f64, u64)) -> f64 {
    let (rtt, loss, secs) = (format!("{rtt}ms"), format!("{loss}%"), secs.to_string());
    let args = ["sim", "--rtt", &rtt, "--loss", &loss, "--rate", RATE];
    let more = ["--mtu", "9000", "--queue", "2MB", "--secs", &secs, "--json"];
    goodput(&object(place, &[&args[..], &more[..]].concat(), 0))
}

/// Goodput over the emulated path, if the emulator kept its times well enough; an error if there can be no
/// such path.
fn emulated(place: &Path, cell: (u32, f64, u64)) -> Result<Option<f64>, String> {
    let program = env!("CARGO_BIN_EXE_farhaul");
    let (rtt_ms, loss, secs) = cell;
    let (rtt, loss) = (format!("{rtt_ms}ms"), format!("{loss}%"));
    let far = format!("{program} bench serve -1");
    let near = format!(
        "until {program} bench 10.99.0.2 -t {secs} --json >bench.json 2>bench.err; do grep -q 'nothing listens' bench.err || exit 1; done"
    );
    let args = ["wan", "run", "--rtt", &rtt, "--loss", &loss, "--rate", RATE];
    let more = [
        "--mtu", "9000", "--queue", "2MB", "--json", "--report", "wan.json",
    ];
    let what = ["--far", &far, "--", "sh", "-c", &near];
    let output = run(place, &[&args[..], &more[..], &what[..]].concat());
    if output.status.code() == Some(11) {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let read = |name: &str| fs::read_to_string(place.join(name)).expect("it was written");
    assert!(output.status.success(), "{output:?} {}", read("bench.err"));
    let json = |name: &str| serde_json::from_str::<Value>(&read(name)).expect("one object");
    let health = &json("wan.json")["health"];
    let late = health["lateness"]["p99_us"].as_f64().expect("a time") / 1e3;
    let kept = late < f64::from(rtt_ms) / 5.0 && health["own_drops"] == 0;
    Ok(kept.then(|| goodput(&json("bench.json"))))
}

#[test]
fn simulator_and_emulator_agree_within_a_tenth() {
    let place = tempfile::tempdir().expect("a folder");
    for cell in CELLS {
        let here = simulated(place.path(), cell);
        let agrees = |there: &f64| (0.9..=1.1).contains(&(here / there));
        // A machine that others share may disturb a run without being late: that one is made again.
        let mut seen = Vec::new();
        for _ in 0..ATTEMPTS {
            match emulated(place.path(), cell) {
                Err(why) => return println!("skipped: {why}"),
                Ok(there) => seen.extend(there),
            }
            if seen.last().is_some_and(agrees) {
                break;
            }
        }
        println!("{cell:?}: {here:.0} bit/s simulated, {seen:.0?} emulated");
        match seen.last() {
            None => println!("skipped: {cell:?}: the emulator was late {ATTEMPTS} times"),
            Some(last) => assert!(
                agrees(last),
                "{cell:?}: {here} bit/s simulated, {seen:?} emulated"
            ),
        }
    }
}

#[test]
fn the_demo_copies_and_compares_and_fails_as_its_copy_does() {
    let place = tempfile::tempdir().expect("a folder");
    let files = place.path().join("files");
    fs::create_dir(&files).expect("a folder");
    fs::write(files.join("a"), vec![7; 3_000_000]).expect("a file");
    let args = [
        "demo", "files", "--rate", "100Mbit", "--secs", "3", "--json",
    ];
    let word = object(place.path(), &args, 0);
    assert_eq!(
        (&word["ok"], &word["exit"]["code"]),
        (&true.into(), &0.into())
    );
    assert_eq!(word["copy"]["identical"], true);
    assert_eq!(word["copy"]["bytes"], 3_000_000);
    assert!(goodput(&word["runs"][0]["report"]) > 0.0, "{word}");

    std::os::unix::fs::symlink("/etc/hostname", files.join("out")).expect("a link");
    let word = object(place.path(), &args, 5);
    assert_eq!(word["ok"], false);
}

#[test]
fn a_copy_in_virtual_time_is_whole_repeatable_and_ends_with_its_code() {
    let place = tempfile::tempdir().expect("a folder");
    let source = place.path().join("source");
    fs::create_dir(&source).expect("a folder");
    for i in 0..20_usize {
        fs::write(source.join(i.to_string()), vec![7; i * 5_000]).expect("written");
    }
    let temporary = place.path().join("temporary");
    fs::create_dir(&temporary).expect("a folder");
    let simulate = |args: &[&str]| {
        let mut command = crate::kit::command(place.path(), &["sim", "--json", "--app", "cp"]);
        command.args(args).env("TMPDIR", &temporary);
        let output = command.output().expect("the program starts");
        let object: Value = serde_json::from_slice(&output.stdout).expect("one object");
        (output.status.code(), object)
    };
    let path = ["source", "--rtt", "100ms", "--loss", "1%", "--mtu", "1500"];
    let (code, object) = simulate(&path);
    assert_eq!(code, Some(0), "{object}");
    assert_eq!(object["copy"]["files"]["sent"], 20);
    assert_eq!(object["copy"]["bytes_payload"], 950_000);
    let seconds = object["seconds"].as_f64().expect("a time");
    assert!((0.3..5.0).contains(&seconds), "{seconds} s");
    let again = simulate(&path).1;
    let hash = |object: &Value| object["simulation"]["trace_hash"].clone();
    assert_eq!(hash(&object), hash(&again));
    let (code, object) = simulate(&["none"]);
    assert_eq!((code, &object["ok"]), (Some(3), &false.into()));
    let (code, object) = simulate(&["source", "--rtt", "2s", "--secs", "3"]);
    assert_eq!(code, Some(19), "{object}");
    let left = fs::read_dir(&temporary).expect("it is there").count();
    assert_eq!(left, 0, "the copies are removed");
}
