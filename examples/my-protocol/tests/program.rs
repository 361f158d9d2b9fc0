//! Is a protocol from outside known by name in farhaul's commands?

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

/// `farhaul` with this protocol in it: the simulator, and real sockets.
#[test]
fn every_command_knows_it_by_name() {
    let program = || Command::new(env!("CARGO_BIN_EXE_my-protocol"));
    let run = |words: &[&str]| {
        let output = program().args(words).output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}{complained}");
        said
    };
    let listed = run(&["protocols"]);
    assert!(listed.contains("tiny") && listed.contains("blast"));
    let path = [
        "--rate", "50Mbit", "--rtt", "20ms", "--loss", "1%", "--secs", "3",
    ];
    assert!(run(&[&["sim", "--protocol", "tiny"], &path[..]].concat()).contains("tiny"));
    let blast = run(&[
        &["sim", "--protocol", "blast:rate=40Mbit", "--json"],
        &path[..],
    ]
    .concat());
    let goodput = blast.split("\"goodput_bits_per_second\": ").nth(1);
    let goodput = goodput.and_then(|rest| rest.split([',', '\n']).next()?.parse::<f64>().ok());
    assert!(
        goodput.is_some_and(|g| g > 35e6),
        "{goodput:?} of 40 Mbit/s"
    );
    let mut server = program();
    server.args([
        "bench",
        "serve",
        "--protocol",
        "tiny",
        "--listen",
        "127.0.0.1:0",
        "--one-off",
    ]);
    let mut server = server
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let said = BufReader::new(server.stderr.take().expect("piped")).lines();
    let at = said
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("bench server at ").map(str::to_owned))
        .expect("it says where it listens");
    let at = at.split(['/', ' ']).next().expect("an address").to_owned();
    let bench = run(&["bench", &at, "--protocol", "tiny", "-n", "20MB"]);
    assert!(bench.contains("goodput"), "{bench}");
    assert!(server.wait().expect("it ends").success());
}
