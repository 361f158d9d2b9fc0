//! Signals to a server, and its reports to a service manager.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    process::Child,
};

use crate::{
    place::{Place, Served, await_part, code, kill, noise, printed},
    policy::{copy, key, serve, write},
};

const OPEN: &str = "listen = '127.0.0.1:0'\n[[share]]\nname = 's'\npath = 'DIR/share'\nmode = 'rw'\nallow = 'any'\n";

#[test]
fn a_reload_changes_what_new_sessions_may_and_a_mistake_changes_nothing() {
    let place = Place::new();
    key(&place, "bob");
    fs::write(place.path("f"), "f").expect("a file");
    let server = serve(&place, OPEN);
    let fetched = |what: &str| code(&copy(&place, "bob", "f", &server.to(what)));
    assert_eq!(fetched("a"), 0);

    write(&place, &OPEN.replace("mode = 'rw'", "mode = 'rx'"));
    server.signal("-HUP");
    let said = server.says("not reloaded");
    assert!(said.contains("serve.toml:5: share.mode"), "{said}");
    assert_eq!(fetched("b"), 0, "as before");

    write(&place, &OPEN.replace("'rw'", "'ro'").replace(":0'", ":1'"));
    server.signal("-HUP");
    server.says("listen has changed");
    server.says("reloaded: 1 shares");
    assert_eq!(fetched("c"), 15, "read only now");
}

#[test]
fn a_configuration_from_a_pipe_cannot_be_read_again_and_stays() {
    let place = Place::new();
    key(&place, "bob");
    fs::write(place.path("f"), "f").expect("a file");
    write(&place, OPEN);
    let text = fs::read_to_string(place.path("serve.toml")).expect("it is there");
    let server = Place::serve_as(place.fed(&["serve", "--config", "/dev/stdin"], &text));
    server.signal("-HUP");
    let said = server.says("not reloaded");
    assert!(
        said.contains("/dev/stdin is a pipe, which was read at the start"),
        "{said}"
    );
    assert!(said.contains("the name of a file"), "{said}");
    assert_eq!(code(&copy(&place, "bob", "f", &server.to("a"))), 0);
}

/// A slow copy that is under way.
fn under_way(place: &Place, server: &Served) -> Child {
    fs::write(place.path("big"), noise(3, 12 << 20)).expect("a file");
    let flags = ["cp", "--trust-any", "--max-rate", "40Mbit", "big"];
    let to = server.to("");
    let mut child = place
        .command(&[&flags[..], &[&to]].concat())
        .spawn()
        .expect("it starts");
    await_part(&place.path("share"), 1 << 20, &mut child);
    child
}

#[test]
fn a_server_that_stops_takes_nobody_new_and_finishes_what_is_under_way() {
    let place = Place::new();
    let mut server = serve(&place, &format!("drain = '10min'\n{OPEN}"));
    let first = under_way(&place, &server);
    server.signal("-TERM");
    server.says("stopping: no new sessions");
    // However long the others take, this one is under way.
    kill(first.id(), "-STOP");
    key(&place, "bob");
    fs::write(place.path("f"), "f").expect("a file");
    let out = copy(&place, "bob", "f", &server.to(""));
    assert_eq!(code(&out), 18, "{}", printed(&out));
    assert!(
        printed(&out).contains("the server is stopping"),
        "{}",
        printed(&out)
    );
    // A list leaves nothing that could go on.
    for place_there in [server.to(""), server.to("").replace("::s/", "::")] {
        let out = place.run(&["ls", "--trust-any", &place_there]);
        assert_eq!(code(&out), 18, "{}", printed(&out));
        let said = printed(&out);
        assert!(said.contains("run the same command again"), "{said}");
        assert!(!said.contains("continues"), "{said}");
    }
    kill(first.id(), "-CONT");
    let out = first.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(server.child.wait().expect("our own child").code(), Some(0));
    assert_eq!(
        fs::read(place.path("share/big")).expect("it is there"),
        noise(3, 12 << 20)
    );
}

#[test]
fn a_second_signal_ends_what_is_under_way() {
    let place = Place::new();
    let mut server = serve(&place, &format!("drain = '10min'\n{OPEN}"));
    let first = under_way(&place, &server);
    server.signal("-TERM");
    server.says("stopping: no new sessions");
    server.signal("-TERM");
    let out = first.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 18, "{}", printed(&out));
    assert_eq!(server.child.wait().expect("our own child").code(), Some(0));
}

#[test]
fn a_client_that_a_signal_ends_is_logged_with_its_code_whatever_signal_the_server_had() {
    for (signal, expected) in [("-TERM", 143), ("-INT", 130), ("-HUP", 129)] {
        let place = Place::new();
        let server = serve(&place, OPEN);
        server.signal("-HUP");
        server.says("reloaded: 1 shares");
        let client = under_way(&place, &server);
        kill(client.id(), signal);
        let out = client.wait_with_output().expect("it ends");
        assert_eq!(code(&out), expected, "{}", printed(&out));
        let said = server.says("interrupted");
        assert!(said.ends_with(&format!("({expected})")), "{said}");
    }
}

#[test]
fn the_time_to_finish_is_bounded() {
    let place = Place::new();
    let mut server = serve(&place, &format!("drain = '1ms'\n{OPEN}"));
    let first = under_way(&place, &server);
    server.signal("-TERM");
    let out = first.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 18, "{}", printed(&out));
    assert_eq!(server.child.wait().expect("our own child").code(), Some(0));
}

#[test]
fn a_service_manager_is_told_of_every_change() {
    let place = Place::new();
    write(&place, OPEN);
    let path = place.path("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    let told = || {
        let mut bytes = [0; 512];
        let len = manager.recv(&mut bytes).expect("it is told");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let mut command = place.command(&["serve", "--config", "serve.toml"]);
    command.env("NOTIFY_SOCKET", &path);
    let mut server = Place::serve_by(command);
    assert_eq!(told().trim(), "READY=1");
    server.signal("-HUP");
    let said = told();
    assert!(said.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{said}");
    assert_eq!(told().trim(), "READY=1");
    server.signal("-TERM");
    assert_eq!(told().trim(), "STOPPING=1");
    assert_eq!(server.child.wait().expect("our own child").code(), Some(0));
}

#[test]
fn a_socket_of_the_service_manager_is_used() {
    let place = Place::new();
    write(&place, &OPEN.replace("listen = '127.0.0.1:0'\n", ""));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let at = socket.local_addr().expect("an address").to_string();
    let farhaul = env!("CARGO_BIN_EXE_farhaul");
    let line = format!(
        "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec {farhaul} serve --config serve.toml"
    );
    let mut shell = place.script(&line);
    shell.stdin(OwnedFd::from(socket));
    let server = Place::serve_by(shell);
    assert_eq!(server.at, at);
    fs::write(place.path("f"), noise(4, 3 << 20)).expect("a file");
    key(&place, "bob");
    let out = copy(&place, "bob", "f", &server.to(""));
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(
        fs::read(place.path("share/f")).expect("it is there"),
        noise(4, 3 << 20)
    );
}

#[test]
fn an_interrupted_bench_has_a_result_whoever_sends() {
    let place = Place::new();
    let mut serve = place.command(&["bench", "serve", "--listen", "127.0.0.1:0"]);
    let mut server = serve.spawn().expect("it starts");
    let mut lines = BufReader::new(server.stderr.take().expect("piped")).lines();
    let line = lines.next().expect("it listens").expect("text");
    let at = line.split(' ').nth(3).expect("an address").to_owned();
    for more in [&[][..], &["-R"], &["-R", "-P", "2"]] {
        let args = [
            "bench",
            &at,
            "-t",
            "600",
            "-b",
            "20Mbit",
            "-i",
            "0.1",
            "--json-stream",
        ];
        let mut client = place
            .command(&[&args[..], more].concat())
            .spawn()
            .expect("it starts");
        let mut events = BufReader::new(client.stdout.take().expect("piped")).lines();
        let mut next = || -> Option<serde_json::Value> {
            let line = events.next()?.expect("text");
            Some(serde_json::from_str(&line).expect("an object a line"))
        };
        while next().expect("it runs")["type"] != "interval" {}
        kill(client.id(), "-INT");
        let last = std::iter::from_fn(next).last().expect("a result");
        let ended = client.wait().expect("it ends");
        assert_eq!(ended.code(), Some(0), "{more:?}: {last}");
        assert_eq!(last["type"], "summary", "{more:?}: {last}");
        assert!(last["bytes"].as_u64() > Some(0), "{more:?}: {last}");
    }
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}
