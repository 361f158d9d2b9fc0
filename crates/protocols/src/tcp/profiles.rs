//! Table of the receivers of named operating systems: when they acknowledge, and how their window
//! opens. It also has what the host does to segments before its TCP sees them.
//!
//! Provenance. The rules of acknowledgement of Linux 2.6.29 are from its source; every second
//! segment and 200 ms are documented for all Windows receivers. Values marked *guess* were fitted
//! to the figures of Iwanaga et al. by a packet model (reference notes §8.6). They suffice to
//! reproduce the figures, and are not known to be their cause.

use std::time::Duration;

/// Growth of the announced window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The whole window from the start, as an application's own buffer size.
    Fixed,
    /// Twice what the application read in one rtt (dynamic right-sizing), sooner by what that grew
    /// since the rtt before (Linux since 3.17).
    Autotuned,
    /// To a buffer set by hand, by two segments per segment received in order; each such step grants
    /// one more immediate acknowledgement (Linux 2.6).
    Ramped,
}

/// One receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Name by which the profile is chosen.
    pub name: &'static str,
    /// One line, which marks guesses.
    pub about: &'static str,
    /// Segments per acknowledgement.
    pub ack_every: u32,
    /// The longest an acknowledgement is held back when data arrives steadily, ...
    pub delay_min: Duration,
    /// ... and when it arrives after a pause.
    pub delay_max: Duration,
    /// Segments at the start that are acknowledged each at once.
    pub quick: u32,
    /// True for one acknowledgement for all that the host hands over together (receive offload).
    pub stretch: bool,
    /// The largest window, bytes.
    pub window: u64,
    /// Growth of the window to its largest.
    pub growth: Growth,
    /// Interval at which the host wakes and works off what arrived meanwhile; zero: at once.
    pub batch_interval: Duration,
    /// Segments per wake at most; 0: all.
    pub batch_max: u32,
    /// Probability that a segment is lost inside the host.
    pub host_loss: f64,
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Today's Linux with buffers for long fat networks.
const LINUX: Profile = Profile {
    name: "linux",
    about: "Linux today: receive offload, adaptive delay, autotuned window",
    ack_every: 2,
    delay_min: ms(40),
    delay_max: ms(200),
    quick: 16,
    stretch: true,
    window: 1 << 30,
    growth: Growth::Autotuned,
    batch_interval: Duration::ZERO,
    batch_max: 0,
    host_loss: 0.0,
};

/// Every receiver, the default first.
pub static PROFILES: [Profile; 5] = [
    LINUX,
    Profile {
        name: "linux-2.6.29",
        about: "acknowledges as its source does, 25 MB set by hand; guess: 100 us of interrupt moderation",
        stretch: false,
        window: 25_000_000,
        growth: Growth::Ramped,
        batch_interval: us(100),
        ..LINUX
    },
    Profile {
        name: "windows-7",
        about: "every second segment or 200 ms, autotuned to 25 MB; guess: 300 us between wakes",
        delay_min: ms(200),
        quick: 0,
        stretch: false,
        window: 25_000_000,
        batch_interval: us(300),
        ..LINUX
    },
    Profile {
        name: "windows-vista-sp2",
        about: "as windows-7 to 16 MB; guess: 800 us, 30 segments per wake, 5e-6 lost in the host",
        delay_min: ms(200),
        quick: 0,
        stretch: false,
        window: 16 << 20,
        batch_interval: us(800),
        batch_max: 30,
        host_loss: 5e-6,
        ..LINUX
    },
    Profile {
        name: "windows-xp-x64",
        about: "fixed 25 MB; guess: 1500 us, 32 segments per wake, 1.2e-5 lost in the host",
        delay_min: ms(200),
        quick: 0,
        stretch: false,
        window: 25_000_000,
        growth: Growth::Fixed,
        batch_interval: us(1_500),
        batch_max: 32,
        host_loss: 1.2e-5,
        ..LINUX
    },
];

/// The profile called `name`.
pub fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|p| p.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_are_those_the_table_was_fitted_with() {
        let ceiling = |name| {
            let p = profile(name).unwrap();
            f64::from(p.batch_max) * 1_448.0 * 8.0 / p.batch_interval.as_secs_f64() / 1e6
        };
        assert!((ceiling("windows-vista-sp2") - 434.4).abs() < 0.1);
        assert!((ceiling("windows-xp-x64") - 247.1).abs() < 0.1);
        assert_eq!(profile("linux"), Some(&PROFILES[0]));
        assert_eq!(profile("windows-95"), None);
    }
}
