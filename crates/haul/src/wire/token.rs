//! Tokens with which a server validates a client's address without keeping state. A token holds
//! address, time and client id, sealed under a key that only the server has, bound to the
//! connection id it will use. Tokens live ten seconds.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use farhaul_core::{
    codec::{NoRoom, Reader, Writer},
    time::Instant,
};

use super::TAG;
use crate::crypto::Key;

/// Time for which a token is good.
pub const LIFETIME: Duration = Duration::from_secs(10);
/// Clear counter, address, port, time, client id, tag.
pub const LEN: usize = COUNTER + INSIDE + TAG;
const COUNTER: usize = 8;
const INSIDE: usize = 16 + 2 + 8 + 4;
const AAD: usize = 4;

/// Content of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Address of the client.
    pub address: SocketAddr,
    /// Time at which the token was issued, on the server's clock.
    pub issued: Instant,
    /// The client's connection id.
    pub client: u32,
    /// The connection id the server chose.
    pub server: u32,
}

const fn as_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

impl Token {
    /// Seals the token; `counter` must never repeat under `key`.
    ///
    /// # Panics
    /// Never: the fields have fixed sizes.
    pub fn seal(&self, key: &Key, counter: u64) -> [u8; LEN] {
        let mut bytes = [0; AAD + LEN];
        self.write(counter, &mut Writer::new(&mut bytes))
            .expect("the buffer has the token's size");
        key.seal(counter, &mut bytes, AAD + COUNTER);
        let mut token = [0; LEN];
        token.copy_from_slice(&bytes[AAD..]);
        token
    }

    fn write(&self, counter: u64, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.u32(self.server)?;
        w.u64(counter)?;
        w.put(&as_v6(self.address.ip()).octets())?;
        w.u16(self.address.port())?;
        w.u64(self.issued.as_nanos())?;
        w.u32(self.client)
    }

    /// Opens a token returned from `address` in a datagram to connection id `server`; `None` if
    /// it is not ours, not theirs or too old.
    pub fn open(
        token: &[u8],
        key: &Key,
        now: Instant,
        address: SocketAddr,
        server: u32,
    ) -> Option<Self> {
        let mut bytes = [0; AAD + LEN];
        if token.len() != LEN {
            return None;
        }
        bytes[..AAD].copy_from_slice(&server.to_be_bytes());
        bytes[AAD..].copy_from_slice(token);
        let counter = Reader::new(token).u64().ok()?;
        let end = key.open(counter, &mut bytes, AAD + COUNTER)?;
        let mut r = Reader::new(bytes.get(AAD + COUNTER..end)?);
        let ip = r.take(16).ok()?;
        let port = r.u16().ok()?;
        let issued = Instant::from_nanos(r.u64().ok()?);
        let client = r.u32().ok()?;
        let fresh = issued <= now && now.since(issued) <= LIFETIME;
        let theirs = ip == as_v6(address.ip()).octets() && port == address.port();
        (fresh && theirs).then_some(Self {
            address,
            issued,
            client,
            server,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::crypto::{Suite as _, tls::Tls};

    #[test]
    fn a_token_is_good_for_its_address_id_and_time_only() {
        let key = Tls::for_tests().vault();
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let address: SocketAddr = "192.0.2.7:4000".parse().unwrap();
        let token = Token {
            address,
            issued: at(100),
            client: 7,
            server: 9,
        };
        let bytes = token.seal(&key, 3);
        assert_eq!(Token::open(&bytes, &key, at(105), address, 9), Some(token));
        assert_eq!(Token::open(&bytes, &key, at(111), address, 9), None);
        assert_eq!(Token::open(&bytes, &key, at(99), address, 9), None);
        assert_eq!(Token::open(&bytes, &key, at(105), address, 8), None);
        let elsewhere = "192.0.2.7:4001".parse().unwrap();
        assert_eq!(Token::open(&bytes, &key, at(105), elsewhere, 9), None);
        let other = Tls::for_tests().vault();
        assert_eq!(Token::open(&bytes, &other, at(105), address, 9), None);
        for i in 0..LEN {
            let mut bad = bytes;
            bad[i] ^= 1;
            assert_eq!(Token::open(&bad, &key, at(105), address, 9), None, "{i}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(data in proptest::collection::vec(any::<u8>(), 0..80)) {
            let address = "[::1]:1".parse().unwrap();
            let _ = Token::open(&data, &Key::Plain, Instant::EPOCH, address, 1);
        }
    }
}
