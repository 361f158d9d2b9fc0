//! Writes and reads times as people and programs do (RFC 3339).

use std::time::Duration;

use farhaul_io::clock;

/// Seconds since 1970 as a date and time in UTC.
pub(crate) fn utc(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds)
        .unwrap_or(jiff::Timestamp::MAX)
        .to_string()
}

/// A time since 1970 in UTC, to the minute.
pub(crate) fn utc_minute(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%d %H:%M").to_string()
}

/// A time since 1970 in UTC, to the nanosecond.
pub(crate) fn utc_nanos((seconds, nanos): (i64, u32)) -> String {
    let time = jiff::Timestamp::new(seconds, nanos.try_into().unwrap_or_default());
    time.unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// A duration in its two largest units, from days to seconds.
pub(crate) fn rough(time: Duration) -> String {
    let s = time.as_secs();
    match (s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

/// Time now, to the millisecond.
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
        assert_eq!(utc_minute(1_700_000_000), "2023-11-14 22:13");
        for (seconds, text) in [
            (9, "9 s"),
            (80, "1 min 20 s"),
            (8_000, "2 h 13 min"),
            (800_000, "9 d 6 h"),
        ] {
            assert_eq!(rough(Duration::from_secs(seconds)), text);
        }
        assert_eq!(utc_nanos((0, 5)), "1970-01-01T00:00:00.000000005Z");
    }
}
