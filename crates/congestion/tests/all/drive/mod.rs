//! A law of the registry whose input follows from the bytes, as far as an engine could produce it:
//! books add up, packets left before now. Its allowance stays possible, whatever the input. For the
//! fuzz target `feedback_laws` and for the tests on stable.
#![allow(unreachable_pub, reason = "a module of several programs")]

use std::time::Duration;

use farhaul_congestion::{Kind, Law, laws, lookup};
use farhaul_core::{
    congestion::{
        AckEvent, Guard, LossEvent, MAX_MESSAGE, PathView, RateSample, ReceiverRates, Sharing,
        TxSnapshot,
    },
    time::Instant,
    units::{Rate, Size},
};

/// Events of one input.
const STEPS: usize = 400;
/// The most bytes in one event: what 400 Gbit/s bring in 20 s.
const MOST_BYTES: u64 = 1 << 40;

/// Feeds a law.
pub fn feed(data: &[u8]) {
    let mut bytes = Bytes(data);
    let law = &laws()[usize::from(bytes.u8()) % laws().len()];
    let spec = spec(law, &mut bytes);
    let made = lookup(&spec).expect("choices that the law lists");
    let mut world = World {
        law: Guard::new(made.make()),
        now: Instant::from_nanos(1 << 40),
        path: PathView::default(),
        round: 0,
        delivered: 0,
        lost: 0,
        number: 0,
    };
    world.path(&mut bytes);
    world.law.on_start(world.now, &world.path);
    world.look(&spec);
    for _ in 0..STEPS {
        if bytes.0.is_empty() {
            break;
        }
        world.step(&mut bytes);
        world.look(&spec);
    }
}

/// `law`, with one of its choices wherever it has some.
fn spec(law: &Law, bytes: &mut Bytes<'_>) -> String {
    let mut settings = Vec::new();
    for parameter in law.parameters {
        if let Kind::Choice(choices) = parameter.kind {
            let choice = choices[usize::from(bytes.u8()) % choices.len()];
            settings.push(format!("{}={choice}", parameter.name));
        }
    }
    format!("{}:{}", law.name, settings.join(","))
}

/// Rest of the input; zeros after its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// A number of any magnitude below 2^`bits`: a byte for the magnitude and one for the digits.
    fn number(&mut self, bits: u32) -> u64 {
        let (shift, digits) = (u32::from(self.u8()) % bits, self.u8());
        let number = (u64::from(digits) | 0x100) << shift >> 8;
        number.min((1 << bits) - 1)
    }

    /// A duration from a microsecond to half an hour.
    fn duration(&mut self) -> Duration {
        Duration::from_nanos(self.number(41).max(1_000))
    }

    fn size(&mut self) -> u64 {
        self.number(41).min(MOST_BYTES)
    }

    fn rate(&mut self) -> Rate {
        Rate::from_bps(self.number(50))
    }
}

struct World {
    law: Guard,
    now: Instant,
    path: PathView,
    round: u64,
    delivered: u64,
    lost: u64,
    number: u64,
}

impl World {
    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let op = bytes.u8();
        if op & 16 != 0 {
            self.now += bytes.duration();
        }
        if op & 32 != 0 {
            self.path(bytes);
        }
        let now = self.now;
        match op % 16 {
            0..=5 => self.ack(bytes),
            6 | 7 => self.loss(bytes),
            8 => {
                let backoff = u32::from(bytes.u8());
                self.law.notify(now, |law| law.on_timeout(now, backoff));
            }
            9 => self.law.notify(now, |law| law.on_undo(now)),
            10 => {
                let at = self.law.next_tick().unwrap_or(now).max(now);
                self.now = at;
                self.law.notify(at, |law| law.on_tick(at));
            }
            11 => {
                let idle = bytes.duration();
                self.now += idle;
                let now = self.now;
                self.law.notify(now, |law| law.on_idle_restart(now, idle));
            }
            12 => {
                let sent = Size::from_bytes(bytes.size());
                self.path.in_flight = sent;
                self.law.on_sent(now, sent, &self.path);
            }
            13 => {
                let len = usize::from(bytes.u8()).min(bytes.0.len()).min(MAX_MESSAGE);
                let (message, rest) = bytes.0.split_at(len);
                bytes.0 = rest;
                self.law.notify(now, |law| law.on_message(now, message));
            }
            14 => {
                let sharing = Sharing::ALL[usize::from(bytes.u8()) % Sharing::ALL.len()];
                self.law.set_sharing(sharing);
            }
            _ => self.law.on_start(now, &self.path),
        }
    }

    fn path(&mut self, bytes: &mut Bytes<'_>) {
        let srtt = bytes.duration();
        self.path = PathView {
            datagram: 500 + u32::from(bytes.u8()) * 255,
            srtt,
            min_rtt: bytes.duration().min(srtt),
            feedback_interval: bytes.duration(),
            reordering: bytes.duration(),
            in_flight: Size::from_bytes(bytes.size()),
        };
    }

    /// State at the sending of a packet that left before.
    fn facts(&self, bytes: &mut Bytes<'_>) -> TxSnapshot {
        TxSnapshot {
            sent_at: self.now.earlier_by(bytes.duration()),
            in_flight: Size::from_bytes(bytes.size()),
            delivered: Size::from_bytes(self.delivered.saturating_sub(bytes.size())),
            lost: Size::from_bytes(self.lost.saturating_sub(bytes.size())),
            app_limited: bytes.u8() & 1 != 0,
        }
    }

    fn ack(&mut self, bytes: &mut Bytes<'_>) {
        let (what, acked) = (bytes.u8(), bytes.size());
        let app_limited = what & 1 != 0;
        self.delivered += acked;
        self.round += u64::from(what & 2 != 0);
        let packets = acked.div_ceil(u64::from(self.path.datagram));
        let ack = AckEvent {
            now: self.now,
            acked: Size::from_bytes(acked),
            packets: u32::try_from(packets).unwrap_or(u32::MAX),
            round: self.round,
            round_start: what & 2 != 0,
            in_flight_before: Size::from_bytes(bytes.size()),
            rtt: (what & 4 != 0).then(|| bytes.duration()),
            queue_delay: (what & 8 != 0).then(|| bytes.duration()),
            rate: (what & 16 != 0).then(|| RateSample {
                packets: 1_000,
                rate: bytes.rate(),
                sent: bytes.rate(),
                interval: bytes.duration(),
                app_limited,
                loss: f64::from(bytes.u8()) / 255.0,
            }),
            delivered: Size::from_bytes(self.delivered),
            lost: Size::from_bytes(self.lost),
            newest: (what & 32 != 0).then(|| self.facts(bytes)),
            receiver: (what & 64 != 0).then(|| ReceiverRates {
                arrival: bytes.rate(),
                capacity: (what & 1 != 0).then(|| bytes.rate()),
            }),
            ce: if what & 128 != 0 { bytes.number(32) } else { 0 },
            app_limited,
            path: self.path,
        };
        self.law.on_ack(&ack);
    }

    fn loss(&mut self, bytes: &mut Bytes<'_>) {
        let (what, packets) = (bytes.u8(), bytes.number(20).max(1));
        let lost = packets * u64::from(self.path.datagram);
        self.lost += lost;
        let first = self.number;
        self.number += packets * (1 + u64::from(what >> 4));
        let oldest = self.facts(bytes);
        let newest = self.facts(bytes);
        self.law.on_loss(&LossEvent {
            now: self.now,
            lost: Size::from_bytes(lost),
            packets: u32::try_from(packets).unwrap_or(u32::MAX),
            span: (first, self.number - 1),
            new_episode: what & 1 != 0,
            oldest,
            newest: TxSnapshot {
                sent_at: newest.sent_at.max(oldest.sent_at),
                ..newest
            },
            lost_total: Size::from_bytes(self.lost),
            in_flight_before: Size::from_bytes(bytes.size()),
            path: self.path,
        });
    }

    fn look(&mut self, spec: &str) {
        let allowed = self.law.allowance();
        let rates = Rate::from_bps(100)..=Rate::gbit(100_000);
        assert!(rates.contains(&allowed.rate), "{spec}: {allowed:?}");
        assert!(allowed.window > Size::ZERO, "{spec}: {allowed:?}");
        assert!(allowed.quantum > Size::ZERO, "{spec}: {allowed:?}");
        // Acknowledgements faster than any path may ask for more than any path; never for no number.
        let fault = self.law.faults().1.unwrap_or_default();
        assert!(!fault.contains("not a number"), "{spec} asked for {fault}");
        assert!(!self.law.law().observe().phase.is_empty());
        while let Some(message) = self.law.mail().take() {
            assert!(message.len() <= MAX_MESSAGE);
        }
    }
}
