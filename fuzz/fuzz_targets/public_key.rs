//! Public keys as people type them.
#![no_main]

use farhaul_haul::PublicKey;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
});
