//! Public keys, and letters of tickets, as people type them.
#![no_main]

use farhaul_haul::{PublicKey, letters};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
    if let Ok(bytes) = letters::decode(text) {
        assert_eq!(letters::encode(&bytes), text.to_ascii_lowercase());
        assert_eq!(text.len(), letters::length(bytes.len()));
    }
});
