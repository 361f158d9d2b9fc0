//! Handshake that opens a connection: twelve words, always 48 bytes. A listener of libudt ignores
//! any other length.

use std::net::IpAddr;

use farhaul_core::codec::{DecodeError, NoRoom, Reader, Writer};

/// The version of the protocol.
pub const VERSION: u32 = 4;
/// Bytes of the body.
const BODY: usize = 48;

/// Kind of the socket that speaks; 0 in answers after the connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketType(pub u32);

impl SocketType {
    /// Bytes in order.
    pub const STREAM: Self = Self(1);
    /// Messages.
    pub const DGRAM: Self = Self(2);
}

/// Purpose of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request(pub u32);

impl Request {
    /// A client asks.
    pub const CONNECT: Self = Self(1);
    /// One of two equals asks.
    pub const RENDEZVOUS: Self = Self(0);
    /// The answer, and the client's second request.
    pub const RESPONSE: Self = Self(0xffff_ffff);
    /// One of two equals has received the other's answer.
    pub const CONFIRM: Self = Self(0xffff_fffe);
    /// No; so is every other number from 1,000 to 9,999.
    pub const REJECTED: Self = Self(1_002);

    /// The number of an error, if it is a no.
    pub fn rejected(self) -> Option<u32> {
        (1_000..=9_999).contains(&self.0).then_some(self.0)
    }
}

/// The body of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// [`VERSION`], or 0 in answers after the connection is made.
    pub version: u32,
    /// Kind of socket.
    pub socket: SocketType,
    /// Initial sequence number, 31 bits.
    pub isn: u32,
    /// Largest packet, bytes, headers of IP and UDP included.
    pub mss: u32,
    /// Receive buffer, packets.
    pub window: u32,
    /// Purpose of the handshake.
    pub request: Request,
    /// Socket id of the sender.
    pub id: u32,
    /// Cookie that the listener gave the client to prove its address.
    pub cookie: u32,
    /// Address of the other side as its peer sees it, in the order of bytes of [`Self::address`].
    pub address: [u32; 4],
}

impl Handshake {
    /// An address in its wire form: groups of four bytes, each reversed.
    pub fn address(ip: IpAddr) -> [u32; 4] {
        let octets = match ip {
            IpAddr::V4(ip) => return [u32::from_le_bytes(ip.octets()), 0, 0, 0],
            IpAddr::V6(ip) => ip.octets(),
        };
        let groups = octets.as_chunks().0;
        std::array::from_fn(|i| u32::from_le_bytes(groups[i]))
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if r.rest().len() != BODY {
            return Err(DecodeError::Malformed("length of a handshake"));
        }
        let [version, socket, isn, mss, window, request, id, cookie] = r.words()?;
        Ok(Self {
            version,
            socket: SocketType(socket),
            isn,
            mss,
            window,
            request: Request(request),
            id,
            cookie,
            address: r.words()?,
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.words(&[self.version, self.socket.0, self.isn, self.mss, self.window])?;
        w.words(&[self.request.0, self.id, self.cookie])?;
        w.words(&self.address)
    }
}
