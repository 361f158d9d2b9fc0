//! SABUL's sequence numbers, modulo 100,000,000.
//!
//! Source: SABUL 2.x as read, 2003.

use farhaul_core::seq::Wrap;

/// One more than the highest sequence number on the wire.
pub const MODULUS: u32 = 100_000_000;
/// Numbers farther away than this are on the other side.
pub const HALF: u32 = MODULUS / 2;
/// The 64-bit number of the first packet, 0 on the wire; older ones are not negative.
pub const FIRST: u64 = MODULUS as u64;

/// Form in which such a number crosses the wire.
pub type Number = Wrap<{ MODULUS as u64 }>;
