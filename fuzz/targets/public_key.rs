//! Public keys, and letters of tickets, as people type them.

use farhaul_haul::{PublicKey, letters};

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
    if let Ok(bytes) = letters::decode(text) {
        assert_eq!(letters::encode(&bytes), text.to_ascii_lowercase());
        assert_eq!(text.len(), letters::length(bytes.len()));
    }
}
