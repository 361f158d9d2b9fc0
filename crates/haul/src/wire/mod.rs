//! Decoders and encoders of every field of a datagram, without state. `long` datagrams open a
//! session, `short` ones carry it, [`frame`]s are what is inside, [`feedback`] is the range code,
//! [`token`] the retry token, [`params`] what the handshake declares.
//!
//! Decoders take any bytes without panic and without allocation beyond the bytes given.

pub mod feedback;
pub mod frame;
pub mod long;
pub mod params;
pub mod short;
pub mod token;

/// The version of this crate: "fh", format 4.
pub const VERSION: u32 = 0x6668_0004;
/// The one before: its client begins with a hello and always waits for a token.
pub const VERSION_3: u32 = 0x6668_0003;
/// The versions of this crate, the preferred one first.
pub const VERSIONS: &[u32] = &[VERSION, VERSION_3];
/// Bytes of an authentication tag.
pub const TAG: usize = 16;
/// UDP payload that every path must carry; the first datagrams are padded to it.
pub const BASE_DATAGRAM: usize = 1_200;

/// True if a client of this version begins with a hello, not with its messages.
pub const fn has_hello(version: u32) -> bool {
    version == VERSION_3
}
