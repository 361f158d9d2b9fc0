//! Attacks protocols that authenticate nothing. Two real ends of any protocol of the registry run
//! in virtual time. An attacker between them changes, repeats, truncates, reflects and drops what
//! they send. Encrypted protocols run with constant keys. So they are changed before the encryption
//! only in what anybody may change.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

use farhaul_core::{rng::Rng, units::Rate};
use farhaul_measure::registry::{Choice, Entry, protocols};
use farhaul_testkit::{Fate, LaneEvent, Pair, Side};

use super::{ALLOCATED, HEAP, Most};

/// Datagrams that are remembered.
const SEEN: usize = 32;
/// Bytes of each object.
const BYTES: u64 = 4 << 20;
/// Turns of both sessions in [`IDLE_LIMIT`] beyond which they do not become idle.
const TURNS: u64 = 100_000;
/// Time after which nothing passes any more.
const IDLE_LIMIT: Duration = Duration::from_mins(2);

type Seen = Rc<RefCell<VecDeque<(Side, Vec<u8>)>>>;

struct World {
    pair: Pair,
    rng: Rng,
    seen: Seen,
    begun: [bool; 2],
    baseline: usize,
}

/// One seed, of the protocol whose turn it is.
pub(super) fn run(seed: u64, most: &mut Most) -> Result<(), String> {
    let all = protocols();
    let entry = &all[usize::try_from(seed).unwrap_or_default() % all.len()];
    let name = entry.descriptor.name;
    let mut world = World::new(entry, seed).map_err(|e| format!("{name}: {e}"))?;
    world.go(most).map_err(|e| format!("{name}: {e}"))
}

impl World {
    fn new(entry: &Entry, seed: u64) -> Result<Self, String> {
        let baseline = ALLOCATED.current_usage();
        ALLOCATED.reset_peak_usage();
        let choice = Choice {
            simulated: true,
            // Also what never slows down stays within a run's steps until it gives up.
            max_rate: Some(Rate::mbit(10)),
            ..Choice::default()
        };
        let ends = [entry.client(&choice), entry.server(&choice)];
        let [client, server] = ends.map(|end| end.map_err(|e| e.to_string()));
        let mut rng = Rng::new(seed).fork("forger");
        let seen = Seen::default();
        let (noted, mut fate) = (Rc::clone(&seen), rng.fork("fate"));
        let withheld = [0.0, 0.01, 0.2][usize::try_from(rng.below(3)).unwrap_or(0)];
        let delay = Duration::from_millis(5);
        let mut pair = Pair::new(client?, server?, delay, seed).with_script(move |datagram| {
            let mut noted = noted.borrow_mut();
            noted.truncate(SEEN - 1);
            noted.push_front((datagram.from, datagram.bytes.to_vec()));
            Fate::drop_if(fate.chance(withheld))
        });
        for side in [Side::Client, Side::Server] {
            pair.node(side).store.trust();
        }
        pair.connect(Some(1_500));
        Ok(Self {
            pair,
            rng,
            seen,
            begun: [false; 2],
            baseline,
        })
    }

    fn go(&mut self, most: &mut Most) -> Result<(), String> {
        let actions = 20 + self.rng.below(180);
        for _ in 0..actions {
            most.actions += 1;
            let pause = match self.rng.below(40) {
                0 => Duration::from_millis(self.rng.below(5_000)),
                1..=19 => Duration::from_millis(self.rng.below(40)),
                _ => Duration::ZERO,
            };
            self.advance(pause)?;
            self.act();
            self.judge(most)?;
        }
        self.pair.set_script(|_| Fate::Drop);
        self.advance(IDLE_LIMIT)?;
        self.judge(most)
    }

    /// Time passes; connected ends have something to send.
    fn advance(&mut self, by: Duration) -> Result<(), String> {
        let (until, before) = (self.pair.now + by, self.pair.turns());
        while self.pair.step(until) {
            for side in [Side::Client, Side::Server] {
                self.begin(side);
            }
            if self.pair.turns() - before > TURNS {
                return Err(format!("the sessions do not come to rest: {:?}", self.pair));
            }
        }
        Ok(())
    }

    fn begin(&mut self, side: Side) {
        let connected = self.pair.node(side).connected();
        if connected && !std::mem::replace(&mut self.begun[side as usize], connected) {
            let session = self.pair.node(side).session();
            session.send(1, 0, BYTES);
            session.write(&[7; 10_000]);
            self.pair.settle(side);
        }
    }

    fn act(&mut self) {
        let to = if self.rng.chance(0.5) {
            Side::Client
        } else {
            Side::Server
        };
        if self.rng.chance(0.02) {
            let said = if self.rng.chance(0.1) {
                LaneEvent::Ended
            } else {
                LaneEvent::Bytes(self.invented())
            };
            // Only protocols with a control lane receive it.
            self.pair.inject_event(self.pair.now, to, said);
            return;
        }
        let copies = if self.rng.chance(0.05) { 40 } else { 1 };
        for _ in 0..copies {
            let forged = self.forged(to);
            self.pair.inject(to, forged);
        }
    }

    fn invented(&mut self) -> Vec<u8> {
        let len = self.rng.below(80);
        (0..len)
            .map(|_| self.rng.next_u64().to_le_bytes()[0])
            .collect()
    }

    /// A recent message, changed; mostly of the other side, sometimes of the same.
    fn forged(&mut self, to: Side) -> Vec<u8> {
        let reflected = self.rng.chance(0.05);
        let pick = self.rng.below(SEEN as u64);
        let seen = self.seen.borrow();
        let mut all = seen.iter().filter(|(from, _)| (*from == to) == reflected);
        let skip = usize::try_from(pick).unwrap_or_default() % SEEN;
        let found = all.clone().nth(skip).or_else(|| all.next());
        let found = found.map(|(_, bytes)| bytes.clone());
        drop(seen);
        let Some(mut bytes) = found else {
            return self.invented();
        };
        for _ in 0..self.rng.below(4) {
            self.change(&mut bytes);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        const VALUES: [u32; 6] = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, u32::MAX];
        let len = bytes.len().max(1) as u64;
        // Headers are the part that is read.
        let near = if self.rng.chance(0.8) {
            40.min(len)
        } else {
            len
        };
        let at = usize::try_from(self.rng.below(near)).unwrap_or_default();
        match self.rng.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.extend(self.invented()),
            2 => bytes.get_mut(at).into_iter().for_each(|b| *b = !*b),
            3 => {
                let bit = self.rng.below(8);
                bytes.get_mut(at).into_iter().for_each(|b| *b ^= 1 << bit);
            }
            kind => {
                let Some(word) = bytes[at / 4 * 4..].first_chunk_mut::<4>() else {
                    return;
                };
                let old = u32::from_be_bytes(*word);
                let low = u32::try_from(self.rng.below(1 << 32)).unwrap_or_default();
                let new = match kind {
                    4 => VALUES[low as usize % VALUES.len()],
                    5 => old.wrapping_add(low % 64).wrapping_sub(32),
                    6 => old.wrapping_add(low >> (low % 20)),
                    _ => low,
                };
                *word = new.to_be_bytes();
            }
        }
    }

    fn judge(&self, most: &mut Most) -> Result<(), String> {
        let memory = ALLOCATED.peak_usage().saturating_sub(self.baseline);
        most.forged = most.forged.max(memory);
        if memory > 2 * HEAP {
            return Err(format!("{memory} bytes of memory in both ends"));
        }
        Ok(())
    }
}
