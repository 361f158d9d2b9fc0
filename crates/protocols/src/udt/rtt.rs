//! Measures the round trip as libudt does: 7 old to 1 new, from 100 ms on. The receiver measures
//! and the sender filters the reported value once more.
//!
//! Source: UDT 4.11 `core.cpp`, `processCtrl`. Other than there: not whole microseconds, but as they are.

use std::time::Duration;

use farhaul_core::path::Rtt;

use super::Behaviour;

/// libudt starts from 100 ms whatever the handshake took; the fixed one from what it took, and its first
/// sample replaces that.
pub(super) fn guess(behaviour: Behaviour, handshake: Option<Duration>) -> Rtt {
    match behaviour {
        Behaviour::Libudt => Rtt::new(GUESS).assumed(),
        Behaviour::Fixed => Rtt::new(handshake.unwrap_or(GUESS)),
    }
}

const GUESS: Duration = Duration::from_millis(100);

/// RTT + 4 variations: how long an answer may take.
pub(super) fn timeout(rtt: &Rtt) -> Duration {
    rtt.smoothed() + rtt.variation() * 4
}

/// Both in us, as acknowledgements carry them.
pub(super) fn words(rtt: &Rtt) -> [u32; 2] {
    [rtt.smoothed(), rtt.variation()].map(|d| u32::try_from(d.as_micros()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use farhaul_core::time::Instant;

    use super::*;

    #[test]
    fn the_filter_gives_what_was_captured_from_libudt() {
        let mut rtt = guess(Behaviour::Libudt, Some(Duration::from_millis(3)));
        assert_eq!(words(&rtt), [100_000, 50_000]);
        rtt.update(Instant::EPOCH, Duration::from_micros(290));
        assert_eq!(words(&rtt), [87_536, 62_427]);
    }

    #[test]
    fn the_fixed_one_believes_its_first_sample() {
        let mut rtt = guess(Behaviour::Fixed, Some(Duration::from_millis(3)));
        assert_eq!(words(&rtt), [3_000, 1_500]);
        rtt.update(Instant::EPOCH, Duration::from_millis(2));
        assert_eq!(words(&rtt), [2_000, 1_000]);
        assert_eq!(rtt.min_ever(), Some(Duration::from_millis(2)));
    }
}
