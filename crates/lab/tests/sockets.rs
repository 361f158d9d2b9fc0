//! Tests what reaches a session that the peer did not send, on real sockets. A relay and a
//! stranger's socket put damaged, cut, repeated, late and invented datagrams beside a transfer in
//! both directions. Such datagrams are dropped and counted, and every byte lands where it belongs.
//!
//! Nothing here looks at a clock, and no bound depends on the machine's speed.

#[path = "sockets/meddler.rs"]
mod meddler;
#[path = "sockets/proxy.rs"]
mod proxy;
#[path = "sockets/rebinder.rs"]
mod rebinder;

use std::{
    net::SocketAddr,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use farhaul_core::{
    protocol::{CloseReason, Event, Protocol, Session},
    stats::Stats,
    store::{Extent, ObjectId, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_emu::relay::{Relay, RelayConfig};
use farhaul_io::{App, Stop, Waker, client, server};
use farhaul_link::{Loss, PathConfig, Reorder};
use farhaul_measure::registry::{Choice, protocol};
use farhaul_testkit::Pattern;
use meddler::{Meddler, Put};
use proxy::Proxy;
use rebinder::Rebinder;

const SEED: u64 = 11;
const BYTES: u64 = 12_000_000;
/// Objects that the client sends, and that the server sends.
const OBJECTS: [ObjectId; 2] = [1, 2];

/// An end as it was when its session closed.
struct Ended {
    reason: CloseReason,
    stats: Stats,
    content: Pattern,
}

/// Sends one object and expects the other; the client closes when both are through.
struct Exchange {
    client: bool,
    content: Pattern,
    delivered: bool,
    ended: Option<mpsc::Sender<Ended>>,
}

impl Exchange {
    fn new(client: bool, ended: mpsc::Sender<Ended>) -> Self {
        Self {
            client,
            content: Pattern::new(SEED),
            delivered: false,
            ended: Some(ended),
        }
    }
}

impl Store for Exchange {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.content.fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.content.place(extents, batch)
    }
}

impl App for Exchange {
    fn on_event(&mut self, _: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Connected { .. } => {
                session.send(OBJECTS[usize::from(!self.client)], 0, BYTES);
            }
            Event::Delivered => self.delivered = true,
            Event::Readable => {}
            Event::Closed(reason) => {
                let ended = Ended {
                    reason,
                    stats: session.stats(),
                    content: std::mem::take(&mut self.content),
                };
                if let Some(tell) = self.ended.take() {
                    tell.send(ended).expect("the test waits for it");
                }
            }
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.client && self.delivered && self.content.has(OBJECTS[1], BYTES) {
            session.close(now, 0, "done");
        }
    }
}

/// An end with a rate below what a relay of one thread per direction carries, so that its sockets
/// seldom overflow.
fn end(client: bool) -> Box<dyn Protocol> {
    let choice = Choice {
        max_rate: Some(Rate::mbit(300)),
        ..Choice::default()
    };
    let entry = protocol("haul").expect("haul is there");
    let made = if client {
        entry.client(&choice)
    } else {
        entry.server(&choice)
    };
    made.expect("defaults are fine")
}

/// A server on its own thread.
struct Far {
    at: SocketAddr,
    stop: Stop,
    thread: JoinHandle<server::ListenerStats>,
    ended: mpsc::Receiver<Ended>,
}

impl Far {
    fn start() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (tell, ended) = mpsc::channel();
        let factory =
            move |_, _: &Waker| -> Box<dyn App> { Box::new(Exchange::new(false, tell.clone())) };
        let listener =
            server::Listener::bind(any, end(false), factory).expect("loopback can be bound");
        let at = listener.local_addr().expect("it is bound");
        let stop = Stop::new().expect("a descriptor is to be had");
        let watched = stop.clone();
        let thread = thread::spawn(move || listener.run(&watched).expect("loopback works"));
        Self {
            at,
            stop,
            thread,
            ended,
        }
    }

    fn stop(self) -> (Ended, server::ListenerStats) {
        let ended = self.ended.recv().expect("a session was accepted");
        self.stop.set();
        (
            ended,
            self.thread.join().expect("the server does not panic"),
        )
    }
}

/// Exchanges both objects with the server behind `to`; the client's end.
fn exchange(to: SocketAddr) -> Ended {
    let (tell, ended) = mpsc::channel();
    let waker = Waker::new().expect("a descriptor is to be had");
    let options = client::Options::new(to);
    let app = Exchange::new(true, tell);
    client::run(&options, end(true), app, &waker).expect("loopback works");
    ended.recv().expect("the session closed")
}

/// Asserts that both ends closed as they should, with every byte of the other's object.
fn assert_whole(near: &Ended, far: &Ended) {
    let (code, text) = (0, "done".to_owned());
    let local = CloseReason::Local {
        code,
        text: text.clone(),
    };
    assert_eq!(near.reason, local, "{:?}", near.stats);
    assert_eq!(far.reason, CloseReason::Peer { code, text });
    assert!(near.content.has(OBJECTS[1], BYTES));
    assert!(far.content.has(OBJECTS[0], BYTES));
}

/// Datagrams found not to be the peer's.
const fn refused(stats: &Stats) -> u64 {
    stats.dropped_unauthentic + stats.dropped_malformed
}

#[test]
fn what_a_meddler_puts_beside_a_transfer_is_dropped_and_counted() {
    let far = Far::start();
    let meddler = Meddler::start(far.at, SEED);
    let near = exchange(meddler.at());
    let (far, listener) = far.stop();
    let [to_server, to_client] = meddler.stop();
    assert_whole(&near, &far);
    eprintln!("to server {to_server:?}: {:?}", far.stats);
    eprintln!("to client {to_client:?}: {:?}", near.stats);
    for (put, stats, stray) in [
        (to_server, &far.stats, listener.stray),
        (to_client, &near.stats, 0),
    ] {
        let of = |kind: Put| put[kind as usize];
        // What is damaged, cut or invented is refused, as far as it did not overflow a socket; and
        // nothing that is genuine is.
        let false_ones = of(Put::Damaged) + of(Put::Cut) + of(Put::Invented);
        assert!(
            refused(stats) + stray >= false_ones / 2,
            "{put:?} {stats:?}"
        );
        let strange = of(Put::Strange);
        assert!(refused(stats) <= false_ones + strange, "{put:?} {stats:?}");
        assert!(stats.dropped_duplicate >= of(Put::Repeated) / 2);
        assert!(stats.dropped_unauthentic > 0 && of(Put::Late) > 0);
        assert_eq!(stats.rebinds, 0, "a stranger does not move the path");
    }
    assert_eq!((listener.accepted, listener.ended), (1, 1));
}

/// Sessions have sockets that are connected to their peers; what comes from elsewhere reaches them
/// through the listener's, until theirs have followed.
#[test]
fn a_session_follows_a_client_whose_port_changes() {
    let far = Far::start();
    let rebinder = Rebinder::start(far.at, 300);
    let near = exchange(rebinder.at());
    let (far, listener) = far.stop();
    let changes = rebinder.stop();
    assert_whole(&near, &far);
    eprintln!("{changes} changes: {:?}", far.stats);
    assert!(
        changes >= 3 && far.stats.rebinds + 2 >= changes,
        "{changes}"
    );
    assert_eq!((listener.accepted, listener.ended), (1, 1));
}

#[test]
fn a_bad_network_changes_no_byte() {
    let far = Far::start();
    let path = PathConfig {
        delay: Duration::from_millis(3),
        loss: Loss::Random(0.02),
        duplicate: 0.02,
        corrupt: 0.02,
        reorder: Some(Reorder {
            share: 0.02,
            by: Duration::from_millis(1),
        }),
        ..PathConfig::default()
    };
    let config = RelayConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        to: far.at,
        forward: path.clone(),
        back: path,
        seed: SEED,
        memory: 64 << 20,
    };
    let relay = Relay::start(&config).expect("loopback can be bound");
    let near = exchange(relay.local_addr());
    let (far, listener) = far.stop();
    let report = relay.finish().expect("the relay worked");
    assert_whole(&near, &far);
    for (way, stats) in [
        (&report.near_to_far, &far.stats),
        (&report.far_to_near, &near.stats),
    ] {
        assert!(stats.dropped_unauthentic > 0 && stats.dropped_duplicate > 0);
        // A damaged datagram may be doubled.
        assert!(refused(stats) <= way.corrupted * 2, "{way:?} {stats:?}");
    }
    for stats in [&near.stats, &far.stats] {
        assert!(stats.repaired > 0, "{stats:?}");
    }
    assert_eq!(listener.accepted, 1);
}

/// A visitor that stays until it gets the signal to leave.
struct Visitor {
    here: mpsc::Sender<()>,
    leave: Stop,
}

impl Store for Visitor {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

impl App for Visitor {
    fn on_event(&mut self, _: Instant, event: Event, _: &mut dyn Session) {
        if let Event::Connected { .. } = event {
            self.here.send(()).expect("the test waits for it");
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.leave.is_set() {
            session.close(now, 0, "done");
        }
    }
}

#[test]
fn a_session_does_not_take_the_datagrams_of_others_of_its_address_and_port() {
    let far = Far::start();
    let proxy = Proxy::start(far.at);
    let (tell, here) = mpsc::channel();
    let leave = Stop::new().expect("a descriptor is to be had");
    let mut options = client::Options::new(proxy.at());
    options.stop = Some(leave.clone());
    let visitor = Visitor {
        here: tell,
        leave: leave.clone(),
    };
    let first = thread::spawn(move || {
        let waker = Waker::new().expect("a descriptor is to be had");
        client::run(&options, end(true), visitor, &waker).expect("loopback works")
    });
    here.recv().expect("it connects");
    for _ in 0..2 {
        let near = exchange(proxy.at());
        let there = far.ended.recv().expect("a session was accepted");
        assert_whole(&near, &there);
    }
    leave.set();
    let first = first.join().expect("it does not panic");
    assert!(matches!(first.reason, CloseReason::Local { .. }));
    proxy.stop();
    far.stop.set();
    far.thread.join().expect("the server does not panic");
}
