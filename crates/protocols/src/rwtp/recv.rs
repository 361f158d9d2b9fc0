//! The receiving half: which packets are missing, and their reports. A gap is reported at once,
//! packet by packet, and every 10 ms again all that is still missing; a status leaves every 10 ms.
//! Nothing is said once nothing has come for a second.
//!
//! Invariants: packets beyond the buffer are dropped; no more than [`MOST`] messages of missing
//! packets leave in 10 ms.

// spec: rwtp §1

use std::time::Duration;

use farhaul_core::{
    codec::{NoRoom, Writer},
    recv::{Arrival, Gaps},
    time::Instant,
};

use super::wire::{LOSS, Numbers, STATUS, Status, encode_loss};

/// Between reports.
pub(super) const TICK: Duration = Duration::from_millis(10);
/// Silence after which nothing is said.
const QUIET: Duration = Duration::from_secs(1);
/// Most missing packets reported in a tick; the others wait for the next.
const MOST: u32 = 2_000;

/// The receiving half of a session.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// Packets that fit the buffer.
    window: u64,
    gaps: Gaps,
    tick: Option<Instant>,
    /// Time of the last tick: gaps reported before then are reported again.
    ticked_at: Instant,
    status_due: bool,
    /// True if gaps that were reported are being reported again.
    again: bool,
    /// Missing packets reported since the tick.
    told: u32,
    last_packet: Instant,
    /// Time at which the highest came.
    highest_at: Instant,
}

impl Receiver {
    pub(super) const fn set_window(&mut self, packets: u64) {
        self.window = packets;
    }

    /// A packet with this number on the wire.
    pub(super) fn on_packet(&mut self, now: Instant, number: u32) -> Arrival {
        let next = self.gaps.next();
        let number = Numbers::expand(number, next);
        self.last_packet = now;
        self.tick.get_or_insert(now + TICK);
        let arrival = self.gaps.on_packet_within(number, self.window);
        if arrival == Arrival::New && number >= next {
            self.highest_at = now;
        }
        arrival
    }

    /// Time at which something is to be said.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.tick
    }

    pub(super) fn on_timer(&mut self, now: Instant) {
        if self.tick.is_some_and(|at| at <= now) {
            (self.status_due, self.again, self.told) = (true, true, 0);
            self.ticked_at = now;
            self.tick = (now.since(self.last_packet) < QUIET).then(|| now + TICK);
        }
    }

    /// Writes the next message, and returns its type.
    pub(super) fn report(
        &mut self,
        now: Instant,
        w: &mut Writer<'_>,
    ) -> Result<Option<u8>, NoRoom> {
        if std::mem::take(&mut self.status_due) {
            let held = now.since(self.highest_at).as_micros();
            let status = Status {
                prefix: Numbers::wrap(self.gaps.prefix()),
                next: Numbers::wrap(self.gaps.next()),
                held: u32::try_from(held).unwrap_or(u32::MAX),
            };
            status.encode(w)?;
            return Ok(Some(STATUS));
        }
        if self.told >= MOST {
            return Ok(None);
        }
        let Some(number) = self.next_missing(now) else {
            return Ok(None);
        };
        self.told += 1;
        encode_loss(w, Numbers::wrap(number))?;
        Ok(Some(LOSS))
    }

    /// Next missing packet to be reported.
    fn next_missing(&mut self, now: Instant) -> Option<u64> {
        let since = now.since(self.ticked_at) + Duration::from_nanos(1);
        let told = self.gaps.next_report(now, self.again.then_some(since), 1);
        self.again &= told.is_some();
        told.map(|range| range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_tells_of_each_packet_once_however_long_that_takes() {
        let mut receiver = Receiver::default();
        receiver.set_window(100);
        let mut now = Instant::from_nanos(1 << 40);
        for number in [0, 5] {
            assert_eq!(receiver.on_packet(now, number), Arrival::New);
        }
        for (tick, said) in [(false, 4), (true, 1 + 4), (true, 1 + 4)] {
            if tick {
                now += TICK;
                receiver.on_timer(now);
            }
            let mut out = [0; 64];
            for _ in 0..said {
                let kind = receiver.report(now, &mut Writer::new(&mut out));
                assert!(matches!(kind, Ok(Some(_))));
                // Each leaves a little later, as on real sockets.
                now += Duration::from_micros(3);
            }
            assert_eq!(receiver.report(now, &mut Writer::new(&mut out)), Ok(None));
        }
    }
}
