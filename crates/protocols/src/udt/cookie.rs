//! Does a client receive at the address it sends from? The listener gives it a number made of that
//! address, the minute and a secret, and remembers nothing. libudt's own has no secret and refuses
//! the minute before; any number does, since clients only echo it.

use std::{
    hash::{BuildHasher, RandomState},
    net::{IpAddr, SocketAddr},
};

use farhaul_core::time::Instant;

/// How long one epoch lasts; a cookie is good in its own and the next.
const EPOCH_NANOS: u64 = 60_000_000_000;

/// Makes and checks cookies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookies {
    key: [u64; 2],
}

impl Cookies {
    /// With `key`, or one made up by the system.
    pub(super) fn new(key: Option<[u64; 2]>) -> Self {
        let made_up = || [0_u8, 1].map(|i| RandomState::new().hash_one(i));
        Self {
            key: key.unwrap_or_else(made_up),
        }
    }

    fn of(&self, epoch: u64, peer: SocketAddr, id: u32) -> u32 {
        let (low, high) = match peer.ip() {
            IpAddr::V4(ip) => (u64::from(ip.to_bits()), 0),
            IpAddr::V6(ip) => {
                let bits = ip.to_bits();
                #[expect(clippy::cast_possible_truncation, reason = "in halves")]
                let halves = (bits as u64, (bits >> 64) as u64);
                halves
            }
        };
        let ends = u64::from(id) << 16 | u64::from(peer.port());
        let mac = siphash(self.key, &[epoch, low, high, ends]);
        // 0 means that there is none.
        u32::try_from(mac >> 32).unwrap_or(1).max(1)
    }

    /// The cookie for a client.
    pub(super) fn give(&self, now: Instant, peer: SocketAddr, id: u32) -> u32 {
        self.of(now.as_nanos() / EPOCH_NANOS, peer, id)
    }

    /// True if `cookie` was given to this client in this epoch or the one before.
    pub(super) fn accepts(&self, now: Instant, peer: SocketAddr, id: u32, cookie: u32) -> bool {
        let epoch = now.as_nanos() / EPOCH_NANOS;
        cookie == self.of(epoch, peer, id) || epoch > 0 && cookie == self.of(epoch - 1, peer, id)
    }
}

/// SipHash-2-4 of whole little-endian words (Aumasson and Bernstein, 2012).
fn siphash(key: [u64; 2], words: &[u64]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let last = (words.len() as u64 * 8) << 56;
    for word in words.iter().copied().chain([last]) {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

const fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn siphash_gives_the_vectors_of_its_paper() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(siphash(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(
            siphash(key, &[0x0706_0504_0302_0100]),
            0x93f5_f579_9a93_2462
        );
    }

    #[test]
    fn a_cookie_is_good_for_its_client_and_the_next_minute_only() {
        let cookies = Cookies::new(None);
        let peer: SocketAddr = "192.0.2.1:9000".parse().unwrap();
        let other: SocketAddr = "192.0.2.1:9001".parse().unwrap();
        let now = Instant::from_nanos(59 * 1_000_000_000);
        let later = |s| now + Duration::from_secs(s);
        let cookie = cookies.give(now, peer, 7);
        assert!(cookies.accepts(now, peer, 7, cookie));
        assert!(
            cookies.accepts(later(2), peer, 7, cookie),
            "the minute turned"
        );
        assert!(cookies.accepts(later(60), peer, 7, cookie));
        assert!(!cookies.accepts(later(61), peer, 7, cookie), "stale");
        assert!(!cookies.accepts(now, other, 7, cookie), "another port");
        assert!(!cookies.accepts(now, peer, 8, cookie), "another socket");
        assert!(
            !Cookies::new(None).accepts(now, peer, 7, cookie),
            "another key"
        );
    }
}
