//! Parses numbers and addresses that were typed. Commands share the parsers, which have the fix in
//! their complaints.

use std::{
    io,
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    ops::RangeInclusive,
    time::Duration,
};

use farhaul_core::units::{Rate, Size};

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

/// Parses a seed.
#[cfg(feature = "lab")]
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    whole(0..=u64::MAX)(text)
}

/// A rate, or "unlimited".
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    if text == "unlimited" {
        return Ok(Rate::UNLIMITED);
    }
    text.parse().map_err(|e| format!("{e}"))
}

/// A highest rate, at which a datagram does not take seconds.
pub(crate) fn limit(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|e| format!("{e}"))?;
    if rate < Rate::from_bps(100_000) {
        return Err("give at least 100kbit: below it a single datagram takes seconds".into());
    }
    Ok(rate)
}

/// A time with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    farhaul_link::duration(text).map_err(|e| e.to_string())
}

/// A number of seconds within `range`, with or without a unit.
#[cfg(feature = "lab")]
pub(crate) fn seconds(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let whole = |time: Duration| (time.subsec_nanos() == 0).then_some(time.as_secs());
        let with_unit = || whole(farhaul_link::duration(text).ok()?);
        let number = text.parse().ok().or_else(with_unit);
        number.filter(|n| range.contains(n)).ok_or_else(|| {
            format!(
                "give a whole number of seconds from {} to {}",
                range.start(),
                range.end()
            )
        })
    }
}

/// A time that is in seconds if it has no unit, as in iperf3.
pub(crate) fn bare_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.0..=1e6).contains(&s) => Ok(Duration::from_secs_f64(s)),
        Ok(_) => Err("give 0 to 1000000 seconds".into()),
        Err(_) => duration(text),
    }
}

/// A number of bytes, with or without a unit.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    match text.parse::<Size>() {
        Ok(size) if size.bytes() > 0 => Ok(size.bytes()),
        Ok(_) => Err("give at least one byte".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// An address of this machine or another, with its port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = "write ADDRESS:PORT, as in 127.0.0.1:17992, [::]:17992 or localhost:17992";
    match text.parse() {
        Ok(address) => Ok(address),
        Err(_) if !text.contains(':') || text.parse::<Ipv6Addr>().is_ok() => Err(wrong.into()),
        Err(_) => match text.to_socket_addrs().map(|mut found| found.next()) {
            Ok(Some(address)) => Ok(address),
            Ok(None) => Err("that name has no address".into()),
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Err(wrong.into()),
            Err(e) => Err(format!("{e}; {wrong}")),
        },
    }
}

/// An address to listen on; a port alone is one of every address.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let every = |port| SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    text.parse().map(every).or_else(|_| address(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_be_bare_seconds() {
        assert_eq!(bare_seconds("2.5"), Ok(Duration::from_millis(2_500)));
        assert_eq!(bare_seconds("300ms"), Ok(Duration::from_millis(300)));
        for bad in ["-1", "NaN", "soon"] {
            assert!(bare_seconds(bad).is_err(), "{bad}");
        }
        assert!(size("0").is_err() && size("1Gbit").is_err());
    }

    #[test]
    fn errors_name_the_correct_form() {
        assert_eq!(whole(3..=60)("5"), Ok(5));
        for bad in ["2", "61", "1.5", "x", "-4", ""] {
            let e = whole(3..=60)(bad).unwrap_err();
            assert_eq!(e, "give a whole number from 3 to 60", "{bad}");
        }
        for good in ["30", "30s", "0.5min", "30000ms"] {
            assert_eq!(seconds(3..=60)(good), Ok(30), "{good}");
        }
        for bad in ["2", "61s", "3.5", "3500ms", "x", "-4"] {
            let e = seconds(3..=60)(bad).unwrap_err();
            assert_eq!(e, "give a whole number of seconds from 3 to 60", "{bad}");
        }
        assert_eq!(seed("0"), Ok(0));
        assert!(seed("-1").is_err());
        assert!(address("[::]:5").is_ok());
        assert!(address("localhost:5").unwrap().ip().is_loopback());
        for bad in ["5", "localhost", "", "::1", "h:x", "h:99999"] {
            let e = address(bad).unwrap_err();
            assert!(e.contains("127.0.0.1:17992"), "{bad}: {e}");
        }
        assert!(limit("100kbit").is_ok());
        for bad in ["1bit", "99kbit", "x", "0"] {
            assert!(limit(bad).is_err(), "{bad}");
        }
        assert_eq!(listen("5"), address("[::]:5"));
        assert_eq!(listen("127.0.0.1:5"), address("127.0.0.1:5"));
        assert!(listen("99999").is_err());
    }
}
