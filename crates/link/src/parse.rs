//! Parses the short forms of a path, as people write them on the command line and in scenario
//! files. Every quantity carries its unit, and an error names the accepted form.

use std::{str::FromStr, time::Duration};

use farhaul_core::units::{ParseUnitError, Size};

use crate::{
    config::{Aqm, Jitter, Policer, QueueLimit, Reorder, Router, Step, Window},
    loss::Loss,
};

/// Reason to refuse a part of a path that a person typed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A bare number.
    #[error("{0} what? a unit is needed: write {1}")]
    NoUnit(String, String),
    /// The text is not in the expected form.
    #[error("'{0}' is not {1}")]
    Malformed(String, &'static str),
    /// Outside what makes sense.
    #[error("'{0}' is out of range: {1}")]
    OutOfRange(String, &'static str),
    /// A rate or size was refused.
    #[error(transparent)]
    Unit(#[from] ParseUnitError),
    /// A foreign character in a loss trace, and its line.
    #[error("'{0}' in line {1} of the loss trace: use . or 0 for arrived, x or 1 for lost")]
    Trace(char, usize),
    /// A loss trace without packets.
    #[error("the loss trace is empty: give one . or x per packet")]
    EmptyTrace,
    /// No preset has this name.
    #[error("no path is called '{0}': known are {1}")]
    UnknownPreset(String, String),
}

fn malformed(text: &str, what: &'static str) -> ParseError {
    ParseError::Malformed(text.into(), what)
}

/// Splits the leading number off its unit; refuses signs, exponents and NaN.
fn number<'a>(text: &'a str, what: &'static str) -> Result<(f64, &'a str), ParseError> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(ParseError::OutOfRange(
            text.into(),
            "it must not be negative",
        ));
    }
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (value, unit) = text.split_at(end);
    let value = value.parse().map_err(|_| malformed(text, what))?;
    Ok((value, unit.trim()))
}

/// `100ms`, `1.5s`, `20us`, `500ns`, `2min`, `24h`, `7d`, or `0`.
pub fn duration(text: &str) -> Result<Duration, ParseError> {
    const WHAT: &str = "a duration such as 100ms, 1.5s or 24h (units: ns, us, ms, s, min, h, d)";
    let (value, unit) = number(text, WHAT)?;
    let seconds = match unit {
        "ns" => value / 1e9,
        "us" | "µs" => value / 1e6,
        "ms" => value / 1e3,
        "s" => value,
        "min" => value * 60.0,
        "h" => value * 3_600.0,
        "d" => value * 86_400.0,
        "" if value == 0.0 => 0.0,
        "" => {
            let advice = format!("{value}ms or {value}s");
            return Err(ParseError::NoUnit(text.into(), advice));
        }
        _ => return Err(malformed(text, WHAT)),
    };
    if seconds > 1e9 {
        return Err(ParseError::OutOfRange(text.into(), "at most 1000000000s"));
    }
    // Rounded to the ns: 0.1 ms is 100,000 ns, not 99,999.
    Ok(Duration::from_secs_f64(seconds + 0.49e-9))
}

/// `1%`, `0.05%`, or `0`, as a fraction.
pub fn share(text: &str) -> Result<f64, ParseError> {
    const WHAT: &str = "a share such as 1% or 0.05%";
    let (value, unit) = number(text, WHAT)?;
    match unit {
        "%" if value <= 100.0 => Ok(value / 100.0),
        "%" => Err(ParseError::OutOfRange(text.into(), "0% to 100%")),
        "" if value == 0.0 => Ok(0.0),
        "" => {
            // Simulators write shares as fractions, tc in percent.
            let percent = (value * 1e6).round() / 1e4;
            let advice = if value > 0.0 && value < 1.0 {
                format!("{value}%, or {percent}% for that fraction")
            } else {
                format!("{value}%")
            };
            Err(ParseError::NoUnit(text.into(), advice))
        }
        _ => Err(malformed(text, WHAT)),
    }
}

impl FromStr for Loss {
    type Err = ParseError;

    /// `1%`, `0`, or `ge:MEAN,BURST` as in `ge:0.1%,8`: bursts of 8 packets on average.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        const WHAT: &str = "a loss such as 1% or ge:0.1%,8 (mean, packets per burst)";
        let Some(bursts) = text.strip_prefix("ge:") else {
            let p = share(text).map_err(|error| match error {
                ParseError::Malformed(text, _) => ParseError::Malformed(text, WHAT),
                other => other,
            })?;
            return Ok(if p > 0.0 { Self::Random(p) } else { Self::None });
        };
        let (mean, burst) = bursts.split_once(',').ok_or(malformed(text, WHAT))?;
        let mean = share(mean)?;
        let burst: f64 = burst.trim().parse().map_err(|_| malformed(text, WHAT))?;
        if !(1.0..=1e6).contains(&burst) {
            let range = "a burst is 1 to 1000000 packets";
            return Err(ParseError::OutOfRange(text.into(), range));
        }
        if mean >= burst / (burst + 1.0) {
            let range = "bursts so short cannot lose so much";
            return Err(ParseError::OutOfRange(text.into(), range));
        }
        Ok(Self::bursts(mean, burst))
    }
}

impl FromStr for QueueLimit {
    type Err = ParseError;

    /// A size (`18MB`) or a time (`50ms`).
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Ok(wait) = duration(text) {
            return Ok(if wait.is_zero() {
                Self::Bytes(Size::ZERO)
            } else {
                Self::Time(wait)
            });
        }
        let what = "a queue such as 18MB or 50ms";
        text.parse()
            .map(Self::Bytes)
            .map_err(|error: ParseUnitError| match error {
                ParseUnitError::Malformed(text, _) => ParseError::Malformed(text, what),
                other => other.into(),
            })
    }
}

impl FromStr for Policer {
    type Err = ParseError;

    /// `RATE,BURST` as in `5Gbit,1MB`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let what = "a policer RATE,BURST such as 5Gbit,1MB";
        let (rate, burst) = text.split_once(',').ok_or(malformed(text, what))?;
        Ok(Self {
            rate: rate.parse()?,
            burst: burst.parse()?,
        })
    }
}

impl FromStr for Jitter {
    type Err = ParseError;

    /// `5ms`, or `5ms,reorder` if packets may overtake each other.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (spread, reorder) = match text.split_once(',') {
            None => (text, false),
            Some((spread, "reorder")) => (spread, true),
            Some(_) => return Err(malformed(text, "a jitter such as 5ms or 5ms,reorder")),
        };
        Ok(Self {
            spread: duration(spread)?,
            reorder,
        })
    }
}

impl FromStr for Reorder {
    type Err = ParseError;

    /// `SHARE,TIME` as in `1%,2ms`: 1 % of the packets is held back by 2 ms.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let what = "a reordering SHARE,TIME such as 1%,2ms";
        let (part, by) = text.split_once(',').ok_or(malformed(text, what))?;
        Ok(Self {
            share: share(part)?,
            by: duration(by)?,
        })
    }
}

impl FromStr for Window {
    type Err = ParseError;

    /// `FROM+LENGTH` as in `5s+10s`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let what = "a window FROM+LENGTH such as 5s+10s";
        let (from, lasts) = text.split_once('+').ok_or(malformed(text, what))?;
        Ok(Self {
            from: duration(from)?,
            lasts: duration(lasts)?,
        })
    }
}

impl<T> Step<T> {
    /// `TIME:VALUE` with `value` reading the second half.
    pub fn parse<E: Into<ParseError>>(
        text: &str,
        value: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Self, ParseError> {
        let what = "a step TIME:VALUE such as 5s:1Gbit or 5s:80ms";
        let (at, to) = text.split_once(':').ok_or(malformed(text, what))?;
        Ok(Self {
            at: duration(at)?,
            to: value(to).map_err(Into::into)?,
        })
    }
}

impl FromStr for Router {
    type Err = ParseError;

    /// `xcp`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "xcp" => Ok(Self::Xcp),
            _ => Err(malformed(text, "a router that writes into packets: xcp")),
        }
    }
}

impl FromStr for Aqm {
    type Err = ParseError;

    /// `codel`, `codel:TARGET,INTERVAL`, `red` or `red:MIN,MAX,SHARE`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        const WHAT: &str = "a queue management: codel, codel:5ms,100ms, red, or red:5ms,15ms,10%";
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let parts: Vec<_> = rest.split(',').collect();
        match (name, parts.as_slice()) {
            ("codel", [""]) => Ok(Self::Codel {
                target: Duration::from_millis(5),
                interval: Duration::from_millis(100),
            }),
            ("codel", [target, interval]) => Ok(Self::Codel {
                target: duration(target)?,
                interval: duration(interval)?,
            }),
            ("red", [""]) => Ok(Self::Red {
                min: Duration::from_millis(5),
                max: Duration::from_millis(15),
                share: 0.1,
            }),
            ("red", [min, max, p]) => Ok(Self::Red {
                min: duration(min)?,
                max: duration(max)?,
                share: share(p)?,
            }),
            _ => Err(malformed(text, WHAT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::units::Rate;

    use super::*;

    #[test]
    fn the_short_forms_are_read() {
        assert_eq!(duration("0.1ms"), Ok(Duration::from_micros(100)));
        assert_eq!(duration("400ms"), Ok(Duration::from_millis(400)));
        assert_eq!(duration("2min"), Ok(Duration::from_mins(2)));
        assert_eq!(duration("1d"), duration("24h"));
        let why = duration("5parsec").unwrap_err().to_string();
        assert!(why.ends_with("(units: ns, us, ms, s, min, h, d)"), "{why}");
        assert_eq!("1%".parse(), Ok(Loss::Random(0.01)));
        assert_eq!("0".parse(), Ok(Loss::None));
        assert_eq!("ge:0.1%,8".parse(), Ok(Loss::bursts(0.001, 8.0)));
        let size = Size::from_bytes(18_000_000);
        assert_eq!("18MB".parse(), Ok(QueueLimit::Bytes(size)));
        let wait = Duration::from_millis(50);
        assert_eq!("50ms".parse(), Ok(QueueLimit::Time(wait)));
        let step = Step {
            at: Duration::from_secs(5),
            to: Rate::gbit(1),
        };
        assert_eq!(Step::parse("5s:1Gbit", str::parse::<Rate>), Ok(step));
        let window = Window {
            from: Duration::from_secs(5),
            lasts: Duration::from_secs(10),
        };
        assert_eq!("5s+10s".parse(), Ok(window));
        assert!(matches!("codel".parse(), Ok(Aqm::Codel { .. })));
        assert!(matches!("red:1ms,2ms,5%".parse(), Ok(Aqm::Red { .. })));
        assert!("1%,2ms".parse::<Reorder>().is_ok());
        assert!("5ms,reorder".parse::<Jitter>().unwrap().reorder);
        assert!("5Gbit,1MB".parse::<Policer>().is_ok());
    }

    #[test]
    fn refusals_name_the_correct_form() {
        let refusal = |text: &str| text.parse::<Loss>().unwrap_err().to_string();
        assert_eq!(refusal("1"), "1 what? a unit is needed: write 1%");
        assert_eq!(
            refusal("0.07"),
            "0.07 what? a unit is needed: write 0.07%, or 7% for that fraction"
        );
        assert_eq!(refusal("101%"), "'101%' is out of range: 0% to 100%");
        assert_eq!(
            refusal("-1%"),
            "'-1%' is out of range: it must not be negative"
        );
        assert_eq!(
            refusal("many"),
            "'many' is not a loss such as 1% or ge:0.1%,8 (mean, packets per burst)"
        );
        assert_eq!(
            duration("100").unwrap_err().to_string(),
            "100 what? a unit is needed: write 100ms or 100s"
        );
        for bad in ["", "fast", "1e3ms", "NaN", "1.2.3s", "5parsec"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        for bad in ["ge:1%", "ge:1%,0", "ge:99%,1", "ge:x,8"] {
            assert!(bad.parse::<Loss>().is_err(), "{bad}");
        }
        for bad in ["codel:5ms", "red:1ms", "pie"] {
            assert!(bad.parse::<Aqm>().is_err(), "{bad}");
        }
        assert!("5s-10s".parse::<Window>().is_err());
        assert!("18Mbit".parse::<QueueLimit>().is_err());
    }
}
