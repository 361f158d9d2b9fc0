//! Sets the rate at which one flow is to be sent: the group's target, less what losses say. The law
//! also estimates the flow's demand. The demand is the rate that arrives, if that is less than the
//! request; a little more, if all of it arrives.
//!
//! Source: the law from the demonstration in the composable UDT (2005), the demand from the reference
//! (docs/protocols/gtp.md §1).

use farhaul_core::{pull::LEAST_RATE, units::Rate};

/// Growth of the rate without losses.
const GROW: f64 = 1.02;
/// Losses beyond which the rate is cut by this factor at once.
const HEAVY: (f64, f64) = (0.25, 0.875);
/// Share of a rate at which a flow counts as getting all of it.
const ATTAINED: f64 = 0.95;
/// Growth of the demand of a flow that gets all of it.
const MORE: f64 = 1.1;

/// The rate of one flow, and what it wants.
#[derive(Debug)]
pub(super) struct Law {
    target: Rate,
    rate: Rate,
    demand: Rate,
    /// Rates requested in the last interval and in the one before.
    asked: [Rate; 2],
    /// Rate that arrived in the last interval.
    came: Rate,
}

impl Law {
    /// Begins at the target; `demand` is what the host takes in.
    pub(super) const fn new(target: Rate, demand: Rate) -> Self {
        Self {
            target,
            rate: target,
            demand,
            asked: [target; 2],
            came: Rate::ZERO,
        }
    }

    /// An interval is over in which `came` arrived and `loss` of it was lost: the demand.
    // spec: gtp §1.1
    pub(super) fn on_interval(&mut self, came: Rate, loss: f64) -> Rate {
        let factor = if loss <= 0.0 {
            GROW
        } else if loss < HEAVY.0 {
            1.0 - loss / 2.0
        } else {
            HEAVY.1
        };
        self.judge(came);
        let rate = self.rate.scale(factor).max(LEAST_RATE);
        self.rate = rate.min(self.target);
        self.demand
    }

    /// Judges the demand: data that came was requested half a round trip before, at one rate or the
    /// other.
    // spec: gtp §1.3
    fn judge(&mut self, came: Rate) {
        let [before, last] = self.asked;
        let full = self.target.scale(ATTAINED);
        let gets_all = came >= before.min(last).scale(ATTAINED);
        if !gets_all || last < full {
            self.demand = came.max(self.came);
        } else if before >= full {
            self.demand = self.demand.max(self.target.scale(MORE));
        }
        self.came = came;
    }

    /// Sets the group's new target: a flow that kept to the old one keeps to the new one.
    pub(super) fn on_target(&mut self, target: Rate) {
        if self.rate >= self.target || self.rate > target {
            self.rate = target.max(LEAST_RATE);
        }
        self.target = target;
        self.asked = [self.asked[1], self.rate];
    }

    /// The rate.
    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Rate = Rate::gbit(1);

    fn law() -> Law {
        Law::new(Rate::mbit(400), ALL)
    }

    #[test]
    fn the_demonstrations_steps() {
        let mut law = law();
        for (loss, mbit) in [(0.0, 400.0), (0.1, 380.0), (0.0, 387.6), (0.3, 339.15)] {
            law.on_interval(Rate::mbit(400), loss);
            law.on_target(Rate::mbit(400));
            assert!((law.rate().as_f64() / 1e6 - mbit).abs() < 0.01, "{loss}");
        }
        // Derived: 349 steps from 1 Mbit/s to 1 Gbit/s.
        let mut law = Law::new(Rate::mbit(1), ALL);
        law.target = ALL;
        let steps = (0..).take_while(|_| {
            law.on_interval(Rate::mbit(1), 0.0);
            law.rate() < ALL
        });
        assert_eq!(steps.count() + 1, 349);
    }

    #[test]
    fn who_keeps_to_the_target_follows_it_at_once_and_others_grow_into_it() {
        let mut law = law();
        law.on_target(Rate::mbit(800));
        assert_eq!(law.rate(), Rate::mbit(800));
        law.on_interval(Rate::mbit(800), 0.1);
        law.on_target(Rate::mbit(900));
        assert_eq!(law.rate(), Rate::mbit(760));
        law.on_target(Rate::mbit(200));
        assert_eq!(law.rate(), Rate::mbit(200));
    }

    #[test]
    fn a_flow_wants_what_it_gets_or_a_little_more() {
        let mut law = law();
        assert_eq!(law.on_interval(Rate::mbit(399), 0.0), ALL, "it gets all");
        law.on_target(Rate::mbit(400));
        assert_eq!(law.on_interval(Rate::mbit(200), 0.0), Rate::mbit(399));
        law.on_target(Rate::mbit(399));
        assert_eq!(law.on_interval(Rate::mbit(100), 0.0), Rate::mbit(200));
        law.on_target(Rate::mbit(200));
        law.on_target(Rate::mbit(200));
        let more = law.on_interval(Rate::mbit(200), 0.0);
        assert_eq!(more, Rate::mbit(220), "all of what it wanted");
    }

    #[test]
    fn a_raise_is_not_judged_before_it_can_be_seen() {
        let mut law = law();
        law.on_target(Rate::mbit(800));
        assert_eq!(law.on_interval(Rate::mbit(600), 0.0), ALL);
    }
}
