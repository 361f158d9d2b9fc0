//! How much does the path carry, whatever it loses? The flagship's own law: a model of the path made
//! of delivery rate, propagation delay and queueing delay. Loss by itself is no evidence: a path that
//! loses two packets in a hundred at any load is full when the *delivery rate* stops rising with the
//! sending rate or the *queue* stands. There is no loss threshold to fall off.
//!
//! - **Startup** (packet trains, then confirmation): short bursts at four times the proven rate; what
//!   the path delivered of a burst is proven for the next round. A burst carries so little that the
//!   overshoot on the last one is a few ms of the link, not a round trip of it.
//! - **Cruise** at the largest recent delivery rate, plus the share that is lost at random on the way.
//! - **Probe**: now and then a burst a quarter above that; if it was delivered, the next follows.
//! - **Drain** while a queue stands; **collapse** to what is delivered when that stays well below the
//!   estimate while there is evidence of congestion (a queue, marks, or loss beyond the usual).
//!
//! Own design after the published ideas of BBR (Cardwell et al.) and packet-train dispersion.

use std::time::Duration;

use farhaul_core::{
    congestion::{
        AckEvent, Allowance, CcState, CongestionController, LossEvent, PathView, RateSample,
    },
    time::Instant,
    units::{Rate, Size},
};

use crate::registry::Law;

/// How the registry knows it.
pub(crate) const LAW: Law = Law {
    name: "haul",
    summary: "delivery rate and queueing delay; no response to random loss",
    citation: "farhaul, docs/protocols/haul.md",
    parameters: &[],
    make: |_| Box::new(Haul::default()),
};

/// Rate of the first burst: 128 KiB in one burst's time.
const FIRST_BURST: Rate = Rate::mbit(52);
/// Least length of a startup burst in time and in datagrams.
const BURST: (Duration, u64) = (Duration::from_millis(20), 32);
/// Burst rate over proven rate.
const BURST_GAIN: f64 = 4.0;
/// Least length of a probe in time and in datagrams.
const PROBE: (Duration, u64) = (Duration::from_millis(25), 64);
/// The least length of an epoch, over which evidence is gathered.
const EPOCH: Duration = Duration::from_millis(100);
/// The longest burst or probe.
const LONGEST: Duration = Duration::from_millis(250);
/// Probe rate over estimate: the first probe, and the most after probes that found more.
const PROBE_GAIN: (f64, f64) = (1.25, 2.0);
/// Pacing while a queue drains.
const DRAIN_GAIN: f64 = 0.85;
/// Loss in a burst that, with delivery short of sending, says the path is full.
const HEAVY_LOSS: f64 = 0.08;
/// Packets in a sample for it to say that the path is full.
const TELLING: u64 = 200;
/// Epochs the bandwidth estimate remembers.
const MEMORY: usize = 10;
/// Each vain probe doubles the pause before the next, so many times.
const MAX_VAIN: u32 = 3;
/// The largest random loss that is compensated by sending more.
const MAX_COMPENSATED: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A startup burst is being sent.
    Burst,
    /// Its outcome is awaited.
    Confirm,
    Cruise,
    Probe,
    /// The outcome of a probe is awaited.
    Verify,
    Drain,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Confirm => "confirm",
            Self::Cruise => "cruise",
            Self::Probe => "probe",
            Self::Verify => "verify",
            Self::Drain => "drain",
        }
    }
}

/// What was seen since the epoch began: about one rtt.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    began: Option<Instant>,
    round: u64,
    best: Rate,
    mean: f64,
    sent: f64,
    least_queue: Option<Duration>,
    loss: f64,
    samples: u32,
    marked: bool,
    app_limited: bool,
}

impl Epoch {
    const fn new(began: Option<Instant>, round: u64) -> Self {
        Self {
            began,
            round,
            best: Rate::ZERO,
            mean: 0.0,
            sent: 0.0,
            least_queue: None,
            loss: 0.0,
            samples: 0,
            marked: false,
            app_limited: false,
        }
    }
}

/// The flagship's law.
#[derive(Clone, Debug)]
pub struct Haul {
    phase: Phase,
    /// When the phase ends by itself.
    until: Option<Instant>,
    /// Startup: the rate proven so far.
    proven: Rate,
    /// Startup: bursts in a row that proved nothing new.
    unproven: u32,
    /// Best delivery since the burst or probe began, and the rate at which that was sent.
    seen: Rate,
    sent: Rate,
    /// It covered enough packets to say whether the path is full.
    telling: bool,
    /// Largest loss in a sample since then.
    worst_loss: f64,
    /// Estimate when the probe began, and the probe's gain.
    before: Rate,
    gain: f64,
    /// The best delivery rate of each of the last epochs, newest last.
    memory: [Rate; MEMORY],
    /// Share lost without any sign of congestion.
    random_loss: f64,
    /// Epochs in a row with evidence of congestion and delivery below the estimate.
    short: u32,
    /// Draws probe times apart.
    probes: u32,
    /// The last probe found more, and nothing has spoken against it yet.
    grown: bool,
    /// Probes in a row that found more than the path then carried.
    vain: u32,
    /// What is seen before is the past: the last drain has not shown yet.
    blind_until: Option<Instant>,
    epoch: Epoch,
    path: PathView,
}

impl Default for Haul {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            phase: Phase::Burst,
            until: None,
            proven: FIRST_BURST.scale(1.0 / BURST_GAIN),
            unproven: 0,
            seen: Rate::ZERO,
            sent: Rate::ZERO,
            telling: false,
            worst_loss: 0.0,
            before: Rate::ZERO,
            gain: PROBE_GAIN.0,
            memory: [Rate::ZERO; MEMORY],
            random_loss: 0.0,
            short: 0,
            probes: 0,
            grown: false,
            vain: 0,
            blind_until: None,
            epoch: Epoch::new(None, 0),
            path: PathView {
                datagram: 1_200,
                srtt: ms(100),
                min_rtt: ms(100),
                feedback_interval: ms(5),
                in_flight: Size::ZERO,
            },
        }
    }
}

impl Haul {
    const fn starting(&self) -> bool {
        matches!(self.phase, Phase::Burst | Phase::Confirm)
    }

    /// The bandwidth estimate: what the receiver gets.
    fn bandwidth(&self) -> Rate {
        if self.starting() {
            return self.proven;
        }
        self.memory
            .iter()
            .copied()
            .max()
            .unwrap_or_default()
            .max(FIRST_BURST.scale(0.1))
    }

    /// What must be sent for the receiver to get the estimate.
    fn base(&self) -> Rate {
        self.bandwidth()
            .scale(1.0 / (1.0 - self.random_loss.min(MAX_COMPENSATED)))
    }

    fn pace(&self) -> Rate {
        match self.phase {
            Phase::Burst => self.proven.scale(BURST_GAIN),
            Phase::Confirm => self.proven,
            Phase::Cruise | Phase::Verify => self.base(),
            Phase::Probe => self.base().scale(self.gain),
            Phase::Drain => self.base().scale(DRAIN_GAIN),
        }
    }

    /// A standing queue longer than this is congestion: an eighth of the propagation delay, between
    /// 4 and 10 ms.
    fn queue_target(&self) -> Duration {
        let ms = Duration::from_millis;
        (self.path.min_rtt / 8).clamp(ms(4), ms(10))
    }

    /// How long a burst or probe at the present rate lasts.
    fn train(&self) -> Duration {
        let ((least, datagrams), gain) = if self.starting() {
            (BURST, BURST_GAIN)
        } else {
            (PROBE, self.gain)
        };
        let rate = self.base().scale(gain);
        rate.time_for(datagrams * u64::from(self.path.datagram))
            .clamp(least, LONGEST)
    }

    /// When the outcome of what is sent until `at` is known.
    fn outcome(&self, at: Instant) -> Instant {
        at + self.path.srtt + self.path.feedback_interval * 3 + Duration::from_millis(2)
    }

    fn enter(&mut self, phase: Phase, until: Option<Instant>) {
        self.phase = phase;
        self.until = until;
    }

    fn burst(&mut self, now: Instant) {
        self.seen = Rate::ZERO;
        self.sent = Rate::ZERO;
        self.telling = false;
        self.worst_loss = 0.0;
        self.phase = Phase::Burst;
        self.until = Some(now + self.train());
    }

    fn cruise(&mut self, now: Instant) {
        self.probes += 1;
        // Spread by a golden-ratio walk so that flows do not probe in step.
        let spread = f64::from(self.probes.wrapping_mul(2_654_435_769) >> 16) / 65_536.0;
        let least = Duration::from_millis(200);
        let pause = (self.path.min_rtt * 4).clamp(least, Duration::from_secs(2)) * (1 << self.vain);
        self.enter(
            Phase::Cruise,
            Some(now + pause.mul_f64(0.75 + spread / 2.0)),
        );
    }

    /// The outcome of a burst is known, or as good as.
    fn judge_burst(&mut self, now: Instant) {
        let grew = self.seen >= self.proven.scale(1.3);
        let full = self.seen < self.sent.scale(0.8);
        self.unproven = if grew && !full { 0 } else { self.unproven + 1 };
        if full && self.telling && self.worst_loss > HEAVY_LOSS {
            // The best of many samples on a full path flatters it; probing finds the rest.
            self.proven = self.proven.max(self.seen.scale(0.85)).min(self.seen);
            self.settle(now);
            return;
        }
        self.proven = self.proven.max(self.seen);
        if self.unproven < 2 {
            self.burst(now);
        } else {
            self.settle(now);
        }
    }

    /// The start is over: empties the queue it made, then looks for what is left.
    fn settle(&mut self, now: Instant) {
        self.memory = [Rate::ZERO; MEMORY];
        self.memory[MEMORY - 1] = self.proven;
        self.epoch = Epoch::new(Some(now), self.epoch.round);
        self.drain(now, self.queue_target());
    }

    fn judge_probe(&mut self, now: Instant) {
        if self.seen >= self.before.scale(0.5 + self.gain / 2.0) {
            // Most of it was delivered: there may be much more.
            self.remember(self.seen);
            self.gain = (self.gain * 1.25).min(PROBE_GAIN.1);
            self.grown = true;
            self.probe(now);
            return;
        }
        self.gain = PROBE_GAIN.0;
        if self.seen > self.before {
            self.grown |= self.seen >= self.before.scale(1.1);
            self.remember(self.seen.scale(0.99));
        }
        self.cruise(now);
    }

    fn probe(&mut self, now: Instant) {
        self.seen = Rate::ZERO;
        self.before = self.bandwidth();
        self.enter(Phase::Probe, Some(now + self.train()));
    }

    fn congested(&self, epoch: &Epoch) -> bool {
        epoch.marked
            || epoch.least_queue.is_some_and(|q| q > self.queue_target())
            || epoch.loss > self.random_loss * 2.0 + 0.03
    }

    fn sample(&mut self, sample: &RateSample) {
        if sample.rate > self.seen {
            self.seen = sample.rate;
            self.sent = sample.sent.min(self.proven.scale(BURST_GAIN));
            let packets = sample.sent.bytes_in(sample.interval) / u64::from(self.path.datagram);
            self.telling = packets >= TELLING;
        }
        self.worst_loss = self.worst_loss.max(sample.loss);
        self.epoch.best = self.epoch.best.max(sample.rate);
        self.epoch.samples += 1;
        self.epoch.mean += (sample.rate.as_f64() - self.epoch.mean) / f64::from(self.epoch.samples);
        self.epoch.loss += (sample.loss - self.epoch.loss) / f64::from(self.epoch.samples);
        self.epoch.app_limited |= sample.app_limited;
        self.epoch.sent += (sample.sent.as_f64() - self.epoch.sent) / f64::from(self.epoch.samples);
    }

    fn remember(&mut self, rate: Rate) {
        let newest = &mut self.memory[MEMORY - 1];
        *newest = (*newest).max(rate);
    }

    fn end_epoch(&mut self, now: Instant, round: u64) {
        let epoch = std::mem::replace(&mut self.epoch, Epoch::new(Some(now), round));
        if epoch.samples == 0 || self.starting() {
            return;
        }
        let congested = self.congested(&epoch);
        if !congested {
            self.random_loss += (epoch.loss - self.random_loss) / 8.0;
        }
        let blind = self.blind_until.is_some_and(|at| epoch.began < Some(at));
        let stands =
            !blind && (epoch.marked || epoch.least_queue.is_some_and(|q| q > self.queue_target()));
        let estimate = self.bandwidth();
        let behind = congested && !epoch.app_limited && epoch.best < estimate.scale(0.85);
        self.short = if behind { self.short + 1 } else { 0 };
        if self.short >= 2 || (behind && epoch.best < estimate.scale(0.5)) {
            self.memory = [Rate::ZERO; MEMORY];
            self.memory[MEMORY - 1] = epoch.best;
            self.short = 0;
        }
        if stands && !epoch.app_limited {
            // While a queue never empties, the mean delivery rate is the bottleneck's own.
            let bottleneck = Rate::from_f64(epoch.mean);
            self.memory = self.memory.map(|rate| rate.min(bottleneck));
        }
        // What was not sent at the rate allowed says nothing against that rate.
        let idle = epoch.app_limited || epoch.sent < self.pace().as_f64() * 0.9;
        if !idle {
            self.remember(Rate::from_f64(epoch.mean));
            self.memory.rotate_left(1);
            self.memory[MEMORY - 1] = Rate::ZERO;
        }
        if stands && matches!(self.phase, Phase::Cruise | Phase::Verify) {
            if std::mem::take(&mut self.grown) {
                self.vain = (self.vain + 1).min(MAX_VAIN);
            }
            self.drain(now, epoch.least_queue.unwrap_or_default());
        }
    }

    /// Sends less for as long as it takes to empty `queue`.
    fn drain(&mut self, now: Instant, queue: Duration) {
        let least = Duration::from_millis(5);
        let until = now
            + queue
                .max(least)
                .mul_f64(1.0 / (1.0 - DRAIN_GAIN))
                .min(LONGEST);
        self.blind_until = Some(self.outcome(until));
        self.enter(Phase::Drain, Some(until));
    }
}

impl CongestionController for Haul {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn on_start(&mut self, now: Instant, path: &PathView) {
        *self = Self {
            path: *path,
            ..Self::default()
        };
        self.burst(now);
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.path = ack.path;
        if let Some(queue) = ack.queue_delay {
            let least = self.epoch.least_queue.map_or(queue, |q| q.min(queue));
            self.epoch.least_queue = Some(least);
        }
        self.epoch.marked |= ack.ce > 0;
        if let Some(sample) = &ack.rate {
            self.sample(sample);
            if self.starting()
                && !sample.app_limited
                && sample.rate >= self.proven.scale(BURST_GAIN * 0.9)
            {
                self.judge_burst(ack.now);
            }
        }
        let began = *self.epoch.began.get_or_insert(ack.now);
        if ack.round > self.epoch.round && ack.now.since(began) >= EPOCH.max(self.train()) {
            self.end_epoch(ack.now, ack.round);
        }
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.path = loss.path;
    }

    fn on_tick(&mut self, now: Instant) {
        if self.until.is_none_or(|at| at > now) {
            return;
        }
        match self.phase {
            Phase::Burst => self.enter(Phase::Confirm, Some(self.outcome(now))),
            Phase::Confirm => self.judge_burst(now),
            Phase::Cruise => {
                if std::mem::take(&mut self.grown) {
                    self.vain = 0;
                }
                self.probe(now);
            }
            Phase::Probe => self.enter(Phase::Verify, Some(self.outcome(now))),
            Phase::Verify => self.judge_probe(now),
            Phase::Drain if self.probes == 0 => {
                self.probes = 1;
                self.probe(now);
            }
            Phase::Drain => self.cruise(now),
        }
    }

    fn next_tick(&self) -> Option<Instant> {
        self.until
    }

    fn sample_window(&self) -> Option<Duration> {
        // Shorter than a train, so that a sample fits within one.
        Some(self.train().mul_f64(0.8))
    }

    fn allowance(&self) -> Allowance {
        let rate = self.pace();
        let base = self.base();
        let slack = self.path.feedback_interval * 2 + Duration::from_millis(4);
        let burst = self.train();
        let extra = rate.bytes_in(burst).saturating_sub(base.bytes_in(burst));
        let window = base.bytes_in(self.path.min_rtt.mul_f64(1.25) + slack)
            + extra
            + 16 * u64::from(self.path.datagram);
        let floor = 2 * u64::from(self.path.datagram);
        let quantum = rate
            .bytes_in(Duration::from_micros(500))
            .clamp(floor, 1 << 20);
        Allowance {
            window: Size::from_bytes(window),
            rate,
            quantum: Size::from_bytes(quantum),
        }
    }

    fn observe(&self) -> CcState {
        CcState {
            phase: self.phase.name(),
            ssthresh: None,
            bandwidth: Some(self.bandwidth()),
        }
    }
}
