//! Units in which figures are counted.

use farhaul_core::units::{Rate, Size};
use serde::{Deserialize, Serialize};

/// Unit in which a figure is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// bit/s.
    #[serde(rename = "bit/s")]
    Rate,
    /// Bytes.
    #[serde(rename = "bytes", alias = "byte")]
    Bytes,
    /// A share, 0 to 1.
    #[serde(rename = "share")]
    Share,
    /// A plain number.
    #[serde(
        rename = "ratio",
        alias = "count",
        alias = "packet",
        alias = "packets",
        alias = "bit"
    )]
    Number,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
    /// Per cent.
    #[serde(rename = "%")]
    Percent,
    /// Microseconds.
    #[serde(rename = "us")]
    Micros,
    /// KiB of feedback per GiB of payload.
    #[serde(rename = "KiB/GiB")]
    KibPerGib,
    /// Per cent of one core per Gbit/s.
    #[serde(rename = "%/Gbps")]
    PercentPerGbps,
    /// Seconds of one core per GiB of payload.
    #[serde(rename = "s/GiB")]
    SecondsPerGib,
    /// MHz of processor per Mbit/s.
    #[serde(rename = "MHz/Mbps")]
    MhzPerMbps,
    /// Hertz.
    #[serde(rename = "Hz")]
    Hertz,
    /// Metres.
    #[serde(rename = "m")]
    Metres,
}

/// Names of units in which figures are shown: the unit, the name, and how many base units it has.
const SHOWN: [(Unit, &str, f64); 31] = [
    (Unit::Rate, "bit/s", 1.0),
    (Unit::Rate, "kbit/s", 1e3),
    (Unit::Rate, "Mbit/s", 1e6),
    (Unit::Rate, "Gbit/s", 1e9),
    (Unit::Bytes, "bytes", 1.0),
    (Unit::Bytes, "kB", 1e3),
    (Unit::Bytes, "MB", 1e6),
    (Unit::Bytes, "GB", 1e9),
    (Unit::Bytes, "KiB", 1_024.0),
    (Unit::Bytes, "MiB", 1_048_576.0),
    (Unit::Bytes, "segments", 1_448.0),
    (Unit::Share, "%", 0.01),
    (Unit::Share, "share", 1.0),
    (Unit::Percent, "%", 1.0),
    (Unit::Number, "ratio", 1.0),
    (Unit::Number, "packets", 1.0),
    (Unit::Seconds, "s", 1.0),
    (Unit::Seconds, "ms", 1e-3),
    (Unit::Millis, "ms", 1.0),
    (Unit::Millis, "s", 1e3),
    (Unit::Micros, "us", 1.0),
    (Unit::Micros, "ms", 1e3),
    (Unit::KibPerGib, "KiB/GiB", 1.0),
    (Unit::KibPerGib, "MiB/GiB", 1_024.0),
    (Unit::PercentPerGbps, "%/Gbps", 1.0),
    (Unit::SecondsPerGib, "s/GiB", 1.0),
    (Unit::MhzPerMbps, "MHz/Mbps", 1.0),
    (Unit::Hertz, "MHz", 1e6),
    (Unit::Hertz, "GHz", 1e9),
    (Unit::Metres, "m", 1.0),
    (Unit::Metres, "km", 1e3),
];

impl Unit {
    /// Parses a value as written in scenarios: a rate or size with its unit, a share, or a number.
    pub(crate) fn parse(self, text: &str) -> Result<f64, String> {
        match self {
            Self::Rate => text
                .parse::<Rate>()
                .map(Rate::as_f64)
                .map_err(|e| e.to_string()),
            Self::Bytes => text
                .parse::<Size>()
                .map(|size| crate::scenario::exact(size.bytes()))
                .map_err(|e| e.to_string()),
            Self::Share => farhaul_link::share(text).map_err(|e| e.to_string()),
            _ => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(number),
                _ => Err(format!("'{text}' is not a number")),
            },
        }
    }

    /// Divisor of values to be shown in the unit called `name`.
    pub(crate) fn divisor(self, name: &str) -> Result<f64, String> {
        let of = SHOWN.iter().filter(|(unit, ..)| *unit == self);
        let found = of.clone().find(|(_, known, _)| *known == name);
        found
            .map(|(.., divisor)| *divisor)
            .ok_or_else(|| crate::scenario::unknown("unit", name, of.map(|(_, known, _)| *known)))
    }

    /// Name of the unit on an axis, and the divisor of values for it.
    pub const fn scale(self) -> (&'static str, f64) {
        match self {
            Self::Rate => ("Mbit/s", 1e6),
            Self::Bytes => ("KiB", 1_024.0),
            Self::Share => ("%", 0.01),
            Self::Number => ("", 1.0),
            Self::Seconds => ("s", 1.0),
            Self::Millis => ("ms", 1.0),
            Self::Micros => ("us", 1.0),
            Self::Percent => ("%", 1.0),
            Self::KibPerGib => ("KiB/GiB", 1.0),
            Self::PercentPerGbps => ("% of a core per Gbit/s", 1.0),
            Self::SecondsPerGib => ("s of a core per GiB", 1.0),
            Self::MhzPerMbps => ("MHz per Mbit/s", 1.0),
            Self::Hertz => ("MHz", 1e6),
            Self::Metres => ("km", 1e3),
        }
    }

    /// The value as people read it, with three or more digits; a time without end is never.
    pub fn show(self, value: f64) -> String {
        self.with(value, 0)
    }

    /// The value with up to three digits more, if these tell it from the `others` that it is not
    /// equal to.
    pub fn show_apart(self, value: f64, others: impl IntoIterator<Item = f64>) -> String {
        let unequal = |other: &f64| (other - value).abs() > 0.0;
        let others: Vec<f64> = others.into_iter().filter(unequal).collect();
        let differs = |more: &usize| {
            let own = self.with(value, *more);
            others.iter().all(|other| self.with(*other, *more) != own)
        };
        self.with(value, (0..=3).find(differs).unwrap_or(0))
    }

    fn with(self, value: f64, more: usize) -> String {
        if value == f64::INFINITY {
            return "never".into();
        }
        let (name, divisor) = match self {
            Self::Rate if value.abs() >= 1e9 => ("Gbit/s", 1e9),
            Self::PercentPerGbps => ("%/Gbps", 1.0),
            Self::SecondsPerGib => ("s/GiB", 1.0),
            Self::MhzPerMbps => ("MHz/Mbps", 1.0),
            unit => unit.scale(),
        };
        let text = digits(value / divisor, more);
        if name.is_empty() {
            text
        } else {
            format!("{text} {name}")
        }
    }
}

/// Three digits, or all before the point; and so many `more`.
fn digits(value: f64, more: usize) -> String {
    let decimals = match value.abs() {
        x if x >= 99.95 || x == 0.0 => 0,
        x if x >= 9.995 => 1,
        x if x >= 0.099_95 => 2,
        _ => 4,
    };
    let decimals = decimals + more;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_of_what_is_counted_so() {
        assert_eq!(Unit::Share.divisor("%"), Ok(0.01));
        assert_eq!(Unit::Percent.divisor("%"), Ok(1.0));
        assert_eq!(Unit::Seconds.divisor("ms"), Ok(1e-3));
        assert!(Unit::Rate.divisor("ms").unwrap_err().contains("Gbit/s"));
    }

    #[test]
    fn figures_that_differ_are_shown_with_different_digits() {
        let bounds = [1.002_57, 1.004_57];
        for (unit, value, others, text) in [
            (Unit::Number, 1.004_94, &bounds[..], "1.0049"),
            (Unit::Number, 1.5, &bounds, "1.5"),
            (Unit::Number, 1.0, &[1.0], "1"),
            (Unit::Rate, 3.558_7e9, &[3.56e9], "3.559 Gbit/s"),
            (Unit::Seconds, f64::INFINITY, &[f64::INFINITY, 1.0], "never"),
            (Unit::Number, 1.0, &[1.000_000_001], "1"),
        ] {
            assert_eq!(unit.show_apart(value, others.iter().copied()), text);
        }
    }

    #[test]
    fn figures_have_three_digits_and_their_unit() {
        for (unit, value, text) in [
            (Unit::Rate, 3.558_7e9, "3.56 Gbit/s"),
            (Unit::Rate, 94.4e6, "94.4 Mbit/s"),
            (Unit::Share, 0.031, "3.1 %"),
            (Unit::Number, 1.0, "1"),
            (Unit::Number, 6_215.2, "6215"),
            (Unit::KibPerGib, 37.0, "37 KiB/GiB"),
            (Unit::PercentPerGbps, 28.1, "28.1 %/Gbps"),
            (Unit::SecondsPerGib, 2.5, "2.5 s/GiB"),
            (Unit::Number, 0.0, "0"),
            (Unit::Number, 0.01234, "0.0123"),
            (Unit::Millis, 999.95, "1000 ms"),
        ] {
            assert_eq!(unit.show(value), text);
        }
    }
}
