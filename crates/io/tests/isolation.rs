//! Tests that a session's fault is its own: apps and sessions that panic, and handshakes that never
//! end, beside sessions that go on. No test looks at a clock.

#![allow(clippy::unwrap_used, reason = "a test")]

#[allow(
    clippy::cast_possible_truncation,
    reason = "lengths of datagrams in a test"
)]
mod blast;

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

use blast::{Blast, HEADER, Shape};
use farhaul_core::{
    protocol::{Accepted, CloseReason, Descriptor, Event, Protocol, Route, Session},
    rng::Rng,
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::{App, Controls, Stop, Waker, client, server};
use farhaul_testkit::FakeSession;

const SHAPE: Shape = Shape {
    segment: 1_400,
    rate: Rate::UNLIMITED,
    quantum: 60_000,
    window: 64,
    ignores_port_unreachable: false,
};

/// Place of a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Nowhere,
    Event,
    Poll,
    Wake,
    Fill,
    Place,
    Closed,
    Drop,
}

/// Sends when connected, closes when delivered, panics at the given place.
struct Fragile {
    at: At,
    sends: u64,
    had: u64,
    delivered: bool,
    ended: Option<mpsc::Sender<(At, CloseReason)>>,
}

impl Fragile {
    fn new(at: At, sends: u64) -> Self {
        Self {
            at,
            sends,
            had: 0,
            delivered: false,
            ended: None,
        }
    }

    fn break_at(&self, at: At) {
        assert_ne!(self.at, at, "as asked");
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.break_at(At::Drop);
        }
    }
}

impl Store for Fragile {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        self.break_at(At::Fill);
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        self.break_at(At::Place);
        self.had += extents.iter().map(|e| u64::from(e.len)).sum::<u64>();
        Ok(())
    }
}

impl App for Fragile {
    fn on_event(&mut self, _: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Connected { .. } => {
                self.break_at(At::Event);
                session.send(0, 0, self.sends);
            }
            Event::Delivered => self.delivered = true,
            Event::Closed(reason) => {
                if let Some(ended) = &self.ended {
                    ended.send((self.at, reason)).unwrap();
                }
                self.break_at(At::Closed);
            }
            Event::Readable => {}
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.had > 0 {
            self.break_at(At::Poll);
        }
        if self.sends > 0 && self.delivered {
            session.close(now, 0, "done");
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        if self.had > 0 {
            self.break_at(At::Wake);
        }
        None
    }
}

fn send(to: SocketAddr, app: Fragile) -> CloseReason {
    let options = client::Options::new(to);
    let waker = Waker::new().unwrap();
    client::run(&options, Box::new(Blast(SHAPE)), app, &waker)
        .unwrap()
        .reason
}

fn done() -> CloseReason {
    CloseReason::Local {
        code: 0,
        text: "done".into(),
    }
}

/// A listener on its own thread.
struct Far {
    addr: SocketAddr,
    controls: Controls,
    stop: Stop,
    thread: thread::JoinHandle<server::ListenerStats>,
}

impl Far {
    fn start(
        protocol: impl Protocol + 'static,
        factory: impl FnMut(SocketAddr, &Waker) -> Box<dyn App> + Send + 'static,
    ) -> Self {
        Self::start_with(
            protocol,
            factory,
            |options| options.max_half_open = 8,
            |_| {},
        )
    }

    fn start_with(
        protocol: impl Protocol + 'static,
        factory: impl FnMut(SocketAddr, &Waker) -> Box<dyn App> + Send + 'static,
        options: impl FnOnce(&mut server::Options),
        controls: impl FnOnce(&Controls),
    ) -> Self {
        let mut all = server::Options::new("127.0.0.1:0".parse().unwrap());
        options(&mut all);
        let listener = server::Listener::bind(all, Box::new(protocol), factory).unwrap();
        let (addr, stop) = (listener.local_addr().unwrap(), Stop::new().unwrap());
        let (watched, of_listener) = (stop.clone(), listener.controls());
        controls(&of_listener);
        Self {
            addr,
            controls: of_listener,
            stop,
            thread: thread::spawn(move || listener.run(&watched).unwrap()),
        }
    }

    fn stop(self) -> server::ListenerStats {
        self.stop.set();
        self.thread.join().unwrap()
    }
}

/// An application that does nothing.
fn idle(_: SocketAddr, _: &Waker) -> Box<dyn App> {
    Box::new(Fragile::new(At::Nowhere, 0))
}

#[test]
fn a_panic_in_a_session_of_a_listener_ends_that_session_only() {
    use At::{Closed, Drop, Event, Fill, Nowhere, Place, Poll, Wake};
    // Words about a panic take longer to print than the client waits before it says hello again: what
    // a session is to do is a matter of when it begins, and there may be more of them than asked for.
    let now = Arc::new(Mutex::new(Nowhere));
    let (tell, ended) = mpsc::channel();
    let asked = Arc::clone(&now);
    let far = Far::start(Blast(SHAPE), move |_, _| {
        let mut app = Fragile::new(*asked.lock().unwrap(), 0);
        app.sends = u64::from(app.at == Fill) * 5_000;
        app.ended = Some(tell.clone());
        Box::new(app)
    });
    for at in [
        Event, Nowhere, Poll, Wake, Place, Fill, Closed, Drop, Nowhere,
    ] {
        *now.lock().unwrap() = at;
        let near = send(far.addr, Fragile::new(Nowhere, 20_000));
        let late = matches!(at, Nowhere | Closed | Drop);
        if late {
            assert_eq!(near, done(), "{at:?}");
        }
        let (_, reason) = ended.iter().find(|(which, _)| *which == at).unwrap();
        let internal = matches!(&reason, CloseReason::Internal(text) if text.contains("as asked"));
        assert_eq!(internal, !late, "{at:?}: {reason:?}");
    }
    let stats = far.stop();
    assert!(stats.faults >= 7, "{stats:?}");
    assert_eq!(stats.accepted, stats.ended);
}

#[test]
fn a_panic_in_a_client_is_its_result() {
    for at in [At::Event, At::Fill] {
        let far = Far::start(Blast(SHAPE), idle);
        let mut app = Fragile::new(at, 20_000);
        let (tell, ended) = mpsc::channel();
        app.ended = Some(tell);
        let reason = send(far.addr, app);
        assert!(matches!(&reason, CloseReason::Internal(text) if text.contains("as asked")));
        assert_eq!(ended.recv().unwrap(), (at, reason), "the app was notified");
        far.stop();
    }
}

/// The blaster, with handshakes that never end and datagrams that make it panic.
struct Shy;

/// Begins a handshake that never ends.
const NEVER: u8 = 0xe0;
/// Makes the protocol panic.
const PANIC: u8 = 0xe1;
/// Begins one, by the id that follows, for an address that is validated by a second datagram.
const UNVALIDATED: u8 = 0xe2;

/// Begins a session whose first datagram does both: it validates the address and finishes the
/// handshake.
const AT_ONCE: u8 = 0xe3;

impl Protocol for Shy {
    fn descriptor(&self) -> &'static Descriptor {
        Blast(SHAPE).descriptor()
    }

    fn route(&self, datagram: &[u8]) -> Route {
        match datagram.first() {
            Some(&(NEVER | PANIC)) => Route::New,
            Some(&(UNVALIDATED | AT_ONCE)) => Route::Known(datagram[1].into()),
            _ => Blast(SHAPE).route(datagram),
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        Blast(SHAPE).connect(now, rng, to, mtu)
    }

    fn accept(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) -> Accepted {
        match datagram.first() {
            Some(&NEVER) => {
                // Says nothing and waits for ever.
                let silent = FakeSession {
                    lingers: true,
                    ..FakeSession::default()
                };
                Accepted::Session(rng.next_u64(), Box::new(silent))
            }
            Some(&UNVALIDATED) => {
                let silent = FakeSession {
                    lingers: true,
                    validated_after: 2,
                    ..FakeSession::default()
                };
                Accepted::Session(datagram[1].into(), Box::new(silent))
            }
            Some(&AT_ONCE) => {
                let connects = FakeSession {
                    lingers: true,
                    validated_after: 1,
                    events: [Event::Connected { peer_key: None }].into(),
                    ..FakeSession::default()
                };
                Accepted::Session(datagram[1].into(), Box::new(connects))
            }
            Some(&PANIC) => panic!("as asked"),
            _ => Blast(SHAPE).accept(now, rng, from, datagram, reply),
        }
    }
}

#[test]
fn handshakes_that_never_end_take_no_place_and_panics_before_a_session_harm_none() {
    const MOST: usize = 5;
    let most = |options: &mut server::Options| options.max_half_open = MOST;
    let far = Far::start_with(Shy, idle, most, |_| {});
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    noise.connect(far.addr).unwrap();
    for i in 0..100 {
        let mut datagram = [0; HEADER];
        datagram[0] = if i % 10 == 0 { PANIC } else { NEVER };
        noise.send(&datagram).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(send(far.addr, Fragile::new(At::Nowhere, 20_000)), done());
    }
    let stats = far.stop();
    assert_eq!((stats.accepted, stats.ended, stats.faults), (3, 3, 10));
    assert_eq!(stats.unfinished, 90);
}

#[test]
fn one_source_begins_as_many_handshakes_as_it_may_and_others_theirs() {
    const MOST: usize = 3;
    let most = |controls: &Controls| controls.set_per_source(usize::MAX, MOST);
    let far = Far::start_with(Shy, idle, |_| {}, most);
    let noise = UdpSocket::bind("127.0.0.2:0").unwrap();
    noise.connect(far.addr).unwrap();
    for _ in 0..20 {
        let mut datagram = [0; HEADER];
        datagram[0] = NEVER;
        noise.send(&datagram).unwrap();
    }
    assert_eq!(send(far.addr, Fragile::new(At::Nowhere, 20_000)), done());
    let stats = far.stop();
    assert_eq!((stats.accepted, stats.unfinished), (1, MOST as u64));
    assert_eq!(stats.stray, 20 - MOST as u64);
}

#[test]
fn nobody_takes_places_from_an_address_in_its_name() {
    let options = |options: &mut server::Options| options.max_half_open = 2;
    let one = |controls: &Controls| controls.set_per_source(usize::MAX, 1);
    let far = Far::start_with(Shy, idle, options, one);
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    noise.connect(far.addr).unwrap();
    let say = |what, id| {
        let mut datagram = [0; HEADER];
        datagram[..2].copy_from_slice(&[what, id]);
        noise.send(&datagram).unwrap();
    };
    for id in 1..=20 {
        say(UNVALIDATED, id);
    }
    // From the same address, which may have one unfinished handshake.
    assert_eq!(send(far.addr, Fragile::new(At::Nowhere, 20_000)), done());
    // Two prove the address: there is one then, and no second, nor one that begins.
    say(UNVALIDATED, 5);
    say(UNVALIDATED, 6);
    while far
        .controls
        .stats()
        .is_none_or(|stats| stats.unfinished == 0)
    {
        thread::yield_now();
    }
    say(NEVER, 0);
    while far.controls.stats().is_none_or(|stats| stats.stray == 0) {
        thread::yield_now();
    }
    let stats = far.stop();
    assert_eq!((stats.accepted, stats.ended), (1, 1));
    assert_eq!((stats.unfinished, stats.stray), (20, 1), "{stats:?}");
}

#[test]
fn who_is_turned_away_counts_as_half_open_also_if_one_datagram_did_all() {
    // Nobody is admitted. One handshake never ends, and makes room for others unless their source has enough.
    for (per_source, displaced) in [(usize::MAX, 1), (1, 0)] {
        let far = Far::start_with(
            Shy,
            |_, _| Box::new(Fragile::new(At::Nowhere, 0)),
            |options| {
                (options.max_sessions, options.max_half_open) = (0, 2);
                options.busy = Some(18);
            },
            |controls| controls.set_per_source(usize::MAX, per_source),
        );
        let (addr, controls) = (far.addr, far.controls.clone());
        for (from, what, count) in [("127.0.0.1:0", NEVER, 1), ("127.0.0.2:0", AT_ONCE, 5)] {
            let noise = UdpSocket::bind(from).unwrap();
            for id in 1..=count {
                let mut datagram = [0; HEADER];
                datagram[..2].copy_from_slice(&[what, id]);
                noise.send_to(&datagram, addr).unwrap();
            }
        }
        while controls.stats().is_none_or(|stats| stats.turned_away < 5) {
            thread::yield_now();
        }
        let unfinished = controls.stats().map(|stats| stats.unfinished);
        assert_eq!(unfinished, Some(displaced), "{per_source}");
        far.stop();
    }
}

/// A store that takes nothing until it is let go, as on a file system that does not answer.
struct Hung {
    /// True to hang at the first event, else at the first bytes.
    at_once: bool,
    entered: mpsc::Sender<()>,
    let_go: mpsc::Receiver<()>,
}

impl Hung {
    fn hang(&self) {
        self.entered.send(()).unwrap();
        // An error is as good as a word.
        let _released = self.let_go.recv();
    }
}

impl Store for Hung {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        if !extents.is_empty() && !self.at_once {
            self.hang();
        }
        Ok(())
    }
}

impl App for Hung {
    fn on_event(&mut self, _: Instant, event: Event, _: &mut dyn Session) {
        if self.at_once && matches!(event, Event::Connected { .. }) {
            self.hang();
        }
    }
    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}

#[test]
fn a_session_that_hangs_keeps_neither_others_nor_the_end_waiting() {
    if !farhaul_udp::SHARES_PORTS {
        eprintln!("skipped: sessions have no threads of their own on this system");
        return;
    }
    for at_once in [false, true] {
        others_go_on_beside_one_that_hangs(at_once);
    }
}

fn others_go_on_beside_one_that_hangs(at_once: bool) {
    let (entered, hangs) = mpsc::channel();
    let (let_go, released) = mpsc::channel();
    let mut first = Some((entered, released));
    let far = Far::start(Blast(SHAPE), move |_, _| match first.take() {
        Some((entered, let_go)) => Box::new(Hung {
            at_once,
            entered,
            let_go,
        }),
        None => Box::new(Fragile::new(At::Nowhere, 0)),
    });
    let addr = far.addr;
    let victim = thread::spawn(move || send(addr, Fragile::new(At::Nowhere, 20_000)));
    hangs.recv().unwrap();
    for _ in 0..5 {
        assert_eq!(send(far.addr, Fragile::new(At::Nowhere, 200_000)), done());
    }
    let stats = far.stop();
    assert_eq!((stats.accepted, stats.ended), (6, 5));
    // Its listener is gone; it ends by itself once it can.
    drop(let_go);
    let reason = victim.join().unwrap();
    assert!(
        matches!(reason, CloseReason::Peer { .. } | CloseReason::Local { .. }),
        "{reason:?}"
    );
}

/// A store that has room for little at a time, and gets more only when its worker wakes the shard.
struct Narrow {
    room: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
    had: Arc<AtomicU64>,
}

/// Room of [`Narrow`]: two receive calls.
const ROOM: u64 = 1 << 20;

impl Store for Narrow {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        let len: u64 = extents.iter().map(|e| u64::from(e.len)).sum();
        let room = self.room.load(Relaxed);
        let left = room
            .checked_sub(len)
            .ok_or(StoreError("the server is full".into()))?;
        self.room.fetch_sub(room - left, Relaxed);
        self.most.fetch_max(ROOM - left.min(ROOM), Relaxed);
        self.had.fetch_add(len, Relaxed);
        Ok(())
    }

    fn sink(&self) -> Sink {
        Sink {
            free: self.room.load(Relaxed),
            drained: self.had.load(Relaxed),
        }
    }
}

impl App for Narrow {
    fn on_event(&mut self, _: Instant, _: Event, _: &mut dyn Session) {}
    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}

#[test]
fn an_app_is_given_what_it_has_room_for_and_the_rest_waits_in_the_socket() {
    const LEN: u64 = 16 << 20;
    let room = Arc::new(AtomicU64::new(ROOM));
    let (most, had) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let (tell, wakers) = mpsc::channel();
    let counts = (Arc::clone(&room), Arc::clone(&most), Arc::clone(&had));
    let far = Far::start(Blast(SHAPE), move |_, waker| {
        tell.send(waker.clone()).unwrap();
        let (room, most, had) = counts.clone();
        Box::new(Narrow { room, most, had })
    });
    let addr = far.addr;
    let near = thread::spawn(move || send(addr, Fragile::new(At::Nowhere, LEN)));
    // The worker: all bytes taken are written, and the shard is woken.
    let waker = wakers.recv().unwrap();
    while !near.is_finished() {
        let free = room.load(Relaxed);
        if free < ROOM / 2 {
            room.fetch_add(ROOM - free, Relaxed);
            waker.wake();
        }
        thread::yield_now();
    }
    assert_eq!(near.join().unwrap(), done());
    assert!(had.load(Relaxed) >= LEN);
    assert!(most.load(Relaxed) > ROOM / 2, "it was full at times");
    far.stop();
}
