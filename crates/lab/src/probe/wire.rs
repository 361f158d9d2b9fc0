//! Messages between the two ends of a probe. Over TCP go lines of JSON: what is to be recorded, the
//! ports, how much was sent, what arrived. Every datagram has its number and the time at which it
//! left.

use std::{
    io::{BufRead, Read as _, Write},
    net::SocketAddr,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    ProbeError,
    figures::{Expected, PacedFigures},
    rate::RateFigures,
};

/// The version of this exchange.
pub(super) const EXCHANGE: &str = "farhaul.probe-exchange/1";
/// Longest line accepted: the times of arrival of a few hundred thousand packets.
const MAX_LINE: u64 = 32 << 20;
/// Bytes at the front of every datagram.
pub(super) const HEAD: usize = 24;
const MAGIC: u32 = 0x6668_5072;

/// Request to the receiver: what to record, and what to answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) exchange: String,
    /// Number in every datagram; others are not counted.
    pub(super) session: u32,
    /// Most datagrams that are recorded one by one.
    pub(super) packets: u64,
    /// Most datagrams of a stream that is counted.
    pub(super) stream: u64,
    /// Wait for late ones after the last one sent, ms.
    pub(super) drain_ms: u64,
    /// IP and UDP headers of each datagram.
    pub(super) headers: u32,
    /// Answer wanted about the recorded datagrams.
    pub(super) ask: Ask,
}

/// Answer wanted about datagrams that are recorded one by one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Figures of packets of `bytes` with their headers, compared with the configuration.
    Figures { bytes: u64, expected: Expected },
    /// Times at which each arrived.
    Arrivals,
}

/// Ports to send to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Ports {
    /// Recorded one by one, with the kernel's time of arrival.
    pub(super) packets: u16,
    /// Counted.
    pub(super) stream: u16,
}

/// Datagrams that were sent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Sent {
    pub(super) packets: u64,
    pub(super) stream: u64,
    /// Time at which the last one left, ns.
    pub(super) last: u64,
}

/// Datagrams that arrived.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Arrived {
    /// Datagrams recorded, copies included.
    pub(super) packets: u64,
    /// Datagrams of the stream.
    pub(super) stream: u64,
    /// Datagrams the receiving socket had no space for.
    pub(super) overflowed: u64,
    /// Datagrams without the kernel's time of arrival.
    pub(super) unstamped: u64,
    /// Time by which the wall clock was set meanwhile, ns.
    pub(super) clock_step: u64,
    pub(super) paced: Option<PacedFigures>,
    pub(super) rate: Option<RateFigures>,
    /// Number and time of arrival (ns).
    pub(super) arrivals: Vec<(u64, u64)>,
    /// Missing ones of the stream: first and count.
    pub(super) gaps: Vec<(u64, u64)>,
}

/// The front of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) session: u32,
    pub(super) number: u64,
    /// Time at which the datagram left, ns.
    pub(super) at: u64,
}

impl Head {
    /// Writes the head to the front of `datagram`, which is at least [`HEAD`] bytes long.
    pub(super) fn encode(self, datagram: &mut [u8]) {
        datagram[..4].copy_from_slice(&MAGIC.to_be_bytes());
        datagram[4..8].copy_from_slice(&self.session.to_be_bytes());
        datagram[8..16].copy_from_slice(&self.number.to_be_bytes());
        datagram[16..HEAD].copy_from_slice(&self.at.to_be_bytes());
    }

    /// Decodes the head of a datagram of this exchange.
    pub(super) fn decode(datagram: &[u8]) -> Option<Self> {
        let (magic, rest) = datagram.split_first_chunk()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let at = rest.first_chunk()?;
        (u32::from_be_bytes(*magic) == MAGIC).then(|| Self {
            session: u32::from_be_bytes(*session),
            number: u64::from_be_bytes(*number),
            at: u64::from_be_bytes(*at),
        })
    }
}

/// One line.
pub(super) fn put(to: &mut impl Write, what: &impl Serialize) -> Result<(), ProbeError> {
    let mut line = serde_json::to_vec(what).map_err(ProbeError::Line)?;
    line.push(b'\n');
    to.write_all(&line)?;
    Ok(to.flush()?)
}

/// The next line.
pub(super) fn get<T: DeserializeOwned>(
    from: &mut impl BufRead,
    peer: SocketAddr,
) -> Result<T, ProbeError> {
    let mut line = Vec::new();
    from.take(MAX_LINE).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(ProbeError::HungUp(peer));
    }
    serde_json::from_slice(&line).map_err(|_| ProbeError::NoProbe(peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_survives_and_foreign_datagrams_have_none() {
        let head = Head {
            session: 7,
            number: 1 << 40,
            at: 1_700_000_000_000_000_001,
        };
        let mut datagram = [0; 40];
        head.encode(&mut datagram);
        assert_eq!(Head::decode(&datagram), Some(head));
        assert_eq!(datagram[..8], [0x66, 0x68, 0x50, 0x72, 0, 0, 0, 7]);
        assert_eq!(Head::decode(&datagram[..HEAD - 1]), None);
        assert_eq!(Head::decode(&[0; 40]), None);
    }

    #[test]
    fn a_line_that_is_no_json_or_never_comes_is_an_error_with_the_peer() {
        let peer = "127.0.0.1:9".parse().unwrap();
        let line = |bytes: &[u8]| get::<Sent>(&mut &bytes[..], peer).unwrap_err().to_string();
        assert!(line(b"SSH-2.0-x\r\n").contains("127.0.0.1:9"));
        assert!(line(b"").contains("hung up"));
    }
}
