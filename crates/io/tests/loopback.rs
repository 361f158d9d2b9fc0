//! Tests clients and listeners on real sockets: loopback, offloads on and off, both families, many
//! sessions, blocked and refused sockets, wakes and stops. No test looks at a clock.

#![allow(clippy::unwrap_used, reason = "a test")]

#[allow(
    clippy::cast_possible_truncation,
    reason = "lengths of datagrams in a test"
)]
mod blast;

use std::{
    net::{SocketAddr, UdpSocket},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use blast::{Blast, HEADER, Mute, Shape};
use farhaul_core::{
    protocol::{CloseReason, Event, Session},
    store::{Extent, Hollow, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::{App, Buffers, ShardError, Stop, Waker, client, server};
use farhaul_udp::netns;

const SHAPE: Shape = Shape {
    segment: 1_400,
    rate: Rate::UNLIMITED,
    quantum: 60_000,
    window: 64,
    ignores_port_unreachable: false,
};

/// The byte at `offset` of every object.
fn pattern(offset: u64) -> u8 {
    (offset % 251) as u8
}

/// Sends `len` bytes when connected and closes when they are delivered; checks what comes back.
#[derive(Default)]
struct Sender {
    len: u64,
    echoed: u64,
    wants_echo: bool,
    delivered: bool,
    events: Vec<Event>,
}

impl Store for Sender {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        for extent in extents {
            for (byte, offset) in batch[extent.range()].iter_mut().zip(extent.offset..) {
                *byte = pattern(offset);
            }
        }
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        check(extents, batch)?;
        self.echoed += extents.iter().map(|e| u64::from(e.len)).sum::<u64>();
        Ok(())
    }
}

fn check(extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
    for extent in extents {
        let mut bytes = batch[extent.range()].iter().zip(extent.offset..);
        if !bytes.all(|(byte, offset)| *byte == pattern(offset)) {
            return Err(StoreError(format!("wrong bytes at {}", extent.offset)));
        }
    }
    Ok(())
}

impl App for Sender {
    fn on_event(&mut self, _: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Connected { .. } => session.send(0, 0, self.len),
            Event::Delivered => self.delivered = true,
            _ => {}
        }
        self.events.push(event);
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.delivered && (!self.wants_echo || self.echoed >= self.len) {
            session.close(now, 0, "done");
        }
    }
}

/// Counts and checks; sends everything back once `echo` bytes are there.
struct Counter {
    echo: u64,
    had: u64,
    total: Arc<AtomicU64>,
    ended: Option<mpsc::Sender<CloseReason>>,
}

impl Store for Counter {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        Sender::default().fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        check(extents, batch)?;
        let sum = extents.iter().map(|e| u64::from(e.len)).sum();
        self.had += sum;
        self.total.fetch_add(sum, Ordering::Relaxed);
        Ok(())
    }
}

impl App for Counter {
    fn on_event(&mut self, _: Instant, event: Event, _: &mut dyn Session) {
        if let (Event::Closed(reason), Some(ended)) = (event, &self.ended) {
            ended.send(reason).unwrap();
        }
    }

    fn poll(&mut self, _: Instant, session: &mut dyn Session) {
        if self.echo > 0 && self.had >= self.echo {
            session.send(0, 0, self.had);
            self.echo = 0;
        }
    }
}

/// A listener on its own thread.
struct Far {
    addr: SocketAddr,
    stop: Stop,
    total: Arc<AtomicU64>,
    ended: mpsc::Receiver<CloseReason>,
    thread: thread::JoinHandle<server::ListenerStats>,
}

impl Far {
    fn start(listen: &str, buffers: Buffers, echo: u64, max_sessions: usize) -> Self {
        let (total, stop) = (Arc::new(AtomicU64::new(0)), Stop::new().unwrap());
        let (tell, ended) = mpsc::channel();
        let mut options = server::Options::new(listen.parse().unwrap());
        options.buffers = buffers;
        options.max_sessions = max_sessions;
        let counted = Arc::clone(&total);
        let factory = move |_, _: &Waker| -> Box<dyn App> {
            Box::new(Counter {
                echo,
                had: 0,
                total: Arc::clone(&counted),
                ended: Some(tell.clone()),
            })
        };
        let listener = server::Listener::bind(options, Box::new(Blast(SHAPE)), factory).unwrap();
        let addr = listener.local_addr().unwrap();
        let watched = stop.clone();
        let thread = thread::spawn(move || listener.run(&watched).unwrap());
        Self {
            addr,
            stop,
            total,
            ended,
            thread,
        }
    }

    fn stop(self) -> server::ListenerStats {
        self.stop.set();
        self.thread.join().unwrap()
    }
}

fn send(to: SocketAddr, buffers: Buffers, shape: Shape, app: Sender) -> client::Outcome<Sender> {
    let mut options = client::Options::new(to);
    options.buffers = buffers;
    let waker = Waker::new().unwrap();
    client::run(&options, Box::new(Blast(shape)), app, &waker).unwrap()
}

fn done() -> CloseReason {
    CloseReason::Local {
        code: 0,
        text: "done".into(),
    }
}

fn offloads(gso: bool, gro: bool) -> Buffers {
    Buffers {
        gso,
        gro,
        ..Buffers::default()
    }
}

#[test]
fn everything_arrives_and_comes_back_with_and_without_offloads() {
    const LEN: u64 = 5_000_000;
    for (gso, gro) in [(true, true), (false, true), (true, false), (false, false)] {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let far = Far::start(listen, offloads(gso, gro), LEN, 8);
            let app = Sender {
                len: LEN,
                wants_echo: true,
                ..Sender::default()
            };
            let near = send(far.addr, offloads(gso, gro), SHAPE, app);
            assert_eq!(near.reason, done());
            assert_eq!(near.app.echoed, LEN, "gso {gso} gro {gro} {listen}");
            assert_eq!(near.host.capabilities.gso, gso);
            assert_eq!(near.host.socket.overflowed, 0);
            let full = LEN.div_ceil((SHAPE.segment - HEADER) as u64);
            assert!(near.host.socket.datagrams_sent >= full);
            assert!(near.host.segments_per_batch() > 4.0);
            if gso {
                assert!(near.host.socket.send_calls < full / 4);
            }
            if gso && gro {
                assert!(near.host.socket.messages_received < full / 4);
            }
            assert!(matches!(
                near.app.events.last(),
                Some(Event::Closed(CloseReason::Local { .. }))
            ));
            // The last datagram left before the client returned.
            assert!(matches!(
                far.ended.recv().unwrap(),
                CloseReason::Peer { .. }
            ));
            assert_eq!(far.total.load(Ordering::Relaxed), LEN);
            let stats = far.stop();
            assert_eq!((stats.accepted, stats.ended), (1, 1));
        }
    }
}

#[test]
fn a_dual_stack_listener_serves_both_families() {
    let far = Far::start("[::]:0", Buffers::default(), 100_000, 8);
    for host in ["127.0.0.1", "::1", "127.0.0.9"] {
        let to = SocketAddr::new(host.parse().unwrap(), far.addr.port());
        let app = Sender {
            len: 100_000,
            wants_echo: true,
            ..Sender::default()
        };
        // The client's socket is connected: an answer from another address would not arrive.
        let near = send(to, Buffers::default(), SHAPE, app);
        assert_eq!((near.reason, near.app.echoed), (done(), 100_000));
    }
    assert_eq!(far.stop().accepted, 3);
}

#[test]
fn many_sessions_share_a_listener_and_the_excess_is_turned_away() {
    let far = Far::start("127.0.0.1:0", Buffers::default(), 0, 4);
    let addr = far.addr;
    let senders: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(move || {
                let app = Sender {
                    len: 3_000_000,
                    ..Sender::default()
                };
                // Who is turned away says hello again until there is room.
                send(addr, Buffers::default(), SHAPE, app).reason
            })
        })
        .collect();
    for sender in senders {
        assert_eq!(sender.join().unwrap(), done());
    }
    for _ in 0..8 {
        far.ended.recv().unwrap();
    }
    assert_eq!(far.total.load(Ordering::Relaxed), 8 * 3_000_000);
    let stats = far.stop();
    assert_eq!((stats.accepted, stats.ended), (8, 8));
}

#[test]
fn a_paced_sender_sleeps_between_batches() {
    let far = Far::start("127.0.0.1:0", Buffers::default(), 0, 1);
    let shape = Shape {
        rate: Rate::mbit(40),
        window: u64::MAX / 2,
        ..SHAPE
    };
    let app = Sender {
        len: 1_000_000,
        ..Sender::default()
    };
    let near = send(far.addr, Buffers::default(), shape, app);
    assert_eq!(near.reason, done());
    // Every turn sent, received or slept: deadlines are waited for, not polled.
    let host = near.host;
    let useful = host.batches_sent + host.socket.messages_received + host.sleeps;
    assert!(host.sleeps > 0 && host.turns <= useful + 10, "{host:?}");
    assert_eq!(host.stuck_deadlines, 0);
    far.stop();
}

/// Wants to be polled at a time long gone; closes after a number of polls.
struct SlowStore {
    polls: u32,
    inner: Hollow,
}

impl Store for SlowStore {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.inner.fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.inner.place(extents, batch)
    }
}

impl App for SlowStore {
    fn on_event(&mut self, _: Instant, _: Event, _: &mut dyn Session) {}

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.polls += 1;
        if self.polls == 50 {
            session.close(now, 0, "done");
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        Some(Instant::EPOCH)
    }
}

#[test]
fn a_deadline_left_in_the_past_does_not_make_the_shard_spin() {
    let far = Far::start("127.0.0.1:0", Buffers::default(), 0, 1);
    let options = client::Options::new(far.addr);
    let app = SlowStore {
        polls: 0,
        inner: Hollow,
    };
    let waker = Waker::new().unwrap();
    let near = client::run(&options, Box::new(Blast(SHAPE)), app, &waker).unwrap();
    assert_eq!(near.reason, done());
    assert!(near.host.stuck_deadlines > 30, "{:?}", near.host);
    far.stop();
}

/// An app that always has something to send, and closes when the session's time has come three
/// times.
#[derive(Default)]
struct Restless {
    polls: u32,
    delivered: bool,
}

impl Store for Restless {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

impl App for Restless {
    fn on_event(&mut self, _: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Connected { .. } => session.send(0, 0, u64::MAX / 2),
            Event::Delivered => self.delivered = true,
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.polls += 1;
        if session.stats().timeouts >= 3 {
            session.close(now, 0, "done");
        } else if self.polls == 100_000 {
            session.close(now, 1, "never given the time");
        }
    }
}

#[test]
fn a_session_that_never_stops_sending_has_deadlines_too() {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let shape = Shape {
        window: u64::MAX / 2,
        ..SHAPE
    };
    let options = client::Options::new(sink.local_addr().unwrap());
    let waker = Waker::new().unwrap();
    let near = client::run(&options, Box::new(Mute(shape)), Restless::default(), &waker).unwrap();
    assert_eq!(near.reason, done());
    assert!(
        !near.app.delivered && near.host.sleeps == 0,
        "{:?}",
        near.host
    );
}

#[test]
fn a_port_in_use_is_reported_although_sessions_share_it() {
    let far = Far::start("127.0.0.1:0", Buffers::default(), 0, 4);
    let factory = |_, _: &Waker| -> Box<dyn App> { unreachable!("nobody comes") };
    let second = server::Listener::bind(far.addr, Box::new(Blast(SHAPE)), factory);
    assert!(matches!(second, Err(ShardError::Bind(..))));
    far.stop();
}

#[test]
fn a_batch_that_did_not_leave_waits_until_it_can() {
    let test = thread::spawn(|| {
        if let Err(error) = netns::enter_new_network() {
            eprintln!("not tested, needs a network namespace: {error}");
            return;
        }
        for words in [
            "link add near type veth peer name far",
            "link set far up",
            "link set near up",
            "addr add 10.9.0.1/24 dev near",
        ] {
            let status = Command::new("ip").args(words.split(' ')).status();
            assert!(status.unwrap().success(), "ip {words}");
        }
        // Nobody answers for 10.9.0.2: datagrams wait, on the socket's account, until that is clear.
        let refused = netns::set_parameters(&[
            ("net/ipv4/neigh/near/unres_qlen_bytes", "10000000"),
            ("net/ipv4/neigh/near/retrans_time_ms", "50"),
        ]);
        assert!(refused.is_empty(), "{refused:?}");
        let app = Sender {
            len: 800_000,
            ..Sender::default()
        };
        let buffers = Buffers {
            send: 0,
            ..Buffers::default()
        };
        // Opened from the start, and nothing is ever reported.
        let shape = Shape {
            window: u64::MAX / 2,
            ..SHAPE
        };
        let options = client::Options {
            buffers,
            ..client::Options::new("10.9.0.2:9".parse().unwrap())
        };
        let waker = Waker::new().unwrap();
        let near = client::run(&options, Box::new(Mute(shape)), app, &waker).unwrap();
        assert_eq!(near.reason, done());
        assert!(near.host.socket.blocked > 0 && near.host.blocked > Duration::ZERO);
        assert_eq!(near.host.socket.bytes_sent, near.stats.wire_sent);
        assert_eq!(near.stats.data_sent, 800_000);
    });
    test.join().unwrap();
}

#[test]
fn a_missing_peer_is_detected() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = free.local_addr().unwrap();
    drop(free);
    let near = send(addr, Buffers::default(), SHAPE, Sender::default());
    assert!(near.refused);
    assert_eq!(near.reason, CloseReason::NoAnswer);
    assert_eq!(near.app.events, [Event::Closed(CloseReason::NoAnswer)]);
}

/// An app that starts the listener once it has been asked for often enough, then sends as
/// [`Sender`] does.
struct Early {
    sender: Sender,
    to: SocketAddr,
    far: Option<Far>,
}

impl Store for Early {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.sender.fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.sender.place(extents, batch)
    }
}

impl App for Early {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        self.sender.on_event(now, event, session);
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.far.is_none() && session.stats().datagrams_sent > 5 {
            let far = Far::start(&self.to.to_string(), Buffers::default(), 0, 1);
            self.far = Some(far);
        }
        self.sender.poll(now, session);
    }
}

#[test]
fn a_peer_that_starts_later_is_waited_for_if_the_session_requests_it() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = free.local_addr().unwrap();
    drop(free);
    let app = Early {
        sender: Sender {
            len: 100_000,
            ..Sender::default()
        },
        to,
        far: None,
    };
    let (options, waker) = (client::Options::new(to), Waker::new().unwrap());
    let shape = Shape {
        ignores_port_unreachable: true,
        ..SHAPE
    };
    let near = client::run(&options, Box::new(Blast(shape)), app, &waker).unwrap();
    assert_eq!((near.reason, near.refused), (done(), false));
    assert!(
        near.host.socket.refused > 3,
        "{} answers",
        near.host.socket.refused
    );
    let far = near.app.far.unwrap();
    far.ended.recv().unwrap();
    assert_eq!(far.total.load(Ordering::Relaxed), 100_000);
    far.stop();
}

#[test]
fn noise_is_counted_and_probes_for_unknown_sessions_are_answered() {
    let far = Far::start("127.0.0.1:0", Buffers::default(), 0, 4);
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    noise.connect(far.addr).unwrap();
    noise.send(&[]).unwrap();
    noise.send(&[0xff; 3]).unwrap();
    let mut probe = [7; HEADER];
    probe[0] = 3;
    noise.send(&probe).unwrap();
    let mut answer = [0; 100];
    assert_eq!(noise.recv(&mut answer).unwrap(), HEADER);
    assert_eq!(answer[1..9], probe[1..9]);
    let stats = far.stop();
    assert_eq!((stats.accepted, stats.stray), (0, 1));
}

/// An app that never ends by itself; it closes when ordered from outside.
struct Idler {
    asked: Arc<Mutex<Option<&'static str>>>,
    stop: Stop,
    connected: mpsc::Sender<()>,
}

impl Store for Idler {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

impl App for Idler {
    fn on_event(&mut self, _: Instant, event: Event, _: &mut dyn Session) {
        if let Event::Connected { .. } = event {
            self.connected.send(()).unwrap();
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if let Some(text) = self.asked.lock().unwrap().take() {
            session.close(now, 1, text);
        } else if self.stop.is_set() {
            session.close(now, 2, "interrupted");
        }
    }
}

#[test]
fn wakes_and_stops_reach_an_idle_client_and_a_stopped_listener_sends_a_close() {
    for how in ["waker", "stop", "listener"] {
        let far = Far::start("127.0.0.1:0", Buffers::default(), 0, 4);
        let (asked, stop) = (Arc::default(), Stop::new().unwrap());
        let waker = Waker::new().unwrap();
        let (tell, connected) = mpsc::channel();
        let app = Idler {
            asked: Arc::clone(&asked),
            stop: stop.clone(),
            connected: tell,
        };
        let mut options = client::Options::new(far.addr);
        options.stop = Some(stop.clone());
        let own = waker.clone();
        let near = thread::spawn(move || {
            client::run(&options, Box::new(Blast(SHAPE)), app, &own).unwrap()
        });
        connected.recv().unwrap();
        let code = match how {
            "waker" => {
                *asked.lock().unwrap() = Some("asked");
                waker.wake();
                Some(1)
            }
            "stop" => {
                stop.set();
                Some(2)
            }
            _ => {
                far.stop.set();
                None
            }
        };
        let reason = near.join().unwrap().reason;
        match code {
            Some(code) => assert!(
                matches!(reason, CloseReason::Local { code: c, .. } if c == code),
                "{how}: {reason:?}"
            ),
            None => assert!(
                matches!(reason, CloseReason::Peer { .. }),
                "{how}: {reason:?}"
            ),
        }
        assert_eq!(far.stop().ended, 1);
    }
}
