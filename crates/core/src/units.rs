//! Rates and sizes: [`Rate`] is bit/s and [`Size`] is bytes, both 64 bits, with exact conversions
//! between bytes and time. Parsing insists on a unit, so `100` is never a rate.

use std::{
    fmt,
    ops::{Add, AddAssign, Sub},
    str::FromStr,
    time::Duration,
};

use crate::time::nanos;

/// Bits in a byte times ns in a second. What fits 64 bits is divided there: 128 bits cost ten times more.
const PER_BYTE: u64 = 8_000_000_000;

/// A data rate in bit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// No limit.
    pub const UNLIMITED: Self = Self(u64::MAX);
    /// Rate of nothing.
    pub const ZERO: Self = Self(0);

    /// A rate in bit/s.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// A rate in Gbit/s.
    pub const fn gbit(g: u64) -> Self {
        Self(g * 1_000_000_000)
    }

    /// A rate in Mbit/s.
    pub const fn mbit(m: u64) -> Self {
        Self(m * 1_000_000)
    }

    /// A rate from a float in bit/s; negative and NaN become zero, huge becomes unlimited.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float-to-int `as` saturates, which is what is documented"
    )]
    #[inline]
    pub fn from_f64(bps: f64) -> Self {
        Self(bps as u64)
    }

    /// bit/s.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// bit/s as a float, for laws and reports.
    #[expect(clippy::cast_precision_loss, reason = "a rate is not exact to 2^-53")]
    #[inline]
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// The rate of `bytes` over `d`; unlimited over no time.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to u64::MAX first")]
    #[inline]
    pub fn of(bytes: u64, d: Duration) -> Self {
        let ns = nanos(d);
        if ns == 0 {
            return Self::UNLIMITED;
        }
        if let Some(bits) = bytes.checked_mul(PER_BYTE) {
            return Self(bits / ns);
        }
        let bps = u128::from(bytes) * u128::from(PER_BYTE) / u128::from(ns);
        Self(bps.min(u128::from(u64::MAX)) as u64)
    }

    /// Time to send `bytes`, rounded down to the ns; links that must not drift carry the remainder
    /// themselves. A zero rate takes for ever.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to u64::MAX first")]
    #[inline]
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::from_nanos(u64::MAX);
        }
        if let Some(bits) = bytes.checked_mul(PER_BYTE) {
            return Duration::from_nanos(bits / self.0);
        }
        let ns = u128::from(bytes) * u128::from(PER_BYTE) / u128::from(self.0);
        Duration::from_nanos(ns.min(u128::from(u64::MAX)) as u64)
    }

    /// Bytes sent in `d`, rounded down.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to u64::MAX first")]
    #[inline]
    pub fn bytes_in(self, d: Duration) -> u64 {
        if let Some(bits) = self.0.checked_mul(nanos(d)) {
            return bits / PER_BYTE;
        }
        let bytes = u128::from(self.0) * u128::from(nanos(d)) / u128::from(PER_BYTE);
        bytes.min(u128::from(u64::MAX)) as u64
    }

    /// True if a limit of `most` explains this rate: starts and headers take some of it.
    pub fn is_near(self, most: Self) -> bool {
        self.as_f64() >= most.as_f64() * 0.85
    }

    /// Multiplies the rate by `factor`.
    #[must_use]
    #[inline]
    pub fn scale(self, factor: f64) -> Self {
        if self == Self::UNLIMITED {
            self
        } else {
            Self::from_f64(self.as_f64() * factor)
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = self.as_f64();
        match self.0 {
            u64::MAX => f.write_str("unlimited"),
            1_000_000_000.. => write!(f, "{:.2} Gbit/s", bps / 1e9),
            1_000_000.. => write!(f, "{:.1} Mbit/s", bps / 1e6),
            1_000.. => write!(f, "{:.1} kbit/s", bps / 1e3),
            _ => write!(f, "{bps} bit/s"),
        }
    }
}

/// An amount of data in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

impl Size {
    /// No limit.
    pub const UNLIMITED: Self = Self(u64::MAX);
    /// Size of nothing.
    pub const ZERO: Self = Self(0);

    /// A size in bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Add for Size {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Size {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Size {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Size {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.0 as f64;
        match self.0 {
            u64::MAX => f.write_str("unlimited"),
            0x4000_0000.. => write!(f, "{:.2} GiB", b / f64::from(1 << 30)),
            0x10_0000.. => write!(f, "{:.1} MiB", b / f64::from(1 << 20)),
            0x400.. => write!(f, "{:.1} KiB", b / 1024.0),
            _ => write!(f, "{b} B"),
        }
    }
}

/// Reason to refuse a quantity that a person typed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseUnitError {
    /// A bare number.
    #[error("{0} what? a unit is needed: write {1}")]
    NoUnit(String, String),
    /// A unit that could be read as bits or as bytes.
    #[error("'{0}' could mean bits or bytes: write {1}")]
    Ambiguous(String, String),
    /// The text is not a number, or has an unknown unit.
    #[error("'{0}' is not {1}")]
    Malformed(String, &'static str),
    /// Outside what can be represented.
    #[error("'{0}' is out of range: {1}")]
    OutOfRange(String, &'static str),
}

/// Splits `10.5Gbit` into its value and unit; refuses signs, exponents, NaN.
fn split(text: &str, what: &'static str) -> Result<(f64, String), ParseUnitError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() && unit.starts_with('-') {
        return Err(ParseUnitError::OutOfRange(
            text.into(),
            "it must not be negative",
        ));
    }
    let value = number
        .parse()
        .map_err(|_| ParseUnitError::Malformed(text.into(), what))?;
    Ok((value, unit.trim().to_string()))
}

/// 10^3k or 2^10k for the prefix of `unit`, and the rest of the unit.
fn prefix(unit: &str) -> (f64, &str) {
    let Some(first) = unit.chars().next() else {
        return (1.0, unit);
    };
    let Some(power) = "kmgtp".find(first.to_ascii_lowercase()) else {
        return (1.0, unit);
    };
    let power = i32::try_from(power).unwrap_or_default() + 1;
    match unit[1..].strip_prefix('i') {
        Some(rest) => (1024f64.powi(power), rest),
        None => (1000f64.powi(power), &unit[1..]),
    }
}

impl FromStr for Rate {
    type Err = ParseUnitError;

    /// `10Gbit`, `900MB`, `1GiB`, `2.5Gbit/s`, `800Mbps`; the second is implied.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        const WHAT: &str = "a rate such as 8Gbit, 900MB or 1GiB";
        let (value, unit) = split(text, WHAT)?;
        if unit.is_empty() {
            return Err(ParseUnitError::NoUnit(
                text.into(),
                format!("{text}Mbit or {text}MB"),
            ));
        }
        let bare = unit
            .strip_suffix("/s")
            .or_else(|| unit.strip_suffix("ps"))
            .unwrap_or(&unit);
        let (scale, base) = prefix(bare);
        let bits = match base {
            "" => {
                let advice = format!("{text}bit or {text}B");
                return Err(ParseUnitError::Ambiguous(text.into(), advice));
            }
            "b" | "bit" | "bits" => value * scale,
            "B" | "Byte" | "Bytes" => value * scale * 8.0,
            _ => return Err(ParseUnitError::Malformed(text.into(), WHAT)),
        };
        if !(1.0..=1e15).contains(&bits) {
            return Err(ParseUnitError::OutOfRange(
                text.into(),
                "from 1bit to 1000Tbit per second",
            ));
        }
        Ok(Self::from_f64(bits))
    }
}

impl FromStr for Size {
    type Err = ParseUnitError;

    /// `18MB`, `4GiB`, `1.5G` (decimal), `512B`, `4096` (bytes need no unit).
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "range-checked before the cast"
    )]
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        const WHAT: &str = "a size such as 18MB, 4GiB or 512B";
        let (value, unit) = split(text, WHAT)?;
        let (scale, base) = prefix(&unit);
        if !matches!(base, "" | "B") {
            return Err(ParseUnitError::Malformed(text.into(), WHAT));
        }
        let bytes = value * scale;
        if !(0.0..=9e18).contains(&bytes) {
            return Err(ParseUnitError::OutOfRange(text.into(), "from 0 to 9EB"));
        }
        Ok(Self(bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_need_a_unit_that_cannot_be_misread() {
        assert_eq!("10Gbit".parse(), Ok(Rate::gbit(10)));
        assert_eq!("2.5Gbit/s".parse(), Ok(Rate::mbit(2_500)));
        assert_eq!("800Mbps".parse(), Ok(Rate::mbit(800)));
        assert_eq!("1MiB".parse(), Ok(Rate::from_bps(8 << 20)));
        assert_eq!("900MB".parse(), Ok(Rate::mbit(7_200)));
        assert!(matches!(
            "100".parse::<Rate>(),
            Err(ParseUnitError::NoUnit(..))
        ));
        assert!(matches!(
            "1.5G".parse::<Rate>(),
            Err(ParseUnitError::Ambiguous(..))
        ));
        for bad in ["", "fast", "1e9bit", "NaN", "10Xbit", "1..2Mbit"] {
            assert!(
                matches!(bad.parse::<Rate>(), Err(ParseUnitError::Malformed(..))),
                "{bad}"
            );
        }
        for bad in ["-1Gbit", "0bit", "10Pbit"] {
            assert!(
                matches!(bad.parse::<Rate>(), Err(ParseUnitError::OutOfRange(..))),
                "{bad}"
            );
        }
    }

    #[test]
    fn sizes_are_bytes() {
        assert_eq!("18MB".parse(), Ok(Size::from_bytes(18_000_000)));
        assert_eq!("1.5G".parse(), Ok(Size::from_bytes(1_500_000_000)));
        assert_eq!("4GiB".parse(), Ok(Size::from_bytes(4 << 30)));
        assert_eq!("4096".parse(), Ok(Size::from_bytes(4096)));
        assert!("4Gbit".parse::<Size>().is_err());
    }

    #[test]
    fn conversions_do_not_overflow_at_the_edges() {
        assert_eq!(Rate::gbit(10).time_for(1_500), Duration::from_nanos(1_200));
        assert_eq!(
            Rate::gbit(400).bytes_in(Duration::from_secs(1)),
            50_000_000_000
        );
        assert_eq!(Rate::of(1_500, Duration::from_nanos(1_200)), Rate::gbit(10));
        assert_eq!(Rate::UNLIMITED.time_for(u64::MAX), Duration::from_secs(8));
        assert_eq!(Rate::ZERO.time_for(1), Duration::from_nanos(u64::MAX));
        assert_eq!(Rate::from_f64(f64::NAN), Rate::ZERO);
    }
}
