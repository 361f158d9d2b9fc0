//! Is a study run, taken up again, shown and judged as its help says? And is what is wrong with one said?

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Stdio,
};

use super::kit::{command, object, run, stdout_of};

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
    let known = "[[known]]\nscenario = \"paths\"\nwhat = \"goodput\"\ncase = \"rtt=20ms\"\n\
                 figure = 17e6\nreason = \"the link has 20 Mbit/s\"\n";
    fs::write(place.join("known.toml"), known).expect("a file");
    let listed = [&check[..], &["--known", "known.toml"]].concat();
    object(place, &listed, 22);
    object(place, &[&listed[..], &["--new"]].concat(), 0);
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
