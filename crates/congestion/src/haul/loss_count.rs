//! Counts packets where samples fail: when most is lost, and no report shows how fast the rest
//! arrives. A sample may also not be believable. On a very slow link a report covers a packet or
//! two, and has a delivery-rate sample only if the newest of them is data.

use std::time::Duration;

use farhaul_core::{
    time::Instant,
    units::{Rate, Size},
};

/// Fewer losses prove nothing.
const LEAST_LOSSES: u64 = 8;

/// Fate of packets since the last question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossCount {
    since: Option<Instant>,
    arrived: u64,
    bytes: u64,
    lost: u64,
}

impl LossCount {
    /// Counts packets that were lost.
    pub(super) fn lose(&mut self, packets: u32) {
        self.lost += u64::from(packets);
    }

    /// Counts packets that arrived.
    pub(super) fn arrive(&mut self, packets: u32, bytes: Size) {
        self.arrived += u64::from(packets);
        self.bytes += bytes.bytes();
    }

    /// True if more than half of them were lost. Counts anew once there were enough losses for a
    /// conclusion.
    pub(super) fn is_most_lost(&mut self) -> bool {
        let most = self.lost >= LEAST_LOSSES && self.lost > self.arrived;
        if self.lost >= LEAST_LOSSES {
            *self = Self::default();
        }
        most
    }

    /// Rate of what arrived in a period of `lasts` or more that is over `now`, if most was lost in
    /// the period; another begins then.
    pub(super) fn most_lost_in(&mut self, now: Instant, lasts: Duration) -> Option<Rate> {
        let lasted = now.since(*self.since.get_or_insert(now));
        if lasted < lasts {
            return None;
        }
        let arrived = Rate::of(self.bytes, lasted);
        let most = self.is_most_lost();
        *self = Self {
            since: Some(now),
            ..Self::default()
        };
        most.then_some(arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const DATAGRAM: u32 = 1_250;

    fn arrive(losses: &mut LossCount, packets: u32) {
        let bytes = Size::from_bytes(u64::from(packets * DATAGRAM));
        losses.arrive(packets, bytes);
    }

    #[test]
    fn more_than_half_is_most() {
        for (arrived, lost, most) in [(8, 9, true), (9, 8, false), (0, 7, false), (0, 8, true)] {
            let mut losses = LossCount::default();
            arrive(&mut losses, arrived);
            losses.lose(lost);
            assert_eq!(losses.is_most_lost(), most, "{arrived}, {lost}");
            losses.lose(1);
            assert!(!losses.is_most_lost() || lost < 8, "counted anew");
        }
    }

    #[test]
    fn periods_are_judged_when_they_are_over() {
        let mut losses = LossCount::default();
        let over = |losses: &mut LossCount, ms: u32| {
            let now = Instant::EPOCH + MS * ms;
            losses.most_lost_in(now, MS * 100)
        };
        assert_eq!(over(&mut losses, 1_000), None);
        arrive(&mut losses, 10);
        losses.lose(50);
        assert_eq!(over(&mut losses, 1_099), None);
        assert_eq!(over(&mut losses, 1_100), Some(Rate::mbit(1)));
        arrive(&mut losses, 50);
        losses.lose(40);
        assert_eq!(over(&mut losses, 1_200), None);
        losses.lose(40);
        assert_eq!(over(&mut losses, 1_300), Some(Rate::ZERO), "each alone");
    }
}
