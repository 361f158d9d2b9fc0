//! The bench over real sockets on this host, in both directions and over several parallel sessions.
//! The receiver counts what was asked for, whatever the machine's speed.

use std::{net::SocketAddr, sync::mpsc::channel, thread};

use farhaul_io::{Buffers, Stop};
use farhaul_measure::bench::{self, BenchError, Bounds, Limit, Progress, Report, Spec, Target};
use farhaul_measure::registry::{self, Choice};

const BYTES: u64 = 20_000_000;

fn target(to: SocketAddr) -> Target {
    Target {
        to,
        protocol: "haul".into(),
        cc: "haul".into(),
        buffers: Buffers::default(),
        stopwatch: None,
        wrap: None,
        stop: None,
    }
}

/// Runs `spec` against a server of its own.
fn bench(spec: &Spec, bounds: Bounds) -> Result<(Report, Vec<Progress>), BenchError> {
    let entry = registry::protocol("haul").expect("haul is there");
    let server = entry.server(&Choice::default()).expect("defaults are fine");
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
        bench::serve(any, server, bounds, Some(1), &also, &mut tell)
    });
    let to = at_rx.recv().expect("the server says where it is");
    let mut progress = Vec::new();
    let mut make = || entry.client(&Choice::default()).expect("defaults are fine");
    let report = bench::run(&target(to), spec, &mut make, &mut |p| progress.push(p));
    if report.is_err() {
        stop.set();
    }
    thread.join().expect("the server does not panic")?;
    Ok((report?, progress))
}

#[test]
fn every_byte_is_counted_once_at_the_receiver() {
    for (reverse, lanes) in [(false, 1), (true, 1), (false, 3)] {
        let spec = Spec {
            limit: Limit::Bytes(BYTES),
            reverse,
            lanes,
            ..Spec::default()
        };
        let (report, progress) = bench(&spec, Bounds::default()).expect("loopback works");
        assert_eq!(report.bytes, BYTES * u64::from(lanes));
        assert!(report.complete);
        assert!(report.wire_bytes > report.bytes && report.feedback_bytes > 0);
        assert!(report.rtt_ms.min.is_some());
        let shares: f64 = report.limited_by.values().sum();
        assert!((shares - 1.0).abs() < 1e-6, "{:?}", report.limited_by);
        assert!(matches!(progress[0], Progress::Connected(_)));
    }
}

#[test]
fn a_run_by_time_ends_with_everything_offered_delivered() {
    let spec = Spec {
        limit: Limit::Nanos(300_000_000),
        ..Spec::default()
    };
    let (report, _) = bench(&spec, Bounds::default()).expect("loopback works");
    assert!(report.complete && report.bytes > 0);
}

#[test]
fn a_refusal_reaches_the_client_as_text() {
    let bounds = Bounds {
        bytes: 1_000,
        ..Bounds::default()
    };
    let spec = Spec {
        limit: Limit::Bytes(BYTES),
        ..Spec::default()
    };
    let error = bench(&spec, bounds).expect_err("it is too much");
    assert!(error.to_string().contains("at most"), "{error}");
}

#[test]
fn a_missing_peer_is_detected() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is to be had");
    let to = closed.local_addr().expect("it is bound");
    drop(closed);
    let entry = registry::protocol("haul").expect("haul is there");
    let mut make = || entry.client(&Choice::default()).expect("defaults are fine");
    let ended = bench::run(&target(to), &Spec::default(), &mut make, &mut |_| ());
    assert!(matches!(ended, Err(BenchError::Refused(at)) if at == to));
}
