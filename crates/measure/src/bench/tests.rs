//! Both applications over a session that is nothing but two queues.

use std::sync::mpsc::{Receiver, channel};

use farhaul_core::{
    protocol::{CloseReason, Event, Session as _},
    stats::Stats,
    store::Extent,
    time::Instant,
};
use farhaul_io::App;
use farhaul_testkit::FakeSession;

use super::{
    message::{Hello, Message, VERSION, send},
    *,
};

/// A session on which something has been measured.
fn queues() -> FakeSession {
    let stats = Stats {
        wire_sent: 1_000,
        rtt_min: Some(Duration::from_millis(20)),
        ..Stats::default()
    };
    FakeSession {
        stats,
        ..FakeSession::default()
    }
}

/// Moves up to `budget` bytes of object data from one end to the other.
fn carry(session: &mut FakeSession, from: &mut dyn App, to: &mut dyn App, mut budget: u64) {
    let mut batch = vec![0; 9_000];
    while let Some((object, offset, left)) = session.sends.front_mut().filter(|_| budget > 0) {
        assert_eq!(*object, payload::OBJECT);
        let len = (*left).min(9_000).min(budget);
        let extent = Extent {
            object: payload::OBJECT,
            offset: *offset,
            len: u32::try_from(len).unwrap(),
            at: 0,
        };
        (*offset, *left) = (*offset + len, *left - len);
        budget -= len;
        from.fill(&[extent], &mut batch).unwrap();
        to.place(&[extent], &batch).unwrap();
        if *left == 0 {
            session.sends.pop_front();
        }
    }
}

/// A request for an hour in one session.
fn hello() -> Hello {
    Hello {
        version: VERSION,
        farhaul: String::new(),
        reverse: false,
        limit: Limit::Nanos(3_600_000_000_000),
        since_start: 0,
        omit: 0,
        interval: 0,
        marks_at_end: false,
        lanes: 1,
        lane: 0,
        max_rate: None,
        policy: "fair".into(),
        constant: None,
    }
}

/// A server that allows everything.
const BOUNDS: Bounds = Bounds {
    time: Duration::from_hours(24),
    bytes: 1 << 60,
    lanes: 256,
    sharing: Sharing::Fair,
    rate: Rate::UNLIMITED,
    constant: true,
};

fn at(ms: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(ms)
}

/// Runs a bench at `per_ms` bytes a millisecond until the client closes; connecting takes 20 ms.
fn run(spec: &Spec, per_ms: u64) -> (Receiver<(u32, News)>, Receiver<Served>) {
    let ((news, heard), (served, reported)) = (channel(), channel());
    let mut client = (queues(), Client::new(*spec, 0, news, None));
    let mut server = (
        queues(),
        Server::new(BOUNDS, move |told| served.send(told).unwrap()),
    );
    let connected = || Event::Connected { peer_key: None };
    client.1.poll(at(0), &mut client.0);
    client.1.on_event(at(20), connected(), &mut client.0);
    for ms in 20..20_000 {
        let now = at(ms);
        server.0.arrived.append(&mut client.0.written);
        client.0.arrived.append(&mut server.0.written);
        server.1.on_event(now, Event::Readable, &mut server.0);
        client.1.on_event(now, Event::Readable, &mut client.0);
        carry(&mut client.0, &mut client.1, &mut server.1, per_ms);
        carry(&mut server.0, &mut server.1, &mut client.1, per_ms);
        server.1.poll(now, &mut server.0);
        client.1.poll(now, &mut client.0);
        if let Some((code, text)) = &client.0.closed {
            let reason = CloseReason::Peer {
                code: *code,
                text: text.clone(),
            };
            server.1.on_event(now, Event::Closed(reason), &mut server.0);
            let asked = [&client.0, &server.0].map(|session| session.constant);
            let sends = usize::from(spec.reverse);
            assert_eq!((asked[sends], asked[1 - sends]), (spec.constant, None));
            return (heard, reported);
        }
    }
    panic!("the bench never ends");
}

fn finished(heard: &Receiver<(u32, News)>) -> (Lane, Vec<Mark>) {
    let mut marks = Vec::new();
    for (_, news) in heard {
        match news {
            News::Mark(mark) => marks.push(mark),
            News::Sample(_) => {}
            News::Finished(lane) => return (*lane, marks),
            News::Failed(reason) => panic!("{reason}"),
            News::Connected(took) => assert_eq!(took, Duration::from_millis(20)),
        }
    }
    panic!("no result");
}

#[test]
fn a_number_of_bytes_is_moved_and_counted_in_both_directions() {
    for (reverse, live) in [(false, true), (false, false), (true, true)] {
        let spec = Spec {
            limit: Limit::Bytes(10_000_000),
            reverse,
            live,
            interval: Duration::from_millis(10),
            ..Spec::default()
        };
        let (heard, reported) = run(&spec, 100_000);
        let (lane, marks) = finished(&heard);
        assert_eq!(lane.receiver.received, 10_000_000);
        assert!(lane.receiver.complete);
        let elapsed = lane.elapsed.as_millis();
        assert!((115..=135).contains(&elapsed), "{elapsed}");
        assert!(marks.len() >= 8 && marks.is_sorted_by_key(|m| m.bytes));
        let report = Report::new("p", "c", reverse, Duration::ZERO, &[lane]);
        let gbps = report.goodput_bits_per_second / 1e9;
        assert!((0.59..0.70).contains(&gbps), "{gbps}");
        assert_eq!(report.feedback_bytes, 1_000);
        assert!(matches!(
            reported.recv(),
            Ok(Served::Began(Request {
                lanes: 1,
                constant: None,
                ..
            }))
        ));
        let ended = reported.recv();
        let counted = if reverse { 0 } else { 10_000_000 };
        assert!(
            matches!(ended, Ok(Served::Ended { whole: true, bytes, .. }) if bytes == counted),
            "{ended:?}"
        );
    }
}

#[test]
fn a_constant_rate_is_asked_of_the_end_that_sends_and_datagrams_are_counted() {
    for reverse in [false, true] {
        let spec = Spec {
            limit: Limit::Bytes(9_000_000),
            reverse,
            constant: Some(Rate::mbit(80)),
            interval: Duration::from_millis(10),
            ..Spec::default()
        };
        let (heard, reported) = run(&spec, 90_000);
        let (lane, marks) = finished(&heard);
        let counts = lane.receiver.datagrams.expect("they are counted");
        assert_eq!(
            (counts.sent, counts.received, counts.lost()),
            (1_000, 1_000, 0)
        );
        assert_eq!(lane.receiver.received, 9_000_000);
        assert!(marks.iter().all(|mark| mark.datagrams.is_some()));
        let report = Report::new("p", "c", reverse, Duration::ZERO, &[lane]);
        assert!(
            report.to_string().contains("lost 0 of 1000 (0.00 %)"),
            "{report}"
        );
        assert!(matches!(
            reported.recv(),
            Ok(Served::Began(Request { constant: Some(rate), .. })) if rate == Rate::mbit(80)
        ));
    }
}

#[test]
fn nothing_is_held_against_too_few_bytes() {
    for (bytes, reported) in [(1, false), ((1 << 20) - 1, false), (1 << 20, true)] {
        let spec = Spec {
            limit: Limit::Bytes(bytes),
            ..Spec::default()
        };
        let (lane, _) = finished(&run(&spec, 100_000).0);
        let report = Report::new("p", "c", false, Duration::ZERO, &[lane]);
        assert_eq!(report.bytes, bytes);
        assert_eq!(report.feedback_kib_per_gib.is_some(), reported, "{bytes}");
        assert_eq!(report.wire_over_goodput.is_some(), reported, "{bytes}");
        assert!(reported || report.sender.cpu_percent_per_gbps.is_none());
    }
}

#[test]
fn near_a_rate_that_was_set_that_is_the_limit() {
    let share = [("network".into(), 0.95)];
    for (max_rate, told) in [
        (None, "network 95 %"),
        (Some(Rate::mbit(100)), "--rate 95 %"),
        (Some(Rate::mbit(200)), "network 95 %"),
    ] {
        let report = Report {
            goodput_bits_per_second: 196e6,
            lanes: 2,
            limited_by: share.clone().into(),
            max_rate,
            ..Report::default()
        };
        assert_eq!(report.limits(), told);
    }
}

#[test]
fn a_time_is_kept_and_an_omitted_start_is_left_out() {
    let spec = Spec {
        limit: Limit::Nanos(1_000_000_000),
        omit: Duration::from_millis(500),
        ..Spec::default()
    };
    let (lane, _) = finished(&run(&spec, 100_000).0);
    let sent = lane.receiver.received;
    assert!((97_000_000..=98_100_000).contains(&sent), "{sent}");
    let report = Report::new("p", "c", false, spec.omit, &[lane]);
    assert!((49_000_000..=50_100_000).contains(&report.bytes));
    assert!((report.goodput_bits_per_second / 8e8 - 1.0).abs() < 0.04);
}

#[test]
fn a_server_refuses_what_is_beyond_its_bounds_and_what_is_out_of_turn() {
    let hello = Hello {
        limit: Limit::Nanos(u64::MAX),
        since_start: u64::MAX,
        omit: u64::MAX,
        ..hello()
    };
    let fine = Message::Hello(Hello {
        limit: Limit::Bytes(1),
        ..hello.clone()
    });
    let constant = |version, bps| {
        Message::Hello(Hello {
            version,
            limit: Limit::Bytes(1),
            reverse: true,
            constant: Some(bps),
            ..hello.clone()
        })
    };
    let done = Message::Done {
        bytes: 0,
        datagrams: Some(u64::MAX),
    };
    let cases: [(&[Message], bool); 9] = [
        (&[constant(VERSION, 0)], true),
        (&[constant(VERSION + 1, 1_000_000)], true),
        (&[constant(VERSION, 1_000_000)], false),
        (&[constant(VERSION, u64::MAX), done.clone()], false),
        (&[Message::Hello(hello.clone())], true),
        (&[done], true),
        (&[fine.clone(), fine.clone()], true),
        (&[fine.clone(), Message::Outcome(Box::default())], true),
        (&[fine], false),
    ];
    for (messages, refused) in cases {
        let mut server = Server::new(BOUNDS, |_| ());
        let mut theirs = queues();
        for message in messages {
            send(&mut theirs, message);
        }
        let mut session = FakeSession {
            arrived: theirs.written,
            ..queues()
        };
        server.on_event(at(5), Event::Readable, &mut session);
        assert_eq!(session.is_closed(), refused, "{messages:?}");
    }
}

#[test]
fn a_client_reports_the_result_of_its_session_once() {
    let (news, heard) = channel();
    let mut client = Client::new(Spec::default(), 0, news, None);
    let mut session = queues();
    client.poll(at(0), &mut session);
    client.on_event(at(9), Event::Closed(CloseReason::NoAnswer), &mut session);
    client.on_event(at(9), Event::Closed(CloseReason::TimedOut), &mut session);
    drop(client);
    let heard: Vec<_> = heard.iter().collect();
    assert!(matches!(
        &heard[..],
        [(0, News::Failed(CloseReason::NoAnswer))]
    ));
}

#[test]
fn a_client_without_requests_is_disconnected() {
    let mut session = queues();
    let mut server = Server::new(Bounds::default(), |_| ());
    server.on_event(at(5), Event::Connected { peer_key: None }, &mut session);
    assert_eq!(server.next_wake(), Some(at(10_005)));
    server.poll(at(10_004), &mut session);
    assert_eq!(session.closed, None);
    server.poll(at(10_005), &mut session);
    let text = "no hello was received within 10 s of the handshake";
    assert_eq!(session.closed, Some((IDLE, text.into())));
}

#[test]
fn a_server_that_is_ready_for_what_nobody_asked_is_left() {
    let constant = Spec {
        constant: Some(Rate::mbit(1)),
        ..Spec::default()
    };
    for (spec, messages, left) in [
        (Spec::default(), 1, true),
        (constant, 1, false),
        (constant, 2, true),
    ] {
        let (news, _heard) = channel();
        let mut client = Client::new(spec, 0, news, None);
        let mut session = queues();
        client.poll(at(0), &mut session);
        client.on_event(at(1), Event::Connected { peer_key: None }, &mut session);
        let mut theirs = queues();
        for _ in 0..messages {
            send(&mut theirs, &Message::Ready);
        }
        session.arrived = theirs.written;
        client.on_event(at(2), Event::Readable, &mut session);
        assert_eq!(session.is_closed(), left, "{spec:?}, {messages}");
        assert_eq!(session.constant, spec.constant);
    }
}

#[test]
fn a_server_that_sends_slowly_waits_for_the_answers_to_a_few_datagrams() {
    for (reverse, bps, expected) in [
        (true, 1_000_000_000, 3_000),
        (true, 100_000, 4 * 8 * 12_500 / 100),
        (true, 1_000, 60_000),
        (false, 1_000, 60_000),
    ] {
        let mut session = queues();
        session.stats.datagram_size = 12_500;
        let mut theirs = queues();
        let hello = Hello {
            reverse,
            constant: Some(bps),
            ..hello()
        };
        send(&mut theirs, &Message::Hello(hello));
        session.arrived = theirs.written;
        let mut server = Server::new(BOUNDS, |_| ());
        server.on_event(at(5), Event::Readable, &mut session);
        server.poll(at(5 + expected - 1), &mut session);
        assert_eq!(session.closed, None, "{bps}");
        server.poll(at(5 + expected), &mut session);
        let closed = session.closed.map(|(code, _)| code);
        assert_eq!(closed, Some(IDLE), "{reverse}, {bps}");
    }
}

#[test]
fn cost_is_per_bit() {
    let cpu = Duration::from_millis(400);
    assert_eq!(percent_per_gbps(cpu, 1e10), Some(4.0));
    assert_eq!(percent_per_gbps(cpu, 0.0), None);
}
