//! A client and a listener without a network, in virtual time: every datagram passes a script that may
//! drop, delay, change or repeat it.
#![allow(unreachable_pub, reason = "a module of several test binaries")]
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use farhaul_core::{
    datagram::{Ecn, Received, TxBuf},
    protocol::{Accepted, CloseReason, Event, Protocol, Route, Session, Turn},
    rng::Rng,
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_haul::{Haul, HaulConfig};

pub const CLIENT: &str = "192.0.2.1:5000";
pub const SERVER: &str = "192.0.2.2:17992";

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn config(seed: u8) -> HaulConfig {
    HaulConfig {
        // A law whose behaviour is no subject here.
        law: "fixed:rate=100Mbit".into(),
        ..HaulConfig::new([seed; 32])
    }
}

/// Content that can be checked at any place.
pub fn byte(object: u32, offset: u64) -> u8 {
    let mixed = (offset ^ u64::from(object) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[0]
}

#[derive(Default)]
pub struct Checked {
    /// Content is not carried.
    pub hollow: bool,
    pub placed: BTreeMap<(u32, u64), u32>,
    pub fail: bool,
}

impl Checked {
    /// Contiguous bytes of `object` from its start.
    pub fn prefix(&self, object: u32) -> u64 {
        let mut end = 0;
        for ((_, offset), len) in self.placed.range((object, 0)..=(object, u64::MAX)) {
            if *offset > end {
                break;
            }
            end = end.max(offset + u64::from(*len));
        }
        end
    }
}

impl Store for Checked {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        if self.fail {
            return Err(StoreError("disk on fire".into()));
        }
        for e in extents {
            for (i, b) in batch[e.range()].iter_mut().enumerate() {
                *b = byte(e.object, e.offset + i as u64);
            }
        }
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        if self.fail {
            return Err(StoreError("disk full".into()));
        }
        for e in extents {
            let carried = if self.hollow { &[] } else { &batch[e.range()] };
            for (i, b) in carried.iter().enumerate() {
                assert_eq!(*b, byte(e.object, e.offset + i as u64), "content");
            }
            let len = self.placed.entry((e.object, e.offset)).or_default();
            *len = e.len.max(*len);
        }
        Ok(())
    }

    fn room(&self) -> u64 {
        u64::MAX
    }
}

/// One end.
pub struct End {
    pub session: Option<Box<dyn Session>>,
    pub store: Checked,
    pub events: Vec<Event>,
    pub protocol: Haul,
    pub id: u64,
    /// Where it sends from.
    pub address: SocketAddr,
    /// How long what arrives has lain in the host.
    pub waited: Duration,
    /// Closes as soon as it hears that it is connected, as an application does that knows better.
    pub leaves: bool,
    rng: Rng,
}

impl End {
    fn new(protocol: Haul, address: SocketAddr, seed: u64) -> Self {
        Self {
            session: None,
            store: Checked::default(),
            events: Vec::new(),
            protocol,
            id: 0,
            address,
            waited: Duration::ZERO,
            leaves: false,
            rng: Rng::new(seed),
        }
    }

    pub fn session(&mut self) -> &mut dyn Session {
        &mut **self.session.as_mut().unwrap()
    }

    pub fn connected(&self) -> bool {
        self.events
            .iter()
            .any(|e| matches!(e, Event::Connected { .. }))
    }

    pub fn delivered(&self) -> bool {
        self.events.contains(&Event::Delivered)
    }

    pub fn closed(&self) -> Option<&CloseReason> {
        self.events.iter().find_map(|e| match e {
            Event::Closed(reason) => Some(reason),
            _ => None,
        })
    }

    fn arrive(&mut self, now: Instant, from: SocketAddr, bytes: &mut [u8]) -> Option<Vec<u8>> {
        if bytes.is_empty() {
            return None;
        }
        let known = match self.protocol.route(bytes) {
            Route::Known(id) => self.session.is_some() && id == self.id,
            Route::New | Route::Peer => false,
            Route::Foreign => return None,
        };
        if !known {
            let mut reply = Vec::new();
            match self
                .protocol
                .accept(now, &mut self.rng, from, bytes, &mut reply)
            {
                Accepted::Session(id, session) => {
                    if self.session.as_ref().is_some_and(|s| !s.is_closed()) {
                        return None;
                    }
                    (self.id, self.session) = (id, Some(session));
                    self.events.clear();
                }
                Accepted::Reply => {
                    assert!(reply.len() <= 3 * bytes.len(), "amplification");
                    return Some(reply);
                }
                Accepted::Drop => return None,
            }
        }
        let session = self.session.as_mut()?;
        let mut turn = Turn {
            now,
            rng: &mut self.rng,
            store: &mut self.store,
        };
        let segment = bytes.len();
        let batch = Received {
            from,
            ecn: Ecn::NotEct,
            segment,
            bytes,
            waited: self.waited,
            granted: None,
        };
        session.handle_datagrams(&mut turn, batch);
        while self.leaves
            && let Some(event) = session.poll_event()
        {
            if matches!(event, Event::Connected { .. }) {
                session.close(now, 15, "not the one I know");
            }
            self.events.push(event);
        }
        None
    }

    fn drain(&mut self, now: Instant, out: &mut TxBuf, sent: &mut Vec<(SocketAddr, Vec<u8>)>) {
        let hollow = self.store.hollow;
        let Some(session) = &mut self.session else {
            return;
        };
        let mut turn = Turn {
            now,
            rng: &mut self.rng,
            store: &mut self.store,
        };
        let mut guard = 0;
        while let Some(transmit) = session.poll_transmit(&mut turn, out) {
            guard += 1;
            assert!(guard < 100_000, "a session must come to rest");
            for (segment, solid) in out.segments() {
                let mut segment = segment.to_vec();
                if hollow {
                    segment[solid..].fill(0xa5);
                }
                sent.push((transmit.to, segment));
            }
        }
        while let Some(event) = session.poll_event() {
            self.events.push(event);
        }
    }
}

/// What becomes of a datagram.
pub enum Fate {
    Pass,
    Drop,
    Late(Duration),
    Change(Vec<u8>),
    Twice,
}

/// Direction (true: from the client), number in that direction, time, bytes.
pub type Script<'a> = dyn FnMut(bool, u64, Instant, &[u8]) -> Fate + 'a;

/// From the client?, from, to, bytes.
type Flight = (bool, SocketAddr, SocketAddr, Vec<u8>);

pub struct Pair {
    pub now: Instant,
    pub client: End,
    pub server: End,
    pub delay: Duration,
    /// Largest datagram that the path carries.
    pub mtu: usize,
    pub counts: [u64; 2],
    flying: BTreeMap<(Instant, u64), Flight>,
    serial: u64,
    out: TxBuf,
}

impl Pair {
    pub fn new(client: HaulConfig, server: HaulConfig, delay: Duration) -> Self {
        Self::with_mtu(client, server, delay, 1_500)
    }

    pub fn with_mtu(client: HaulConfig, server: HaulConfig, delay: Duration, mtu: u32) -> Self {
        let (client, server) = (Haul::client(client).unwrap(), Haul::server(server).unwrap());
        Self::of(client, server, delay, mtu)
    }

    /// Between endpoints made outside.
    pub fn of(client: Haul, server: Haul, delay: Duration, mtu: u32) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let mut client = End::new(client, address(CLIENT), 1);
        let server = End::new(server, address(SERVER), 2);
        let (id, session) =
            client
                .protocol
                .connect(now, &mut client.rng, address(SERVER), Some(mtu));
        (client.id, client.session) = (id, Some(session));
        Self {
            now,
            client,
            server,
            delay,
            mtu: usize::try_from(mtu).unwrap() - 28,
            counts: [0; 2],
            flying: BTreeMap::new(),
            serial: 0,
            out: TxBuf::default(),
        }
    }

    fn launch(&mut self, at: Instant, flight: Flight) {
        self.serial += 1;
        self.flying.insert((at, self.serial), flight);
    }

    fn leave(
        &mut self,
        from_client: bool,
        to: SocketAddr,
        bytes: Vec<u8>,
        script: &mut Script<'_>,
    ) {
        let end = if from_client {
            &self.client
        } else {
            &self.server
        };
        let from = end.address;
        let index = usize::from(from_client);
        let n = self.counts[index];
        self.counts[index] += 1;
        if bytes.len() > self.mtu {
            return;
        }
        let at = self.now + self.delay;
        match script(from_client, n, self.now, &bytes) {
            Fate::Pass => self.launch(at, (from_client, from, to, bytes)),
            Fate::Drop => {}
            Fate::Late(by) => self.launch(at + by, (from_client, from, to, bytes)),
            Fate::Change(bytes) => self.launch(at, (from_client, from, to, bytes)),
            Fate::Twice => {
                self.launch(at, (from_client, from, to, bytes.clone()));
                self.launch(at + ms(1), (from_client, from, to, bytes));
            }
        }
    }

    /// Sends whatever both ends want to send now.
    pub fn drain(&mut self, script: &mut Script<'_>) {
        for from_client in [true, false] {
            let mut sent = Vec::new();
            let end = if from_client {
                &mut self.client
            } else {
                &mut self.server
            };
            end.drain(self.now, &mut self.out, &mut sent);
            for (to, bytes) in sent {
                self.leave(from_client, to, bytes, script);
            }
        }
    }

    /// Puts a datagram in front of an end, as if it came from `from`.
    pub fn inject(
        &mut self,
        to_server: bool,
        from: SocketAddr,
        mut bytes: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let end = if to_server {
            &mut self.server
        } else {
            &mut self.client
        };
        end.arrive(self.now, from, &mut bytes)
    }

    fn step(&mut self, script: &mut Script<'_>) -> bool {
        self.drain(script);
        let deadline = |end: &End| end.session.as_ref().and_then(|s| s.poll_timeout());
        let timers = [deadline(&self.client), deadline(&self.server)];
        let flying = self.flying.keys().next().map(|(at, _)| *at);
        let next = timers
            .iter()
            .flatten()
            .map(|(at, _)| *at)
            .chain(flying)
            .min();
        let Some(next) = next else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (from_client, from, to, mut bytes) = entry.remove();
            let end = if from_client {
                &mut self.server
            } else {
                &mut self.client
            };
            if end.address != to {
                continue;
            }
            if let Some(reply) = end.arrive(self.now, from, &mut bytes) {
                self.leave(!from_client, from, reply, script);
            }
        }
        for end in [&mut self.client, &mut self.server] {
            let Some(session) = &mut end.session else {
                continue;
            };
            if session.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                let mut turn = Turn {
                    now: self.now,
                    rng: &mut end.rng,
                    store: &mut end.store,
                };
                session.handle_timeout(&mut turn);
            }
        }
        true
    }

    /// Runs until `done`, or panics after `limit` of virtual time.
    pub fn run(&mut self, limit: Duration, script: &mut Script<'_>, done: impl Fn(&Self) -> bool) {
        let end = self.now + limit;
        let mut steps = 0_u64;
        loop {
            self.drain(script);
            if done(self) {
                return;
            }
            steps += 1;
            assert!(steps < 5_000_000, "the session spins");
            assert!(
                self.step(script) && self.now <= end,
                "not done at {}: client {:?}, server {:?}",
                self.now,
                self.client.events,
                self.server.events
            );
        }
    }

    /// Runs for `time`, whatever happens.
    pub fn idle(&mut self, time: Duration, script: &mut Script<'_>) {
        let end = self.now + time;
        loop {
            self.drain(script);
            let deadline = |e: &End| e.session.as_ref().and_then(|s| s.poll_timeout());
            let next = [deadline(&self.client), deadline(&self.server)]
                .iter()
                .flatten()
                .map(|(at, _)| *at)
                .chain(self.flying.keys().next().map(|(at, _)| *at))
                .min();
            if next.is_none_or(|at| at > end) {
                self.now = end;
                return;
            }
            self.step(script);
        }
    }

    pub fn connect(&mut self) {
        self.run(Duration::from_secs(10), &mut pass, |p| {
            p.client.connected() && p.server.connected()
        });
    }
}

pub fn pass(_: bool, _: u64, _: Instant, _: &[u8]) -> Fate {
    Fate::Pass
}
