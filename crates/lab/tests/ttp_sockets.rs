//! The Tsunami UDP protocol over real sockets on this host: datagrams and a TCP connection beside them.
//! Every byte is counted once at the receiver, whatever the machine's speed.

use std::{net::SocketAddr, sync::mpsc::channel, thread, time::Duration};

use farhaul_core::protocol::Protocol;
use farhaul_io::{Buffers, Stop};
use farhaul_measure::bench::{self, Bounds, Limit, Report, Spec, Target};
use farhaul_protocols::ttp::{self, Config};

const BYTES: u64 = 20_000_000;

fn client(to: SocketAddr, spec: &Spec) -> Report {
    let target = Target {
        to,
        protocol: "ttp".into(),
        cc: "ttp".into(),
        buffers: Buffers::default(),
        stop: None,
        stopwatch: None,
        wrap: None,
    };
    let mut make = || -> Box<dyn Protocol> {
        Box::new(ttp::client(&Config::default()).expect("valid settings"))
    };
    bench::run(&target, spec, &mut make, &mut |_| {}).expect("loopback works")
}

#[test]
fn every_byte_arrives_in_both_directions_and_what_is_cut_short_ends() {
    let stop = Stop::new().expect("a descriptor is to be had");
    let (at_tx, at_rx) = channel();
    let ends = stop.clone();
    let thread = thread::spawn(move || {
        let protocol = Box::new(ttp::server(&Config::default()).expect("valid settings"));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut tell = |at, served| {
            if served == bench::Served::Listening {
                at_tx.send(at).expect("the test waits for it");
            }
        };
        bench::serve(any, protocol, Bounds::default(), Some(3), &ends, &mut tell)
            .expect("loopback works");
    });
    let to: SocketAddr = at_rx.recv().expect("the server says where it is");
    for (reverse, lanes) in [(false, 1), (true, 2)] {
        let spec = Spec {
            limit: Limit::Bytes(BYTES),
            reverse,
            lanes,
            ..Spec::default()
        };
        let report = client(to, &spec);
        assert_eq!(report.bytes, BYTES * u64::from(lanes));
        assert!(report.complete && report.feedback_bytes > 0);
    }
    let time = Duration::from_millis(700);
    let spec = Spec {
        limit: Limit::Nanos(700_000_000),
        ..Spec::default()
    };
    let report = client(to, &spec);
    assert!(report.complete && report.bytes > 0, "after {time:?}");
    thread.join().expect("the server does not panic");
}
