//! Defines the *control lane*, for protocols whose feedback travels on a TCP connection beside
//! their datagrams: a reliable, ordered stream of bytes each way. The runtime carries the lane: a
//! real TCP connection on real sockets, a modelled one in the simulator. SABUL, RBUDP, Tsunami and
//! their kin need a lane; other protocols pay nothing. SABUL, RBUDP, Tsunami and their kin need a
//! lane; other protocols pay nothing.
//!
//! The client draws a [`Token`]. The token is the first thing on the connection ([`preamble`],
//! written and read by the world) and in the client's first datagram (in the protocol's own
//! format). So the listener knows which datagrams and which connection belong together, and makes
//! no session before both have come from one address.
//!
//! A session gets datagrams that arrived before bytes of the lane first. Datagrams that never end
//! hold the bytes up for some milliseconds at most.
//!
//! Invariants: a world never keeps more than [`ROOM`] bytes of a lane unsent, and asks a session
//! for no more than fit. A session bounds itself what it does with bytes of the lane.

use crate::rng::Rng;

/// The most bytes of one lane that a world keeps before they leave.
pub const ROOM: usize = 64 << 10;
/// Bytes before those of the session.
pub const PREAMBLE: usize = 20;

const MAGIC: [u8; 4] = *b"fhcl";

/// Token that joins datagrams to a control lane. The token is sent in clear and is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// Draws a new token.
    pub fn draw(rng: &mut Rng) -> Self {
        let mut bytes = [0; 16];
        rng.fill(&mut bytes);
        Self(bytes)
    }

    /// The token with these bytes, as read.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Bytes of the token, to be written.
    pub const fn bytes(&self) -> [u8; 16] {
        self.0
    }
}

/// The first bytes on a connection.
pub fn preamble(token: Token) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..].copy_from_slice(&token.0);
    bytes
}

/// The token in the first bytes of a connection; none if they are somebody else's.
pub fn read_preamble(bytes: &[u8; PREAMBLE]) -> Option<Token> {
    let (magic, token) = bytes.split_first_chunk::<4>()?;
    let token = token.try_into().ok()?;
    (*magic == MAGIC).then_some(Token(token))
}

/// Event of a session's control lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// The lane is open; [`poll_control`](crate::protocol::Session::poll_control) is called from
    /// now on.
    Opened,
    /// The next bytes from the peer, cut anywhere.
    Bytes(&'a [u8]),
    /// The lane is closed, for this reason: nothing more is received or sent.
    Closed(&'a str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preamble_gives_its_token_back_and_others_are_strangers() {
        let token = Token::draw(&mut Rng::new(3));
        let mut bytes = preamble(token);
        assert_eq!(read_preamble(&bytes), Some(token));
        bytes[0] ^= 1;
        assert_eq!(read_preamble(&bytes), None);
        assert_ne!(token, Token::draw(&mut Rng::new(4)));
    }
}
