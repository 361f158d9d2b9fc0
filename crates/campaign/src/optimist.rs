//! A peer that acknowledges what did not arrive, which a sender must notice. In virtual time a
//! client opens a real, encrypted session and receives data over a path that loses some of it.
//! After a while the client reports everything that was sent as arrived: missed packets, and those
//! still on the way. The client guesses perfectly how far the sender is. So only the numbers that
//! the sender leaves out can give it away.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    time::Duration,
};

use farhaul_core::{
    arq::Report as Books,
    codec::Writer,
    datagram::TxBuf,
    protocol::{CloseReason, Event},
    rng::Rng,
    store::Hollow,
    time::Instant,
};
use farhaul_haul::{
    Haul, HaulConfig, HostilePeer,
    wire::{
        BASE_DATAGRAM, TAG, feedback,
        frame::kind,
        short::{self, Short},
    },
};
use farhaul_testkit::Driver;

use crate::{Scale, report::Report, spread::spread};

const TICK: Duration = Duration::from_micros(500);
/// The least packets that a window counts as: with less in flight no lie is worth more.
const FEW: u64 = 256;
/// Time in which a run must be over, virtual.
const LONGEST: Duration = Duration::from_secs(20);
/// Runs of the gate and of the documented campaign, and how many a child has.
const GATE: u64 = 1_000;
const FULL: u64 = 100_000;
const LOT: u64 = 100;
const NOTICED: &str = "closed within two windows";
const LAWS: [&str; 4] = ["haul", "cubic", "reno", "fixed:rate=100Mbit"];

/// Runs the part.
pub(crate) fn run(scale: &Scale) -> Report {
    let runs = scale.runs(GATE, FULL);
    let mut report = spread("optimist", scale, (runs, LOT), seeds);
    let noticed = report.figure_of(NOTICED);
    // The target is 99.9 %.
    if !scale.lot && (runs - noticed) * 1_000 > runs {
        report.fault(format!(
            "{} of {runs} lies were not noticed in time",
            runs - noticed
        ));
    }
    report
}

fn seeds(scale: &Scale) -> Report {
    let mut report = Report::new("optimist");
    for seed in scale.seeds() {
        match lie(seed, scale.planted) {
            Ok(windows) if windows <= 2.0 => {
                report.sum(NOTICED, 1);
                report.most(
                    "latest of them, thousandths of a window",
                    thousandths(windows),
                );
            }
            Ok(windows) => report.figure("late", format!("seed {seed}: {windows:.2} windows")),
            Err(error) => report.fault(format!("seed {seed}: {error}")),
        }
        report.ran();
    }
    report
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "two windows at most"
)]
fn thousandths(windows: f64) -> u64 {
    (windows * 1e3).ceil() as u64
}

/// One session.
struct Lie {
    now: Instant,
    rng: Rng,
    server: Driver<Hollow>,
    liar: HostilePeer,
    /// Datagrams on the way to each end.
    to_server: VecDeque<(Instant, Vec<u8>)>,
    to_liar: VecDeque<(Instant, Vec<u8>)>,
    delay: Duration,
    loss: f64,
    /// Numbers that arrived, and those that left.
    arrived: Numbers,
    left: Numbers,
    claimed: u64,
    sent: u64,
    out: TxBuf,
}

/// Addresses of the liar and the server.
const LIAR: ([u8; 4], u16) = ([192, 0, 2, 66], 6_666);
const HONEST: ([u8; 4], u16) = ([192, 0, 2, 1], 17_992);

/// Number of windows after which a liar's session is closed; infinite if it never is. With
/// `all_seeing` the liar knows which numbers are left out: nothing can give it away.
fn lie(seed: u64, all_seeing: bool) -> io::Result<f64> {
    let mut lie = Lie::new(seed)?;
    let honest_for = 20 + lie.rng.below(3_000);
    // Time at which the first lie arrives, and the number up to which the truth was reported
    // before.
    let mut first: Option<(Instant, u64)> = None;
    // How far the sender was then, and its window.
    let mut since: Option<(u64, u64)> = None;
    let end = lie.now + LONGEST;
    let mut reported_at = lie.now;
    while lie.now < end {
        lie.now += TICK;
        if let Some((at, truth)) = first
            && at <= lie.now
            && since.is_none()
        {
            let sent = lie.left.end;
            since = Some((sent, sent.saturating_sub(truth).max(FEW)));
        }
        lie.step();
        if lie.server.closed().is_some() {
            break;
        }
        if let Some((at, window)) = since
            && lie.left.end.saturating_sub(at) > 8 * window
        {
            return Ok(f64::INFINITY);
        }
        if !lie.liar.is_open() || lie.now.since(reported_at) < TICK * 4 {
            continue;
        }
        reported_at = lie.now;
        let lies = lie.arrived.end >= honest_for;
        if lies && first.is_none() {
            first = Some((lie.now + lie.delay, lie.claimed));
        }
        lie.report(lies, all_seeing);
    }
    match (lie.server.closed(), since) {
        (Some(CloseReason::Protocol(_)), Some((at, window))) => {
            Ok(ratio(lie.left.end.saturating_sub(at), window))
        }
        (None, Some(_)) => Ok(f64::INFINITY),
        (closed, _) => Err(io::Error::other(format!(
            "an honest session did not go on: {closed:?} after {} packets",
            lie.left.end
        ))),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

impl Lie {
    fn new(seed: u64) -> io::Result<Self> {
        let mut rng = Rng::new(seed);
        let now = Instant::from_nanos(1_000_000_000);
        let law = LAWS[usize::try_from(rng.below(LAWS.len() as u64)).unwrap_or(0)];
        let config = HaulConfig {
            law: law.into(),
            ..HaulConfig::new([2; 32])
        };
        let server = Box::new(Haul::server(config).map_err(io::Error::other)?);
        let mut server = Driver::new(server, HONEST.into(), Hollow, rng.fork("server"));
        server.reaction = Some(Box::new(|_, event, session| {
            if matches!(event, Event::Connected { .. }) {
                session.send(0, 0, 1 << 40);
            }
        }));
        Ok(Self {
            now,
            server,
            liar: HostilePeer::new(&HaulConfig::new([66; 32]), 77, now)
                .map_err(io::Error::other)?,
            to_server: VecDeque::new(),
            to_liar: VecDeque::new(),
            delay: Duration::from_micros(500 + rng.below(40_000)),
            loss: [0.0, 0.001, 0.02][usize::try_from(rng.below(3)).unwrap_or(0)],
            arrived: Numbers::default(),
            left: Numbers::default(),
            claimed: 0,
            sent: 0,
            out: TxBuf::default(),
            rng,
        })
    }

    /// Delivers due datagrams, and lets both ends send.
    fn step(&mut self) {
        for datagram in self.liar.flight(self.now) {
            self.to_server.push_back((self.now + self.delay, datagram));
        }
        while let Some((_, mut datagram)) = due(&mut self.to_liar, self.now) {
            if let Some((number, _)) = self.liar.receive(self.now, &mut datagram) {
                self.arrived.insert(number);
            }
        }
        while let Some((_, mut datagram)) = due(&mut self.to_server, self.now) {
            if let Some(reply) = self
                .server
                .on_datagram(self.now, LIAR.into(), &mut datagram)
            {
                self.to_liar.push_back((self.now + self.delay, reply));
            }
        }
        self.drain();
    }

    /// Sends what the server's session may send.
    fn drain(&mut self) {
        self.server.expire(self.now);
        self.server.listen(self.now);
        for sent in self.server.drain(self.now, &mut self.out) {
            if let Ok(header) = Short::decode(&sent.bytes) {
                self.left.insert(header.number.into());
            }
            if !self.rng.chance(self.loss) {
                let arrives = self.now + self.delay;
                self.to_liar.push_back((arrives, sent.bytes));
            }
        }
    }

    /// The client reports: honestly, or everything that was sent; `all_seeing` leaves out what was not.
    fn report(&mut self, lies: bool, all_seeing: bool) {
        let numbers = if lies { &self.left } else { &self.arrived };
        let end = numbers.end;
        if end <= self.claimed {
            return;
        }
        let mut runs = if lies && !all_seeing {
            vec![end - self.claimed]
        } else {
            numbers.runs(self.claimed)
        };
        // The report ends with the last arrival.
        let mut from = self.claimed;
        if runs.len().is_multiple_of(2) {
            from += runs.pop().unwrap_or(0);
        }
        let report = Books {
            from,
            largest: end - 1,
            delay_us: 0,
            arrived_us: self.now.as_nanos() / 1_000,
            bytes: end * 1_200,
            ce: 0,
            room: None,
            runs,
        };
        self.claimed = end;
        self.sent += 1;
        let mut frames = [0; BASE_DATAGRAM - short::LEN - TAG];
        let mut w = Writer::new(&mut frames);
        let written = w.u8(kind::FEEDBACK);
        let written = written.and_then(|()| feedback::encode(&mut w, &report));
        let len = w.len();
        let datagram = written
            .ok()
            .and_then(|()| self.liar.seal(self.sent, &frames[..len]));
        if let Some(datagram) = datagram {
            self.to_server.push_back((self.now + self.delay, datagram));
        }
    }
}

/// Datagram that has arrived by `now`.
fn due(flying: &mut VecDeque<(Instant, Vec<u8>)>, now: Instant) -> Option<(Instant, Vec<u8>)> {
    flying.pop_front_if(|(at, _)| *at <= now)
}

/// Packet numbers.
#[derive(Default)]
struct Numbers {
    seen: BTreeSet<u64>,
    /// One above the highest.
    end: u64,
}

impl Numbers {
    fn insert(&mut self, number: u64) {
        self.seen.insert(number);
        self.end = self.end.max(number + 1);
    }

    /// Runs of numbers that are there and that are not, in turn, from the highest down to `from`.
    fn runs(&self, from: u64) -> Vec<u64> {
        let mut runs = Vec::new();
        let mut there = false;
        for number in (from..self.end).rev() {
            if self.seen.contains(&number) == there {
                *runs.last_mut().expect("the highest is there") += 1;
            } else {
                there = !there;
                runs.push(1);
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_down_from_the_highest() {
        let mut numbers = Numbers::default();
        for number in [2, 3, 7, 9] {
            numbers.insert(number);
        }
        assert_eq!(numbers.runs(0), [1, 1, 1, 3, 2, 2]);
        assert_eq!(numbers.runs(8), [1, 1]);
    }

    #[test]
    fn a_liar_is_closed_and_one_that_knows_everything_is_not() {
        assert!(lie(1, false).unwrap() <= 2.0);
        assert!(lie(1, true).unwrap().is_infinite());
    }
}
