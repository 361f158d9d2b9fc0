//! What time of what day is it? As people and programs write it (RFC 3339).

use farhaul_io::clock;

/// Seconds since 1970 as a date and time in UTC.
pub(crate) fn utc(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds)
        .unwrap_or(jiff::Timestamp::MAX)
        .to_string()
}

/// Now, to the millisecond.
pub(crate) fn now() -> String {
    let now = jiff::Timestamp::from_duration(clock::since_1970().try_into().unwrap_or_default());
    format!("{:.3}", now.unwrap_or(jiff::Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_standard() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(1_700_000_000), "2023-11-14T22:13:20Z");
        assert!(utc(u64::MAX).starts_with("9999-12-30"));
    }
}
