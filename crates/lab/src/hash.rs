//! How are things told apart by a short name? Texts by FNV-1a of 64 bits, as nobody tries to make two alike; the
//! running program by its bytes.

use std::{fs::File, sync::LazyLock};

/// FNV-1a, 64 bits.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Names the running program: another after every change of it. Empty if its file cannot be read, and then no
/// stored run is taken for one of this program.
pub(crate) fn build() -> &'static str {
    static BUILD: LazyLock<String> = LazyLock::new(|| {
        let read = || {
            let mut hash = blake3::Hasher::new();
            hash.update_reader(File::open("/proc/self/exe")?)?;
            std::io::Result::Ok(hash.finalize().to_hex()[..16].to_string())
        };
        read().unwrap_or_default()
    });
    &BUILD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_their_definition() {
        // The test vectors of FNV's authors.
        assert_eq!(fnv(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv("foobar"), 0x8594_4171_f739_67e8);
        let own = std::env::current_exe().unwrap();
        let whole = blake3::hash(&std::fs::read(own).unwrap()).to_hex();
        assert_eq!(build(), &whole[..16]);
    }
}
