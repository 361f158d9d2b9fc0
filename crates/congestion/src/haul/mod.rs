//! The flagship's own law: a model of the path made of delivery rate, propagation delay and
//! queueing delay. It estimates how much the path carries, whatever it loses, and what part of that
//! is ours. Loss by itself is no evidence, unless a full queue is all that loses. A path that loses
//! two packets in a hundred at any load is full when the *delivery rate* stops rising with the
//! sending rate or there is a standing *queue*.
//!
//! - **Startup** ([`start`]): short bursts, far above what the last one proved.
//! - **Cruise** at the estimate, plus the share that is usually lost on the way.
//! - **Probe** ([`probe`]): at the same interval for all flows (longer where a short queue is
//!   shared), a train above that; part of what was found is taken. Then **rest** below it for as
//!   long as it takes to give the queue back.
//! - **Drain** when a queue stands, and multiply the estimate by what was delivered of what was
//!   sent: a factor which all flows of a link see alike.
//! - **Compete** ([`rival`]) when drains do not help, since another fills the queue again; now and
//!   then **look** whether it still does.
//!
//! Equal steps up, equal factors down: `docs/laws/haul.md` shows where that settles.
//!
//! Own design after the published ideas of BBR (Cardwell et al.), packet-train dispersion, AIMD
//! (Chiu and Jain) and mode switching (Copa: Arun and Balakrishnan; Nimbus: Goyal et al.).

mod allowance;
mod behaviour;
mod epoch;
mod loss_count;
mod probe;
mod recent_min;
mod response;
mod rival;
mod start;
mod train;
mod usual_loss;

use std::time::Duration;

use allowance::QUEUED;
use behaviour::{Behaviour, KEPT_BESIDE, Others};
use epoch::{EPOCH, Epoch};
use farhaul_core::{
    congestion::{
        AckEvent, Allowance, CcState, CongestionController, FeedbackRequest, LossEvent, PathView,
        RateSample, SavedPath, Sharing,
    },
    path::WindowedMin,
    time::Instant,
    units::{Rate, Size},
};
use loss_count::LossCount;
use probe::{ALONE, Probe};
use recent_min::RecentMin;
use rival::Rival;
use start::Start;
use usual_loss::UsualLoss;

use crate::{
    cubic::Cubic,
    law::Law,
    parameters::{Kind, Parameter, Values},
};

/// Entry in the registry.
pub(crate) const LAW: Law = Law {
    name: "haul",
    summary: "delivery rate and queueing delay; no response to random loss",
    citation: "farhaul, docs/laws/haul.md",
    parameters: &[
        Parameter {
            name: "policy",
            about: "share of a link: unused capacity, as much as each other flow, as much as two",
            kind: Kind::Choice(&["low", "fair", "high"]),
            default: "fair",
        },
        Parameter {
            name: "lanes",
            about: "of how many flows that claim one share together it is one",
            kind: Kind::Whole(1, 64),
            default: "1",
        },
    ],
    paced: true,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        let sharing = values.choice("policy").parse().unwrap_or_default();
        let mut law = Haul::new(sharing);
        law.behaviour.lanes = values.whole("lanes");
        Box::new(law)
    },
};

/// Time from probe to probe, unless the path is longer. The same for short and long paths, so that
/// they grow alike.
const CYCLE: Duration = Duration::from_millis(500);
/// Between reports of a flow alone on the link, outside probes; a quarter of the least rtt if that
/// is less.
const BETWEEN_PROBES: Duration = Duration::from_micros(12_500);
/// Part of a probe's find that is taken on a link that was full within [`CALM`]; else all of it is
/// taken.
const CAUTIOUS: f64 = 0.25;
const CALM: Duration = Duration::from_secs(1);
/// Most by which a shortened probe raises the estimate, as a part.
const MOST_BY_SHORT: f64 = 0.25;
/// Time without a full link, after which a probe fits if this part of it ([`SPREAD`]) was found.
const LONG_CALM: Duration = Duration::from_secs(10);
const SPREAD: f64 = 0.5;
/// Shares of the link. In a shared short queue a flow with more than the first waits between
/// probes, with more than the second for all of `K`.
const LARGE_SHARE: (f64, f64) = (0.6, 0.8);
/// The longest wait, s, before it is spread: unused capacity may be found so late.
const LONGEST_WAIT: f64 = 20.0;
/// A longer queue has room for twice what a probe of the usual length adds.
const SHORT_QUEUE: Duration = Duration::from_millis(8);
/// Far from the estimate at which the link was last seen full, as shares of that.
const ELSEWHERE: (f64, f64) = (0.25, 2.0);
/// Share of the estimate: a path on which a reduction left less is not shared by more flows but
/// another, or slower for a while.
const FALLEN: f64 = 0.25;
/// Sent less while a queue is given back: least and most.
const DRAIN: (f64, f64) = (0.15, 0.5);
/// Part of the delivery rate after a cut that is proven: perhaps the path only held its breath.
const PROVEN: f64 = 0.5;
/// The least estimate, and where most of even that is lost.
const LEAST: Rate = Rate::mbit(1);
const BARE: Rate = Rate::from_bps(16_000);
/// The most that is resumed from.
const MOST_RESUMED: Rate = Rate::gbit(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A startup burst is being sent.
    Burst,
    /// The outcome of a burst is awaited.
    Confirm,
    Cruise,
    Probe,
    /// A probe's queue is given back.
    Rest,
    /// The outcome of a probe is awaited.
    Verify,
    Drain,
    Compete,
    /// The law makes room, to see which flows fill it.
    Look,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Confirm => "confirm",
            Self::Cruise => "cruise",
            Self::Probe => "probe",
            Self::Rest => "rest",
            Self::Verify => "verify",
            Self::Drain => "drain",
            Self::Compete => "compete",
            Self::Look => "look",
        }
    }
}

/// The flagship's law.
#[derive(Clone, Debug)]
pub struct Haul {
    behaviour: Behaviour,
    phase: Phase,
    /// Time at which the phase ends by itself.
    until: Option<Instant>,
    start: Start,
    /// Parameters that an earlier connection proved, neither confirmed nor refuted so far.
    resumed: Option<SavedPath>,
    /// The estimate: what the receiver gets of this flow.
    bandwidth: Rate,
    /// True if the estimate was measured: there was data to send.
    measured: bool,
    /// The estimate before the drains that did not help: the part that competing flows may have
    /// taken since.
    held: Rate,
    usual_loss: UsualLoss,
    /// Counts of the packets decided without a sample, and in competition of all.
    losses: LossCount,
    probe: Probe,
    /// Time at which the outcome of the last probe is known.
    outcome_at: Instant,
    /// Time at which the next probe is due.
    probe_at: Instant,
    /// True if the next probe is later than usual: see [`Haul::leave_time`].
    waits: bool,
    /// Time at which the link was last seen full, and the estimate then.
    full: Option<(Instant, Rate)>,
    /// True if a reduction left less than [`FALLEN`] of the estimate, and no burst was sent since.
    fallen: bool,
    /// Depth of the present drain, and the queue it was to empty.
    depth: f64,
    drained: Duration,
    /// Time at which its outcome is known.
    drained_at: Instant,
    /// Drains in a row after which the queue stood as before.
    vain_drains: u32,
    /// Time before which evidence is of the past: the last drain has not shown yet.
    blind_until: Instant,
    /// Time from which packets sent show the last reduction, and how long after that there is no
    /// probe.
    reduced: Option<(Instant, Option<Duration>)>,
    rival: Option<Rival>,
    competed_at: Option<Instant>,
    epoch: Epoch,
    /// The longest queue seen, slowly forgotten.
    peak: Duration,
    /// The least of the last reports, and of the last seconds.
    least_queue: RecentMin,
    shortest_queue: WindowedMin<Duration>,
    /// The least rtt since the last drain of a creeping queue began, and when that was.
    base_rtt: WindowedMin<Duration>,
    crept_at: Instant,
    /// Probes for which the queue still counts as shared, as a full queue has lost packets.
    shared_probes: u32,
    path: PathView,
    /// Least rtt and feedback interval of [`Self::reach`], and its time.
    reach: ((Duration, Duration), Duration),
    allowance: Allowance,
    max_lag: Duration,
}

impl Default for Haul {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            behaviour: Behaviour::default(),
            phase: Phase::Burst,
            until: None,
            start: Start::default(),
            resumed: None,
            bandwidth: LEAST,
            measured: false,
            held: LEAST,
            usual_loss: UsualLoss::default(),
            losses: LossCount::default(),
            probe: Probe::default(),
            outcome_at: Instant::EPOCH,
            probe_at: Instant::EPOCH,
            waits: false,
            full: None,
            fallen: false,
            depth: DRAIN.0,
            drained: Duration::ZERO,
            drained_at: Instant::EPOCH,
            vain_drains: 0,
            blind_until: Instant::EPOCH,
            reduced: None,
            rival: None,
            competed_at: None,
            epoch: Epoch::new(None, 0),
            peak: Duration::ZERO,
            least_queue: RecentMin::default(),
            shortest_queue: WindowedMin::new(ms(5_000)),
            base_rtt: WindowedMin::new(Duration::MAX),
            crept_at: Instant::EPOCH,
            shared_probes: 0,
            path: PathView {
                datagram: 1_200,
                srtt: ms(100),
                min_rtt: ms(100),
                feedback_interval: ms(5),
                reordering: Duration::ZERO,
                in_flight: Size::ZERO,
            },
            reach: ((Duration::ZERO, Duration::ZERO), ms(4)),
            allowance: Allowance {
                window: Size::from_bytes(131_072),
                rate: Rate::mbit(52),
                quantum: Size::from_bytes(2_400),
            },
            max_lag: Duration::MAX,
        }
    }
}

impl Haul {
    /// A flow that claims this much of shared links.
    pub fn new(sharing: Sharing) -> Self {
        Self {
            behaviour: Behaviour::new(sharing),
            ..Self::default()
        }
    }

    const fn competing(&self) -> bool {
        matches!(self.phase, Phase::Compete | Phase::Look)
    }

    const fn starting(&self) -> bool {
        matches!(self.phase, Phase::Burst | Phase::Confirm)
    }

    fn enter(&mut self, phase: Phase, until: Option<Instant>) {
        self.phase = phase;
        self.until = until;
    }

    /// A burst begins, and ends as long after its first packet as it takes.
    fn burst(&mut self) {
        self.enter(Phase::Burst, None);
        self.start.burst(self.train());
    }

    /// The outcome of a burst is known, or as good as.
    fn judge_burst(&mut self, now: Instant) {
        if !self
            .start
            .is_full(self.path.reordering.min(self.path.srtt / 2))
        {
            self.burst();
            return;
        }
        // The start is over: gives back the queue that it made, if any, then probes for the
        // remaining capacity.
        self.bandwidth = self.start.proven.max(self.start.least);
        self.held = self.bandwidth;
        self.measured |= self.start.is_heard();
        self.full = self.full.map(|(at, _)| (at, self.bandwidth));
        self.epoch = Epoch::new(Some(now), 0);
        // What follows is reckoned as after the start.
        self.phase = Phase::Drain;
        self.probe_at = now;
        let queue = self.own_queue();
        if queue > self.queue_target() {
            self.drain(now, queue);
            self.probe_at = now;
        } else {
            self.probe(now);
        }
    }

    fn cruise(&mut self, now: Instant) {
        self.enter(Phase::Cruise, Some(self.probe_at.max(now)));
    }

    /// Time from probe to probe.
    fn cycle(&self) -> Duration {
        CYCLE.max(self.path.min_rtt.mul_f64(1.25))
    }

    fn probe(&mut self, now: Instant) {
        self.shared_probes = self.shared_probes.saturating_sub(1);
        self.probe_at = now + self.cycle().mul_f64(0.75 + spread(now) / 2.0);
        self.waits = false;
        let train = self.train();
        self.probe.begin(self.base(), train);
        self.enter(Phase::Probe, Some(now + train));
    }

    /// Sends less by what the probe sent more.
    fn rest(&mut self, now: Instant) {
        self.outcome_at = self.outcome(now);
        self.depth = DRAIN.0;
        let lasts = self.train().mul_f64(self.probe.gain / self.depth);
        let mut until = (now + lasts).min(self.outcome_at);
        if self.usual_loss.is_doubtful() {
            // As long as a probe usually is, so that there are samples of it alone.
            until = until.max(now + self.probe.usual_length(self.base(), self.path.datagram));
            self.outcome_at = self.outcome_at.max(until);
        }
        self.usual_loss.begin_low_load(now, until);
        self.enter(Phase::Rest, Some(until));
    }

    fn judge_probe(&mut self, now: Instant) {
        let gain = self.probe.gain;
        let shortened = self.is_shortened();
        let short = self.peak < SHORT_QUEUE && !self.usual_loss.is_doubtful();
        self.probe.adapt_length(self.usual_loss.share(), short);
        let Some(outcome) = self.probe.judge(self.usual_loss.allowed()) else {
            self.cruise(now);
            return;
        };
        let calm_for = |time| self.full.is_none_or(|(at, _)| now.since(at) > time);
        let calm = !self.usual_loss.is_exceeded() && calm_for(CALM);
        // Jitter spreads a probe that fits.
        let fits = outcome.free || calm_for(LONG_CALM) && outcome.found > SPREAD * gain;
        let others = self.behaviour.on_probe(outcome.share, self.bandwidth);
        let sure = calm && (fits || outcome.alone);
        let step = if sure || others == Others::Doubtful {
            1.0 / f64::from(self.behaviour.lanes)
        } else {
            self.behaviour.step()
        };
        if others == Others::There {
            self.reduce(KEPT_BESIDE, self.least());
        } else if outcome.found > 0.0 {
            // A bucket or a queue may have room for a short train, but not for what follows.
            let most = if shortened { MOST_BY_SHORT } else { 1.0 };
            let grown = 1.0 + (step * outcome.found).min(most);
            self.bandwidth = self.bandwidth.scale(grown);
        }
        if !fits || !calm || others == Others::There {
            if !outcome.free {
                self.leave_time(now);
            }
            self.cruise(now);
        } else if self.is_elsewhere() {
            self.fallen = false;
            self.probe = Probe::default();
            self.start = Start::from(self.bandwidth);
            self.burst();
        } else {
            self.probe(now);
        }
    }

    /// A probe of a full link costs others packets where they share a short queue. CUBIC then needs
    /// up to `K` to regain its window (RFC 9438, section 4.2). The more of the link this flow has
    /// ([`LARGE_SHARE`]), the more of `K`, reckoned for its own window, it waits until the next.
    fn leave_time(&mut self, now: Instant) {
        let shared = self.shared_probes > 0 && self.peak < SHORT_QUEUE && self.is_shortened();
        if !shared || self.behaviour.sharing != Sharing::Fair {
            return;
        }
        let share = self.probe.share * f64::from(self.behaviour.lanes);
        let window = self.bandwidth.as_f64() / 8.0 * self.path.min_rtt.as_secs_f64();
        let packets = window / f64::from(self.path.datagram.max(1));
        let k = Cubic::default().k_after_cut(packets)
            * ((share - LARGE_SHARE.0) / (LARGE_SHARE.1 - LARGE_SHARE.0)).clamp(0.0, 1.0);
        let at =
            now + Duration::from_secs_f64(k.min(LONGEST_WAIT)).mul_f64(0.75 + spread(now) / 2.0);
        if at > self.probe_at {
            self.probe_at = at;
            self.waits = true;
        }
    }

    /// True if the estimate is far from any at which the link was seen full, or one reduction left
    /// next to nothing of it. There may be far more.
    fn is_elsewhere(&self) -> bool {
        let (below, above) = ELSEWHERE;
        let far = |at: Rate| self.bandwidth < at.scale(below) || self.bandwidth > at.scale(above);
        let grew = || self.probe.is_widest() && self.full.is_none_or(|(_, at)| far(at));
        self.behaviour.competes() && (self.fallen || grew())
    }

    /// True if probes are shorter than usual, for the queue that there is.
    fn is_shortened(&self) -> bool {
        self.probe.is_shortened(self.base(), self.path.datagram)
    }

    /// True if losses of a short queue are likely this flow's own probe's. Beside others losses at
    /// other times count, too, and a policer, which loses without a queue, is overrun the longer
    /// the later losses are known.
    fn is_alone_in_queue(&self) -> bool {
        self.shared_probes == 0 && self.probe.share > ALONE && self.peak > self.time_of(QUEUED)
    }

    fn sample(&mut self, now: Instant, sample: &RateSample) {
        if !self.starting() {
            let proven = sample.rate.scale(PROVEN);
            if proven > self.bandwidth {
                self.bandwidth = proven;
                if self.phase == Phase::Drain && self.full.is_none() {
                    // A start was held up, and what it took for a queue was none.
                    self.probe_at = now;
                    self.cruise(now);
                }
            }
            self.measured |= !sample.app_limited;
            self.probe.sample(sample);
        } else if self.start.sample(sample) {
            self.judge_burst(now);
        }
    }
}

/// A number from 0 to 1, by the clock's own digits: flows should not probe in step.
fn spread(now: Instant) -> f64 {
    let mixed = now.as_nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    u32::try_from(mixed).map_or(1.0, |mixed| f64::from(mixed) / f64::from(u32::MAX))
}

impl CongestionController for Haul {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn set_sharing(&mut self, sharing: Sharing) -> bool {
        self.behaviour.sharing = sharing;
        true
    }

    fn set_lanes(&mut self, lanes: u32) -> bool {
        self.behaviour.lanes = lanes.max(1);
        true
    }

    fn on_start(&mut self, now: Instant, path: &PathView) {
        *self = Self {
            behaviour: self.behaviour.anew(),
            path: *path,
            crept_at: now,
            ..Self::default()
        };
        self.burst();
        self.allow();
    }

    fn resume(&mut self, _now: Instant, saved: &SavedPath) {
        // Half of it may be more than others leave unused.
        if self.behaviour.competes() {
            let part = 1.0 / f64::from(self.behaviour.lanes);
            let capacity = saved.capacity.min(MOST_RESUMED).scale(part).max(LEAST);
            self.start = Start::resume(capacity);
            self.burst();
            self.allow();
        }
        self.resumed = Some(*saved);
    }

    fn saved(&self) -> Option<SavedPath> {
        if self.starting() || !self.measured {
            return self.resumed;
        }
        Some(SavedPath {
            capacity: self.bandwidth.scale(f64::from(self.behaviour.lanes)),
            min_rtt: self.path.min_rtt,
        })
    }

    fn on_sent(&mut self, now: Instant, bytes: Size, path: &PathView) {
        if self.phase != Phase::Burst {
            return;
        }
        self.start.on_sent(bytes.bytes());
        if self.until.is_none() {
            self.path = *path;
            self.until = Some(now + self.train());
        }
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.path = ack.path;
        if self.phase == Phase::Cruise && self.until.is_none() {
            self.probe_at = self.probe_at.max(ack.now + self.cycle());
            self.cruise(ack.now);
        }
        if let Some(rival) = self.rival() {
            rival.on_ack(ack);
        }
        if let Some(rtt) = ack.rtt {
            self.base_rtt.update(ack.now, rtt);
        }
        let queue = self.behaviour.queue(ack);
        if let Some(queue) = queue {
            self.peak = queue.max(self.peak);
            self.least_queue.take(queue);
            self.shortest_queue.update(ack.now, queue);
        }
        if self.starting() {
            self.start.on_ack(ack.packets, ack.acked);
        }
        if let Some(sample) = &ack.rate {
            self.sample(ack.now, sample);
        }
        let queued = queue.is_some_and(|queue| queue > self.full_target());
        self.usual_loss.on_ack(ack, queued);
        self.settle(ack);
        if self.epoch.began < Some(self.blind_until)
            && ack.now >= self.blind_until
            && !self.competing()
        {
            self.epoch = Epoch::new(Some(ack.now), self.epoch.round());
        }
        self.count(ack);
        let age = self.epoch.take(ack, queue);
        if age.is_some_and(|age| age >= EPOCH && age >= self.train()) {
            self.end_epoch(ack.now, ack.round);
        }
        self.allow();
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.path = loss.path;
        if self.starting() {
            self.start.on_loss(loss.packets);
        }
        self.losses.lose(loss.packets);
        self.overflow(loss);
        if self.rival().is_some_and(|rival| rival.on_loss(loss)) {
            self.look(loss.now);
        }
        self.allow();
    }

    fn on_timeout(&mut self, _now: Instant, backoff: u32) {
        // On short paths one lost report is a timeout.
        let short = self.path.srtt < self.path.feedback_interval * 3;
        if short && backoff < 2 {
            return;
        }
        // Nothing is heard of a probe, so none is sent until something is. What a drain or a rest
        // gives back is still due.
        if matches!(self.phase, Phase::Cruise | Phase::Probe | Phase::Verify) {
            self.enter(Phase::Cruise, None);
            self.allow();
        }
    }

    fn on_tick(&mut self, now: Instant) {
        if self.until.is_none_or(|at| at > now) {
            return;
        }
        match self.phase {
            Phase::Burst => self.enter(Phase::Confirm, Some(self.outcome(now))),
            Phase::Confirm if self.start.waits() => {
                self.enter(Phase::Confirm, Some(self.outcome(now)));
            }
            Phase::Confirm => self.judge_burst(now),
            Phase::Cruise => self.probe(now),
            Phase::Probe => self.rest(now),
            Phase::Rest => self.enter(Phase::Verify, Some(self.outcome_at)),
            Phase::Verify => self.judge_probe(now),
            Phase::Drain => self.cruise(now),
            Phase::Compete => self.look(now),
            Phase::Look => self.compete_on(now),
        }
        self.allow();
    }

    fn next_tick(&self) -> Option<Instant> {
        self.until
    }

    fn sample_window(&self) -> Option<Duration> {
        // So short that samples fit within a train.
        let share = if self.starting() { 0.8 } else { 0.5 };
        Some(self.train().mul_f64(share))
    }

    fn feedback_request(&self) -> FeedbackRequest {
        let request = FeedbackRequest::for_samples(self.sample_window());
        let seems_alone = self.is_alone_in_queue() && self.vain_drains == 0;
        if self.starting() || self.competing() || !seems_alone {
            return request;
        }
        FeedbackRequest {
            longest: request.longest.max(Some(BETWEEN_PROBES)),
            shortest: BETWEEN_PROBES.min(self.path.min_rtt / 4),
            train: request.longest.filter(|_| self.phase == Phase::Probe),
            ..request
        }
    }

    fn max_lag(&self) -> Duration {
        self.max_lag
    }

    fn allowance(&self) -> Allowance {
        self.allowance
    }

    fn observe(&self) -> CcState {
        CcState {
            phase: self.phase.name(),
            ssthresh: None,
            bandwidth: Some(Rate::from_f64(
                self.base().as_f64() * (1.0 - self.usual_loss.compensated()),
            )),
        }
    }
}
