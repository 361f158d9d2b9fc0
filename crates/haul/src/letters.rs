//! Writes bytes as letters to be typed: base32, without the letters that look alike, followed by a
//! checksum of 24 bits.

use std::fmt::Write as _;

const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Bytes of the checksum.
const SUM: usize = 3;

/// Reason why letters are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LettersError {
    /// Another character, or a number of them that no bytes have.
    Form,
    /// Mistyped.
    Checksum,
}

/// CRC-24 as of RFC 4880 §6.1.
fn checksum(bytes: &[u8]) -> [u8; SUM] {
    let mut crc = 0x00b7_04ce_u32;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= 0x0186_4cfb;
            }
        }
    }
    let [_, a, b, c] = crc.to_be_bytes();
    [a, b, c]
}

/// Letters for this many bytes.
pub const fn length(bytes: usize) -> usize {
    (bytes + SUM).div_ceil(5) * 8
}

/// The first five bytes of what these eight letters begin, not checked.
pub fn leading(letters: &str) -> Option<[u8; 5]> {
    let letters: &[u8; 8] = letters.as_bytes().first_chunk()?;
    let mut word = 0_u64;
    for letter in letters {
        let letter = letter.to_ascii_lowercase();
        let value = LETTERS.iter().position(|l| *l == letter)?;
        word = word << 5 | value as u64;
    }
    word.to_be_bytes().last_chunk().copied()
}

/// `bytes` and their checksum, eight letters for five bytes; they are filled up with zeros.
pub fn encode(bytes: &[u8]) -> String {
    let mut all = bytes.to_vec();
    all.resize((bytes.len() + SUM).next_multiple_of(5) - SUM, 0);
    all.extend(checksum(&all));
    let mut text = String::with_capacity(all.len() / 5 * 8);
    for five in all.chunks(5) {
        let word = five.iter().fold(0_u64, |w, b| w << 8 | u64::from(*b));
        for i in (0..8).rev() {
            let letter = usize::try_from(word >> (5 * i) & 31).unwrap_or_default();
            let _infallible = write!(text, "{}", char::from(LETTERS[letter]));
        }
    }
    text
}

/// The bytes of `text`, with the zeros at their end; capitals are read, too.
pub fn decode(text: &str) -> Result<Vec<u8>, LettersError> {
    if text.is_empty() || !text.len().is_multiple_of(8) {
        return Err(LettersError::Form);
    }
    let mut bytes = Vec::with_capacity(text.len() / 8 * 5);
    let mut rest = text;
    while !rest.is_empty() {
        bytes.extend(leading(rest).ok_or(LettersError::Form)?);
        // Letters are ASCII: all eight of them were.
        rest = &rest[8..];
    }
    let sum = bytes.split_off(bytes.len() - SUM);
    if checksum(&bytes) == *sum {
        Ok(bytes)
    } else {
        Err(LettersError::Checksum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_survive_being_typed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = encode(&bytes);
            let read = decode(&text.to_uppercase()).unwrap();
            prop_assert!(read.starts_with(&bytes));
            prop_assert!(read[bytes.len()..].iter().all(|b| *b == 0) && read.len() < bytes.len() + 5);
        }

        #[test]
        fn any_text_never_panics(text in any::<String>()) {
            if let Ok(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text.to_lowercase());
            }
        }
    }
}
