//! Checks that any line is parsed correctly, or refused, for the fuzz target `ssh_lines` and tests
//! on stable.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

use super::lines::{
    Answer, Ask, Hello, MAGIC, NoAnswer, Order, Report, all_from_hex, read_answer, read_ask,
    read_report, to_hex,
};

/// Parses any bytes as a line of any end; a parsed line is encoded again and parsed identically.
pub(crate) fn any_line(bytes: &[u8]) {
    let ours = [MAGIC.as_bytes(), bytes].concat();
    for said in [bytes, &ours] {
        any_answer::<Answer>(said);
        any_answer::<Hello>(said);
        if let Some(ask) = any_ask::<Ask>(said) {
            any_hex(&ask.paths);
        }
        if let Some(order) = any_ask::<Order>(said) {
            any_hex(&order.sources);
        }
    }
    match read_report(&mut &*bytes) {
        Ok(Some(Report::Said(said))) => {
            let again = serde_json::to_string(&said).expect("what was read can be written");
            let again = read_report(&mut format!("{again}\n").as_bytes());
            assert_eq!(again.ok(), Some(Some(Report::Said(said))));
        }
        Ok(Some(Report::Chunk(chunk))) => assert!(chunk.len() + 5 <= bytes.len()),
        Ok(None) | Err(_) => {}
    }
}

fn line_of(of: &impl Serialize) -> String {
    let line = serde_json::to_string(of).expect("what was read can be written");
    format!("{MAGIC}{line}\n")
}

fn any_answer<T: Serialize + DeserializeOwned + PartialEq + Debug>(said: &[u8]) {
    match read_answer::<T>(&mut &*said) {
        Ok(answer) => {
            let again = line_of(&answer);
            assert_eq!(read_answer(&mut again.as_bytes()).ok(), Some(answer));
        }
        // Bytes that are not text become three bytes each, and the reason may quote them.
        Err(NoAnswer::Noise(noise)) => assert!(noise.len() <= 6 * said.len() + 300),
        Err(NoAnswer::Version(version)) => assert!(version.chars().count() <= 20),
    }
}

fn any_ask<T: Serialize + DeserializeOwned + PartialEq + Debug>(said: &[u8]) -> Option<T> {
    let ask = read_ask::<T>(&mut &*said).ok()?;
    let again = line_of(&ask);
    assert_eq!(read_ask(&mut again.as_bytes()).ok().as_ref(), Some(&ask));
    Some(ask)
}

fn any_hex(texts: &[String]) {
    let Some(all) = all_from_hex(texts) else {
        return;
    };
    for (bytes, hex) in all.iter().zip(texts) {
        assert_eq!(to_hex(bytes), hex.to_lowercase());
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
            any_line(format!(r#"{{"flags":["{hex}"],"sources":["{hex}"],"to":{{"ticket":"{hex}"}}}}"#).as_bytes());
            any_line(format!("{{\"event\":{{\"a\":[{port}]}}}}\n").as_bytes());
            any_line(format!("{{\"end\":{{\"code\":{port},\"text\":\"{hex}\"}}}}\n").as_bytes());
        }
    }
}
