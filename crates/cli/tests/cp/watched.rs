//! Views of a running server, for programs and for people, and changes to its sessions.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::Path,
    process::{Output, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    place::{Place, Served, await_part, await_that, code, kill, noise, printed},
    policy::{copy, key, serve, write},
};

const OPEN: &str = "listen = '127.0.0.1:0'\nmetrics = '127.0.0.1:0'\ncontrol = 'DIR/control.sock'\n\
    [[share]]\nname = 's'\npath = 'DIR/share'\nmode = 'rw'\nallow = ['any']\n";

/// The body that is answered to one request, and its head.
fn get(at: &str, path: &str, host: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head.to_string(), body.to_string())
}

/// The server's lines until it listens, and the server.
fn start(place: &Place, text: &str) -> (Vec<String>, Served) {
    write(place, text);
    let mut command = place.command(&["serve", "--config", "serve.toml"]);
    let mut child = command.spawn().expect("it starts");
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("piped")));
    let mut before = Vec::new();
    for line in lines.by_ref().map_while(Result::ok) {
        let listens = line.contains("listening on");
        before.push(line);
        if listens {
            break;
        }
    }
    let (say, said) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _nobody_asks = say.send(line);
        }
    });
    let printed = before.last().expect("it listens").clone();
    let at = &printed[printed.find("listening on ").expect("an address") + 13..];
    let served = Served {
        child,
        at: at.split('/').next().expect("an address").to_string(),
        key: String::new(),
        said,
    };
    (before, served)
}

fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find(|l| l.split(' ').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
    line.split(' ')
        .nth(1)
        .expect("a value")
        .parse()
        .expect("a number")
}

#[test]
fn metrics_add_up_to_what_was_copied() {
    let place = Place::new();
    key(&place, "bob");
    let (said, server) = start(&place, OPEN);
    let at = said
        .iter()
        .find_map(|l| l.split("http://").nth(1))
        .expect("an address");
    let at = at.strip_suffix("/metrics").expect("its path").to_string();
    fs::write(place.path("f"), noise(1, 3_000_000)).expect("a file");
    for (from, to) in [("f", server.to("f")), (&server.to("f"), "back".into())] {
        let out = copy(&place, "bob", from, &to);
        assert_eq!(code(&out), 0, "{}", printed(&out));
    }
    server.says("received 2.9 MiB");
    server.says("sent 2.9 MiB");
    let (head, metrics) = get(&at, "/metrics", "localhost");
    assert!(
        head.contains("application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    for (name, expected) in [
        ("farhaul_bytes_total{dir=\"in\",kind=\"payload\"}", 3e6),
        ("farhaul_bytes_total{dir=\"out\",kind=\"payload\"}", 3e6),
        ("farhaul_files_total{result=\"moved\"}", 2.0),
        ("farhaul_files_total{result=\"failed\"}", 0.0),
        ("farhaul_sessions{state=\"moving\"}", 0.0),
        ("farhaul_handshake_failures_total{reason=\"busy\"}", 0.0),
    ] {
        let found = value(&metrics, name);
        assert!((found - expected).abs() < 0.5, "{name}: {found}");
    }
    assert!(value(&metrics, "farhaul_bytes_total{dir=\"in\",kind=\"wire\"}") > 3e6);
    assert!(value(&metrics, "farhaul_rtt_seconds_count") > 0.0);
    for name in [
        "farhaul_loss_ratio",
        "farhaul_goodput_bits_per_second",
        "farhaul_udp_socket_drops_total",
        "farhaul_gso_fallback_total",
        "farhaul_stage_blocked_seconds_total{stage=\"network\"}",
    ] {
        value(&metrics, name);
    }
    assert!(
        metrics.contains("farhaul_build_info{version=\""),
        "{metrics}"
    );
    assert!(
        !metrics.contains("bob") && !metrics.contains("fh-pub1"),
        "no peer, no file"
    );
    // The page of another site asks by its own name.
    assert!(get(&at, "/metrics", "evil.example").0.contains(" 421 "));
    assert!(get(&at, "/", "localhost").0.contains(" 404 "));
    let (head, health) = get(&at, "/healthz", "localhost");
    assert!(head.contains(" 200 ") && health.trim() == "ok", "{head}");
}

#[test]
fn a_server_that_drains_is_not_healthy() {
    let place = Place::in_memory();
    key(&place, "bob");
    let text = format!("max-rate = '40Mbit'\ndrain = '10min'\n{OPEN}");
    let (said, server) = start(&place, &text);
    let at = said.iter().find_map(|l| l.split("http://").nth(1));
    let at = at
        .and_then(|at| at.strip_suffix("/metrics"))
        .expect("an address");
    fs::write(place.path("big"), noise(7, 12 << 20)).expect("a file");
    let mut child = place
        .command(&["cp", "--trust-any", "-i", "bob", "big", &server.to("")])
        .spawn()
        .expect("it starts");
    await_part(&place.path("share"), 1 << 20, &mut child);
    // However long this takes, the copy is under way.
    kill(child.id(), "-STOP");
    server.signal("-TERM");
    server.says("stopping: no new sessions");
    let (head, health) = get(at, "/healthz", "localhost");
    assert!(
        head.contains(" 503 ") && health.trim() == "draining",
        "{head}"
    );
    kill(child.id(), "-CONT");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 0, "{}", printed(&out));
}

#[test]
fn the_log_has_an_object_per_line_in_which_nothing_steers_a_terminal() {
    let place = Place::new();
    let alice = key(&place, "alice");
    let text = OPEN.replace(
        "[[share]]",
        &format!("log-format = 'json'\nverbose = true\n[[peer]]\nname = 'alice'\nkey = '{alice}'\n[[share]]"),
    );
    let (before, server) = start(&place, &text);
    for line in &before {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(
            object["time"].as_str().expect("a time").ends_with('Z'),
            "{line}"
        );
        assert!(object["event"].is_string(), "{line}");
    }
    let odd = "a\u{1b}[2J\u{202e}b";
    fs::write(place.path("f"), "content").expect("a file");
    // A file in place of a folder: the error names it.
    fs::write(place.path("share").join(odd), "in the way").expect("a file");
    let out = copy(&place, "alice", "f", &server.to(&format!("{odd}/f")));
    assert_ne!(code(&out), 0);
    let out = copy(&place, "alice", "f", &server.to("f"));
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let mut outcomes = Vec::new();
    while outcomes.last().is_none_or(|o| o != "ok") {
        let line = server.says("\"event\"");
        assert!(!line.contains(['\u{1b}', '\u{202e}']), "{line:?}");
        let object: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        if object["event"] != "session" {
            assert_eq!(object["event"], "request");
            continue;
        }
        assert_eq!(object["key"], alice.as_str());
        assert_eq!(
            (&object["name"], &object["share"]),
            (&"alice".into(), &"s".into())
        );
        assert_eq!(object["direction"], "put");
        outcomes.push(object["outcome"].as_str().expect("a word").to_string());
        if outcomes.len() == 2 {
            assert_eq!(
                (&object["bytes"], &object["files"]["sent"]),
                (&7.into(), &1.into())
            );
        }
    }
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}

fn ctl(place: &Place, args: &[&str]) -> Output {
    let socket = place.path("control.sock");
    let all = [
        &["ctl"],
        args,
        &["--socket", socket.to_str().expect("text")],
    ]
    .concat();
    place.run(&all)
}

fn top(place: &Place) -> Vec<Value> {
    let out = place.run(&[
        "top",
        "--json",
        place.path("control.sock").to_str().expect("text"),
    ]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let object: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!(object["schema"], "farhaul.top/1");
    object["sessions"].as_array().expect("a list").clone()
}

#[test]
fn top_on_a_terminal_ends_at_q_and_leaves_it_as_it_was() {
    let place = Place::new();
    let (_, _server) = start(&place, OPEN);
    let top = place.command(&["top"]);
    let (program, socket) = (top.get_program().display(), place.path("control.sock"));
    let line = format!("{program} top {}; echo ended $?; stty -a", socket.display());
    // It makes a terminal.
    let script = place
        .command_of(Path::new("script"), &["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .spawn();
    let mut script = match script {
        Ok(script) => script,
        Err(e) => {
            println!("skipped: script: {e}");
            return;
        }
    };
    let (mut keys, mut screen) = (
        script.stdin.take().expect("piped"),
        script.stdout.take().expect("piped"),
    );
    let (mut shown, mut bytes) = (String::new(), [0; 4_096]);
    while !shown.contains("ID") {
        let n = screen.read(&mut bytes).expect("it shows something");
        assert!(n > 0, "{shown}");
        shown += &String::from_utf8_lossy(&bytes[..n]);
    }
    assert!(shown.contains("q ends"), "{shown}");
    keys.write_all(b"q").expect("it reads");
    screen.read_to_string(&mut shown).expect("it ends");
    assert!(script.wait().expect("our child").success(), "{shown}");
    assert!(shown.contains("ended 0"), "{shown}");
    for mode in [" icanon", " echo "] {
        assert!(shown.contains(mode), "{mode}: {shown}");
    }
}

/// Slows a copy down, holds it and lets it go on, whichever way it goes.
fn held(put: bool) {
    let place = Place::in_memory();
    key(&place, "bob");
    // A copy takes some seconds, on any machine.
    let (_, server) = start(&place, &format!("max-rate = '40Mbit'\n{OPEN}"));
    let mode = fs::metadata(place.path("control.sock"))
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(top(&place).is_empty());
    let size = 30 << 20;
    fs::create_dir(place.path("into")).expect("a folder");
    let (from, to, at, target) = if put {
        ("big".to_string(), server.to(""), "big", "share")
    } else {
        (server.to("big"), "into".to_string(), "share/big", "into")
    };
    fs::write(place.path(at), noise(7, size)).expect("a file");
    let mut child = place
        .command(&["cp", "--trust-any", "-i", "bob", &from, &to])
        .spawn()
        .expect("it starts");
    await_part(&place.path(target), 1 << 20, &mut child);
    let session = || top(&place).pop().expect("it is there");
    await_that(&mut child, || session()["state"] == "moving");
    let id = session()["session"].to_string();
    assert_eq!(code(&ctl(&place, &["rate", &id, "20Mbit"])), 0);
    let shown = session();
    assert_eq!(
        (&shown["max_rate_bps"], &shown["state"]),
        (&20_000_000.into(), &"moving".into())
    );
    assert_eq!(shown["direction"], if put { "put" } else { "get" });
    // The side that sends measures it.
    assert!(put || shown["rtt_s"].is_number(), "{shown}");
    await_that(&mut child, || goodput(&session()) < 30e6);

    assert_eq!(code(&ctl(&place, &["pause", &id])), 0);
    assert_eq!(session()["state"], "paused");
    // One that is not held ends before.
    await_that(&mut child, || goodput(&session()) < 1e6);

    assert_eq!(code(&ctl(&place, &["rate", &id, "off"])), 0);
    assert_eq!(code(&ctl(&place, &["resume", "all"])), 0);
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(fs::read(place.path(target).join("big")).expect("it is there") == noise(7, size));
}

#[test]
fn what_is_said_of_any_lane_holds_for_its_copy() {
    let place = Place::in_memory();
    key(&place, "bob");
    let (_, server) = start(&place, &format!("max-rate = '40Mbit'\n{OPEN}"));
    let size = 30 << 20;
    fs::write(place.path("big"), noise(7, size)).expect("a file");
    let to = server.to("");
    let mut child = place
        .command(&["cp", "--trust-any", "-i", "bob", "-P", "3", "big", &to])
        .spawn()
        .expect("it starts");
    await_part(&place.path("share"), 1 << 20, &mut child);
    let all_are = |state: &str| {
        let all = top(&place);
        all.len() == 3 && all.iter().all(|session| session["state"] == state)
    };
    await_that(&mut child, || all_are("moving"));
    let of = |lane: bool| {
        let all = top(&place);
        let found = all.into_iter().find(|session| session["lane"] == lane);
        found.expect("it is there")
    };
    let (first, lane) = (of(false), of(true)["session"].to_string());
    assert_eq!(code(&ctl(&place, &["rate", &lane, "20Mbit"])), 0);
    let limited = |session: &Value| session["max_rate_bps"] == 20_000_000;
    assert!(top(&place).iter().all(limited));
    await_that(&mut child, || goodput(&of(false)) < 30e6);
    assert_eq!(code(&ctl(&place, &["pause", &lane])), 0);
    assert!(all_are("paused"));
    await_that(&mut child, || goodput(&of(false)) < 1e6);
    assert_eq!(code(&ctl(&place, &["rate", &lane, "off"])), 0);
    let first = first["session"].to_string();
    assert_eq!(code(&ctl(&place, &["resume", &first])), 0);
    assert!(
        !top(&place)
            .iter()
            .any(|session| session["state"] == "paused")
    );
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(fs::read(place.path("share/big")).expect("it is there") == noise(7, size));
}

fn goodput(session: &Value) -> f64 {
    session["goodput_bps"].as_f64().expect("a number")
}

#[test]
fn a_fetch_is_slowed_down_held_and_let_go_on() {
    held(false);
}

#[test]
fn a_delivery_is_slowed_down_and_held() {
    held(true);
}

#[test]
fn what_is_asked_wrongly_of_a_server_is_refused() {
    let place = Place::new();
    let (_, _server) = start(&place, OPEN);
    let out = ctl(&place, &["pause", "77"]);
    assert_eq!(code(&out), 2, "{}", printed(&out));
    assert!(
        printed(&out).contains("no such session"),
        "{}",
        printed(&out)
    );
    for (args, expected) in [
        (&["rate", "all", "100"][..], "or the word off"),
        (&["pause", "x"], "the number of a session, or the word all"),
    ] {
        let out = ctl(&place, args);
        assert_eq!(code(&out), 2, "{}", printed(&out));
        assert!(printed(&out).contains(expected), "{}", printed(&out));
    }
    let out = place.run(&["top", "--json", "nothing.sock"]);
    assert_eq!(code(&out), 11, "{}", printed(&out));
    // A client that speaks another language gets an answer, and nobody else waits for it.
    let mut stream = UnixStream::connect(place.path("control.sock")).expect("it listens");
    stream.write_all(b"nonsense\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    assert!(text.contains("not a request"), "{text}");
    let _silent = UnixStream::connect(place.path("control.sock")).expect("it listens");
    assert!(top(&place).is_empty());
}

#[test]
fn a_socket_that_a_killed_server_left_is_taken_over_and_a_live_one_is_not() {
    let place = Place::new();
    let (_, mut first) = start(&place, OPEN);
    let second = place
        .command(&["serve", "--config", "serve.toml"])
        .stderr(Stdio::piped())
        .output()
        .expect("it starts");
    assert_eq!(code(&second), 11, "{}", printed(&second));
    assert!(
        printed(&second).contains("control.sock"),
        "{}",
        printed(&second)
    );
    first.child.kill().expect("it runs");
    first.child.wait().expect("our own child");
    let server = serve(&place, OPEN);
    assert!(top(&place).is_empty());
    server.signal("-INT");
    let mut server = server;
    assert_eq!(server.child.wait().expect("our own child").code(), Some(0));
    assert!(!place.path("control.sock").exists());
}

#[test]
fn a_timetable_holds_for_both_sides() {
    // The same at any time of day.
    let same = "00:00 20Mbit 12:00 20Mbit";
    thread::scope(|scope| {
        for (of_server, of_client) in [(same, "1Tbit"), ("1Tbit", same)] {
            for put in [true, false] {
                scope.spawn(move || timetable(of_server, of_client, put));
            }
        }
    });
}

fn timetable(of_server: &str, of_client: &str, put: bool) {
    let place = Place::in_memory();
    key(&place, "bob");
    let (_, server) = start(&place, &format!("max-rate = '{of_server}'\n{OPEN}"));
    fs::create_dir(place.path("into")).expect("a folder");
    let (from, to, at, target) = if put {
        ("big".to_string(), server.to(""), "big", "share")
    } else {
        (server.to("big"), "into".to_string(), "share/big", "into")
    };
    fs::write(place.path(at), noise(7, 14 << 20)).expect("a file");
    let flags = ["cp", "--trust-any", "-i", "bob", "--max-rate", of_client];
    let mut command = place.command(&[&flags[..], &[&from, &to]].concat());
    let mut child = command.spawn().expect("it starts");
    await_part(&place.path(target), 3 << 20, &mut child);
    let session = || top(&place).pop().expect("it goes on");
    await_that(&mut child, || goodput(&session()) > 0.0);
    // One that is not slowed down ends before.
    await_that(&mut child, || (10e6..30e6).contains(&goodput(&session())));
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 0, "{}", printed(&out));
}

#[test]
fn a_low_rate_of_a_server_is_kept_and_used() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any", "--max-rate", "8Mbit"]);
    fs::write(place.path("f"), noise(1, 3_000_000)).expect("a file");
    let args = [
        "cp",
        "--trust-any",
        "--max-time",
        "1min",
        "f",
        &server.to(""),
    ];
    let out = place.run(&args);
    assert_eq!(code(&out), 0, "{}", printed(&out));
}

#[test]
fn a_stream_of_events_ends_in_the_summary_also_of_a_failure() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("f"), noise(1, 4_000_000)).expect("a file");
    let events = |args: &[&str], expected: i32| -> Vec<Value> {
        let out = place.run(&[&["cp", "--trust-any", "--json-stream"], args].concat());
        assert_eq!(code(&out), expected, "{}", printed(&out));
        let text = String::from_utf8(out.stdout).expect("text");
        let object =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        text.lines().map(object).collect()
    };
    let all = events(&["--max-rate", "40Mbit", "f", &server.to("")], 0);
    let kinds: Vec<_> = all
        .iter()
        .map(|e| e["type"].as_str().expect("a word"))
        .collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&"start"), Some(&"summary")),
        "{kinds:?}"
    );
    assert_eq!(
        kinds.iter().filter(|k| **k == "scan").count(),
        1,
        "{kinds:?}"
    );
    let progress: Vec<_> = all.iter().filter(|e| e["type"] == "progress").collect();
    assert!(progress.len() >= 2, "{kinds:?}");
    let done: Vec<_> = progress
        .iter()
        .map(|e| e["bytes_done"].as_u64().expect("a number"))
        .collect();
    assert!(done.is_sorted(), "{done:?}");
    let summary = all.last().expect("the last");
    assert_eq!(
        (&summary["schema"], &summary["ok"]),
        (&"farhaul.transfer/1".into(), &true.into())
    );
    assert_eq!(summary["bytes_payload"], 4_000_000);

    let all = events(&["nothing", &server.to("")], 3);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(
        (&all[0]["type"], &all[0]["exit"]["code"]),
        (&"summary".into(), &3.into())
    );
    // Also where the arguments are wrong.
    let all = events(&["--max-rate", "7", "f", &server.to("")], 2);
    assert_eq!(
        (&all[0]["type"], &all[0]["exit"]["code"]),
        (&"summary".into(), &2.into())
    );
}
