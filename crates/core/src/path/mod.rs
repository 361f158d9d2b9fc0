//! Estimates of the path: round-trip time and queueing delay.

mod delay;
mod rtt;

pub use delay::QueueDelay;
pub use rtt::Rtt;

use std::time::Duration;

use crate::time::Instant;

/// The smallest value of the last one to two `window`s.
#[derive(Clone, Debug)]
pub struct WindowedMin<T> {
    window: Duration,
    since: Option<Instant>,
    old: Option<T>,
    new: Option<T>,
}

impl<T: Copy + Ord> WindowedMin<T> {
    /// A minimum that forgets values older than twice `window`.
    pub const fn new(window: Duration) -> Self {
        Self {
            window,
            since: None,
            old: None,
            new: None,
        }
    }

    /// Forgets all there was.
    pub fn forget(&mut self) {
        *self = Self::new(self.window);
    }

    /// Takes a sample; returns the minimum.
    pub fn update(&mut self, now: Instant, value: T) -> T {
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= self.window {
            self.old = self.new.take();
            self.since = Some(now);
        }
        let new = self.new.map_or(value, |v| v.min(value));
        self.new = Some(new);
        self.old.map_or(new, |v| v.min(new))
    }

    /// The minimum.
    pub fn get(&self) -> Option<T> {
        match (self.old, self.new) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
