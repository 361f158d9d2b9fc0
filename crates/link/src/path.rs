//! Decides the fate of each packet. [`Path::offer`] takes a packet through every stage in order;
//! nothing is allocated and a clean path costs a few comparisons.

use std::time::Duration;

use farhaul_core::{
    datagram::{CongestionHeader, Ecn},
    rng::Rng,
    time::{Instant, nanos},
    units::Size,
};

use crate::{
    bottleneck::{Arrival, Bottleneck},
    config::{Jitter, LossPlace, PathConfig, Policer, Router, Step, Window},
    counters::{Counters, DropCause},
    loss::LossState,
    queue_management::{QueueManagement, Signal},
    shares::Share,
    xcp::XcpRouter,
};

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The packet is delivered at `at`.
    Pass {
        /// Time at which its last bit arrives.
        at: Instant,
        /// ECN bits on delivery.
        ecn: Ecn,
        /// True if a bit of its payload has flipped.
        corrupt: bool,
    },
    /// The packet is delivered at `at` and a copy at `again`.
    Twice {
        /// Time at which the first arrives.
        at: Instant,
        /// Time at which the copy arrives.
        again: Instant,
        /// ECN bits of both on delivery.
        ecn: Ecn,
        /// True if a bit of their payload has flipped.
        corrupt: bool,
    },
    /// The packet is dropped.
    Drop(DropCause),
}

/// One direction of a network.
#[derive(Clone, Debug)]
pub struct Path {
    mtu: u32,
    policer: Option<TokenBucket>,
    management: Option<QueueManagement>,
    router: Option<XcpRouter>,
    bottleneck: Bottleneck,
    blackouts: Vec<Window>,
    loss: LossState,
    loss_place: LossPlace,
    corrupt: Share,
    duplicate: Share,
    reorder: (Share, Duration),
    propagation: Propagation,
    rngs: Rngs,
    counters: Counters,
    max_work: u128,
}

/// One generator per stage, so that switching one on does not disturb another.
#[derive(Clone, Debug)]
struct Rngs {
    management: Rng,
    loss: Rng,
    corrupt: Rng,
    duplicate: Rng,
    reorder: Rng,
    jitter: Rng,
}

impl Path {
    /// A path as configured, with randomness forked from `rng`. Schedules count from
    /// [`Instant::EPOCH`]. What [`PathConfig::validate`] refuses is clamped here.
    pub fn new(config: &PathConfig, rng: &Rng) -> Self {
        let mtu = config.mtu.unwrap_or(u32::MAX);
        let reorder = config
            .reorder
            .map_or((0.0, Duration::ZERO), |r| (r.share, r.by));
        Self {
            mtu,
            policer: config.policer.map(TokenBucket::new),
            management: config
                .aqm
                .map(|aqm| QueueManagement::new(aqm, config.mtu.unwrap_or(1_500))),
            router: config.router.map(|Router::Xcp| XcpRouter::default()),
            bottleneck: Bottleneck::new(config.rate, &config.rate_steps, config.queue),
            blackouts: config.blackouts.clone(),
            loss: LossState::new(&config.loss),
            loss_place: config.loss_place,
            corrupt: Share::new(config.corrupt),
            duplicate: Share::new(config.duplicate),
            reorder: (Share::new(reorder.0), reorder.1),
            propagation: Propagation::new(config),
            rngs: Rngs {
                management: rng.fork("management"),
                loss: rng.fork("loss"),
                corrupt: rng.fork("corrupt"),
                duplicate: rng.fork("duplicate"),
                reorder: rng.fork("reorder"),
                jitter: rng.fork("jitter"),
            },
            counters: Counters::default(),
            max_work: 0,
        }
    }

    /// Offers a packet of `wire_bytes` (with its IP header) that arrives at `now`. Time must not go
    /// back between calls.
    #[inline]
    pub fn offer(&mut self, now: Instant, wire_bytes: u32, ecn: Ecn) -> Verdict {
        self.offer_with_header(now, wire_bytes, ecn, None)
    }

    /// [`Self::offer`] for a packet that carries a congestion header, which the path's router writes if
    /// it has one.
    #[inline]
    pub fn offer_with_header(
        &mut self,
        now: Instant,
        wire_bytes: u32,
        ecn: Ecn,
        header: Option<&mut CongestionHeader>,
    ) -> Verdict {
        self.counters.offered += 1;
        self.counters.offered_bytes += u64::from(wire_bytes);
        match self.carry(now, wire_bytes, ecn, header) {
            Ok(verdict) => {
                self.counters.passed += 1;
                self.counters.passed_bytes += u64::from(wire_bytes);
                verdict
            }
            Err(cause) => {
                self.counters.drops[cause as usize] += 1;
                Verdict::Drop(cause)
            }
        }
    }

    /// Counts so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes in the bottleneck's queue, the packet in service included; what propagates is not in
    /// it. `now` must not be earlier than the last offer.
    pub fn queued(&self, now: Instant) -> Size {
        self.bottleneck.backlog(now)
    }

    /// Wait at the bottleneck of a packet offered now.
    pub fn wait(&self, now: Instant) -> Duration {
        self.bottleneck.wait(now)
    }

    fn carry(
        &mut self,
        now: Instant,
        len: u32,
        ecn: Ecn,
        header: Option<&mut CongestionHeader>,
    ) -> Result<Verdict, DropCause> {
        if len > self.mtu {
            return Err(DropCause::Mtu);
        }
        if self.loss_place == LossPlace::Ingress {
            self.lose()?;
        }
        if let Some(policer) = &mut self.policer
            && !policer.conforms(now, len)
        {
            return Err(DropCause::Policer);
        }
        let (left, ecn) = self.queue(now, len, ecn, header)?;
        if self.blackouts.iter().any(|window| dark(*window, left)) {
            return Err(DropCause::Blackout);
        }
        if self.loss_place == LossPlace::Wire {
            self.lose()?;
        }
        Ok(self.propagate(left, ecn))
    }

    fn lose(&mut self) -> Result<(), DropCause> {
        self.loss.strikes(&mut self.rngs.loss).map_or(Ok(()), Err)
    }

    /// Through the queue: when the last bit leaves the bottleneck, and the ECN bits then.
    fn queue(
        &mut self,
        now: Instant,
        len: u32,
        ecn: Ecn,
        header: Option<&mut CongestionHeader>,
    ) -> Result<(Instant, Ecn), DropCause> {
        let arrival = self.bottleneck.arrive(now, len);
        if let Some(router) = &mut self.router {
            router.pass(now, len, &arrival, self.bottleneck.rate(), header);
        }
        if !arrival.fits {
            return Err(DropCause::Queue);
        }
        let ecn = self.manage(&arrival, ecn)?;
        let left = self.bottleneck.accept(len);
        if arrival.wait > 0 {
            let wait = Duration::from_nanos(arrival.wait);
            self.counters.max_wait = self.counters.max_wait.max(wait);
            if arrival.work > self.max_work {
                self.max_work = arrival.work;
                self.counters.max_queue = arrival.queued();
            }
        }
        Ok((left, ecn))
    }

    fn manage(&mut self, arrival: &Arrival, ecn: Ecn) -> Result<Ecn, DropCause> {
        let Some(management) = &mut self.management else {
            return Ok(ecn);
        };
        match management.judge(arrival, &mut self.rngs.management) {
            Signal::None => Ok(ecn),
            Signal::Congested if ecn != Ecn::NotEct => {
                self.counters.marked += 1;
                Ok(Ecn::Ce)
            }
            Signal::Congested | Signal::Overloaded => Err(DropCause::QueueManagement),
        }
    }

    /// Carries a packet over the wire: damage, copies, delay.
    fn propagate(&mut self, left: Instant, ecn: Ecn) -> Verdict {
        let corrupt = self.corrupt.hit(&mut self.rngs.corrupt);
        self.counters.corrupted += u64::from(corrupt);
        let mut at = self.propagation.arrival(left, &mut self.rngs.jitter);
        if self.reorder.0.hit(&mut self.rngs.reorder) {
            self.counters.reordered += 1;
            at += self.reorder.1;
        }
        if self.duplicate.hit(&mut self.rngs.duplicate) {
            self.counters.duplicated += 1;
            let again = self.propagation.arrival(left, &mut self.rngs.jitter);
            return Verdict::Twice {
                at,
                again,
                ecn,
                corrupt,
            };
        }
        Verdict::Pass { at, ecn, corrupt }
    }
}

fn dark(window: Window, at: Instant) -> bool {
    let at = Duration::from_nanos(at.as_nanos());
    at >= window.from && at < window.from.saturating_add(window.lasts)
}

/// Delay with its schedule and jitter.
#[derive(Clone, Debug)]
struct Propagation {
    delay: Duration,
    steps: Vec<Step<Duration>>,
    next_step: usize,
    jitter: Option<Jitter>,
    last: Instant,
}

impl Propagation {
    fn new(config: &PathConfig) -> Self {
        Self {
            delay: config.delay,
            steps: config.delay_steps.clone(),
            next_step: 0,
            jitter: config.jitter,
            last: Instant::EPOCH,
        }
    }

    fn arrival(&mut self, left: Instant, rng: &mut Rng) -> Instant {
        while let Some(step) = self.steps.get(self.next_step)
            && left >= Instant::EPOCH + step.at
        {
            self.delay = step.to;
            self.next_step += 1;
        }
        let at = left + self.delay;
        let Some(jitter) = self.jitter else {
            return at;
        };
        let late = at + Duration::from_nanos(rng.below(nanos(jitter.spread).saturating_add(1)));
        if jitter.reorder {
            return late;
        }
        self.last = self.last.max(late);
        self.last
    }
}

/// A token bucket: drops what arrives faster than its rate once the burst is used up.
#[derive(Clone, Debug)]
struct TokenBucket {
    rate: u64,
    /// Tokens and depth, in bytes times 8e9, so that a ns adds exactly `rate`.
    tokens: u128,
    depth: u128,
    last: Instant,
}

impl TokenBucket {
    fn new(policer: Policer) -> Self {
        let depth = u128::from(policer.burst.bytes()) * 8_000_000_000;
        Self {
            rate: policer.rate.bps(),
            tokens: depth,
            depth,
            last: Instant::EPOCH,
        }
    }

    fn conforms(&mut self, now: Instant, len: u32) -> bool {
        let passed = nanos(now.since(self.last));
        self.last = self.last.max(now);
        let earned = u128::from(passed) * u128::from(self.rate);
        self.tokens = (self.tokens + earned).min(self.depth);
        let cost = u128::from(len) * 8_000_000_000;
        let conforms = self.tokens >= cost;
        if conforms {
            self.tokens -= cost;
        }
        conforms
    }
}

#[cfg(test)]
mod tests;
