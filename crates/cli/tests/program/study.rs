//! Studies are run, taken up again, shown and judged as their help says, and faults of one are
//! reported.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process};

use super::kit::{command, object, pause::pause, run, stdout_of};

const STUDY: &str = r#"
name = "demo"
title = "A demonstration"
source = "nobody, nowhere"
about = "Two paths."
reference = "demo.csv"
[[experiment]]
id = "A"
title = "Rate over the round trip"
scenario = "paths.toml"
[[experiment.figure]]
id = "fig1"
place = "Fig. 1"
caption = "Rate over rtt"
kind = "lines"
metric = "goodput"
x = "rtt"
"#;
const SCENARIO: &str = r#"
name = "paths"
duration = "2s"
backends = ["sim"]
[quick]
duration = "1s"
[vary]
rtt = ["10ms", "20ms"]
[[link]]
name = "path"
rate = "20Mbit"
rtt = "{rtt}"
[[flow]]
name = "one"
[[expect]]
metric = "goodput"
reference = "rate"
within = "40%"
[[expect]]
metric = "goodput"
when = { rtt = "20ms" }
reference = "never"
"#;
const REFERENCE: &str = "id,place,quantity,value,low,high,unit,kind,note\n\
                         rate,Fig. 1,goodput,18e6,,,bit/s,printed,\n\
                         never,p. 2,goodput,,1e9,,bit/s,derived,more than the link\n";

/// The files of the study in `place`, with `from` in the scenario replaced by `to`.
fn written(place: &Path, from: &str, to: &str) {
    let write = |name: &str, text: &str| fs::write(place.join(name), text).expect("a file");
    write("demo.toml", STUDY);
    write("demo.csv", REFERENCE);
    write("paths.toml", &SCENARIO.replacen(from, to, 1));
}

#[test]
fn a_study_is_run_taken_up_again_shown_and_checked() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    written(place, "", "");
    let study = ["lab", "run", "demo.toml", "--out", "runs", "--json"];
    let first = object(place, &study, 0);
    assert_eq!((&first["made"], &first["ok"]), (&2.into(), &true.into()));
    let outcomes = first["verdicts"].as_array().expect("a list").iter();
    let outcomes: Vec<_> = outcomes.map(|v| v["outcome"].as_str()).collect();
    assert_eq!(outcomes, [Some("met"), Some("met"), Some("missed")]);
    let folder = place.join("runs/demo");
    for name in [
        "report.html",
        "report.md",
        "cells.csv",
        "figures/fig1.svg",
        "figures/fig1.png",
    ] {
        assert!(
            folder.join(name).metadata().is_ok_and(|m| m.len() > 200),
            "{name}"
        );
    }
    // As a killed run leaves it: the second line is cut, and only that run is made again.
    let runs = folder.join("runs.jsonl");
    let text = fs::read_to_string(&runs).expect("runs");
    let whole = text.find('\n').expect("a line") + 1;
    fs::write(&runs, &text[..whole + 40]).expect("ours");
    assert_eq!(object(place, &study, 0)["made"], 1);
    assert_eq!(object(place, &study, 0)["made"], 0);
    // A miss has its exit code, unless it is listed with figure and reason.
    let check = ["lab", "check", "demo.toml", "--out", "runs", "--json"];
    assert_eq!(object(place, &check, 22)["exit"]["code"], 22);
    let told = String::from_utf8(run(place, &check[..5]).stderr).expect("text");
    assert!(
        told.contains("Mbit/s; at least 1 Gbit/s (derived); 98 % below the bound"),
        "{told}"
    );
    let known = "[[known]]\nscenario = \"paths\"\nreason = \"the link has 20 Mbit/s\"\n\
                 misses = [{ what = \"goodput\", case = \"rtt=20ms\", figure = 17e6 }]\n";
    fs::write(place.join("known.toml"), known).expect("a file");
    let listed = [&check[..], &["--known", "known.toml"]].concat();
    object(place, &listed, 22);
    object(place, &[&listed[..], &["--new"]].concat(), 0);
    // An entry that nothing needs is a mistake in the list.
    for (from, to, why) in [
        ("rtt=20ms", "rtt=21ms", "there is no such figure and case"),
        (
            "\"goodput\"",
            "\"jain\"",
            "there is no such figure and case",
        ),
    ] {
        let more = format!("{known}{}", known.replace(from, to));
        fs::write(place.join("known.toml"), more).expect("a file");
        let word = object(place, &[&listed[..], &["--new"]].concat(), 10);
        assert!(
            word["error"].as_str().is_some_and(|e| e.contains(why)),
            "{word}"
        );
    }
    let better = known.replace("17e6", "900e6");
    fs::write(place.join("known.toml"), better).expect("a file");
    object(place, &[&listed[..], &["--new"]].concat(), 22);
    let table = stdout_of(
        place,
        &["lab", "report", "demo.toml", "--out", "runs", "--csv"],
        0,
    );
    assert!(
        table.starts_with("scenario,backend,case,figure,runs,median"),
        "{table}"
    );
}

#[test]
fn what_never_happens_is_missed_and_may_be_known() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let goodput = "metric = \"goodput\"\nwhen = { rtt = \"20ms\" }\nreference = \"never\"";
    let reached = "metric = \"reach_time\"\nlevel = \"1Gbit\"\nwhen = { rtt = \"20ms\" }\nmax = 1";
    written(place, goodput, reached);
    let of = |action| ["lab", action, "demo.toml", "--out", "runs"];
    stdout_of(place, &of("run"), 0);
    let report = fs::read_to_string(place.join("runs/demo/report.md")).expect("a page");
    assert!(report.contains("| never |"), "{report}");
    let known = "[[known]]\nscenario = \"paths\"\nreason = \"the link has 20 Mbit/s\"\n\
                 misses = [{ what = \"reach_time at 1 Gbit/s\", case = \"rtt=20ms\", figure = inf }]\n";
    fs::write(place.join("known.toml"), known).expect("a file");
    let check = [&of("check")[..], &["--new", "--known", "known.toml"]].concat();
    let tally = stdout_of(place, &check, 0);
    assert!(tally.contains("1 missed (1 known)"), "{tally}");
    let better = known.replace("inf", "0.5");
    fs::write(place.join("known.toml"), better).expect("a file");
    let new = object(place, &[&check[..], &["--json"]].concat(), 22);
    assert_eq!(new["exit"]["code"], 22);
}

#[test]
fn what_is_wrong_with_a_study_is_said_with_its_place() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let complaint = |args: &[&str], code: i32| {
        let output = run(place, args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        text
    };
    let study = ["lab", "run", "demo.toml", "--out", "runs"];
    assert!(complaint(&study, 3).contains("cannot read demo.toml"));
    for (from, to, part) in [
        (
            "rate = \"20Mbit\"",
            "rote = 1",
            "paths.toml:11:1: no key of [[link]] 'rote'",
        ),
        (
            "\"rate\"\nwithin",
            "\"rote\"\nwithin",
            "no row 'rote' (did you mean 'rate'?)",
        ),
        (
            "within = \"40%\"",
            "experiment = \"B\"",
            "no experiment of demo 'B'",
        ),
        ("[vary]\nrtt", "[vary]\ndelay", "no variable 'rtt'"),
        ("duration = \"2s\"", "duration = ", "paths.toml:3:"),
    ] {
        written(place, from, to);
        let text = complaint(&study, 2);
        assert!(text.contains(part), "{to}: {text}");
    }
    written(place, "", "");
    let text = complaint(&["lab", "run", "demo.toml/B", "--out", "runs"], 2);
    assert!(
        text.contains("no experiment of demo 'B'") && text.contains("there are: A"),
        "{text}"
    );
    let text = complaint(&["lab", "check", "demo.toml", "--out", "runs"], 3);
    assert!(
        text.contains("has no runs") && text.contains("farhaul lab run demo.toml"),
        "{text}"
    );
    let text = complaint(&["lab", "run", "kachan-2015"], 2);
    assert!(text.contains("did you mean 'kachan-2014'"), "{text}");
    // Another study's folder is left as it is.
    stdout_of(place, &study, 0);
    fs::rename(place.join("runs/demo"), place.join("runs/demo-quick")).expect("ours");
    let text = complaint(&[&study[..], &["--quick"]].concat(), 4);
    assert!(
        text.contains("it holds the runs of demo: choose another --out"),
        "{text}"
    );
    fs::write(place.join("taken"), "").expect("a file");
    complaint(&["lab", "run", "demo.toml", "--out", "taken"], 4);
}

#[test]
fn a_page_is_served_to_this_machine() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    written(place, "", "");
    stdout_of(place, &["lab", "run", "demo.toml", "--out", "runs"], 0);
    let mut child = command(place, &["lab", "open", "demo.toml", "--out", "runs"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    said.read_line(&mut line).expect("a line");
    let from = line.find("127.0.0.1:").expect("an address");
    let end = line[from..].find('/').expect("its end") + from;
    let mut connection = TcpStream::connect(&line[from..end]).expect("it listens");
    let ask = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        &line[from..end]
    );
    connection.write_all(ask.as_bytes()).expect("sent");
    let mut page = String::new();
    connection.read_to_string(&mut page).expect("answered");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("A demonstration"),
        "{page}"
    );
    let text = run(
        place,
        &[
            "lab",
            "open",
            "demo.toml",
            "--listen",
            "0.0.0.0:0",
            "--out",
            "runs",
        ],
    );
    assert_eq!(text.status.code(), Some(2));
}

/// The lines of a study's stored runs.
fn stored(place: &Path) -> Vec<String> {
    let text = fs::read_to_string(place.join("runs/demo/runs.jsonl")).expect("runs");
    text.lines().map(Into::into).collect()
}

#[test]
fn runs_of_another_build_are_made_again_unless_they_are_taken() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    written(place, "", "");
    let study = ["lab", "run", "demo.toml", "--out", "runs", "--json"];
    assert_eq!(object(place, &study, 0)["made"], 2);
    let runs = place.join("runs/demo/runs.jsonl");
    let lines = stored(place);
    let first: serde_json::Value = serde_json::from_str(&lines[0]).expect("an object");
    let build = first["build"].as_str().expect("a hash");
    // One of another build, and one of before there were builds.
    let other = [
        lines[0].replace(build, "0123456789abcdef"),
        lines[1].replace(&format!("\"build\":\"{build}\","), ""),
    ];
    assert!(other[0] != lines[0] && other[1] != lines[1]);
    fs::write(&runs, format!("{}\n{}\n", other[0], other[1])).expect("ours");
    let all = [&study[..], &["--any-build"]].concat();
    assert_eq!(object(place, &all, 0)["made"], 0);
    let page = fs::read_to_string(place.join("runs/demo/report.md")).expect("a page");
    assert!(page.contains("runs of 2 builds are mixed"), "{page}");
    // The stored runs are shown and judged, whatever they are.
    object(
        place,
        &["lab", "check", "demo.toml", "--out", "runs", "--json"],
        22,
    );
    let output = run(place, &study);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("2 stored runs are of another build") && said.contains("--any-build"),
        "{said}"
    );
    assert_eq!(stored(place).len(), 4);
    assert_eq!(object(place, &study, 0)["made"], 0);
}

#[test]
fn the_page_is_of_the_whole_study_whatever_part_was_run() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    written(place, "", "");
    let out = ["--out", "runs"];
    let study = |more: &[&'static str]| [&["lab", "run", "demo.toml"], &out[..], more].concat();
    stdout_of(place, &study(&[]), 0);
    let read = |name: &str| fs::read_to_string(place.join("runs/demo").join(name)).expect("a file");
    let (page, cells) = (read("report.md"), read("cells.csv"));
    assert!(
        page.contains("rtt=10ms") && page.contains("rtt=20ms"),
        "{page}"
    );
    let part = ["--case", "rtt=10ms", "--json"];
    let ran = object(place, &study(&part), 0);
    let verdicts = ran["verdicts"].as_array().expect("a list");
    assert!(verdicts.iter().all(|v| v["case"] == "rtt=10ms"), "{ran}");
    let shown = [&["lab", "report", "demo.toml"], &out[..], &part[..2]].concat();
    let shown = stdout_of(place, &shown, 0);
    assert!(!shown.contains("rtt=20ms"), "{shown}");
    assert_eq!((read("report.md"), read("cells.csv")), (page, cells));
}

#[test]
fn what_was_not_run_is_not_taken_for_right() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    // Without the expectation that is missed.
    written(
        place,
        "reference = \"never\"",
        "reference = \"rate\"\nwithin = \"40%\"",
    );
    let with = |action: &str, more: &[&str]| {
        let args = ["lab", action, "demo.toml", "--out", "runs", "--json"];
        let args: Vec<String> = args.iter().chain(more).map(ToString::to_string).collect();
        args
    };
    let object = |action: &str, more: &[&str], code: i32| {
        let args = with(action, more);
        object(
            place,
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
            code,
        )
    };
    object("run", &["--case", "rtt=10ms"], 0);
    let told = object("check", &[], 5);
    let text = told["error"].as_str().expect("a text");
    assert!(
        text.contains("2 numbers are not judged") && text.contains("`farhaul lab run demo.toml`"),
        "{text}"
    );
    assert_eq!(
        (&told["ok"], &told["exit"]["name"]),
        (&false.into(), &"partial".into())
    );
    object("check", &["--case", "rtt=10ms"], 0);
    object("check", &["--case", "rtt=10ms", "--seeds", "7"], 5);
    object("run", &["--case", "rtt=10ms", "--seeds", "7"], 0);
    object("check", &["--case", "rtt=10ms", "--seeds", "7"], 0);
    object("check", &["--backend", "emu"], 2);
    object("run", &[], 0);
    object("check", &[], 0);
}

#[test]
fn a_study_without_a_judged_number_is_not_taken_for_right() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    // Quick runs are too short for its numbers.
    let quick = "[quick]\nnot_comparable = \"1 s, while the paper has 2 s\"\n";
    written(place, "[quick]\n", quick);
    // It was fitted to full runs: a quick one is neither inside nor outside.
    let paths = fs::read_to_string(place.join("paths.toml")).expect("a file");
    let fitted = paths.replace("within", "fitted = \"the link is\"\nwithin");
    fs::write(place.join("paths.toml"), fitted).expect("a file");
    let of = |action, quick: bool| {
        let study = ["lab", action, "demo.toml", "--out", "runs", "--quick"];
        study[..if quick { 6 } else { 5 }].to_vec()
    };
    let told = stdout_of(place, &of("run", true), 0);
    let verdict = "Of 2 numbers, not one is judged in a quick run: 2 not comparable.";
    assert!(told.contains(verdict), "{told}");
    assert!(told.contains("~~\n~ 2 not comparable"), "{told}");
    let output = run(place, &of("check", true));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains(verdict), "{said}");
    let fix = "run `farhaul lab run demo.toml`, without --quick";
    assert!(said.contains(fix), "{said}");
    let page = fs::read_to_string(place.join("runs/demo-quick/report.md")).expect("a page");
    assert!(page.contains("> **Quick run.**"), "{page}");
    let caption = "Rate over rtt. Quick run: sim, 2 cases of at most 1 s, 1 seed";
    assert!(page.contains(caption), "{page}");
    assert!(page.contains("fitted in full runs: the link is"), "{page}");
    assert!(!page.contains("None"), "{page}");
    // Nor is a study judged by numbers that it was fitted to.
    let fitted = "fitted = \"the rate of the link is\"\n[[expect]]\nmetric = \"goodput\"\nfitted = \"it is\"\nwhen";
    written(place, "[[expect]]\nmetric = \"goodput\"\nwhen", fitted);
    stdout_of(place, &of("run", false), 0);
    let told = object(place, &[&of("check", false)[..], &["--json"]].concat(), 5);
    let numbers = &told["numbers"];
    assert_eq!(
        (&numbers["fitted, inside"], &numbers["fitted, outside"]),
        (&1.into(), &1.into()),
        "{told}"
    );
    let page = fs::read_to_string(place.join("runs/demo/report.md")).expect("a page");
    assert!(!page.contains("Quick run"), "{page}");
}

#[test]
fn values_are_tried_beside_those_of_a_scenario() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    written(place, "", "");
    let study = |more: &[&'static str]| {
        [
            &["lab", "run", "demo.toml", "--out", "runs", "--json"],
            more,
        ]
        .concat()
    };
    let varied = ["--vary", "rtt=30ms", "--vary", "rtt=40ms"];
    assert_eq!(object(place, &study(&varied), 0)["made"], 2);
    assert_eq!(object(place, &study(&varied[2..]), 0)["made"], 0);
    // The rest of the study is as before, and the page has both.
    assert_eq!(object(place, &study(&[]), 0)["made"], 2);
    let cells = fs::read_to_string(place.join("runs/demo/cells.csv")).expect("a file");
    for rtt in ["10ms", "20ms", "30ms", "40ms"] {
        assert!(cells.contains(&format!("rtt={rtt},")), "{cells}");
    }
    let output = run(place, &study(&["--vary", "rate=1Gbit"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("no variable of paths 'rate'") && said.contains("there are: rtt"),
        "{said}"
    );
    let output = run(place, &study(&["--vary", "rtt=fast"]));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_study_is_run_with_another_law_where_it_tries_one() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let flow = "rtt = [\"10ms\"]\nsystem = [\n  { name = \"haul\", protocol = \"haul\", law = \"haul\" },\n  \
                { name = \"udt4\", protocol = \"udt4\", law = \"none\" },\n]\n[[link]]";
    written(place, "rtt = [\"10ms\", \"20ms\"]\n[[link]]", flow);
    let paths = fs::read_to_string(place.join("paths.toml")).expect("a file");
    let flow = "name = \"one\"\nprotocol = \"{system.protocol}\"\nlaw = \"{system.law}\"";
    let paths = paths
        .replace("name = \"one\"", flow)
        .replace("20ms", "10ms");
    fs::write(place.join("paths.toml"), paths).expect("a file");
    let laws = |laws: &[&'static str]| {
        let each = laws.iter().flat_map(|law| ["--law", *law]);
        let study = ["lab", "run", "demo.toml", "--out", "runs", "--json"];
        study.into_iter().chain(each).collect::<Vec<_>>()
    };
    let refused = |words: &[&str], why: &str| {
        let output = run(place, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    };
    refused(&laws(&["cubic"]), "--vary NAME=VALUE");
    let tried = STUDY.replace(
        "[[experiment]]",
        "law = { \"system.law\" = \"haul\" }\n[[experiment]]",
    );
    fs::write(place.join("demo.toml"), &tried).expect("a file");
    // Not the other system's, which takes none.
    assert_eq!(
        object(place, &laws(&["cubic", "haul:policy=low"]), 0)["made"],
        2
    );
    assert_eq!(object(place, &laws(&["cubic"]), 0)["made"], 0);
    assert_eq!(object(place, &laws(&["haul"]), 0)["made"], 1, "its own");
    assert_eq!(object(place, &laws(&[]), 0)["made"], 1, "the other system");
    let cells = fs::read_to_string(place.join("runs/demo/cells.csv")).expect("a file");
    for name in ["haul law=cubic", "haul law=haul:policy=low"] {
        assert!(cells.contains(name), "{cells}");
    }
    refused(&laws(&["cubix"]), "did you mean 'cubic'");
    refused(&laws(&["nothing"]), "there are haul, cubic");
    refused(&laws(&["cubic:beta=2"]), "beta");
    let two = tried.replace("\"haul\" }", "\"haul\", rtt = \"10ms\" }");
    fs::write(place.join("demo.toml"), two).expect("a file");
    refused(&laws(&["cubic"]), "law has one variable");
}

#[test]
fn what_a_crash_leaves_does_not_block_a_study() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    written(place, "", "");
    let study = ["lab", "run", "demo.toml", "--out", "runs", "--json"];
    object(place, &study, 0);
    let folder = place.join("runs/demo");
    let whole = fs::read(folder.join("runs.jsonl")).expect("runs");
    for rest in [&b"{\"scenario\":\"\xe2\x82"[..], &[0; 64]] {
        fs::write(folder.join("runs.jsonl"), [&whole, rest].concat()).expect("ours");
        fs::write(folder.join("study.json"), "").expect("ours");
        object(
            place,
            &["lab", "check", "demo.toml", "--out", "runs", "--json"],
            22,
        );
        assert_eq!(object(place, &study, 0)["made"], 0);
        assert_eq!(fs::read(folder.join("runs.jsonl")).expect("runs"), whole);
        let owner = fs::read_to_string(folder.join("study.json")).expect("ours");
        assert_eq!(owner, r#"{"study":"demo","quick":false}"#);
    }
    // Of another study, and without its name.
    let other = String::from_utf8(whole)
        .expect("text")
        .replace("\"paths\"", "\"others\"");
    fs::write(folder.join("runs.jsonl"), other).expect("ours");
    fs::write(folder.join("study.json"), "").expect("ours");
    let output = run(place, &study);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("runs of no study, or of another one"),
        "{said}"
    );
}

#[test]
fn a_reader_is_not_in_the_way_of_a_run() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    written(place, "", "");
    stdout_of(place, &["lab", "run", "demo.toml", "--out", "runs"], 0);
    // As a process that was killed leaves it: a number that no process has.
    let progress = r#"{"ended":1,"runs":2,"scenario":"paths","backend":"sim","case":"","left_seconds":null,"process":2147483647}"#;
    let folder = place.join("runs/demo");
    fs::write(folder.join("progress.json"), progress).expect("ours");
    // It is not asked who holds the lock, which could be in the way of a process that takes it.
    let lock = fs::File::open(folder.join("lock")).expect("ours");
    lock.lock().expect("free");
    let page = stdout_of(place, &["lab", "report", "demo.toml", "--out", "runs"], 0);
    assert!(!page.contains("1 of 2 runs"), "{page}");
}

#[test]
fn a_signal_ends_a_study_and_what_was_made_is_kept() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    written(
        place,
        "backends = [\"sim\"]",
        "backends = [\"sim\"]\nseeds = \"1..500\"",
    );
    let study = [
        "lab",
        "run",
        "demo.toml",
        "--out",
        "runs",
        "--jobs",
        "2",
        "--json",
    ];
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let before = fs::read_to_string(place.join("runs/demo/runs.jsonl")).unwrap_or_default();
        let mut child = command(place, &study)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // A run has ended, and others have not.
        loop {
            let now = fs::read_to_string(place.join("runs/demo/runs.jsonl")).unwrap_or_default();
            if now.len() > before.len() {
                break;
            }
            assert!(child.try_wait().expect("ours").is_none(), "it runs");
            pause();
        }
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(code));
        let made = stored(place).len();
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
        let text =
            format!("interrupted: {made} of 1000 runs are stored, and the same command goes on");
        assert_eq!(told["error"], text.as_str());
        assert!(made < 1_000 && !place.join("runs/demo/progress.json").exists());
    }
}
