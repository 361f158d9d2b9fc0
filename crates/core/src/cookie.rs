//! Recognises a client without remembering it. The client returns a keyed hash of what the two ends
//! have sent each other (RFC 4987 §3.6). The listener spends no memory on an address that cannot
//! hear it.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use siphasher::sip::SipHasher24;

/// Makes cookies: SipHash-2-4 under one key.
#[derive(Clone, Copy, Debug)]
pub struct Cookies {
    key: [u64; 2],
}

impl Cookies {
    /// Cookies with `key`.
    pub const fn with_key(key: [u64; 2]) -> Self {
        Self { key }
    }

    /// The cookie for the handshake data `said`.
    pub fn of(&self, said: impl Hash) -> u64 {
        let [low, high] = self.key;
        let mut hasher = SipHasher24::new_with_keys(low, high);
        said.hash(&mut hasher);
        hasher.finish()
    }
}

impl Default for Cookies {
    /// Cookies with a key made up by the system.
    fn default() -> Self {
        Self::with_key([0_u8, 1].map(|i| RandomState::new().hash_one(i)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_keyed_and_the_vectors_of_their_paper() {
        let cookies = Cookies::with_key([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        assert_eq!(cookies.of(()), 0x726f_db47_dd0e_0e31);
        let word = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(cookies.of(word), 0x93f5_f579_9a93_2462);
        assert_ne!(Cookies::default().of(word), Cookies::default().of(word));
    }
}
