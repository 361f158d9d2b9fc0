//! Is any line parsed correctly, or refused? What the fuzz target `ssh_lines` does, and tests on stable.

use super::lines::{MAGIC, NoAnswer, all_from_hex, read_answer, read_ask, to_hex};

/// Parses any bytes as a line of either end; a parsed line is encoded again and parsed identically.
pub(crate) fn any_line(bytes: &[u8]) {
    let json = |line: Result<String, serde_json::Error>| {
        let line = line.expect("what was read can be written");
        format!("{MAGIC}{line}\n")
    };
    let ours = [MAGIC.as_bytes(), bytes].concat();
    for said in [bytes, &ours] {
        match read_answer(&mut &said[..]) {
            Ok(answer) => {
                let again = json(serde_json::to_string(&answer));
                assert_eq!(read_answer(&mut again.as_bytes()).ok(), Some(answer));
            }
            // What is not text becomes three bytes each, and may be quoted by the reason why.
            Err(NoAnswer::Noise(noise)) => assert!(noise.len() <= 6 * said.len() + 300),
            Err(NoAnswer::Version(version)) => assert!(version.chars().count() <= 20),
        }
        if let Ok(ask) = read_ask(&mut &said[..]) {
            if let Some(paths) = all_from_hex(&ask.paths) {
                let same = |(path, hex): (&Vec<u8>, &String)| {
                    assert_eq!(to_hex(path), hex.to_lowercase());
                };
                paths.iter().zip(&ask.paths).for_each(same);
            }
            let again = json(serde_json::to_string(&ask));
            assert_eq!(read_ask(&mut again.as_bytes()).ok(), Some(ask));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_line_is_understood_the_same_again(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            hex in "[0-9a-fA-F+é]{0,8}",
            put: bool,
            port: u32,
        ) {
            any_line(&bytes);
            any_line(format!(r#"{{"key":"k","put":{put},"paths":["{hex}"],"ports":[1,{port}]}}"#).as_bytes());
            any_line(format!(r#"{{"port":{port},"key":"{hex}","paths":[]}}"#).as_bytes());
        }
    }
}
