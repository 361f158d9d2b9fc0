//! SABUL over real sockets on this host: datagrams and a TCP connection beside them. Every byte is
//! counted once at the receiver, whatever the machine's speed; what fails says which of the two does.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::mpsc::{Receiver, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use farhaul_core::protocol::{CloseReason, Protocol};
use farhaul_io::{Buffers, Stop};
use farhaul_measure::bench::{self, BenchError, Bounds, Limit, Report, Spec, Target};
use farhaul_protocols::sabul::{self, Config};

const BYTES: u64 = 20_000_000;

fn config() -> Config {
    Config {
        mss: 9_000,
        answer: Duration::from_millis(700),
        ..Config::default()
    }
}

fn server(clients: u64, stop: &Stop) -> (SocketAddr, JoinHandle<()>) {
    let (at_tx, at_rx): (_, Receiver<SocketAddr>) = channel();
    let protocol = Box::new(sabul::server(&config()).expect("valid settings"));
    let stop = stop.clone();
    let thread = thread::spawn(move || {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut tell = |at, served| {
            if served == bench::Served::Listening {
                at_tx.send(at).expect("the test waits for it");
            }
        };
        let served = bench::serve(
            any,
            protocol,
            Bounds::default(),
            Some(clients),
            &stop,
            &mut tell,
        );
        served.expect("loopback works");
    });
    (at_rx.recv().expect("the server says where it is"), thread)
}

fn client(to: SocketAddr, reverse: bool, lanes: u32) -> Result<Report, BenchError> {
    let target = Target {
        to,
        protocol: "sabul".into(),
        cc: "sabul".into(),
        buffers: Buffers::default(),
        stop: None,
        stopwatch: None,
        wrap: None,
    };
    let spec = Spec {
        limit: Limit::Bytes(BYTES),
        reverse,
        lanes,
        ..Spec::default()
    };
    let mut make =
        || -> Box<dyn Protocol> { Box::new(sabul::client(&config()).expect("valid settings")) };
    bench::run(&target, &spec, &mut make, &mut |_| {})
}

fn closed(result: Result<Report, BenchError>) -> CloseReason {
    match result {
        Err(BenchError::Closed(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

/// TCP and UDP sockets on one port, for a peer of the test's own.
fn port() -> (TcpListener, UdpSocket) {
    for _ in 0..50 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().expect("bound")) {
            return (listener, socket);
        }
    }
    panic!("no port is free for both");
}

#[test]
fn every_byte_arrives_in_both_directions_and_over_several_sessions() {
    let stop = Stop::new().expect("a descriptor is to be had");
    let (to, thread) = server(3, &stop);
    for (reverse, lanes) in [(false, 1), (true, 1), (false, 3)] {
        let report = client(to, reverse, lanes).expect("loopback works");
        assert_eq!(report.bytes, BYTES * u64::from(lanes));
        assert!(report.complete && report.feedback_bytes > 0);
        assert!(report.wire_bytes > report.bytes);
    }
    thread.join().expect("the server does not panic");
}

#[test]
fn strangers_at_the_control_port_do_not_keep_others_out() {
    let stop = Stop::new().expect("a descriptor is to be had");
    let (to, thread) = server(1, &stop);
    let mut strangers: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(to).expect("it listens"))
        .collect();
    for (i, stranger) in strangers.iter_mut().enumerate() {
        let text: &[u8] = if i % 2 == 0 {
            b"GET / HTTP/1.1\r\n\r\n and more"
        } else {
            b"fhcl"
        };
        // It may have been hung up on already.
        let _gone = stranger.write_all(text);
    }
    assert_eq!(client(to, false, 1).expect("room is made").bytes, BYTES);
    thread.join().expect("the server does not panic");
}

#[test]
fn blocked_datagrams_are_distinguished_from_a_missing_peer() {
    let (listener, _mute) = port();
    let to = listener.local_addr().expect("bound");
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        // Until the client hangs up.
        stream.read_to_end(&mut Vec::new()).expect("loopback");
    });
    let reason = closed(client(to, false, 1));
    let blocked = |text: &str| text.contains("block UDP");
    assert!(
        matches!(&reason, CloseReason::Lane(text) if blocked(text)),
        "{reason:?}"
    );
    thread.join().expect("no panic");
    assert!(
        matches!(client(to, false, 1), Err(BenchError::Refused(_))),
        "nobody listens any more"
    );
}

#[test]
fn a_control_connection_that_is_cut_or_talks_nonsense_is_named() {
    for words in [
        &b""[..],
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    ] {
        let (listener, _mute) = port();
        let to = listener.local_addr().expect("bound");
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client comes");
            let mut preamble = [0; 20];
            stream.read_exact(&mut preamble).expect("it says its token");
            stream.write_all(words).expect("loopback");
            if words.is_empty() {
                return;
            }
            stream.read_to_end(&mut Vec::new()).expect("loopback");
        });
        let reason = closed(client(to, false, 1));
        match &reason {
            CloseReason::Lane(text) => assert!(words.is_empty() && text.contains("TCP"), "{text}"),
            CloseReason::Protocol(text) => {
                assert!(
                    !words.is_empty() && text.contains("length of a frame"),
                    "{text}"
                );
            }
            other => panic!("{other:?}"),
        }
        thread.join().expect("no panic");
    }
}
