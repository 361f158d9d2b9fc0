//! Turns 31-bit sequence numbers into numbers that never wrap. Everything behind the codec counts
//! in 64 bits; a number from the wire is the nearest one to what is known.

use farhaul_core::seq::Wrap;

/// The highest sequence or acknowledgement number on the wire.
pub const MAX: u32 = 0x7fff_ffff;
/// The highest message number field; neither it nor 0 is used.
pub const MAX_MESSAGE: u32 = 0x1fff_ffff;
/// Number added to an initial number, so that older ones are not negative.
const BASE: u64 = 1 << 31;

/// The 64-bit number of a connection's initial sequence number.
pub const fn initial(isn: u32) -> u64 {
    BASE + (isn & MAX) as u64
}

/// Form in which such a number crosses the wire: 31 bits.
pub type Number = Wrap<{ 1 << 31 }>;

/// The message number after `message`.
pub const fn next_message(message: u32) -> u32 {
    message % (MAX_MESSAGE - 1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_after_31_bits_and_messages_after_29() {
        assert_eq!(Number::wrap(initial(MAX) + 1), 0);
        assert_eq!(Number::expand(0, initial(MAX)), initial(MAX) + 1);
        assert_eq!(Number::expand(MAX, initial(0)), initial(0) - 1);
        assert_eq!(Number::distance(0x7fff_fffe, 1), 3);
        assert_eq!(Number::distance(1, 0x7fff_fffe), -3);
        assert_eq!(next_message(1), 2);
        assert_eq!(next_message(MAX_MESSAGE - 1), 1);
    }
}
