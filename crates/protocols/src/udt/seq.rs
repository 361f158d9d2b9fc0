//! How do 31-bit sequence numbers become numbers that never wrap? Everything behind the codec counts
//! in 64 bits; a number from the wire is the nearest one to what is known.

use farhaul_core::seq::Wrap;

/// The highest sequence or acknowledgement number on the wire.
pub const MAX: u32 = 0x7fff_ffff;
/// The highest message number field; neither it nor 0 is used.
pub const MAX_MESSAGE: u32 = 0x1fff_ffff;
/// What is added to an initial number, so that older ones are not negative.
const BASE: u64 = 1 << 31;

/// The 64-bit number of a connection's initial sequence number.
pub const fn initial(isn: u32) -> u64 {
    BASE + (isn & MAX) as u64
}

type Number = Wrap<{ 1 << 31 }>;

/// The 31 bits that cross the wire.
pub const fn wrap(number: u64) -> u32 {
    Number::wrap(number)
}

/// How far `to` lies behind `from`, the short way round; negative if it lies before.
pub const fn distance(from: u32, to: u32) -> i64 {
    Number::distance(from, to)
}

/// The number nearest to `near` that has the low bits `wire`.
pub const fn expand(wire: u32, near: u64) -> u64 {
    Number::expand(wire, near)
}

/// The message number after `message`.
pub const fn next_message(message: u32) -> u32 {
    if message + 1 >= MAX_MESSAGE {
        1
    } else {
        message + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_after_31_bits_and_messages_after_29() {
        assert_eq!(wrap(initial(MAX) + 1), 0);
        assert_eq!(expand(0, initial(MAX)), initial(MAX) + 1);
        assert_eq!(expand(MAX, initial(0)), initial(0) - 1);
        assert_eq!(distance(0x7fff_fffe, 1), 3);
        assert_eq!(distance(1, 0x7fff_fffe), -3);
        assert_eq!(next_message(1), 2);
        assert_eq!(next_message(MAX_MESSAGE - 1), 1);
    }
}
