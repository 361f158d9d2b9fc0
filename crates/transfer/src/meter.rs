//! Measures what a transfer uses of this process: processor time and memory.

use farhaul_core::{codec::VARINT_MAX, stats::Stats};
use farhaul_io::cpu;

use crate::wire::{Message, Sending, Usage};

/// Counts what this process uses from now on.
/// Without a start it counts nothing: in virtual time nothing may depend on how fast this machine is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter(Option<std::time::Duration>);

impl Meter {
    pub(crate) fn new() -> Self {
        Self(Some(cpu::process_time()))
    }

    pub(crate) fn usage(self) -> Usage {
        let Some(since) = self.0 else {
            return Usage::default();
        };
        let cpu = cpu::process_time().saturating_sub(since);
        Usage {
            cpu_micros: u64::try_from(cpu.as_micros()).unwrap_or(VARINT_MAX),
            max_rss: cpu::max_rss().unwrap_or(0),
        }
    }

    /// Makes the last message of a sender whose `lanes` have counted `stats` together.
    pub(crate) fn bye(self, stats: &Stats, lanes: u32) -> Message {
        Message::Bye {
            usage: self.usage(),
            sending: Sending::of(stats, lanes),
        }
    }
}
