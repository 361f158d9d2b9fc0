//! Table of the receivers of named operating systems: when they acknowledge, and how their window
//! opens. It also has when the host wakes, and how fast the application reads.
//!
//! Provenance. The rules of acknowledgement of Linux 2.6.29 are from its source; every second
//! segment and 200 ms are documented for all Windows receivers. The interval between wakes is the
//! documented default of the clients' network cards. Values marked *fit* were chosen on Fig. 2 of
//! Iwanaga et al., whose clients these are: docs/iwanaga.md has what they predict.

use std::time::Duration;

use farhaul_core::units::Rate;

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
    pub wakes_every: Duration,
    /// Rate at which the application reads; none: at once.
    pub reads_at: Option<Rate>,
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Interrupt moderation of Intel's e1000 for bulk traffic: 4,000 a second in the modes that adapt,
/// which are the default since version 7.3 of the driver (`InterruptThrottleRate`).
const E1000: Duration = Duration::from_micros(250);

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
    wakes_every: Duration::ZERO,
    reads_at: None,
};

/// Receiver of Windows: when it acknowledges is documented, its wakes and window are assumed.
const WINDOWS: Profile = Profile {
    delay_min: ms(200),
    quick: 0,
    stretch: false,
    wakes_every: E1000,
    ..LINUX
};

/// Every receiver, the default first.
pub static PROFILES: [Profile; 5] = [
    LINUX,
    Profile {
        name: "linux-2.6.29",
        about: "acknowledges as its source does, e1000; fit: 25 MB set by hand",
        stretch: false,
        window: 25_000_000,
        growth: Growth::Ramped,
        wakes_every: E1000,
        ..LINUX
    },
    Profile {
        name: "windows-7",
        about: "every second segment or 200 ms, autotuned, e1000; fit: to 25 MB",
        window: 25_000_000,
        ..WINDOWS
    },
    Profile {
        name: "windows-vista-sp2",
        about: "as windows-7 to 16 MB; fit: the application reads at 350 Mbit/s",
        window: 16 << 20,
        reads_at: Some(Rate::mbit(350)),
        ..WINDOWS
    },
    Profile {
        name: "windows-xp-x64",
        about: "as windows-7, not autotuned; fit: 25 MB, the application reads at 200 Mbit/s",
        window: 25_000_000,
        growth: Growth::Fixed,
        reads_at: Some(Rate::mbit(200)),
        ..WINDOWS
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
    fn a_profile_is_found_by_its_name() {
        assert_eq!(profile("linux"), Some(&PROFILES[0]));
        assert_eq!(profile("windows-95"), None);
    }
}
