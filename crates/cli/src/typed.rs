//! What was typed for a number or an address? The parsers that commands share, with the fix in their
//! complaints.

use std::{net::SocketAddr, ops::RangeInclusive, time::Duration};

/// A whole number within `range`.
pub(crate) fn whole(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|n| range.contains(n));
        number.ok_or_else(|| {
            format!(
                "give a whole number from {} to {}",
                range.start(),
                range.end()
            )
        })
    }
}

/// Any seed.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    whole(0..=u64::MAX)(text)
}

/// A time with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    farhaul_link::duration(text).map_err(|e| e.to_string())
}

/// An address of this machine or another, with its port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write ADDRESS:PORT with numbers, as in 127.0.0.1:17992 or [::]:17992".to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_correct_form() {
        assert_eq!(whole(3..=60)("5"), Ok(5));
        for bad in ["2", "61", "1.5", "x", "-4", ""] {
            let e = whole(3..=60)(bad).unwrap_err();
            assert_eq!(e, "give a whole number from 3 to 60", "{bad}");
        }
        assert_eq!(seed("0"), Ok(0));
        assert!(seed("-1").is_err());
        assert!(address("[::]:5").is_ok());
        assert!(
            address("localhost:5")
                .unwrap_err()
                .contains("127.0.0.1:17992")
        );
    }
}
