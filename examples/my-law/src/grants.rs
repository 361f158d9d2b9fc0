//! A rate control that lives at the receiver, in the manner of GTP (Wu & Chien, 2004): every flow's
//! receiving half measures what arrives and what it lacks, asks for a little more or less, and is
//! granted its max-min share of what the host can take. The sending half only obeys.
//!
//! Three pieces: [`Granted`] at the sender, [`Grants`] at the receiver, [`Host`] shared by all
//! receiving halves of one host.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use farhaul_congestion::Law;
use farhaul_core::{
    congestion::{
        AckEvent, Allowance, Arrival, CongestionController, LossEvent, PathView, ReceiverLaw,
    },
    time::Instant,
    units::{Rate, Size},
};

/// How it is chosen by name. All flows into one host share 60 Mbit/s.
pub const GRANTS: Law = Law {
    name: "grants",
    summary: "the receiver shares what its host can take among all flows into it",
    citation: "in the manner of GTP: Wu, Chien, CCGrid, 2004",
    parameters: &[],
    paced: true,
    receiver: Some(|| {
        let host = Host::new(Rate::mbit(60));
        Box::new(move || Box::new(Grants::new(Arc::clone(&host))))
    }),
    make: |_| Box::<Granted>::default(),
};
/// What a flow may send before it has received a grant.
const FIRST: Rate = Rate::mbit(10);
/// A grant expires after this time.
const GRANT_LIFETIME: Duration = Duration::from_millis(400);
/// The shortest time between two grants.
const LEAST_PERIOD: Duration = Duration::from_millis(20);

/// The sending half: sends at the rate it was granted; without a word from the receiver, at half of
/// it, and half again.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    rate: Rate,
    datagram: u32,
    heard: Option<Instant>,
}

impl Default for Granted {
    fn default() -> Self {
        Self {
            rate: FIRST,
            datagram: 1_200,
            heard: None,
        }
    }
}

impl CongestionController for Granted {
    fn name(&self) -> &'static str {
        GRANTS.name
    }

    fn receiver(&self) -> Option<&'static str> {
        Some(GRANTS.name)
    }

    fn on_start(&mut self, now: Instant, path: &PathView) {
        self.datagram = path.datagram;
        self.heard = Some(now);
    }

    fn on_ack(&mut self, _ack: &AckEvent) {}

    fn on_loss(&mut self, _loss: &LossEvent) {}

    fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        // A grant is bit/s in eight bytes; anything else is not ours.
        if let Ok(grant) = bytes.try_into() {
            self.rate = Rate::from_bps(u64::from_be_bytes(grant)).max(Rate::mbit(1));
            self.heard = Some(now);
        }
    }

    fn next_tick(&self) -> Option<Instant> {
        self.heard.map(|at| at + GRANT_LIFETIME)
    }

    fn on_tick(&mut self, now: Instant) {
        self.rate = self.rate.scale(0.5).max(Rate::mbit(1));
        self.heard = Some(now);
    }

    fn allowance(&self) -> Allowance {
        let ms = self.rate.bytes_in(Duration::from_millis(1));
        Allowance {
            window: Size::UNLIMITED,
            rate: self.rate,
            quantum: Size::from_bytes(ms.clamp(2 * u64::from(self.datagram), 65_536)),
        }
    }
}

/// What one host can take, and what each of its flows asks for.
#[derive(Debug)]
pub struct Host {
    capacity: Rate,
    asked: Mutex<BTreeMap<u64, Rate>>,
}

impl Host {
    /// A host that can take `capacity` in all.
    pub fn new(capacity: Rate) -> Arc<Self> {
        Arc::new(Self {
            capacity,
            asked: Mutex::default(),
        })
    }

    /// Flow `id` asks for `rate`; its max-min share.
    fn share(&self, id: u64, rate: Rate) -> Rate {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(id, rate);
        let mut rates: Vec<Rate> = asked.values().copied().collect();
        rates.sort_unstable();
        let (mut left, mut flows) = (self.capacity, rates.len() as u64);
        for ask in rates {
            let even = Rate::from_bps(left.bps() / flows);
            if ask > even {
                return rate.min(even);
            }
            left = Rate::from_bps(left.bps() - ask.bps());
            flows -= 1;
        }
        rate
    }

    fn join(&self) -> u64 {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let id = asked.keys().next_back().map_or(0, |last| last + 1);
        asked.insert(id, FIRST);
        id
    }

    fn leave(&self, id: u64) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.remove(&id);
    }
}

/// What had arrived when the last grant was made.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    end: u64,
    received: u64,
    bytes: u64,
}

/// The receiving half of one flow.
#[derive(Debug)]
pub struct Grants {
    host: Arc<Host>,
    id: u64,
    ask: Rate,
    grant: Rate,
    now: Mark,
    last: Mark,
    period: Duration,
    tick: Option<Instant>,
    told: bool,
}

impl Grants {
    /// For one more flow into `host`.
    pub fn new(host: Arc<Host>) -> Self {
        Self {
            id: host.join(),
            host,
            ask: FIRST,
            grant: FIRST,
            now: Mark::default(),
            last: Mark::default(),
            period: LEAST_PERIOD,
            tick: None,
            told: true,
        }
    }

    /// Asks for a tenth more than it was granted if all of it arrived, for what arrived if not.
    fn adapt(&mut self) {
        let sent = self.now.end - self.last.end;
        let missing = sent.saturating_sub(self.now.received - self.last.received);
        let arrived = Rate::of(self.now.bytes - self.last.bytes, self.period);
        self.ask = if missing * 100 > sent {
            arrived.max(FIRST)
        } else if arrived.scale(2.0) > self.grant {
            self.grant.scale(1.1)
        } else {
            self.ask
        };
        self.last = self.now;
    }
}

impl ReceiverLaw for Grants {
    fn name(&self) -> &'static str {
        GRANTS.name
    }

    fn on_start(&mut self, now: Instant, rtt: Duration) {
        self.period = rtt.max(LEAST_PERIOD);
        self.tick = Some(now + self.period);
    }

    fn on_arrival(&mut self, arrival: &Arrival) {
        self.now = Mark {
            end: arrival.end,
            received: arrival.received,
            bytes: self.now.bytes + arrival.bytes,
        };
    }

    fn next_tick(&self) -> Option<Instant> {
        self.tick
    }

    fn on_tick(&mut self, now: Instant) {
        self.adapt();
        self.grant = self.host.share(self.id, self.ask);
        self.told = false;
        self.tick = Some(now + self.period);
    }

    fn message(&mut self, _now: Instant, into: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.told, true) {
            into.extend_from_slice(&self.grant.bps().to_be_bytes());
        }
    }

    fn on_close(&mut self, _now: Instant) {
        self.host.leave(self.id);
        self.tick = None;
    }
}
