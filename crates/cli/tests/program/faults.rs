//! `farhaul cp` gets through the faults of a network: through `farhaul wan relay`, as a user would
//! try.

use std::{
    fs,
    io::Read as _,
    net::UdpSocket,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use farhaul_core::rng::Rng;
use serde_json::Value;

use super::kit::{Served, command, object};

/// A server behind a relay with `faults`; both ended with the test.
struct Behind {
    _server: Served,
    relay: Served,
}

impl Behind {
    fn start(place: &Path, faults: &[&str], bytes: usize) -> Self {
        let mut rng = Rng::new(5);
        let words = (0..bytes / 8).flat_map(|_| rng.next_u64().to_le_bytes());
        fs::write(place.join("f"), words.collect::<Vec<u8>>()).expect("ours");
        fs::create_dir(place.join("far")).expect("ours");
        let args = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--allow",
            "any",
            "--share",
            "s=far:rw",
        ];
        let server = Served::start(place, &args);
        let relay = [
            "wan",
            "relay",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--to",
            &server.1,
        ];
        let mut relay = command(place, &[&relay[..], faults].concat());
        let relay = Served::of(relay.stdout(Stdio::piped()));
        Self {
            _server: server,
            relay,
        }
    }

    /// Copies through it, compares, and reads the relay's account.
    fn copy(mut self, place: &Path) -> (Value, Value) {
        let to = format!("{}::s/", self.relay.1);
        let word = object(place, &["cp", "--trust-any", "--json", "f", &to], 0);
        let read = |name| fs::read(place.join(name)).expect("it is there");
        assert!(read("far/f") == read("f"));
        let id = self.relay.0.id().to_string();
        let reported = Command::new("kill").args(["-INT", &id]).status();
        assert!(reported.expect("kill exists").success());
        let mut account = String::new();
        let out = self.relay.0.stdout.as_mut().expect("piped");
        out.read_to_string(&mut account).expect("text");
        (word, serde_json::from_str(&account).expect("one object"))
    }
}

#[test]
fn a_copy_goes_on_after_ten_dark_seconds() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let faults = ["--rate", "100Mbit", "--rtt", "20ms", "--blackout", "3s+10s"];
    // 4.8 s of bytes at this rate, and the relay's time begins with the first of them. So some are
    // left when it gets dark, however busy this machine is.
    let behind = Behind::start(place.path(), &faults, 60_000_000);
    let (word, relay) = behind.copy(place.path());
    assert_eq!(
        (&word["ok"], &word["resumed_bytes"]),
        (&Value::Bool(true), &Value::from(0))
    );
    let dropped = relay["near_to_far"]["drops"]["blackout"].as_u64();
    assert!(dropped.is_some_and(|n| n > 0), "{relay}");
}

#[test]
fn a_copy_through_damage_copies_loss_and_disorder_is_whole() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let faults = [
        "--rate",
        "300Mbit",
        "--rtt",
        "10ms",
        "--loss",
        "1%",
        "--corrupt",
        "1%",
        "--duplicate",
        "2%",
        "--reorder",
        "2%,3ms",
    ];
    let behind = Behind::start(place.path(), &faults, 20_000_000);
    let (word, relay) = behind.copy(place.path());
    assert_eq!(word["verify"]["alg"], "blake3");
    let way = &relay["near_to_far"];
    for count in ["corrupted", "duplicated", "reordered"] {
        assert!(
            way[count].as_u64().is_some_and(|n| n > 0),
            "{count}: {relay}"
        );
    }
}

#[test]
fn a_server_that_answers_and_stops_is_not_reported_as_blocked() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    fs::write(place.join("f"), "content").expect("ours");
    fs::create_dir(place.join("far")).expect("ours");
    let server = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--allow",
        "any",
        "--share",
        "s=far:rw",
    ];
    let server = Served::start(place, &server);
    // What an overloaded server does: its first answer costs it nothing, all that follows is lost.
    let local = || UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (front, back) = (local(), local());
    back.connect(&server.1).expect("an address");
    let to = format!("{}::s/", front.local_addr().expect("bound"));
    let word = thread::scope(|scope| {
        scope.spawn(|| {
            let mut datagram = [0; 2_048];
            // The client's first flight is two.
            let mut forward = || {
                let (len, client) = front.recv_from(&mut datagram).expect("a client");
                back.send(&datagram[..len]).expect("a server");
                client
            };
            forward();
            let client = forward();
            let len = back.recv(&mut datagram).expect("an answer");
            front.send_to(&datagram[..len], client).expect("a client");
        });
        object(place, &["cp", "--trust-any", "--json", "f", &to], 18)
    });
    assert_eq!(word["exit"]["name"], "busy");
    let printed = (word["exit"]["text"].as_str(), word["exit"]["fix"].as_str());
    assert!(
        matches!(printed, (Some(text), Some(fix)) if text.contains("answered") && fix.contains("overloaded")),
        "{printed:?}"
    );
}
