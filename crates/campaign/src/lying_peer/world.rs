//! Lets an honest session and a liar meet, in virtual time, over a path of 10 ms. The honest end is
//! a listener's session with an app that sends an object, writes to the stream and reads from it.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use farhaul_core::{
    datagram::TxBuf,
    protocol::{CloseReason, Event},
    rng::Rng,
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_haul::{Haul, HaulConfig, HostilePeer};
use farhaul_testkit::{Admitted, Driver, Sent};

use super::{
    ALLOCATED, HALF_OPEN, HEAP, Most, Planted,
    actions::{self, Known},
};

/// One-way delay.
const DELAY: Duration = Duration::from_millis(5);
/// Rate that the honest end's law allows, bytes a second.
const RATE: u64 = 20_000_000 / 8;
/// Idle timeout of a session, and the longest close.
const IDLE: Duration = Duration::from_secs(33);
/// Polls in one turn beyond which a session does not become idle.
const ROUNDS: u32 = 10_000;

/// Address of the honest end.
const HONEST: ([u8; 4], u16) = ([192, 0, 2, 100], 17_992);

/// The honest app.
struct Honest {
    planted: Planted,
    placed: u64,
    kept: Vec<Vec<u8>>,
}

impl Store for Honest {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        self.placed += extents.iter().map(|e| u64::from(e.len)).sum::<u64>();
        match self.planted {
            Planted::Panic => panic!("planted"),
            Planted::Leak => self.kept.push(vec![1; HEAP]),
            _ => {}
        }
        Ok(())
    }
}

/// An address of the liar's, and how much went there.
#[derive(Clone, Copy, Debug, Default)]
struct Address {
    from: u64,
    to: u64,
}

struct World {
    now: Instant,
    rng: Rng,
    honest: Driver<Honest>,
    liar: HostilePeer,
    known: Known,
    at: SocketAddr,
    addresses: BTreeMap<SocketAddr, Address>,
    flying: BTreeMap<(Instant, u64), (bool, SocketAddr, Vec<u8>)>,
    serial: u64,
    out: TxBuf,
    heard: u64,
    opened: Option<Instant>,
    closed: Option<CloseReason>,
    baseline: usize,
}

type Outcome = Result<(), String>;

/// One seed.
pub(super) fn run(seed: u64, planted: Planted, most: &mut Most) -> Outcome {
    let mut world = World::new(seed, planted)?;
    let outcome = world.go(most);
    most.heard += world.heard;
    most.violations += u64::from(matches!(world.closed, Some(CloseReason::Protocol(_))));
    outcome
}

impl World {
    fn new(seed: u64, planted: Planted) -> Result<Self, String> {
        let now = Instant::from_nanos(1_000_000_000);
        let law = if seed.is_multiple_of(3) {
            "haul"
        } else {
            "fixed:rate=20Mbit"
        };
        let config = HaulConfig {
            law: law.into(),
            max_rate: Some(farhaul_core::units::Rate::mbit(20)),
            // Some are asked for a token.
            max_unvalidated: [64, 0][usize::from(seed.is_multiple_of(2))],
            ..HaulConfig::new([2; 32])
        };
        let text = |e: farhaul_haul::ConfigError| e.to_string();
        let listener = Haul::server(config).map_err(text)?;
        let liar = HostilePeer::new(&HaulConfig::new([1; 32]), 77, now).map_err(text)?;
        let app = Honest {
            planted,
            placed: 0,
            kept: Vec::new(),
        };
        Ok(Self {
            now,
            rng: Rng::new(seed).fork("liar"),
            honest: Driver::new(Box::new(listener), HONEST.into(), app, Rng::new(seed)),
            liar,
            known: Known::default(),
            at: SocketAddr::from(([192, 0, 2, 1], 5_000)),
            addresses: BTreeMap::new(),
            flying: BTreeMap::new(),
            serial: 0,
            out: TxBuf::default(),
            heard: 0,
            opened: None,
            closed: None,
            baseline: 0,
        })
    }

    fn go(&mut self, most: &mut Most) -> Outcome {
        self.open(most)?;
        self.known.bold = [0.0, 0.002, 0.02, 0.3][usize::try_from(self.rng.below(4)).unwrap_or(0)];
        let actions = 20 + self.rng.below(180);
        for _ in 0..actions {
            most.actions += 1;
            self.act();
            let pause = match self.rng.below(40) {
                0 => Duration::from_millis(self.rng.below(5_000)),
                1..=9 => Duration::from_millis(self.rng.below(40)),
                _ => Duration::ZERO,
            };
            self.advance(self.now + pause)?;
            most.heap = most.heap.max(self.memory());
            self.judge()?;
        }
        // The liar falls silent: the session ends.
        let until = self.now + IDLE + Duration::from_secs(1);
        self.advance(until)?;
        self.judge()?;
        if self.honest.session.is_some() && !self.honest.is_closed() {
            return Err(format!("still there after {IDLE:?} of silence"));
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        ALLOCATED.peak_usage().saturating_sub(self.baseline)
    }

    /// The handshake, on which some liars stop.
    fn open(&mut self, most: &mut Most) -> Outcome {
        let stops = self.rng.chance(0.1);
        for round in 0..4 {
            let before = ALLOCATED.current_usage();
            ALLOCATED.reset_peak_usage();
            let had = self.honest.session.is_some();
            for datagram in self.liar.flight(self.now) {
                self.attack(datagram);
            }
            self.advance(self.now + DELAY * 2 + Duration::from_millis(1))?;
            if self.honest.session.is_some() && !had {
                let grown = ALLOCATED.current_usage().saturating_sub(before);
                most.half_open = most.half_open.max(grown);
                if grown > HALF_OPEN {
                    return Err(format!("{grown} bytes for a half-open session"));
                }
                if stops {
                    break;
                }
            }
            if round == 3 && !self.liar.is_open() {
                return Err("the handshake did not finish".into());
            }
        }
        self.baseline = ALLOCATED.current_usage();
        ALLOCATED.reset_peak_usage();
        Ok(())
    }

    /// One thing that the liar does.
    fn act(&mut self) {
        match self.rng.below(30) {
            0 => self.liar.update_keys(),
            1 => {
                let host = u8::try_from(self.rng.below(4)).unwrap_or(0);
                let port = 5_000 + u16::try_from(self.rng.below(3)).unwrap_or(0);
                self.at = SocketAddr::from(([192, 0, 2, host], port));
            }
            2 => {
                let bits = self.rng.below(24);
                self.known.next += self.rng.below(1 << bits);
            }
            3 => self.known.next = self.known.next.saturating_sub(self.rng.below(200)),
            _ => {
                let copies = if self.rng.chance(0.05) { 40 } else { 1 };
                for _ in 0..copies {
                    let frames = actions::frames(&mut self.rng, &self.known);
                    if let Some(mut datagram) = self.liar.seal(self.known.next, &frames) {
                        if self.rng.chance(0.03)
                            && let Some(byte) = datagram.last_mut()
                        {
                            *byte ^= 1;
                        }
                        if self.rng.chance(0.05) {
                            self.attack(datagram.clone());
                        }
                        self.attack(datagram);
                    }
                    self.known.next += 1;
                }
            }
        }
    }

    fn attack(&mut self, datagram: Vec<u8>) {
        self.serial += 1;
        let flight = (true, self.at, datagram);
        self.flying.insert((self.now + DELAY, self.serial), flight);
    }

    /// Time passes; everything that is due until `until` happens.
    fn advance(&mut self, until: Instant) -> Outcome {
        let mut turns = 0_u64;
        loop {
            let arrival = self.flying.first_key_value().map(|((at, _), _)| *at);
            let timer = self.honest.deadline().map(|at| at.max(self.now));
            let timer = timer.filter(|_| self.honest.store.planted != Planted::Deaf);
            let Some(next) = arrival
                .into_iter()
                .chain(timer)
                .min()
                .filter(|at| *at <= until)
            else {
                break;
            };
            turns += 1;
            if turns > 200_000 {
                return Err("the session does not come to rest".into());
            }
            self.now = next;
            if arrival == Some(next) {
                if let Some((_, (to_honest, address, bytes))) = self.flying.pop_first() {
                    self.deliver(to_honest, address, bytes)?;
                }
            } else {
                self.honest.expire(self.now);
                self.settle()?;
            }
        }
        self.now = self.now.max(until);
        Ok(())
    }

    fn deliver(&mut self, to_honest: bool, address: SocketAddr, mut bytes: Vec<u8>) -> Outcome {
        if !to_honest {
            if let Some((number, _)) = self.liar.receive(self.now, &mut bytes) {
                self.known.heard.insert(number);
            }
            return Ok(());
        }
        self.heard += 1;
        self.addresses.entry(address).or_default().from += bytes.len() as u64;
        // What it says to strangers comes before the session hears anything.
        if self.honest.session.is_none() {
            match self.honest.admit(self.now, address, &bytes) {
                Admitted::Session => {}
                Admitted::Reply(reply) => {
                    self.send(address, reply);
                    return Ok(());
                }
                Admitted::Nothing => return Ok(()),
            }
        }
        self.honest.feed(self.now, address, &mut bytes);
        self.settle()
    }

    /// The honest end becomes idle.
    fn settle(&mut self) -> Outcome {
        let now = self.now;
        for _ in 0..ROUNDS {
            let sent = self.honest.drain(now, &mut self.out);
            self.honest.listen(now);
            self.honest.stream = Vec::new();
            if sent.is_empty() && self.honest.events.is_empty() {
                return Ok(());
            }
            for event in std::mem::take(&mut self.honest.events) {
                match event {
                    Event::Connected { .. } => {
                        self.opened = Some(now);
                        let session = self.honest.session();
                        session.send(1, 0, 64 << 20);
                        session.write(&vec![7; 100_000]);
                    }
                    Event::Closed(reason) => self.closed = Some(reason),
                    Event::Readable | Event::Delivered => {}
                }
            }
            for Sent { to, bytes, .. } in sent {
                if self.honest.store.planted == Planted::Chatter {
                    (0..8).for_each(|_| self.send(to, bytes.clone()));
                }
                self.send(to, bytes);
            }
        }
        Err("the session does not stop sending".into())
    }

    fn send(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        self.addresses.entry(to).or_default().to += bytes.len() as u64;
        self.serial += 1;
        self.flying
            .insert((self.now + DELAY, self.serial), (false, to, bytes));
    }

    /// Checks what must hold at any time.
    fn judge(&self) -> Outcome {
        let memory = self.memory();
        if memory > HEAP {
            return Err(format!("{memory} bytes of memory"));
        }
        let Some((_, session)) = &self.honest.session else {
            return Ok(());
        };
        let stats = session.stats();
        let millis = self.opened.map_or(0, |at| {
            u64::try_from(self.now.since(at).as_millis()).unwrap_or(u64::MAX)
        });
        // A hundredth of what arrived, and ten datagrams a second; eleven at the start.
        let feedback = stats.wire_received / 100 + (12 + millis / 100) * 1_300;
        if stats.feedback_sent > feedback {
            return Err(format!(
                "{} bytes of feedback, allowed {feedback}",
                stats.feedback_sent
            ));
        }
        // Data at the rate of the law; answers to what was received; probes and pings with time.
        let data = RATE * millis / 1_000 + RATE / 2;
        let answers = self.heard * 3 * 1_200 + millis * 20 + 200_000;
        let sent: u64 = self.addresses.values().map(|a| a.to).sum();
        if sent > data + answers {
            return Err(format!("{sent} bytes sent, allowed {data} and {answers}"));
        }
        if self.honest.store.placed > stats.wire_received {
            return Err("more was placed than arrived".into());
        }
        Ok(())
    }
}
