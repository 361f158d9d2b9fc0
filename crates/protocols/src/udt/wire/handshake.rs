//! What opens a connection? Twelve words, always 48 bytes: a listener of libudt ignores any other
//! length.

use std::net::IpAddr;

use farhaul_core::codec::{DecodeError, NoRoom, Reader, Writer};

/// The version of the protocol.
pub const VERSION: u32 = 4;
/// Bytes of the body.
const BODY: usize = 48;

/// What kind of socket speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// Bytes in order.
    Stream,
    /// Messages.
    Dgram,
    /// Neither; answers after the connection is made say 0.
    Other(u32),
}

impl SocketType {
    const fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Stream,
            2 => Self::Dgram,
            other => Self::Other(other),
        }
    }

    const fn word(self) -> u32 {
        match self {
            Self::Stream => 1,
            Self::Dgram => 2,
            Self::Other(word) => word,
        }
    }
}

/// What a handshake is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A client asks.
    Connect,
    /// One of two equals asks.
    Rendezvous,
    /// The answer, and the client's second request.
    Response,
    /// One of two equals has heard the other's answer.
    Confirm,
    /// No: 1002, and every other number above 1,000.
    Rejected(u32),
    /// Anything else.
    Unknown(u32),
}

impl Request {
    const fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Connect,
            0 => Self::Rendezvous,
            0xffff_ffff => Self::Response,
            0xffff_fffe => Self::Confirm,
            1_000..=9_999 => Self::Rejected(word),
            other => Self::Unknown(other),
        }
    }

    const fn word(self) -> u32 {
        match self {
            Self::Connect => 1,
            Self::Rendezvous => 0,
            Self::Response => 0xffff_ffff,
            Self::Confirm => 0xffff_fffe,
            Self::Rejected(word) | Self::Unknown(word) => word,
        }
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
    /// What it is for.
    pub request: Request,
    /// Socket id of whoever sends this.
    pub id: u32,
    /// What the listener gave the client to show that it is where it says.
    pub cookie: u32,
    /// Address of the other side as its peer sees it, in the order of bytes of [`Self::address`].
    pub address: [u32; 4],
}

impl Handshake {
    /// An address as it crosses the wire: groups of four bytes, each reversed.
    pub fn address(ip: IpAddr) -> [u32; 4] {
        let mut words = [0; 4];
        match ip {
            IpAddr::V4(ip) => words[0] = u32::from_le_bytes(ip.octets()),
            IpAddr::V6(ip) => {
                let octets = ip.octets();
                let (groups, _) = octets.as_chunks();
                for (word, group) in words.iter_mut().zip(groups) {
                    *word = u32::from_le_bytes(*group);
                }
            }
        }
        words
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if r.rest().len() != BODY {
            return Err(DecodeError::Malformed("length of a handshake"));
        }
        let mut next = || r.u32();
        Ok(Self {
            version: next()?,
            socket: SocketType::from_word(next()?),
            isn: next()?,
            mss: next()?,
            window: next()?,
            request: Request::from_word(next()?),
            id: next()?,
            cookie: next()?,
            address: [next()?, next()?, next()?, next()?],
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let head = [
            self.version,
            self.socket.word(),
            self.isn,
            self.mss,
            self.window,
            self.request.word(),
            self.id,
            self.cookie,
        ];
        for word in head.into_iter().chain(self.address) {
            w.u32(word)?;
        }
        Ok(())
    }
}
