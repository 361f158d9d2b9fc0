//! Paces packets by a schedule. Packet `i` is due `i` gaps after the first, however late those
//! before it were sent: a delayed sender catches up without a bound (RBUDP).

use std::time::Duration;

use super::QUANTUM;
use crate::{send::Permit, stats::Why, time::Instant, units::Rate};

/// Fixed-rate schedule of equal packets.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    rate: Rate,
    /// Bytes of a packet, as the rate counts them.
    packet: u32,
    /// Time at which the first was due.
    began: Option<Instant>,
    sent: u64,
}

impl Schedule {
    /// Packets of `packet` bytes at `rate`.
    pub const fn new(rate: Rate, packet: u32) -> Self {
        Self {
            rate,
            packet,
            began: None,
            sent: 0,
        }
    }

    /// The rate.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Pauses: the next packet begins a new schedule.
    pub const fn stop(&mut self) {
        self.began = None;
    }

    /// Permit to send packets of `wire` bytes each at `now`.
    pub fn permit(&mut self, now: Instant, wire: u32) -> Permit {
        if self.began.is_none() {
            (self.began, self.sent) = (Some(now), 0);
        }
        match self.due_packets(now).checked_sub(self.sent) {
            None | Some(0) => Permit::Hold(Why::Pacing),
            Some(packets) => Permit::Send {
                bytes: packets.saturating_mul(wire.into()),
            },
        }
    }

    /// Packets due by `now`.
    fn due_packets(&self, now: Instant) -> u64 {
        let Some(began) = self.began.filter(|_| self.rate != Rate::UNLIMITED) else {
            return u64::MAX;
        };
        let elapsed = self.rate.bytes_in(now.since(began));
        (elapsed / u64::from(self.packet.max(1))).saturating_add(1)
    }

    /// Counts a packet as sent.
    pub const fn charge(&mut self) {
        self.sent += 1;
    }

    /// Time at which packets are due again: as many as are sent at once.
    pub fn wake(&self) -> Option<Instant> {
        let together = self.rate.bytes_in(QUANTUM) / u64::from(self.packet.max(1));
        let packets = self.sent.saturating_add(together.saturating_sub(1));
        let bytes = packets.saturating_mul(self.packet.into());
        // Rounded down, it would be a moment early.
        let after = self.rate.time_for(bytes) + Duration::from_nanos(1);
        self.began.map(|began| began + after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    fn drain(schedule: &mut Schedule, now: Instant) -> u64 {
        let mut n = 0;
        while matches!(schedule.permit(now, 1), Permit::Send { .. }) {
            schedule.charge();
            n += 1;
        }
        n
    }

    #[test]
    fn packet_i_is_due_i_gaps_after_the_first_and_the_late_catch_up() {
        // 1,000 bytes at 8 Mbit/s: a packet each millisecond.
        let mut schedule = Schedule::new(Rate::mbit(8), 1_000);
        assert_eq!(drain(&mut schedule, at(5_000)), 1);
        assert_eq!(drain(&mut schedule, at(5_999)), 0);
        assert_eq!(drain(&mut schedule, at(6_000)), 1);
        assert_eq!(
            drain(&mut schedule, at(1_006_000)),
            1_000,
            "without a bound"
        );
        schedule.stop();
        assert_eq!(drain(&mut schedule, at(9_000_000)), 1, "anew");
    }

    #[test]
    fn woken_when_it_says_it_may_send_and_keeps_the_rate() {
        for (rate, packet) in [
            (Rate::gbit(10), 8_800),
            (Rate::mbit(3), 1_460),
            (Rate::from_bps(7), 64),
        ] {
            let mut schedule = Schedule::new(rate, packet);
            let (mut now, mut sent) = (at(7), 0);
            for _ in 0..1_000 {
                let n = drain(&mut schedule, now);
                assert!(n > 0, "woken for nothing at {rate:?}");
                sent += n;
                now = schedule.wake().unwrap();
            }
            let wanted = rate.bytes_in(now.since(at(7))) / u64::from(packet);
            assert!(sent.abs_diff(wanted) <= 64, "{sent} of {wanted}");
        }
        assert_eq!(
            Schedule::new(Rate::UNLIMITED, 9).permit(at(1), 1),
            Permit::Send { bytes: u64::MAX }
        );
    }
}
