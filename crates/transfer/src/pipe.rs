//! Transfers a file one end of which is a pipe. [`PipeSender`] sends what a reader gives, whose
//! length nobody knows before its end. [`PipeReceiver`] writes what a server sends to a writer, in
//! order. Both hold a window of the content in memory: [`Window`].
//!
//! - What cannot be had again is verified once: nothing is repaired, and nothing is continued by a later run.
//! - A thread reads or writes, and hashes. The other end of the pipe may block the thread for as
//!   long as it likes; nobody waits for the thread.

mod receiver;
mod sender;

use std::time::Duration;

use farhaul_core::time::Instant;

pub(crate) use receiver::PipeReceiver;
pub(crate) use sender::PipeSender;

use crate::wire::BLOCK;

/// Blocks of the smallest window, and of the largest.
const LEAST: u64 = 64;
pub(crate) const MOST: u64 = 512;
/// Round trips that a window has room for: what was lost arrives one or two after what follows it.
const ROUNDS: u64 = 4;
/// A round trip is not taken to be shorter.
const SHORTEST: Duration = Duration::from_millis(5);

/// Limit on the bytes that are held: what moves in some round trips, within bounds. The limit only
/// grows.
#[derive(Debug)]
pub(crate) struct Window {
    blocks: u64,
    since: Option<Instant>,
    /// Bytes that have moved since then.
    moved: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            blocks: LEAST,
            since: None,
            moved: 0,
        }
    }
}

impl Window {
    pub(crate) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Counts `bytes` more that have moved, and widens the window if they call for it.
    pub(crate) fn moved(&mut self, now: Instant, bytes: u64, rtt: Option<Duration>) {
        self.moved += bytes;
        let round = rtt.unwrap_or_default().max(SHORTEST);
        let since = *self.since.get_or_insert(now);
        let passed = now.since(since);
        if passed < round {
            return;
        }
        let rounds = u64::try_from(passed.as_micros() / round.as_micros().max(1)).unwrap_or(1);
        let blocks = (self.moved / rounds.max(1)).saturating_mul(ROUNDS) / BLOCK;
        self.blocks = self.blocks.max(blocks).min(MOST);
        (self.since, self.moved) = (Some(now), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_room_for_some_round_trips_within_bounds() {
        let (mut window, mut now) = (Window::default(), Instant::EPOCH);
        let rtt = Some(Duration::from_millis(100));
        let mut pass = |ms: u64, blocks: u64| {
            now += Duration::from_millis(ms);
            window.moved(now, blocks * BLOCK, rtt);
            window.blocks()
        };
        assert_eq!(pass(0, 0), LEAST);
        assert_eq!(pass(100, 5), LEAST);
        assert_eq!(pass(50, 40), LEAST, "not a round trip yet");
        assert_eq!(pass(50, 40), 320);
        assert_eq!(pass(400, 90), 320, "it never shrinks");
        assert_eq!(pass(100, 9_000), MOST);
    }
}
