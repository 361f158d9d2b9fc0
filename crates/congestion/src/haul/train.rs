//! Was a train long enough to be measured? Samples that all cover more than its duration cannot distinguish
//! it from what follows: the reports are too far apart, as of a receiver that gets a processor now and then.

use std::time::Duration;

/// Hosts alone hold packets up by so much: a sample that covers no more than this may be of a shorter train.
const HELD_UP: Duration = Duration::from_millis(4);

/// A train that was too short to be measured is followed by one twice as long, up to this number of times.
pub(super) const MOST_DOUBLINGS: u32 = 3;

/// The present or last train.
#[derive(Clone, Debug, Default)]
pub(super) struct Train {
    lasts: Duration,
    /// All samples since cover more than it; `None`: there were none.
    coarse: Option<bool>,
}

impl Train {
    /// One begins.
    pub(super) const fn new(lasts: Duration) -> Self {
        Self {
            lasts,
            coarse: None,
        }
    }

    /// How long it was to last.
    pub(super) const fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Takes the time that a sample covers.
    pub(super) fn sample(&mut self, interval: Duration) {
        self.coarse = Some(self.coarse != Some(false) && interval > self.lasts.max(HELD_UP));
    }

    /// There were samples, and none could be of it alone.
    pub(super) fn was_too_short(&self) -> bool {
        self.coarse == Some(true)
    }
}
