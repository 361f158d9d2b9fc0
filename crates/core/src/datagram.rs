//! Batches that move between engine and world: up to 64 equal segments that share one system call.

use std::{net::SocketAddr, time::Duration};

use crate::units::Size;

/// The most segments in a batch (Linux `UDP_MAX_SEGMENTS` of older kernels).
pub const MAX_SEGMENTS: usize = 64;
/// The most bytes in a batch: what one UDP send may carry over IPv4.
pub const MAX_BATCH: usize = 65_507;

/// Bytes of IP and UDP headers on the way to `peer`.
pub const fn overhead(peer: SocketAddr) -> u32 {
    if peer.is_ipv6() { 48 } else { 28 }
}

/// The ECN field of the IP header (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The packet is not ECN-capable.
    #[default]
    NotEct,
    /// ECN-capable, codepoint 0.
    Ect0,
    /// ECN-capable, codepoint 1 (L4S).
    Ect1,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// Codepoint of the two low bits of the traffic class.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two low bits of the traffic class.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }
}

/// Congestion header: what a sender tells the routers on its way, and what they answer. The header
/// travels beside the bytes of a datagram and not in them. So it exists in the simulator only: on
/// real paths nobody writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CongestionHeader {
    /// The sender's window.
    pub window: Size,
    /// The sender's rtt, with the time that feedback waits.
    pub rtt: Duration,
    /// Window change, bytes: as requested by the sender, or lowered by a router.
    pub feedback: f64,
    /// True if a router has written the header; without, the header means nothing.
    pub written: bool,
}

/// One send call; its bytes are in the [`TxBuf`]. All segments are equal but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub to: SocketAddr,
    /// The mark to send with.
    pub ecn: Ecn,
}

/// One or more datagrams from one peer, `segment` bytes apart; only the last may be shorter.
#[derive(Debug)]
pub struct Received<'a> {
    /// Source address.
    pub from: SocketAddr,
    /// Mark with which the datagrams arrived.
    pub ecn: Ecn,
    /// Stride in bytes; at least 1.
    pub segment: usize,
    /// Time spent in the host's receive queue; zero where unknown.
    pub waited: Duration,
    /// Bytes by which routers change the sender's window, in sum; `None` where none wrote.
    pub granted: Option<f64>,
    /// The datagrams; opened in place.
    pub bytes: &'a mut [u8],
}

/// A driver-owned buffer in which a session writes one batch.
#[derive(Debug)]
pub struct TxBuf {
    /// Header beside each segment of the batch, which a simulator carries.
    pub header: Option<CongestionHeader>,
    bytes: Box<[u8]>,
    segment: usize,
    len: usize,
    max_segments: usize,
    solid: [u16; MAX_SEGMENTS],
    count: usize,
}

impl Default for TxBuf {
    fn default() -> Self {
        Self::new(MAX_SEGMENTS)
    }
}

impl TxBuf {
    /// A buffer for batches of up to `max_segments` (1 where the system cannot segment).
    pub fn new(max_segments: usize) -> Self {
        Self {
            header: None,
            bytes: vec![0; MAX_BATCH].into_boxed_slice(),
            segment: 1,
            len: 0,
            max_segments: max_segments.clamp(1, MAX_SEGMENTS),
            solid: [0; MAX_SEGMENTS],
            count: 0,
        }
    }

    /// Starts a new batch of segments of `segment` bytes; returns how many fit.
    pub fn begin(&mut self, segment: usize) -> usize {
        self.segment = segment.clamp(1, MAX_BATCH);
        self.len = 0;
        self.count = 0;
        self.header = None;
        self.max_segments.min(MAX_BATCH / self.segment)
    }

    /// Start of the next segment in [`Self::raw`].
    pub const fn next_at(&self) -> usize {
        self.count * self.segment
    }

    /// Room for the next segment: `segment` bytes, or none when the batch is full or was ended by a
    /// short segment.
    pub fn next_segment(&mut self) -> &mut [u8] {
        let start = self.next_at();
        if self.count == self.max_segments || start != self.len {
            return &mut [];
        }
        self.bytes
            .get_mut(start..start + self.segment)
            .unwrap_or_default()
    }

    /// Ends the current segment after `len` bytes. Of these the first `solid` mean something to the
    /// protocol; the rest is object data, which a simulator need not carry.
    ///
    /// # Panics
    /// If the segment is longer than [`Self::begin`] said, or one too many.
    pub fn commit(&mut self, len: usize, solid: usize) {
        assert!(
            len <= self.segment && self.next_at() == self.len,
            "segment too long or too many"
        );
        self.solid[self.count] = u16::try_from(solid.min(len)).unwrap_or(u16::MAX);
        self.len += len;
        self.count += 1;
    }

    /// The whole buffer, for filling extents of several segments at once.
    pub fn raw(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The batch.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Stride in bytes.
    pub const fn segment(&self) -> usize {
        self.segment
    }

    /// Segments in the batch.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Each segment with the length of its solid head.
    pub fn segments(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.bytes()
            .chunks(self.segment)
            .zip(self.solid.iter().map(|s| usize::from(*s)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_segment_ends_the_batch() {
        let mut out = TxBuf::default();
        assert_eq!(out.begin(9_000), 7);
        out.next_segment()[0] = 1;
        out.commit(9_000, 20);
        assert_eq!(out.next_at(), 9_000);
        out.next_segment()[0] = 2;
        out.commit(100, 100);
        assert!(out.next_segment().is_empty());
        let shape: Vec<_> = out
            .segments()
            .map(|(s, solid)| (s[0], s.len(), solid))
            .collect();
        assert_eq!(shape, [(1, 9_000, 20), (2, 100, 100)]);
    }
}
