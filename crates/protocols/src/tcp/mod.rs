//! A TCP endpoint over datagrams, feature by feature from the RFCs. It has SACK recovery or
//! RACK-TLP, PRR, RFC 6298 timeouts, delayed acknowledgements, window autotuning, and the receivers
//! of named operating systems. Specification: `docs/protocols/tcp.md`.

mod entry;
mod params;
mod profiles;
mod protocol;
mod receiver;
mod scoreboard;
mod sender;
mod session;
pub mod wire;

use std::time::Duration;

use farhaul_core::time::{Instant, nanos};

pub(crate) use entry::entry;
pub use params::{Config, PARAMETERS, Recovery, Reduction};
pub use profiles::{Growth, PROFILES, Profile, profile};
pub use protocol::{DESCRIPTOR, Tcp};

/// Our clock for timestamps: µs, never 0, which means "none".
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn stamp(now: Instant) -> u32 {
    ((nanos(now.since(Instant::EPOCH)) / 1_000) as u32).max(1)
}

/// Time since our clock showed `stamp`.
fn since_stamp(now: Instant, stamp_then: u32) -> Duration {
    Duration::from_micros(u64::from(stamp(now).wrapping_sub(stamp_then)))
}
