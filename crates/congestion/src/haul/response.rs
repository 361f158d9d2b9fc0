//! Acts on an epoch. A standing queue is drained. A queue that returns at once is caused by
//! competing flows, with which the law competes until a check shows that they have ended.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, LossEvent},
    time::Instant,
    units::Rate,
};

use super::{
    BARE, CYCLE, DRAIN, FALLEN, Haul, LEAST, Phase, behaviour,
    epoch::{EPOCH, Epoch},
    loss_count::LossCount,
    rival::{NEAR_FULL, Rival},
    spread,
};

/// The depth of a drain is that at which it takes so long.
const DRAIN_TIME: Duration = Duration::from_millis(250);
/// Consecutive ineffective drains before competing flows are assumed.
const MAX_VAIN_DRAINS: u32 = 4;
/// A queue that stands again within this time, plus a round trip, was not emptied by a drain.
const SOON: Duration = Duration::from_millis(400);
/// Consecutive ineffective drains within [`RECENT`] of competition.
const MAX_VAIN_AGAIN: u32 = 2;
const RECENT: Duration = Duration::from_secs(10);
/// Drains of a queue that was not seen to grow are no closer.
const BETWEEN_CREEPING: Duration = Duration::from_secs(10);
/// The estimate is multiplied by this besides when a drain did not help.
const GIVE: f64 = 0.97;
/// Time that a check waits for other flows to react, plus two round trips.
const LOOK: Duration = Duration::from_millis(200);
/// Recent loss above which the link carries less than the least estimate: of random loss so high
/// nothing else is known.
const UNBEARABLE: f64 = 0.4;
/// Hosts make no queue so long.
const LEAST_PEAK: Duration = Duration::from_millis(1);
/// Share of the estimate kept when a full queue loses packets.
const OVERFLOW: f64 = 0.85;
/// Probes after an overflow for which the queue counts as shared: own probes are shortened until
/// they cause none.
const SHARED: u32 = 20;
/// Share of the estimate kept where most is lost, and nothing is known of the rest.
const HALF: f64 = 0.5;

impl Haul {
    pub(super) fn end_epoch(&mut self, now: Instant, round: u64) {
        let epoch = std::mem::replace(&mut self.epoch, Epoch::new(Some(now), round));
        if epoch.is_empty() || self.starting() {
            return;
        }
        let usual = self.usual_loss.share();
        let lossy = self.usual_loss.take(&epoch);
        self.peak = self.peak.mul_f64(0.98);
        if !self.drained_lately(now) && !self.competing() {
            self.held = self.bandwidth;
        }
        if self.competing() {
            self.end_competing_epoch(now, &epoch);
            return;
        }
        if epoch.began < Some(self.blind_until) {
            return;
        }
        let stands = epoch.marked || epoch.least_queue.is_some_and(|q| q > self.queue_target());
        if stands || lossy || epoch.least_queue.is_some_and(|q| q > self.full_target()) {
            self.full = Some((now, self.bandwidth));
        }
        if stands || lossy {
            // Who cannot send as fast as allowed, and loses, is allowed more than the path takes. A
            // queue beside so slow a flow is another's.
            let floor = self.floor(&epoch, lossy, stands);
            if lossy || !epoch.app_limited {
                // A receiver may claim that all arrived, but not that nothing was lost. Once that
                // may be an outage, which is over.
                let most = if self.usual_loss.persists() {
                    1.0 - epoch.loss()
                } else {
                    1.0
                };
                let share = (epoch.delivered().min(most) / (1.0 - usual)).min(1.0);
                let kept = share * self.behaviour.kept();
                let before = self.bandwidth;
                self.cut(now, kept, floor);
                if self.bandwidth < before.scale(FALLEN) {
                    self.fallen = true;
                    // Without a loss, little arrives in an epoch also if the route has become
                    // longer.
                    if lossy {
                        self.held = self.bandwidth;
                    }
                }
            }
        }
        if stands {
            self.on_standing_queue(now, epoch.least_queue.unwrap_or_default());
        } else if let Some(queue) = self.creeping_queue(now, &epoch) {
            // If it is not emptied, the path has become longer, or the queue is that of the way
            // back.
            self.base_rtt.forget();
            self.crept_at = now;
            self.drain(now, queue);
        } else if now.since(self.drained_at) > CYCLE * 2 {
            self.vain_drains = 0;
        }
    }

    /// No epoch reduces the estimate to less.
    fn floor(&self, epoch: &Epoch, lossy: bool, stands: bool) -> Rate {
        let delivered = Rate::from_f64(epoch.rate());
        // Random loss makes no queue.
        let bearable = if stands { UNBEARABLE / 2.0 } else { UNBEARABLE };
        if epoch.app_limited {
            delivered.max(LEAST)
        } else if !lossy {
            self.least()
        } else if self.usual_loss.lately() > bearable {
            delivered.max(BARE).min(LEAST)
        } else {
            LEAST
        }
    }

    /// Least estimate: nothing but losses takes an estimate below [`LEAST`].
    pub(super) fn least(&self) -> Rate {
        if self.bandwidth < LEAST { BARE } else { LEAST }
    }

    /// Keeps the share `kept` of the estimate, but no less than `least` unless it is less already.
    pub(super) fn reduce(&mut self, kept: f64, least: Rate) {
        let cut = self.bandwidth.scale(kept).max(least);
        self.bandwidth = self.bandwidth.min(cut);
    }

    /// Reduces the estimate. Packets on their way were sent before that, and must not reduce it
    /// again.
    fn cut(&mut self, now: Instant, kept: f64, least: Rate) {
        self.reduce(kept, least);
        self.blind_until = self.outcome(now);
        self.reduced = Some((now + self.slack(), None));
        if std::mem::take(&mut self.waits) {
            // There should be room now, which a probe finds without filling the queue.
            self.probe_at = self.probe_at.min(now + self.cycle());
            if self.phase == Phase::Cruise {
                self.cruise(now);
            }
        }
    }

    /// Rival that the law competes with.
    pub(super) fn rival(&mut self) -> Option<&mut Rival> {
        self.rival.as_mut().filter(|_| self.phase == Phase::Compete)
    }

    /// Most was lost for a round trip in which no report had a delivery-rate sample: of a very slow
    /// link few have one. In competition that counts whatever the reports say. Losses beside a
    /// short queue are ignored there, and the receiver is the one that reports the queue. Losses
    /// while room is made are judged after it.
    pub(super) fn count(&mut self, ack: &AckEvent) {
        let looks = self.phase == Phase::Look;
        let sampled = ack.rate.is_some() && !looks && self.phase != Phase::Compete;
        if self.starting() || ack.now < self.blind_until || sampled {
            self.losses = LossCount::default();
            return;
        }
        self.losses.arrive(ack.packets, ack.acked);
        if looks || self.rival().is_some_and(|rival| rival.is_deaf(ack.now)) {
            return;
        }
        let lasts = self.outcome(ack.now).since(ack.now).max(EPOCH);
        let Some(arrived) = self.losses.most_lost_in(ack.now, lasts) else {
            return;
        };
        if let Some(rival) = self.rival() {
            // The queue is longer than the receiver says.
            rival.cut(ack.now, &ack.path);
            self.look(ack.now);
            return;
        }
        self.full = Some((ack.now, self.bandwidth));
        self.cut(ack.now, HALF, arrived.max(BARE));
        self.held = self.bandwidth;
    }

    /// Cuts the estimate for a loss that is likely a full link's. Where next to nothing is lost at
    /// random, a loss while the queue is as long as it gets is that of a full link. The cut comes
    /// once from probe to probe: losses that a reduction does not end have another cause.
    pub(super) fn overflow(&mut self, loss: &LossEvent) {
        // Clocks that drift apart, and hosts, delay all reports.
        let varies = self.shortest_queue.get().is_some_and(|q| q < self.peak / 2);
        let full = varies && self.least_queue.get() >= self.peak.mul_f64(NEAR_FULL);
        if full
            && self.peak > LEAST_PEAK.max(self.time_of(2))
            && self.phase == Phase::Cruise
            && loss.now >= self.blind_until
            && self.shared_probes < SHARED
            && !loss.newest.app_limited
            && self.usual_loss.is_negligible()
        {
            self.shared_probes = SHARED;
            self.full = Some((loss.now, self.bandwidth));
            self.cut(loss.now, OVERFLOW * self.behaviour.kept(), self.least());
        }
    }

    /// A queue that grows so slowly that the least delay of the last seconds grows with it.
    fn creeping_queue(&self, now: Instant, epoch: &Epoch) -> Option<Duration> {
        // After a fall the next probe shows more, and a drain would put it off.
        let steady = matches!(self.phase, Phase::Cruise | Phase::Verify) && !self.fallen;
        let may = steady && now.since(self.crept_at) > BETWEEN_CREEPING;
        let queue = epoch.least_rtt?.saturating_sub(self.base_rtt.get()?);
        (may && queue > self.queue_target()).then_some(queue)
    }

    pub(super) fn on_standing_queue(&mut self, now: Instant, queue: Duration) {
        if matches!(self.phase, Phase::Drain | Phase::Probe) {
            return;
        }
        if self.drained_lately(now) && queue > self.drained / 2 {
            self.vain_drains += 1;
            let kept = self.behaviour.kept_in_vain(GIVE);
            self.reduce(kept, self.least());
        }
        let most = if self.recently_competed(now) {
            MAX_VAIN_AGAIN
        } else {
            MAX_VAIN_DRAINS
        };
        if self.vain_drains >= most && self.behaviour.competes() {
            self.compete(now);
        } else {
            self.drain(now, queue);
            if !self.behaviour.competes() && self.vain_drains > 0 {
                self.probe_at = self.probe_at.max(now + behaviour::ASIDE);
            }
        }
    }

    /// True if a queue that stands again was not emptied by the last drain.
    fn drained_lately(&self, now: Instant) -> bool {
        now.since(self.drained_at) < SOON + self.path.min_rtt
    }

    /// Sends less for as long as it takes to empty `queue`.
    pub(super) fn drain(&mut self, now: Instant, queue: Duration) {
        let queue = queue.max(Duration::from_millis(5));
        let depth = queue.as_secs_f64() / DRAIN_TIME.as_secs_f64();
        self.depth = depth.clamp(DRAIN.0, DRAIN.1);
        self.drained = queue;
        let until = now + queue.mul_f64(1.0 / self.depth).min(DRAIN_TIME * 2);
        self.drained_at = self.outcome(until);
        self.waits = false;
        self.usual_loss.begin_low_load(now, until);
        self.blind_until = self.drained_at;
        // Flows that fill the queue then are of another law, since flows of this one pause.
        let hold = SOON + self.path.min_rtt + self.cycle().mul_f64(spread(now));
        self.probe_at = self.probe_at.max(self.blind_until + hold);
        self.reduced = Some((until + self.slack(), Some(hold)));
        self.enter(Phase::Drain, Some(until));
    }

    /// A round trip is reckoned when the estimate is reduced. The queue then may take far longer,
    /// or no longer be there. So the time counts at which the newest packet of this report was
    /// sent.
    pub(super) fn settle(&mut self, ack: &AckEvent) {
        let Some(((from, hold), newest)) = self.reduced.zip(ack.newest) else {
            return;
        };
        if newest.sent_at < from {
            self.blind_until = self.blind_until.max(ack.now);
            return;
        }
        self.reduced = None;
        self.blind_until = self.blind_until.min(ack.now);
        if let Some(hold) = hold {
            self.drained_at = self.drained_at.min(ack.now);
            self.probe_at = self.probe_at.min(ack.now + hold);
            if self.phase == Phase::Cruise {
                self.cruise(ack.now);
            }
        }
    }

    /// Competing flows fill the queue.
    pub(super) fn compete(&mut self, now: Instant) {
        self.fallen = false;
        let bytes = self.base().max(self.held).as_f64() / 8.0 * self.path.srtt.as_secs_f64();
        let recently = self.recently_competed(now);
        match &mut self.rival {
            Some(rival) if recently => rival.widen(bytes, &self.path, self.behaviour.rival()),
            _ => self.rival = Some(Rival::new(now, bytes, &self.path, self.behaviour.rival())),
        }
        self.compete_on(now);
    }

    pub(super) fn recently_competed(&self, now: Instant) -> bool {
        self.competed_at.is_some_and(|at| now.since(at) < RECENT)
    }

    /// Keeps no more in flight than fits the path without a queue, and sees whether that empties
    /// it.
    pub(super) fn look(&mut self, now: Instant) {
        let lasts = self.path.srtt * 2 + LOOK;
        self.enter(Phase::Look, Some(now + lasts));
        self.epoch = Epoch::new(Some(now), self.epoch.round());
    }

    pub(super) fn compete_on(&mut self, now: Instant) {
        if let Some(rival) = &mut self.rival {
            rival.resume(now, self.path.srtt);
            let at = rival.look_at;
            self.enter(Phase::Compete, Some(at));
        }
    }

    pub(super) fn end_competing_epoch(&mut self, now: Instant, epoch: &Epoch) {
        if self.phase == Phase::Compete && !epoch.app_limited {
            let least = LEAST.min(self.bandwidth);
            self.bandwidth = Rate::from_f64(epoch.rate()).max(least);
        }
        let (Some(rival), Some(rtt)) = (&mut self.rival, epoch.least_rtt) else {
            return;
        };
        let queue = rival.queue(rtt);
        let rival_crest = rival.crest;
        rival.epoch(rtt, self.phase == Phase::Look);
        if self.phase == Phase::Compete && rival.dipped(queue) {
            self.look(now);
        } else if queue <= self.queue_target().max(rival_crest / 8) {
            self.competed_at = Some(now);
            self.base_rtt.forget();
            self.vain_drains = 0;
            self.drained = Duration::ZERO;
            self.probe_at = now + CYCLE;
            self.cruise(now);
        }
    }
}

#[cfg(test)]
mod tests;
