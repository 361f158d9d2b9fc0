//! Tests that a transfer ends, the promise of every session. After any pattern of loss that
//! eventually stops, the transfer eventually ends, with every byte in its place.
//!
//! Invariant: a pattern is a function of its seed, so a failing seed can be run again
//! (`FARHAUL_SEED`).

use std::time::Duration;

use farhaul_core::{protocol::Protocol, rng::Rng, time::Instant};

use crate::pair::{Datagram, Fate, Pair};

/// Every pattern has ended by then.
const TROUBLE: Duration = Duration::from_secs(3);
/// Virtual time a transfer may take in all.
const LIMIT: Duration = Duration::from_mins(5);
/// Most turns of a transfer.
const MAX_TURNS: u64 = 2_000_000;

/// The seeds to try: `0..count`, or the one in `FARHAUL_SEED`.
///
/// # Panics
/// If that is not a number.
pub fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let only = std::env::var("FARHAUL_SEED")
        .ok()
        .map(|text| text.parse().expect("FARHAUL_SEED is a number"));
    only.map_or(0..count, |seed: u64| seed..seed.saturating_add(1))
}

/// Runs transfers over patterns of loss, reordering, duplication and, for sealed protocols, damage,
/// one for each of `seeds`. `make` gives a client's and a server's protocol.
///
/// # Panics
/// If a transfer does not end, with the seed and the state of both sides.
pub fn assert_live(
    mut make: impl FnMut(u64) -> (Box<dyn Protocol>, Box<dyn Protocol>),
    seeds: impl IntoIterator<Item = u64>,
) {
    for seed in seeds {
        let (client, server) = make(seed);
        if let Err(why) = attempt(seed, client, server) {
            panic!("not live: {why}\nrun again with FARHAUL_SEED={seed}");
        }
    }
}

fn attempt(seed: u64, client: Box<dyn Protocol>, server: Box<dyn Protocol>) -> Result<(), String> {
    let mut rng = Rng::new(seed).fork("liveness");
    let delay = Duration::from_micros(rng.below(2) * rng.below(200_000) + rng.below(1_000));
    let objects = objects(&mut rng);
    let sealed = client.descriptor().sealed;
    let mut patterns = [
        Pattern::random(&mut rng, sealed),
        Pattern::random(&mut rng, sealed),
    ];
    let what = format!("{objects:?} over {delay:?}, {patterns:?}");
    let mut pair = Pair::new(client, server, delay, seed)
        .with_script(move |datagram| patterns[datagram.from as usize].fate(datagram));
    pair.connect(Some(9_000));
    let connected = pair.run(LIMIT, |pair| {
        pair.turns() > MAX_TURNS || !pair.client.events.is_empty()
    });
    if !connected || !pair.client.connected() {
        return Err(format!("no connection: {what}\n{pair:#?}"));
    }
    for (object, len) in (0..).zip(&objects) {
        pair.client.session().send(object, 0, *len);
    }
    pair.run(LIMIT, |pair| {
        let ended = pair.client.delivered() || pair.client.closed().is_some();
        pair.turns() > MAX_TURNS || ended
    });
    let delivered = pair.client.delivered();
    let complete = (0..)
        .zip(&objects)
        .all(|(object, len)| pair.server.store.has(object, *len));
    match (delivered, complete) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("told as delivered, but is not: {what}\n{pair:#?}")),
        (false, _) => Err(format!("no end: {what}\n{pair:#?}")),
    }
}

/// Lengths of objects: from one byte to some MB.
fn objects(rng: &mut Rng) -> Vec<u64> {
    let count = 1 + rng.below(4);
    (0..count)
        .map(|_| {
            let magnitude = rng.below(21);
            1 + rng.below(1 << magnitude)
        })
        .collect()
}

/// Trouble in one direction.
#[derive(Debug)]
struct Pattern {
    rng: Rng,
    /// Datagram with which the trouble ends.
    datagrams: u64,
    loss: f64,
    /// Datagrams lost in a row when one is.
    burst: u64,
    bursting: u64,
    /// Number of datagrams one of which is lost whatever the odds; 0: none.
    every: u64,
    late: f64,
    twice: f64,
    corrupt: f64,
    /// Instants between which nothing passes.
    dark: (Instant, Instant),
}

impl Pattern {
    fn random(rng: &mut Rng, sealed: bool) -> Self {
        let mut own = rng.fork("pattern");
        rng.next_u64();
        let some = |rng: &mut Rng, most: f64| {
            let on = rng.chance(0.5);
            let share = rng.unit() * most;
            if on { share } else { 0.0 }
        };
        let loss = some(&mut own, 0.9);
        let burst = 1 + own.below(2) * own.below(60);
        let every = own.below(2) * (2 + own.below(10));
        let (late, twice) = (some(&mut own, 0.3), some(&mut own, 0.3));
        let corrupt = if sealed { some(&mut own, 0.3) } else { 0.0 };
        let from = Instant::EPOCH + Duration::from_millis(own.below(1_500));
        let lasts = Duration::from_millis(own.below(2) * own.below(1_500));
        Self {
            datagrams: own.below(3_000),
            loss,
            burst,
            bursting: 0,
            every,
            late,
            twice,
            corrupt,
            dark: (from, from + lasts),
            rng: own,
        }
    }

    fn fate(&mut self, datagram: &Datagram<'_>) -> Fate {
        if datagram.at >= Instant::EPOCH + TROUBLE || datagram.index >= self.datagrams {
            return Fate::Deliver;
        }
        let rng = &mut self.rng;
        let later = Duration::from_micros(rng.below(50_000));
        if self.bursting > 0 {
            self.bursting -= 1;
            return Fate::Drop;
        }
        if datagram.at >= self.dark.0 && datagram.at < self.dark.1 {
            return Fate::Drop;
        }
        if rng.chance(self.loss) || self.every > 0 && datagram.index.is_multiple_of(self.every) {
            self.bursting = rng.below(self.burst);
            return Fate::Drop;
        }
        if rng.chance(self.late) {
            return Fate::Late(later);
        }
        if rng.chance(self.twice) {
            return Fate::Twice(later);
        }
        if rng.chance(self.corrupt) {
            return Fate::Corrupt(usize::try_from(rng.below(9_000)).unwrap_or_default());
        }
        Fate::Deliver
    }
}
