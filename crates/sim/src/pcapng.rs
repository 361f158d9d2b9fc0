//! Writes packets that enter one link as a pcapng file for packet analysers
//! (draft-ietf-opsawg-pcapng, section 4). IPv4 and UDP headers are made up. The payload has the
//! protocol's own part, and the object data is truncated; a dropped packet is marked in a comment.
//!
//! Invariants: little-endian, one section, one interface, times in ns of virtual time.

use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr},
};

use farhaul_core::codec::internet_checksum;

use crate::{
    network::HEADERS,
    observe::{Observer, Packet},
};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Raw IP, without a frame around it.
const LINKTYPE_RAW: u16 = 101;
const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_APPLICATION: u16 = 4;
const UDP: u8 = 17;

/// Writes what enters one link.
#[derive(Debug)]
pub struct Pcapng<W> {
    out: W,
    link: usize,
    block: Vec<u8>,
    failed: Option<io::Error>,
}

impl<W: Write> Pcapng<W> {
    /// Writes the packets that enter link number `link`, which the file calls `name`.
    pub fn new(mut out: W, link: usize, name: &str) -> io::Result<Self> {
        let mut block = Vec::new();
        block.extend(BYTE_ORDER.to_le_bytes());
        block.extend(1_u16.to_le_bytes());
        block.extend(0_u16.to_le_bytes());
        block.extend(u64::MAX.to_le_bytes());
        option(&mut block, OPTION_APPLICATION, b"farhaul");
        end_options(&mut block);
        write_block(&mut out, SECTION, &block)?;
        block.clear();
        block.extend(LINKTYPE_RAW.to_le_bytes());
        block.extend([0; 2]);
        // No limit: what is cut off is not known to the simulator.
        block.extend(0_u32.to_le_bytes());
        option(&mut block, OPTION_NAME, name.as_bytes());
        option(&mut block, OPTION_RESOLUTION, &[9]);
        end_options(&mut block);
        write_block(&mut out, INTERFACE, &block)?;
        Ok(Self {
            out,
            link,
            block,
            failed: None,
        })
    }

    /// Ends the file; the first error of any packet, if there was one.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn write(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let nanos = packet.at.as_nanos();
        let low = u32::try_from(nanos & 0xffff_ffff).expect("32 bits are left");
        let captured = HEADERS as usize + packet.head.len();
        let original = HEADERS as usize + packet.len;
        let block = &mut self.block;
        block.clear();
        block.extend(0_u32.to_le_bytes());
        block.extend(
            u32::try_from(nanos >> 32)
                .expect("32 bits are left")
                .to_le_bytes(),
        );
        block.extend(low.to_le_bytes());
        block.extend(word(captured)?.to_le_bytes());
        block.extend(word(original)?.to_le_bytes());
        headers(block, packet)?;
        block.extend(packet.head);
        pad(block);
        if let Some(cause) = packet.dropped {
            let comment = format!("dropped: {}", cause.name());
            option(block, OPTION_COMMENT, comment.as_bytes());
            end_options(block);
        }
        write_block(&mut self.out, ENHANCED_PACKET, &self.block)
    }
}

impl<W: Write> Observer for Pcapng<W> {
    fn on_packet(&mut self, packet: &Packet<'_>) {
        if packet.link == self.link
            && self.failed.is_none()
            && let Err(error) = self.write(packet)
        {
            self.failed = Some(error);
        }
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "longer than an IPv4 packet")
}

fn word(len: usize) -> io::Result<u32> {
    u32::try_from(len).map_err(|_| too_long())
}

fn half(len: usize) -> io::Result<u16> {
    u16::try_from(len).map_err(|_| too_long())
}

/// An IPv4 and a UDP header; the UDP checksum is 0, "none", as the payload is not there to be summed.
fn headers(block: &mut Vec<u8>, packet: &Packet<'_>) -> io::Result<()> {
    let (from, to) = (v4(packet.from)?, v4(packet.to)?);
    let total = half(HEADERS as usize + packet.len)?;
    let at = block.len();
    block.extend([0x45, packet.ecn.bits()]);
    block.extend(total.to_be_bytes());
    // Identification 0, "do not fragment", 64 hops.
    block.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
    block.extend(from.octets());
    block.extend(to.octets());
    let sum = internet_checksum(&block[at..]);
    block[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    block.extend(packet.from.port().to_be_bytes());
    block.extend(packet.to.port().to_be_bytes());
    block.extend((total - 20).to_be_bytes());
    block.extend([0, 0]);
    Ok(())
}

fn v4(address: SocketAddr) -> io::Result<Ipv4Addr> {
    match address {
        SocketAddr::V4(address) => Ok(*address.ip()),
        SocketAddr::V6(_) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the simulator uses IPv4",
        )),
    }
}

fn pad(block: &mut Vec<u8>) {
    block.resize(block.len().next_multiple_of(4), 0);
}

/// Names and comments are short: the length of an option is 16 bits.
fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    let value = &value[..usize::from(len)];
    block.extend(code.to_le_bytes());
    block.extend(len.to_le_bytes());
    block.extend(value);
    pad(block);
}

fn end_options(block: &mut Vec<u8>) {
    block.extend([0; 4]);
}

fn write_block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let len = word(body.len() + 12)?.to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&len)?;
    out.write_all(body)?;
    out.write_all(&len)
}

#[cfg(test)]
mod tests;
