//! Configuration of an endpoint; and the choices that are known under a name of their own.

use farhaul_core::{
    protocol::{Descriptor, Provenance},
    shell::Endpoint,
    units::Rate,
};

use super::RbudpMachine;

const CITATION: &str =
    "He, Leigh, Yu, DeFanti, Reliable Blast UDP, IEEE Cluster, 2002; RBUDP 1.0 of QUANTA";

const fn descriptor(
    name: &'static str,
    summary: &'static str,
    (provenance, citation): (Provenance, &'static str),
) -> Descriptor {
    Descriptor {
        name,
        summary,
        provenance,
        citation,
        sealed: false,
        control_lane: true,
        multiplexed: false,
    }
}

/// RBUDP as the original.
pub static RBUDP: Descriptor = descriptor(
    "rbudp",
    "Reliable Blast UDP 1.0: blocks at a fixed rate, a bitmap over TCP for each round",
    (Provenance::Source, CITATION),
);
/// RBUDP with parameters fitted to measurements by Kachan and Siemens.
pub static KACHAN: Descriptor = descriptor(
    "rbudp-kachan",
    "RBUDP as measured in 2014: blocks of 64 MiB, packets of 8,800 bytes each 7 us, DONE first",
    (
        Provenance::Model,
        "Kachan, Siemens, Comparison of contemporary solutions for high speed data transport, 2014",
    ),
);
/// RBUDP with the parameters that suit it best.
pub static BEST: Descriptor = descriptor(
    "rbudp-best",
    "RBUDP at its best: blocks of 2 GiB, full packets, an exact rate",
    (Provenance::Source, CITATION),
);
/// RBUDP with the next blocks under way while the first are repaired.
pub static OVERLAP: Descriptor = descriptor(
    "rbudp-overlap",
    "RBUDP without its pauses: many blocks at once, ranges of missing packets (not the original's)",
    (
        Provenance::Specification,
        "farhaul: docs/protocols/rbudp.md",
    ),
);

/// Behaviour of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of data per time; headers are not counted, and nothing changes it.
    pub rate: Rate,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Bytes in a block.
    pub block: u64,
    /// Bytes of data in a packet; as many as fit if not said.
    pub payload: Option<u32>,
    /// Largest packet, bytes, IP and UDP included.
    pub mtu: u32,
    /// True if the gap between packets is a whole number of microseconds, rounded down, as in the
    /// original.
    pub whole_us: bool,
    /// Blocks on their way at once; the original has one. With more of them missing packets are
    /// reported as ranges where that is shorter. A round is judged an eighth of an rtt after it was
    /// over.
    pub window: usize,
    /// Packets at the end of a block that DONE overtakes: the original reads its two sockets in
    /// turn, and reports as missing what it has not read.
    pub overtake: u32,
    /// True if the sender waits for the time of the next packet in a loop, as the original: for real
    /// clocks only.
    pub spin: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rate: Rate::mbit(600),
            max_rate: None,
            block: 64 << 20,
            payload: None,
            mtu: 9_000,
            whole_us: true,
            window: 1,
            overtake: 0,
            spin: false,
        }
    }
}

impl Config {
    /// True if blocks overlap.
    pub(super) const fn overlaps(&self) -> bool {
        self.window > 1
    }

    /// The rate at which packets of `payload` bytes leave.
    pub(super) fn pace(&self, payload: u32) -> Rate {
        let asked = self.rate.min(self.max_rate.unwrap_or(Rate::UNLIMITED));
        if !self.whole_us || asked == Rate::UNLIMITED {
            return asked;
        }
        let bits = u64::from(payload) * 8;
        let gap_us = bits * 1_000 / (asked.bps() / 1_000).max(1);
        match (bits * 1_000_000).checked_div(gap_us) {
            // What the user allows at most holds for rounding too.
            Some(bps) => Rate::from_bps(bps).min(self.max_rate.unwrap_or(Rate::UNLIMITED)),
            None => self.max_rate.unwrap_or(Rate::UNLIMITED),
        }
    }
}

/// An endpoint that speaks RBUDP, under the name of `descriptor`.
pub type Rbudp = Endpoint<RbudpMachine>;

/// An endpoint that opens sessions.
pub fn client(descriptor: &'static Descriptor, config: &Config) -> Rbudp {
    server(descriptor, config).client_only()
}

/// An endpoint that also accepts them.
pub fn server(descriptor: &'static Descriptor, config: &Config) -> Rbudp {
    let mtu = config.mtu;
    let config = config.clone();
    Endpoint::new(descriptor, mtu, move || RbudpMachine::new(config.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_whole_microseconds() {
        let pace = |rate, payload| {
            let config = Config {
                rate,
                ..Config::default()
            };
            config.pace(payload).bps() / 1_000_000
        };
        // Blast-family reference §1.4: 8,800 bytes at 9 and at 10 Gbit/s both leave at 10.057.
        assert_eq!(pace(Rate::gbit(9), 8_800), 10_057);
        assert_eq!(pace(Rate::gbit(10), 8_800), 10_057);
        assert_eq!(pace(Rate::mbit(8_800), 8_800), 8_800);
        assert_eq!(pace(Rate::gbit(7), 8_800), 7_040);
        assert_eq!(pace(Rate::gbit(5), 1_460), 5_840);
        assert_eq!(pace(Rate::gbit(3), 1_460), 3_893);
    }

    #[test]
    fn what_is_allowed_at_most_is_not_rounded_up() {
        let config = Config {
            rate: Rate::gbit(10),
            max_rate: Some(Rate::gbit(9)),
            ..Config::default()
        };
        assert_eq!(config.pace(8_800), Rate::gbit(9));
    }
}
