//! Checks whether the emulator does what it was configured to do. The two ends share no counter
//! with the emulator and no code of the transport engine. A sender stamps and paces datagrams, and
//! a receiver takes the kernel's times of arrival. Both run on one machine, so one clock serves
//! both and one-way delays are exact.
//!
//! - paced packets ([`Mode::Paced`]): delay error, loss, order, copies
//! - a stream above the rate of the link ([`Mode::Rate`]): the rate
//! - bursts into an idle queue ([`Mode::Queue`]): its limit
//! - a full link with paced packets among the stream ([`Mode::Full`]): delay error under load, against the
//!   probe's own model of a link

mod burst;
mod clock;
mod figures;
mod full;
mod link_model;
mod rate;
mod send;
mod serve;
mod statistics;
mod stream;
mod wire;

#[cfg(test)]
mod tests;

use std::{io, net::SocketAddr, time::Duration};

use serde::Serialize;

pub use self::{
    burst::QueueFigures,
    figures::{BurstFigures, DelayFigures, Expected, PacedFigures, Point, ShareFigures},
    rate::RateFigures,
    send::send,
    serve::serve,
    statistics::{CONFIDENCE, Interval},
};

/// A late packet is one with a larger error of the delay than this, us, at the 99th percentile.
pub const ON_TIME_US: f64 = 200.0;

/// Reason why a probe stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// Values that cannot be measured.
    #[error("{0}")]
    Usage(String),
    /// No server.
    #[error("nobody answers at {0} ({1})")]
    NoServer(SocketAddr, io::Error),
    /// Something else answers there.
    #[error("what answers at {0} is no probe of this version")]
    NoProbe(SocketAddr),
    /// The other end went away.
    #[error("the probe at {0} hung up")]
    HungUp(SocketAddr),
    /// Nothing arrived.
    #[error("none of {0} datagrams arrived")]
    NothingArrived(u64),
    /// A line could not be written.
    #[error("a message cannot be written: {0}")]
    Line(serde_json::Error),
    /// A socket failed.
    #[error("the probe's socket failed: {0}")]
    Io(#[from] io::Error),
}

/// Datagrams of one size.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// Count of packets.
    pub packets: u64,
    /// Time between two packets.
    pub every: Duration,
}

/// A stream.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Duration of the stream.
    pub time: Duration,
    /// True for several segments per system call.
    pub gso: bool,
    /// Limit of the link's queue, bytes. Half of the queue is filled at the start; the sender may
    /// be behind by that half later without the link being idle.
    pub limit: u64,
}

/// Measurement to make.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Paced packets far below the rate of the link.
    Paced(Paced),
    /// A stream of 105 % of the rate of the link.
    Rate(Stream),
    /// Bursts into an idle queue.
    Queue {
        /// Limit of the queue, bytes.
        limit: u64,
        /// Count of bursts.
        repeat: u64,
        /// True for several segments per system call.
        gso: bool,
    },
    /// A stream of exactly the rate of the link, with a standing queue, and paced packets.
    Full {
        /// The stream.
        stream: Stream,
        /// One paced packet in this time.
        every: Duration,
    },
}

impl Mode {
    const fn name(&self) -> &'static str {
        match self {
            Self::Paced(_) => "paced",
            Self::Rate(_) => "rate",
            Self::Queue { .. } => "queue",
            Self::Full { .. } => "full",
        }
    }
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Measurement to make.
    pub mode: Mode,
    /// Bytes per packet with IP and UDP headers.
    pub size: u32,
    /// Configuration of the network.
    pub expected: Expected,
}

/// The sender's side.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sender {
    /// Packets sent, those of a stream included.
    pub packets: u64,
    /// Time from the first to the last, s.
    pub seconds: f64,
    /// Bits per second, IP and UDP headers included.
    pub offered_bits_per_second: f64,
    /// 99 % of the paced packets were not sent later than this after their time.
    pub late_p99_us: f64,
    /// 99 % of the calls that sent them took no longer: a packet leaves somewhere within its call.
    pub call_p99_us: f64,
}

/// The receiver's side.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Receiver {
    /// Packets received, copies and those of a stream included.
    pub packets: u64,
    /// Packets its socket had no space for: not the network's.
    pub overflowed: u64,
    /// Packets without the kernel's time of arrival.
    pub unstamped: u64,
    /// Time by which the wall clock was set meanwhile, us.
    pub clock_step_us: f64,
}

/// Findings of a probe. Sections that a mode does not measure are absent.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeReport {
    /// Kind of this object, with its version.
    pub schema: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// Name of the mode.
    pub mode: &'static str,
    /// Always: the measurement was made.
    pub ok: bool,
    /// True if the probe itself kept up.
    pub valid: bool,
    /// Reasons why `valid` is false.
    pub complaints: Vec<String>,
    /// The receiver.
    pub to: SocketAddr,
    /// Bytes per packet with IP and UDP headers.
    pub size: u32,
    /// Configuration of the network.
    pub expected: Expected,
    /// The sender's side.
    pub sender: Sender,
    /// The receiver's side.
    pub receiver: Receiver,
    /// Delays of the same paced packets over the loopback device before: what the probe itself
    /// adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<DelayFigures>,
    /// Delay, loss, order, copies.
    #[serde(flatten)]
    pub paced: Option<PacedFigures>,
    /// Rate of the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateFigures>,
    /// Limit of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueFigures>,
    /// Delay of paced packets on the full link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<FullFigures>,
}

/// The full link.
#[derive(Clone, Debug, Serialize)]
pub struct FullFigures {
    /// Error of the delay against the model, queueing included.
    pub delay: DelayFigures,
    /// Paced packets that did not arrive.
    pub lost: u64,
    /// True if 99 % of the errors were at most [`ON_TIME_US`].
    pub on_time: bool,
}
