//! The TCP session over real sockets on this host: every byte is counted once at the receiver,
//! whatever the machine's speed.

use std::{net::SocketAddr, sync::mpsc::channel, thread};

use farhaul_io::{Buffers, Stop};
use farhaul_measure::bench::{self, Bounds, Limit, Report, Spec, Target};
use farhaul_measure::registry::{self, Choice};

const BYTES: u64 = 20_000_000;

fn bench(protocol: &str, law: &str, reverse: bool) -> Report {
    let entry = registry::protocol(protocol).expect("a protocol");
    let choice = Choice {
        law: Some(law.into()),
        ..Choice::default()
    };
    let server = entry.server(&choice).expect("the settings are valid");
    let (at_tx, at_rx) = channel();
    let stop = Stop::new().expect("a descriptor is to be had");
    let also = stop.clone();
    let thread = thread::spawn(move || {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut tell = |at, served| {
            if served == bench::Served::Listening {
                at_tx.send(at).expect("the test waits for it");
            }
        };
        bench::serve(any, server, Bounds::default(), Some(1), &also, &mut tell)
    });
    let to = at_rx.recv().expect("the server says where it is");
    let target = Target {
        to,
        protocol: protocol.into(),
        cc: law.into(),
        buffers: Buffers::default(),
        stopwatch: None,
        wrap: None,
        stop: None,
    };
    let spec = Spec {
        limit: Limit::Bytes(BYTES),
        reverse,
        ..Spec::default()
    };
    let mut make = || entry.client(&choice).expect("the settings are valid");
    let report = bench::run(&target, &spec, &mut make, &mut |_| {});
    if report.is_err() {
        stop.set();
    }
    let served = thread.join().expect("the server does not panic");
    served.expect("loopback works");
    report.expect("loopback works")
}

#[test]
fn every_byte_arrives_in_both_directions() {
    for reverse in [false, true] {
        for (protocol, law) in [
            ("tcp", "cubic"),
            ("tcp:recovery=newreno,stretch=off,mtu=1500", "reno"),
            ("tcp:profile=windows-xp-x64", "cubic"),
        ] {
            let report = bench(protocol, law, reverse);
            assert_eq!(report.bytes, BYTES, "{protocol} {reverse}");
            assert!(report.complete && report.feedback_bytes > 0);
            assert!(report.wire_bytes > report.bytes);
        }
    }
}
