//! Finds the segments of a packet train, and makes headers for some of them. The kernel hands over
//! up to 64 KiB as one packet with one set of headers ("super-packet"). A run of its segments gets
//! headers of its own: lengths, IPv4 identification and checksum, TCP sequence number and flags.
//! The checksum is unfinished, with the pseudo-header sum that the kernel expects.

use std::ops::Range;

use farhaul_link::Ecn;
use farhaul_udp::tun::{Gso, VnetHeader};

const VNET: usize = VnetHeader::LEN;
/// The longest headers: vnet, IPv4 with options or IPv6 with a few extensions, TCP with options.
const MAX_HEADERS: usize = 256;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// TCP flags that belong to the last segment of a train (FIN, PSH) and to its first (CWR).
const TCP_LAST_ONLY: u8 = 0x09;
const TCP_FIRST_ONLY: u8 = 0x80;

/// The anatomy of a packet; offsets count from the start of its buffer, the vnet header included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anatomy {
    version: Version,
    transport: Transport,
    /// Offset at which the transport header begins.
    transport_at: usize,
    /// Offset at which the payload begins.
    payload_at: usize,
    /// The end of the packet.
    end: usize,
    /// Payload bytes per segment; the whole payload if the packet is not a train.
    segment: usize,
    gso: Gso,
    /// Count of segments.
    pub(crate) segments: u16,
    /// The ECN bits of all of them.
    pub(crate) ecn: Ecn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V4,
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
    Other,
}

impl Anatomy {
    /// Reads the headers; `None` if this is not an IP packet, or a train of an unknown kind.
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let vnet = VnetHeader::decode(packet)?;
        let version = match packet.get(VNET)? >> 4 {
            4 => Version::V4,
            6 => Version::V6,
            _ => return None,
        };
        let (ip_len, protocol, ecn) = match version {
            Version::V4 => v4(packet)?,
            Version::V6 => v6(packet)?,
        };
        let at = match vnet.gso {
            Gso::None => VNET + ip_len,
            // Behind the IP header, which is rewritten for every run.
            _ => VNET + Some(usize::from(vnet.csum_start)).filter(|at| *at >= ip_len)?,
        };
        let (transport, payload_at) = match vnet.gso {
            Gso::Tcp4 | Gso::Tcp6 => (Transport::Tcp, at + tcp_len(packet, at)?),
            Gso::Udp => (Transport::Udp, at + 8),
            Gso::None => single(packet, protocol, at),
            Gso::Other(_) => return None,
        };
        let payload = packet.len().checked_sub(payload_at)?;
        let segment = match vnet.gso {
            Gso::None => payload,
            _ => usize::from(vnet.gso_size).max(1),
        };
        let segments = match vnet.gso {
            Gso::None => 1,
            _ => u16::try_from(payload.div_ceil(segment)).ok()?.max(1),
        };
        (payload_at <= MAX_HEADERS || segments == 1).then_some(Self {
            version,
            transport,
            transport_at: at,
            payload_at,
            end: packet.len(),
            segment,
            gso: vnet.gso,
            segments,
            ecn,
        })
    }

    /// The ports from and to which it is, if it has any.
    pub(crate) fn ports(&self, packet: &[u8]) -> Option<[u16; 2]> {
        let at = self.transport_at;
        let known = self.transport != Transport::Other && packet.len() >= at + 4;
        known.then(|| [get(packet, at), get(packet, at + 2)])
    }

    /// True for several segments of a TCP connection.
    pub(crate) fn is_tcp_train(&self) -> bool {
        self.transport == Transport::Tcp && self.segments > 1
    }

    /// Bytes of segment `index` on the wire, its headers from IP on included.
    pub(crate) fn wire_len(&self, index: u16) -> u32 {
        let len = self.payload_at - VNET + self.payload(index, 1).len();
        u32::try_from(len).unwrap_or(u32::MAX)
    }

    /// Bytes of a run of segments on the wire, their headers included.
    pub(crate) fn run_wire_len(&self, first: u16, count: u16) -> u64 {
        let headers = (self.payload_at - VNET) * usize::from(count);
        (headers + self.payload(first, count).len()) as u64
    }

    /// Range of the payload of a run of segments.
    pub(crate) fn payload(&self, first: u16, count: u16) -> Range<usize> {
        let start = self.payload_at + self.segment * usize::from(first);
        let end = start + self.segment * usize::from(count);
        start.min(self.end)..end.min(self.end)
    }

    /// True if a receiver would not notice a flipped bit by itself, so that a damaged packet is
    /// delivered: only UDP (see [`Self::flip`]). TCP and ICMP have a checksum that this emulator
    /// does not forge.
    pub(crate) fn delivers_damage(&self) -> bool {
        self.transport == Transport::Udp && !self.payload(0, 1).is_empty()
    }

    /// Flips bit `random` of the payload of UDP segment `index`, in such a way that the receiving
    /// kernel takes the checksum for right. The damage is for the application to find.
    pub(crate) fn flip(&self, packet: &mut [u8], index: u16, random: u64) {
        let payload = self.payload(index, 1);
        let bits = 8 * payload.len() as u64;
        let Some(bit) = random.checked_rem(bits) else {
            return;
        };
        let byte = payload.start + usize::try_from(bit / 8).unwrap_or_default();
        packet[byte] ^= 1 << (bit % 8);
        let unchecked = packet[self.transport_at + 6..self.transport_at + 8] == [0, 0];
        if self.segments == 1 && !unchecked {
            self.leave_checksum_to_kernel(packet, self.end - self.transport_at);
            let vnet = self.vnet(1).encode();
            packet[..VNET].copy_from_slice(&vnet);
        }
    }

    /// Sets "congestion experienced" in the IP header at the front of `packet`.
    pub(crate) fn mark(&self, packet: &mut [u8]) {
        match self.version {
            Version::V4 => {
                packet[VNET + 1] |= Ecn::Ce.bits();
                sum_v4_header(packet);
            }
            Version::V6 => packet[VNET + 1] |= Ecn::Ce.bits() << 4,
        }
    }

    /// Headers, the vnet header first, for `count` segments from `first` on; their payload follows
    /// from [`Self::payload`].
    pub(crate) fn headers(&self, packet: &[u8], first: u16, count: u16, marked: bool) -> Headers {
        let mut bytes = [0; MAX_HEADERS];
        let head = &mut bytes[..self.payload_at];
        head.copy_from_slice(&packet[..self.payload_at]);
        head[..VNET].copy_from_slice(&self.vnet(count).encode());

        let from_ip = self.payload_at - VNET + self.payload(first, count).len();
        let transport_len = from_ip + VNET - self.transport_at;
        match self.version {
            Version::V4 => {
                put(head, VNET + 2, low16(from_ip));
                let id = get(head, VNET + 4).wrapping_add(first);
                put(head, VNET + 4, id);
                sum_v4_header(head);
            }
            Version::V6 => put(head, VNET + 4, low16(from_ip - 40)),
        }
        if marked {
            self.mark(head);
        }
        let at = self.transport_at;
        match self.transport {
            Transport::Tcp => {
                let seq = head[at + 4..at + 8].first_chunk().copied();
                let seq = u32::from_be_bytes(seq.unwrap_or_default());
                let passed = low32(self.segment * usize::from(first));
                head[at + 4..at + 8].copy_from_slice(&seq.wrapping_add(passed).to_be_bytes());
                if first + count < self.segments {
                    head[at + 13] &= !TCP_LAST_ONLY;
                }
                if first > 0 {
                    head[at + 13] &= !TCP_FIRST_ONLY;
                }
            }
            Transport::Udp => put(head, at + 4, low16(transport_len)),
            Transport::Other => {}
        }
        self.leave_checksum_to_kernel(head, transport_len);
        Headers {
            bytes,
            len: self.payload_at,
        }
    }

    /// The vnet header of a run of `count` segments with an unfinished checksum.
    fn vnet(&self, count: u16) -> VnetHeader {
        let train = count > 1;
        VnetHeader {
            needs_csum: true,
            gso: if train { self.gso } else { Gso::None },
            hdr_len: low16(self.payload_at - VNET),
            gso_size: if train { low16(self.segment) } else { 0 },
            csum_start: low16(self.transport_at - VNET),
            csum_offset: low16(self.checksum_offset()),
        }
    }

    const fn checksum_offset(&self) -> usize {
        match self.transport {
            Transport::Tcp => 16,
            Transport::Udp | Transport::Other => 6,
        }
    }

    /// Puts the sum of the pseudo-header where the checksum belongs.
    fn leave_checksum_to_kernel(&self, packet: &mut [u8], transport_len: usize) {
        let (addresses, protocol) = match (self.version, self.transport) {
            (Version::V4, Transport::Tcp) => (VNET + 12..VNET + 20, TCP),
            (Version::V4, _) => (VNET + 12..VNET + 20, UDP),
            (Version::V6, Transport::Tcp) => (VNET + 8..VNET + 40, TCP),
            (Version::V6, _) => (VNET + 8..VNET + 40, UDP),
        };
        let start = u32::from(protocol) + low32(transport_len);
        let sum = fold(add(start, &packet[addresses]));
        put(packet, self.transport_at + self.checksum_offset(), sum);
    }
}

fn sum_v4_header(packet: &mut [u8]) {
    put(packet, VNET + 10, 0);
    let len = usize::from(packet[VNET] & 15) * 4;
    let sum = !fold(add(0, &packet[VNET..VNET + len]));
    put(packet, VNET + 10, sum);
}

/// The rebuilt headers of a run.
#[derive(Debug)]
pub(crate) struct Headers {
    bytes: [u8; MAX_HEADERS],
    len: usize,
}

impl Headers {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Header length, protocol (0 for a fragment) and ECN bits of an IPv4 packet. `None` if the packet
/// is shorter than its header's length field, or the header shorter than the minimum.
fn v4(packet: &[u8]) -> Option<(usize, u8, Ecn)> {
    let header: &[u8; 20] = packet.get(VNET..)?.first_chunk()?;
    let len = usize::from(header[0] & 15) * 4;
    if len < 20 || packet.len() < VNET + len {
        return None;
    }
    let fragment = get(header, 6) & 0x3fff != 0;
    let protocol = if fragment { 0 } else { header[9] };
    Some((len, protocol, Ecn::from_bits(header[1])))
}

/// Header length, protocol and ECN mark of an IPv6 packet; extension headers count as an unknown
/// protocol.
fn v6(packet: &[u8]) -> Option<(usize, u8, Ecn)> {
    let header: &[u8; 40] = packet.get(VNET..)?.first_chunk()?;
    Some((40, header[6], Ecn::from_bits(header[1] >> 4)))
}

fn tcp_len(packet: &[u8], at: usize) -> Option<usize> {
    let len = usize::from(packet.get(at + 12)? >> 4) * 4;
    (len >= 20).then_some(len)
}

/// Transport and start of the payload of a packet that is not a train.
fn single(packet: &[u8], protocol: u8, at: usize) -> (Transport, usize) {
    match protocol {
        UDP if packet.len() >= at + 8 => (Transport::Udp, at + 8),
        TCP => match tcp_len(packet, at) {
            Some(len) if packet.len() >= at + len => (Transport::Tcp, at + len),
            _ => (Transport::Other, at.min(packet.len())),
        },
        _ => (Transport::Other, at.min(packet.len())),
    }
}

fn get(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// One's complement sum (RFC 1071) of an even number of bytes, not folded.
fn add(start: u32, bytes: &[u8]) -> u32 {
    bytes
        .chunks_exact(2)
        .fold(start, |sum, pair| sum + u32::from(get(pair, 0)))
}

#[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits")]
const fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "lengths within a 64 KiB packet"
)]
const fn low16(n: usize) -> u16 {
    n as u16
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "sums within a 64 KiB packet"
)]
const fn low32(n: usize) -> u32 {
    n as u32
}

/// Feeds arbitrary bytes through the calls that the router makes of a packet from a TUN device,
/// every segment damaged and marked. Looks at the result. For fuzzing.
#[doc(hidden)]
pub fn fuzz_packet(bytes: &[u8]) {
    let Some(anatomy) = Anatomy::of(bytes) else {
        return;
    };
    let (mut packet, all) = (bytes.to_vec(), anatomy.segments);
    let wire: u64 = (0..all).map(|i| u64::from(anatomy.wire_len(i))).sum();
    assert_eq!(anatomy.run_wire_len(0, all), wire);
    for index in 0..all {
        if anatomy.delivers_damage() {
            anatomy.flip(&mut packet, index, u64::from(index));
        }
    }
    if all == 1 {
        anatomy.mark(&mut packet);
    }
    let later = Anatomy::of(&packet).expect("what was understood stays so");
    assert_eq!((later.segments, packet.len()), (all, bytes.len()));
    assert!(all > 1 || later.ecn == Ecn::Ce);
    if all == 1 {
        return;
    }
    for (first, count) in [(0, all), (0, 1), (all / 2, all - all / 2), (all - 1, 1)] {
        let mut run = later.headers(&packet, first, count, true).bytes().to_vec();
        run.extend_from_slice(&packet[later.payload(first, count)]);
        let rebuilt = Anatomy::of(&run).expect("a run is a packet");
        assert_eq!((rebuilt.segments, rebuilt.ecn), (count, Ecn::Ce));
        let wire = later.run_wire_len(first, count);
        assert_eq!(rebuilt.run_wire_len(0, count), wire);
    }
}

#[cfg(test)]
mod tests;
