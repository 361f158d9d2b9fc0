//! The figures of known arrivals, and both ends over the loopback device.

use std::{
    io::{BufReader, Read as _},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use super::{figures::Arrival, *};

const MS: u64 = 1_000_000;

/// Packets 1 ms apart that take 10 ms and `extra` ns; `None` for lost ones.
fn arrivals(extra: impl Fn(u64) -> Option<u64>, count: u64) -> Vec<Arrival> {
    let at = |number: u64| {
        let left = 1_000 * MS + number * MS;
        extra(number).map(|extra| Arrival {
            number,
            left,
            at: left + 10 * MS + extra,
        })
    };
    (0..count).filter_map(at).collect()
}

fn figures(arrivals: &[Arrival], count: u64, expected: &Expected) -> PacedFigures {
    let last = 1_000 * MS + count * MS;
    PacedFigures::new(arrivals, count, last, 1_250, expected)
}

fn expected() -> Expected {
    Expected {
        delay_ns: 10 * MS,
        link_rate: 1_000_000_000,
        burst: 1.0,
        ..Expected::default()
    }
}

#[test]
fn delay_errors_leave_out_the_service_time() {
    // 1,250 bytes take 10 us at 1 Gbit/s; the others are the error.
    let found = figures(
        &arrivals(|n| Some(10_000 + n * 100), 1_000),
        1_000,
        &expected(),
    );
    let delay = &found.delay;
    assert!((delay.expected_us - 10_010.0).abs() < 1e-9);
    assert!(delay.min_us.abs() < 1e-9 && (delay.max_us - 99.9).abs() < 1e-9);
    assert!((delay.p99_us - 98.9).abs() < 1e-9, "{}", delay.p99_us);
    assert_eq!(delay.cdf.len(), 52);
    assert!(
        delay
            .cdf
            .is_sorted_by(|a, b| a.share < b.share && a.us <= b.us)
    );
    assert_eq!((found.loss.count, found.reorder.count), (0, 0));
}

#[test]
fn early_packets_are_errors_too() {
    let found = figures(&arrivals(|_| Some(0), 100), 100, &expected());
    assert!((found.delay.p99_us + 10.0).abs() < 1e-9);
    assert!((found.delay.magnitude_p99_us - 10.0).abs() < 1e-9);
}

#[test]
fn losses_have_an_interval_and_bursts() {
    let expected = Expected {
        loss: Some(0.02),
        ..expected()
    };
    // Every 50th and its neighbour at every 500th: 220 of 10,000 in 200 bursts.
    let lost = |n: u64| n.is_multiple_of(50) || n % 500 == 1;
    let found = figures(
        &arrivals(|n| (!lost(n)).then_some(0), 10_000),
        10_000,
        &expected,
    );
    assert_eq!((found.loss.count, found.loss.of), (220, 10_000));
    assert_eq!(found.loss.inside, Some(true));
    assert_eq!(found.bursts.lengths[..3], [180, 20, 0]);
    assert!((found.bursts.mean - 1.1).abs() < 1e-9);
    let far = Expected {
        loss: Some(0.03),
        ..expected
    };
    let found = figures(&arrivals(|n| (!lost(n)).then_some(0), 10_000), 10_000, &far);
    assert_eq!(found.loss.inside, Some(false));
}

#[test]
fn held_back_packets_are_late_and_not_in_the_delay() {
    let expected = Expected {
        reorder: Some(0.01),
        reorder_by_ns: 3 * MS,
        ..expected()
    };
    let held = |n: u64| Some(10_000 + if n % 100 == 7 { 3 * MS } else { 0 });
    let found = figures(&arrivals(held, 10_000), 10_000, &expected);
    assert_eq!(found.reorder.count, 100);
    assert_eq!(found.reorder.inside, Some(true));
    assert!((found.reorder_by_us - 3_000.0).abs() < 1e-9);
    assert!(found.delay.max_us.abs() < 1e-9);
    assert_eq!(found.delay.packets, 9_900);
}

#[test]
fn copies_are_counted_and_do_not_hide_losses() {
    let mut all = arrivals(|n| (n != 3).then_some(0), 1_000);
    let copies: Vec<Arrival> = all
        .iter()
        .filter(|a| a.number % 100 == 1)
        .copied()
        .collect();
    all.extend(copies);
    // Numbers that were never sent do not count.
    all.push(Arrival {
        number: 5_000,
        left: 0,
        at: 0,
    });
    let expected = Expected {
        duplicate: Some(0.01),
        ..expected()
    };
    let found = figures(&all, 1_000, &expected);
    assert_eq!((found.duplicate.count, found.duplicate.of), (10, 999));
    assert_eq!((found.loss.count, found.duplicate.inside), (1, Some(true)));
}

/// Measures over the loopback device with a server of this process.
fn over_loopback(plan: &Plan) -> ProbeReport {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve(&listener, Some(1), |e| panic!("{e}")));
    let report = send(to, plan).unwrap();
    server.join().unwrap().unwrap();
    report
}

const FREE: Expected = Expected {
    delay_ns: 0,
    link_rate: 0,
    loss: Some(0.0),
    burst: 1.0,
    reorder: None,
    reorder_by_ns: 0,
    duplicate: None,
};

#[test]
fn both_ends_measure_a_clean_path() {
    let report = over_loopback(&Plan {
        mode: Mode::Paced(Paced {
            packets: 200,
            every: Duration::from_micros(200),
        }),
        size: 500,
        expected: FREE,
    });
    let object = serde_json::to_value(&report).unwrap();
    assert_eq!(object["schema"], "farhaul.probe/1");
    assert_eq!(object.pointer("/receiver/packets").unwrap(), 200);
    assert_eq!(object.pointer("/loss/inside").unwrap(), true);
    assert_eq!(object.pointer("/delay/packets").unwrap(), 200);
    for pointer in [
        "/delay/p99_us",
        "/noise/p99_us",
        "/loss/low",
        "/reorder/share",
    ] {
        assert!(object.pointer(pointer).unwrap().is_number(), "{pointer}");
    }
    assert!(
        report.paced.unwrap().delay.min_us >= 0.0,
        "none arrives before it leaves"
    );
    assert!(object.get("queue").is_none());
}

#[test]
fn a_stream_arrives_at_the_rate_it_is_sent_at() {
    let report = over_loopback(&Plan {
        mode: Mode::Rate(Stream {
            time: Duration::from_millis(600),
            gso: true,
            limit: 1_000_000,
        }),
        size: 1_500,
        expected: Expected {
            link_rate: 100_000_000,
            ..FREE
        },
    });
    let rate = report.rate.unwrap();
    // Nothing limits it: what arrives is what is offered, 5 % more than the link would carry; a busy machine
    // may offer less, never more.
    assert!(rate.error_percent.unwrap() < 6.0, "{rate:?}");
    assert!(rate.packets > 0 && rate.lost == 0, "{rate:?}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_fix() {
    let plan = |mode, size, link_rate| Plan {
        mode,
        size,
        expected: Expected { link_rate, ..FREE },
    };
    let paced = |packets, us| {
        Mode::Paced(Paced {
            packets,
            every: Duration::from_micros(us),
        })
    };
    let stream = Stream {
        time: Duration::from_millis(1),
        gso: true,
        limit: 1_000_000,
    };
    let cases = [
        (plan(paced(10, 1), 500, 0), "too fast to be paced"),
        (plan(paced(10, 100), 9_000, 1_000_000_000), "longer --every"),
        (plan(paced(0, 100), 500, 0), "give 1 to"),
        (plan(paced(10, 100), 40, 0), "72 to 65521"),
        (plan(paced(10, 100), 100, 5), "from 100kbit"),
        (plan(Mode::Rate(stream), 500, 1_000_000), "500ms to 300s"),
        (plan(Mode::Rate(stream), 500, 0), "--link-rate"),
    ];
    let nowhere = "127.0.0.1:9".parse().unwrap();
    for (plan, expected) in cases {
        let error = send(nowhere, &plan).unwrap_err();
        assert!(matches!(error, ProbeError::Usage(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_server_of_another_kind_is_named() {
    use std::io::Write as _;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example.org\r\n").unwrap();
    });
    let plan = Plan {
        mode: Mode::Rate(Stream {
            time: Duration::from_secs(1),
            gso: false,
            limit: 1_000_000,
        }),
        size: 500,
        expected: Expected {
            link_rate: 1_000_000,
            ..FREE
        },
    };
    let error = send(to, &plan).unwrap_err();
    other.join().unwrap();
    assert!(
        matches!(error, ProbeError::NoProbe(at) if at == to),
        "{error}"
    );
}

/// A client with a path that takes for ever.
fn asking() -> wire::Hello {
    wire::Hello {
        exchange: wire::EXCHANGE.into(),
        session: 7,
        packets: 10,
        stream: 10,
        drain_ms: 100,
        headers: 28,
        ask: wire::Ask::Figures {
            bytes: u64::MAX,
            expected: Expected {
                delay_ns: u64::MAX,
                ..FREE
            },
        },
    }
}

/// Asserts that a client that asks for too much gets no answer.
fn refused(to: SocketAddr, hello: &wire::Hello) {
    let stream = TcpStream::connect(to).unwrap();
    wire::put(&mut &stream, hello).unwrap();
    let mut told = Vec::new();
    (&stream).read_to_end(&mut told).unwrap();
    assert!(told.is_empty(), "{hello:?}");
}

#[test]
fn a_client_that_asks_for_too_much_is_refused_and_the_next_one_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let (told, failures) = mpsc::channel();
    let server =
        thread::spawn(move || serve(&listener, Some(4), |e| told.send(e.to_string()).unwrap()));
    let hello = asking();
    let long = wire::Hello {
        drain_ms: u64::MAX,
        ..hello.clone()
    };
    refused(to, &long);
    let expected = Expected {
        loss: Some(2.0),
        ..FREE
    };
    let ask = wire::Ask::Figures { bytes: 1, expected };
    let impossible = wire::Hello {
        ask,
        ..hello.clone()
    };
    refused(to, &impossible);
    // Whatever is in a datagram is only a measurement.
    let stream = TcpStream::connect(to).unwrap();
    let mut from = BufReader::new(&stream);
    wire::put(&mut &stream, &hello).unwrap();
    let ports: wire::Ports = wire::get(&mut from, to).unwrap();
    let mut datagram = [0; 100];
    let head = wire::Head {
        session: 7,
        number: 0,
        at: u64::MAX,
    };
    head.encode(&mut datagram);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&datagram, (to.ip(), ports.packets)).unwrap();
    let sent = wire::Sent {
        packets: 1,
        stream: 0,
        last: u64::MAX,
    };
    wire::put(&mut &stream, &sent).unwrap();
    let arrived: wire::Arrived = wire::get(&mut from, to).unwrap();
    assert_eq!((arrived.packets, arrived.gaps.len()), (1, 0));
    let plan = Plan {
        mode: Mode::Paced(Paced {
            packets: 20,
            every: Duration::from_micros(200),
        }),
        size: 500,
        expected: FREE,
    };
    send(to, &plan).unwrap();
    server.join().unwrap().unwrap();
    let failures: Vec<String> = failures.iter().collect();
    assert_eq!(failures.len(), 2, "{failures:?}");
}

#[test]
fn datagrams_of_strangers_do_not_keep_a_session_alive() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve(&listener, Some(1), |e| panic!("{e}")));
    let stream = TcpStream::connect(to).unwrap();
    let mut from = BufReader::new(&stream);
    let hello = wire::Hello {
        exchange: wire::EXCHANGE.into(),
        session: 7,
        packets: 10,
        stream: 10,
        drain_ms: 200,
        headers: 28,
        ask: wire::Ask::Arrivals,
    };
    wire::put(&mut &stream, &hello).unwrap();
    let ports: wire::Ports = wire::get(&mut from, to).unwrap();
    let over = AtomicBool::new(false);
    let arrived: wire::Arrived = thread::scope(|scope| {
        scope.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !over.load(Ordering::Relaxed) {
                // The port may be closed at this very moment.
                let _ = socket.send_to(b"abc", (to.ip(), ports.packets));
            }
        });
        let sent = wire::Sent {
            packets: 0,
            stream: 0,
            last: 0,
        };
        wire::put(&mut &stream, &sent).unwrap();
        let arrived = wire::get(&mut from, to);
        over.store(true, Ordering::Relaxed);
        arrived.unwrap()
    });
    assert_eq!((arrived.packets, arrived.unstamped), (0, 0));
    server.join().unwrap().unwrap();
}
