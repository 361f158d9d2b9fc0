//! Tokens, without a seal so that their inside is reached.

use farhaul_core::time::Instant;
use farhaul_haul::{crypto::Key, wire::token::Token};

pub(crate) fn run(data: &[u8]) {
    let address = "192.0.2.1:1".parse().expect("an address");
    let now = Instant::from_nanos(1 << 40);
    if let Some(token) = Token::open(data, &Key::Plain, now, address, 9) {
        assert_eq!((token.address, token.server), (address, 9));
    }
}
