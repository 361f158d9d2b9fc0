//! Configuration of an endpoint: its choices, and the names of the two modes.

use farhaul_core::{
    protocol::{Descriptor, Provenance},
    shell::Endpoint,
    units::Rate,
};

use super::{FobsMachine, machine::FobsStyle};

const fn descriptor(name: &'static str, summary: &'static str) -> Descriptor {
    Descriptor {
        name,
        summary,
        provenance: Provenance::Paper,
        citation: "Dickens, Gropp, HPDC, 2002; Dickens, Euro-Par, 2003; Dunigan, Fowler on its source",
        sealed: false,
        control_lane: true,
        multiplexed: false,
    }
}

/// FOBS in segments, with a rate that follows the loss.
pub static SEGMENTS: Descriptor = descriptor(
    "fobs",
    "FOBS in segments: what is missing goes first in the next one; its rate law is farhaul's",
);
/// The algorithm of 2002.
pub static GREEDY: Descriptor = descriptor(
    "fobs-greedy",
    "FOBS of 2002: over and over all that is not known to have arrived, at a fixed rate",
);

/// Order of sending.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// All packets that are not known to have arrived, the least sent first; a report after this
    /// many new packets.
    Greedy {
        /// Packets.
        every: u32,
    },
    /// A report for each segment.
    Segments {
        /// Packets in one at most.
        packets: u32,
        /// Share of the packets that may be lost before the rate falls.
        tolerance: f64,
    },
}

/// Behaviour of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Order of sending.
    pub mode: Mode,
    /// Bytes of data per time; headers are not counted. In segments the rate never rises above it.
    pub rate: Rate,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Bytes in a chunk.
    pub chunk: u64,
    /// Largest packet, bytes, IP and UDP included.
    pub mtu: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Segments {
                packets: 10_000,
                tolerance: 0.01,
            },
            rate: Rate::mbit(900),
            max_rate: None,
            chunk: 100_000_000,
            mtu: 1_500,
        }
    }
}

impl Config {
    /// The rate at first, and at most.
    pub fn highest_rate(&self) -> Rate {
        self.rate.min(self.max_rate.unwrap_or(Rate::UNLIMITED))
    }
}

/// An endpoint that speaks FOBS.
pub type Fobs = Endpoint<FobsMachine>;

/// An endpoint that opens sessions.
pub fn client(config: &Config) -> Fobs {
    server(config).client_only()
}

/// An endpoint that also accepts them.
pub fn server(config: &Config) -> Fobs {
    let descriptor = match config.mode {
        Mode::Greedy { .. } => &GREEDY,
        Mode::Segments { .. } => &SEGMENTS,
    };
    let config = *config;
    Endpoint::new(descriptor, config.mtu, move || {
        FobsMachine::new(FobsStyle::new(&config))
    })
}
