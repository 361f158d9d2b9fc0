//! The probe measures an emulated network, prints what a study reads, and refuses what it cannot
//! measure.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests; a skipped one says why"
)]

mod environment;

use std::{net::TcpListener, process::Output};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_farhaul");
const PORT: &str = "10.99.0.2:17995";

fn farhaul(arguments: &[&str]) -> Output {
    let place = tempfile::tempdir().unwrap();
    let mut command = environment::command(PROGRAM, place.path());
    command.args(arguments).output().unwrap()
}

/// Measures on an emulated network; `None` where this machine lets us build none.
fn measured(network: &str, mode: &str) -> Option<Value> {
    let place = tempfile::tempdir().unwrap();
    let far = format!("'{PROGRAM}' _probe serve {PORT}");
    let output = environment::command(PROGRAM, place.path())
        .args(["wan", "run", "--far", &far])
        .args(network.split(' '))
        .args(["--", PROGRAM, "_probe", "send", PORT])
        .args(mode.split(' '))
        .output()
        .unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(11) {
        println!("skipped: {reported}");
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{reported}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn number(object: &Value, pointer: &str) -> f64 {
    let value = object.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {pointer} in {object}"))
}

#[test]
fn paced_packets_show_delay_loss_order_and_copies() {
    let network = "--rtt 40ms --rate 100Mbit --loss 2% --reorder 5%,8ms";
    let mode = "paced --packets 3000 --every 500us --delay 20ms --link-rate 100Mbit --loss 2% --reorder 5%,8ms --duplicate 0%";
    let Some(found) = measured(network, mode) else {
        return;
    };
    assert_eq!(found["schema"], "farhaul.probe/1");
    assert_eq!(found["mode"], "paced");
    // No packet is faster than the configured network, to the resolution of the clocks.
    assert!(number(&found, "/delay/min_us") > -50.0, "{found}");
    assert!((20_080.0..25_000.0).contains(&number(&found, "/delay/one_way_p50_us")));
    assert!(number(&found, "/delay/p99_us") >= number(&found, "/delay/p50_us"));
    assert!(found["delay"]["cdf"].as_array().unwrap().len() > 50);
    // Six standard deviations: the exact interval would fail once in a hundred seeds.
    assert!(
        (0.005..0.036).contains(&number(&found, "/loss/share")),
        "{found}"
    );
    assert!(
        (0.025..0.08).contains(&number(&found, "/reorder/share")),
        "{found}"
    );
    assert!((7_000.0..12_000.0).contains(&number(&found, "/reorder_by_us")));
    assert_eq!(found["duplicate"]["count"], 0);
    assert_eq!(found["expected"]["delay_ns"], 20_000_000);
    for pointer in ["/loss/low", "/loss/high", "/bursts/mean", "/noise/p99_us"] {
        number(&found, pointer);
    }
}

#[test]
fn a_queue_takes_its_limit_and_no_more() {
    let network = "--rtt 10ms --rate 100Mbit --queue 300kB";
    let mode = "queue --delay 5ms --link-rate 100Mbit --size 1500 --queue 200packets --repeat 3";
    let Some(found) = measured(network, mode) else {
        return;
    };
    assert_eq!(found["queue"]["expected_bytes"], 300_000);
    // 200 packets, and those for which space came while the burst was read.
    let through = number(&found, "/queue/through");
    assert!((200.0..300.0).contains(&through), "{found}");
    // 24 ms; more if the emulator was late.
    assert!(number(&found, "/queue/wait_error_us") > -200.0, "{found}");
}

#[test]
fn a_stream_and_a_full_link_have_their_rate() {
    let network = "--rtt 10ms --rate 100Mbit";
    let rate = "rate --link-rate 100Mbit --size 1500 --time 1s";
    let Some(found) = measured(network, rate) else {
        return;
    };
    assert!(number(&found, "/rate/error_percent").abs() < 5.0, "{found}");
    let full =
        "full --queue 130kB --delay 5ms --link-rate 100Mbit --size 1500 --time 1s --every 5ms";
    let found = measured(network, full).unwrap();
    assert!(number(&found, "/full/delay/packets") > 50.0);
    // It stands behind half of the queue, 5 ms.
    assert!(
        number(&found, "/full/delay/one_way_p50_us") > 6_000.0,
        "{found}"
    );
    assert!(found["full"]["on_time"].is_boolean());
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let send = |more: &[&'static str]| [&["_probe", "send", "127.0.0.1:9"], more].concat();
    let cases = [
        (
            send(&["paced", "--every", "1us"]),
            2,
            "too fast to be paced",
        ),
        (send(&["paced", "--every", "5"]), 2, "5 what?"),
        (
            send(&["paced", "--link-rate", "10Mbit", "--every", "1ms"]),
            2,
            "choose a longer --every",
        ),
        (send(&["paced", "--packets", "0"]), 2, "give 1 to"),
        (send(&["paced", "--burst", "0.5"]), 2, "--burst 0.5"),
        (send(&["rate"]), 2, "--link-rate"),
        (send(&["rate", "--link-rate", "500Gbit"]), 2, "to 100Gbit"),
        (send(&["queue", "--link-rate", "1Gbit"]), 2, "--queue"),
        (
            send(&["queue", "--link-rate", "1Gbit", "--queue", "xpackets"]),
            2,
            "64packets",
        ),
        (send(&["paced"]), 17, "start 'farhaul _probe serve"),
        (vec!["_probe", "serve", "localhost"], 2, "ADDRESS:PORT"),
        (vec!["_probe", "serve", "192.0.2.1:5"], 11, "cannot listen"),
    ];
    for (arguments, code, expected) in cases {
        let output = farhaul(&arguments);
        let reported = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {reported}"
        );
        assert!(reported.contains(expected), "{arguments:?}: {reported}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn another_program_at_the_port_is_no_probe() {
    use std::io::Write as _;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-other\r\n").unwrap();
    });
    let output = farhaul(&["_probe", "send", &at, "paced", "--packets", "10"]);
    other.join().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(20), "{reported}");
    assert!(reported.contains("check the port"), "{reported}");
}
