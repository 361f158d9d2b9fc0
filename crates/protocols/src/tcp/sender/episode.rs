//! Governs the window while losses are repaired. There is one episode per window of data: entered
//! on the first loss, left when everything sent before it is acknowledged. In between the window
//! falls by the chosen rule.

use crate::tcp::{Reduction, wire::Stamps};

/// Phase of the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// No loss is being repaired.
    #[default]
    Open,
    /// Fast recovery.
    Recovery,
    /// The sender is in loss recovery after a timeout.
    Loss,
}

/// Evidence to find out that an episode was for nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Undo {
    /// Time at which the first repair left, and one past its last sequence number.
    first: Option<(u32, u64)>,
    /// Repairs not yet reported as duplicates.
    repairs: u32,
    any: bool,
}

/// Proportional rate reduction (RFC 9937).
#[derive(Clone, Copy, Debug, Default)]
struct Prr {
    /// Bytes in flight when recovery began.
    flight: u64,
    delivered: u64,
    out: u64,
}

/// One acknowledgement, as reductions see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Wire bytes newly delivered.
    pub(super) delivered: u64,
    /// Bytes in flight now.
    pub(super) flight: u64,
    /// Window that the law allows, now that it knows of the loss.
    pub(super) target: u64,
    /// True if the acknowledgement moved the first unacknowledged byte and showed no further loss.
    pub(super) safe: bool,
    /// A full datagram.
    pub(super) datagram: u64,
}

/// The current episode, or none.
#[derive(Debug, Default)]
pub(super) struct Episode {
    pub(super) phase: Phase,
    /// Sequence number below which everything is acknowledged when the episode ends.
    pub(super) point: u64,
    rule: Reduction,
    prr: Prr,
    /// The window in recovery.
    window: u64,
    odd: bool,
    /// True if the one repair beyond all rules has left (RFC 6675 §4, rule 4).
    pub(super) rescued: bool,
    undo: Option<Undo>,
    /// The window is no larger than this until it has grown to the law's.
    cap: Option<u64>,
}

impl Episode {
    pub(super) fn new(rule: Reduction) -> Self {
        Self {
            rule,
            ..Self::default()
        }
    }

    /// Bytes allowed in flight when the law allows `law`.
    pub(super) fn window(&self, law: u64) -> u64 {
        match (self.phase, self.rule) {
            (Phase::Recovery, Reduction::Prr | Reduction::Halving) => self.window,
            _ => self.cap.map_or(law, |cap| cap.min(law)),
        }
    }

    /// Begins; `flight` was in flight before the losses were noticed.
    pub(super) fn enter(&mut self, phase: Phase, point: u64, flight: u64) {
        *self = Self {
            phase,
            point,
            window: flight,
            prr: Prr {
                flight: flight.max(1),
                ..Prr::default()
            },
            undo: Some(Undo::default()),
            ..Self::new(self.rule)
        };
    }

    /// An acknowledgement during recovery; `first` is the one with which it began.
    pub(super) fn step(&mut self, step: &Step, first: bool) {
        match self.rule {
            Reduction::Prr => {
                let more = self.prr.step(step);
                let least = if first { step.datagram } else { 0 };
                self.window = step.flight.saturating_add(more.max(least));
            }
            Reduction::Halving => {
                if self.odd && self.window > step.target {
                    self.window = self.window.saturating_sub(step.datagram).max(step.target);
                }
                self.odd = !self.odd;
                self.window = self.window.min(step.flight + step.datagram);
            }
            Reduction::None => {}
        }
    }

    /// `wire` bytes left.
    pub(super) const fn sent(&mut self, wire: u64) {
        self.prr.out += wire;
    }

    /// A repair that ends at `end` left at `stamp`.
    pub(super) fn repaired(&mut self, stamp: u32, end: u64) {
        if let Some(undo) = &mut self.undo {
            undo.first.get_or_insert((stamp, end));
            undo.repairs += 1;
            undo.any = true;
        }
    }

    /// Notes that the peer received a repair twice; true if that was the last of them, so all were
    /// for nothing.
    pub(super) const fn duplicate(&mut self) -> bool {
        if let Some(undo) = &mut self.undo {
            undo.repairs = undo.repairs.saturating_sub(1);
            return undo.any && undo.repairs == 0;
        }
        false
    }

    /// Everything below `una` is acknowledged by a segment with `stamps`; true if these show that
    /// the first repair was for nothing (Eifel, RFC 3522).
    pub(super) fn is_spurious(&mut self, una: u64, stamps: Option<Stamps>) -> bool {
        let Some(undo) = &mut self.undo else {
            return false;
        };
        let Some((stamp, end)) = undo.first.filter(|(_, end)| una >= *end) else {
            return false;
        };
        // Only the first acknowledgement of it can show that.
        undo.first = Some((stamp, u64::MAX));
        end != u64::MAX
            && stamps.is_some_and(|s| s.echo != 0 && s.echo.wrapping_sub(stamp).cast_signed() < 0)
    }

    /// Ends regularly.
    pub(super) fn leave(&mut self, law: u64) {
        if self.phase == Phase::Recovery && self.rule == Reduction::Halving {
            self.cap = Some(self.window).filter(|w| *w < law);
        }
        self.phase = Phase::Open;
    }

    /// Undoes the episode, which was for nothing.
    pub(super) const fn undone(&mut self) {
        self.phase = Phase::Open;
        self.undo = None;
        self.cap = None;
    }

    /// Lets the window be no larger than `cap` from now on until it has grown to the law's.
    pub(super) const fn restart(&mut self, cap: u64) {
        self.cap = Some(cap);
    }

    /// `acked` bytes were delivered while nothing is repaired.
    pub(super) fn grow(&mut self, acked: u64, law: u64) {
        if self.phase == Phase::Open {
            self.cap = self.cap.map(|cap| cap + acked).filter(|cap| *cap < law);
        }
    }
}

impl Prr {
    /// Bytes that may be sent more.
    fn step(&mut self, step: &Step) -> u64 {
        self.delivered += step.delivered;
        if step.flight > step.target {
            let share = u128::from(self.delivered) * u128::from(step.target);
            let share = share.div_ceil(u128::from(self.flight));
            return u64::try_from(share)
                .unwrap_or(u64::MAX)
                .saturating_sub(self.out);
        }
        let owed = self.delivered.saturating_sub(self.out);
        let limit = if step.safe {
            owed.max(step.delivered) + step.datagram
        } else {
            owed
        };
        limit.min(step.target - step.flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(delivered: u64, flight: u64) -> Step {
        Step {
            delivered,
            flight,
            target: 10,
            safe: false,
            datagram: 1,
        }
    }

    #[test]
    fn prr_sends_one_per_two_delivered_while_above_the_target() {
        let mut e = Episode::new(Reduction::Prr);
        e.enter(Phase::Recovery, 100, 20);
        let (mut flight, mut sent) = (19, 0);
        for n in 0..18 {
            e.step(&step(1, flight), n == 0);
            while flight < e.window(10) {
                flight += 1;
                sent += 1;
                e.sent(1);
            }
            flight -= 1;
        }
        assert!((8..=10).contains(&sent), "{sent}");
        assert!((9..=11).contains(&flight), "{flight}");
    }

    #[test]
    fn halving_takes_one_per_two_acknowledgements_and_follows_the_flight_down() {
        let mut e = Episode::new(Reduction::Halving);
        e.enter(Phase::Recovery, 100, 20);
        for n in 0..8 {
            e.step(&step(1, 30), n == 0);
        }
        assert_eq!(e.window(10), 16);
        e.step(&step(1, 2), false);
        assert_eq!(e.window(10), 3, "no more than one beyond what is in flight");
        e.leave(10);
        assert_eq!(e.window(10), 3);
        e.grow(5, 10);
        assert_eq!(e.window(10), 8);
        e.grow(5, 10);
        assert_eq!(e.window(12), 12, "the cap is gone");
    }

    #[test]
    fn an_echo_older_than_the_repair_is_spurious_once() {
        let stamps = |echo| Some(Stamps { value: 0, echo });
        let mut e = Episode::new(Reduction::Prr);
        e.enter(Phase::Loss, 100, 20);
        assert!(!e.is_spurious(50, stamps(5)), "nothing was repaired");
        e.repaired(10, 30);
        assert!(!e.is_spurious(20, stamps(5)), "not acknowledged");
        assert!(e.is_spurious(30, stamps(9)));
        assert!(!e.is_spurious(40, stamps(9)), "too late to tell");
        e.enter(Phase::Loss, 100, 20);
        e.repaired(10, 30);
        e.repaired(11, 40);
        assert!(!e.is_spurious(30, stamps(10)));
        assert!(!e.duplicate());
        assert!(e.duplicate(), "both were received twice");
    }
}
