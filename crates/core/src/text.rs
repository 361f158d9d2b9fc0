//! Makes words from elsewhere safe to show. A peer's texts and the names of files may hold
//! characters that steer a terminal or reorder what people read. This file, and no other, escapes
//! all of them.
//!
//! - Escaped are control characters, line and paragraph separators, and all format characters
//!   (Unicode 16, general categories Cc, Zl, Zp and Cf), among them the bidirectional controls.
//! - Bytes that are not UTF-8 become U+FFFD.

use std::ops::RangeInclusive;

/// General categories Cf, Zl and Zp of Unicode 16, ascending.
const FORMAT: [RangeInclusive<char>; 21] = [
    '\u{ad}'..='\u{ad}',
    '\u{600}'..='\u{605}',
    '\u{61c}'..='\u{61c}',
    '\u{6dd}'..='\u{6dd}',
    '\u{70f}'..='\u{70f}',
    '\u{890}'..='\u{891}',
    '\u{8e2}'..='\u{8e2}',
    '\u{180e}'..='\u{180e}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    // One of them is not assigned.
    '\u{2060}'..='\u{206f}',
    '\u{feff}'..='\u{feff}',
    '\u{fff9}'..='\u{fffb}',
    '\u{110bd}'..='\u{110bd}',
    '\u{110cd}'..='\u{110cd}',
    '\u{13430}'..='\u{1343f}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0001}'..='\u{e0001}',
    '\u{e0020}'..='\u{e007f}',
    // Noncharacters: never text.
    '\u{fffe}'..='\u{ffff}',
];

/// True for a character that is not shown as itself: it steers a terminal, or the text around it.
pub fn steers(c: char) -> bool {
    c.is_control() || (c > '\u{ac}' && FORMAT.iter().any(|range| range.contains(&c)))
}

/// `bytes` as they may be shown to people.
pub fn shown(bytes: &[u8]) -> String {
    plain(&String::from_utf8_lossy(bytes))
}

/// `text` as it may be shown to people.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_steers_is_escaped_and_words_are_not() {
        assert_eq!(shown("schön 文 🙂".as_bytes()), "schön 文 🙂");
        assert_eq!(shown(b"a\x1b[2Jb\r\nc\xff"), "a\\u{1b}[2Jb\\r\\nc\u{fffd}");
        assert_eq!(plain("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(plain("a\u{202e}txt.exe"), "a\\u{202e}txt.exe");
    }

    #[test]
    fn every_bidirectional_control_and_separator_is_escaped() {
        let bidi = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{feff}'];
        let ranges = ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        for c in ranges.chain(bidi).chain(['\u{2028}', '\u{2029}', '\u{7f}']) {
            assert_eq!(plain(&c.to_string()), c.escape_default().to_string());
        }
    }

    proptest! {
        #[test]
        fn nothing_shown_steers(text in any::<String>(), bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(!plain(&text).contains(steers));
            prop_assert!(!shown(&bytes).contains(steers));
        }

        #[test]
        fn every_format_character_is_found(range in 0..FORMAT.len(), pick in any::<prop::sample::Index>()) {
            let all: Vec<char> = FORMAT[range].clone().collect();
            let c = all[pick.index(all.len())];
            let shown = plain(&format!("a{c}b"));
            prop_assert!(shown.is_ascii() && shown.len() > 3, "{shown}");
        }
    }
}
