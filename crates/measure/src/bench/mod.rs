//! Measures a bulk transfer from memory to memory between two applications over any session, at
//! both ends, and combines the figures in one [`Report`].
//!
//! The receiver's count is the truth: bytes that arrived, each counted once. The clock runs from the
//! client's first act (handshake included) to the arrival of the last new byte (tail included).
//! "Wire" is UDP payload bytes; feedback is everything the receiver sent, handshake and all.
//!
//! - [`payload`]: the bytes and how they are counted
//! - [`message`]: the messages of the two ends
//! - [`Client`], [`Server`]: the applications; [`run`], [`serve`]: with sockets around them
//! - [`Report`]: the result

mod client;
mod constant;
mod ends;
pub mod message;
pub mod payload;
mod report;
mod run;
mod server;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use client::Client;
use farhaul_core::{congestion::Sharing, protocol::CloseReason, units::Rate};
#[doc(hidden)]
pub use message::fuzz_bench_messages;
pub use message::{Datagrams, Limit, Mark};
pub use report::{Cost, Interval, LawTime, Report, percent_per_gbps};
pub use run::{BenchError, Progress, Span, Target, Wrap, run, serve};
pub use server::{Bounds, IDLE, OTHER_VERSION, REFUSED, Server};

/// Code with which either end closes on an invalid message.
pub const BROKEN: u32 = 1;
/// Closed by the client: the server declares another application.
pub const OTHER_APP: u32 = 6;

/// Task of a client.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Limit at which the sender stops.
    pub limit: Limit,
    /// True if the server sends.
    pub reverse: bool,
    /// Sessions side by side.
    pub lanes: u32,
    /// Time from the start that is left out of the result.
    pub omit: Duration,
    /// Interval of progress reports.
    pub interval: Duration,
    /// True if somebody looks at the marks as they come. Otherwise a server that receives sends
    /// them in the end. Packets to the sender meanwhile would restart a timer of libudt's sender,
    /// for which any packet is a sign of progress.
    pub live: bool,
    /// Highest rate of a server that sends. This end's sessions have their own.
    pub max_rate: Option<Rate>,
    /// Rate at which the sender sends whatever is lost, and the receiver counts datagrams.
    pub constant: Option<Rate>,
    /// Share of contended links that the sender claims; a server that sends gets the policy in the
    /// client's message.
    pub sharing: Sharing,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            limit: Limit::Nanos(10_000_000_000),
            reverse: false,
            lanes: 1,
            omit: Duration::ZERO,
            interval: Duration::from_secs(1),
            live: true,
            max_rate: None,
            constant: None,
            sharing: Sharing::Fair,
        }
    }
}

/// News of a parallel session for the bench.
#[derive(Clone, Debug)]
pub enum News {
    /// The handshake is done; how long it took.
    Connected(Duration),
    /// The receiver's progress.
    Mark(Mark),
    /// Sample of this end, which sends, at the end of an interval.
    Sample(Sample),
    /// The session is done.
    Finished(Box<Lane>),
    /// The session failed.
    Failed(CloseReason),
}

/// A sender at one moment; counts are since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time since the client's first act.
    pub at: Duration,
    /// Bytes that the law allows in flight.
    pub window: u64,
    /// Smoothed rtt.
    pub rtt: Option<Duration>,
    /// Bytes sent again.
    pub repaired: u64,
    /// Packets lost.
    pub lost: u64,
    /// Episodes of loss.
    pub episodes: u64,
}

/// Report of a server to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The server listens.
    Listening,
    /// A session began, with this task.
    Began(Request),
    /// A session ended.
    Ended {
        /// Bytes that arrived, here or as the client acknowledged.
        bytes: u64,
        /// Time since the request.
        took: Duration,
        /// True if both sides have sent their measurements.
        whole: bool,
    },
}

/// Task that a client gives a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// True if the server sends.
    pub reverse: bool,
    /// Limit at which the sender stops.
    pub limit: Limit,
    /// Parallel sessions of the client.
    pub lanes: u32,
    /// Index of this session among them.
    pub lane: u32,
    /// Rate of a test at a constant rate.
    pub constant: Option<Rate>,
}

/// Result of one parallel session.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// The end that sent.
    pub sender: message::Side,
    /// The end that received.
    pub receiver: message::Side,
    /// Time from the client's first act to the arrival of the last new byte.
    pub elapsed: Duration,
}
