//! Reads a figure from what a program printed.
//!
//! - `json:/a/b`: the number there, in the whole of stdout or in its last line that is an object. With a unit
//!   as `json[Mbit]:/a/b`; without, a goodput is in bit/s.
//! - `regex:PATTERN`: the first group of the last match, on stderr if stdout has none; a second group is its unit, or it is given as
//!   `regex[Mbit]:PATTERN`.
//! - `bytes`, of a goodput only: all of the flow's bytes over the client's run time.
//!
//! `server:` in front reads the server's output instead of the client's.

use farhaul_core::units::Rate;
use regex::Regex;
use serde_json::Value;

/// Prefix of readings from the server's output.
pub(super) const SERVER: &str = "server:";

/// A way to read one figure.
#[derive(Clone, Debug)]
pub struct Reading {
    /// True to read from the server's output.
    pub(super) server: bool,
    pub(super) what: What,
    unit: Option<String>,
}

/// Source of a reading.
#[derive(Clone, Debug)]
pub(super) enum What {
    Json(String),
    Regex(Box<Regex>),
    Bytes,
}

/// Reason why a figure cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadingError {
    /// None of the ways.
    #[error("'{0}' is no way to read a figure: write json:/POINTER, regex:PATTERN{1}")]
    Way(String, &'static str),
    /// A pointer starts with a slash.
    #[error("'{0}' is no JSON pointer: it starts with '/', as /end/sum_received/bits_per_second")]
    Pointer(String),
    /// The pattern is wrong.
    #[error("{0}")]
    Pattern(String),
    /// The pattern has no group.
    #[error(
        "'{0}' has no group: put parentheses around the number, and around its unit if that is printed"
    )]
    Group(String),
    /// The reading has a unit, which only rates have.
    #[error("'{0}': only the goodput has a unit; name the unit of other figures in their names")]
    Unit(String),
    /// The unit is not one of rates.
    #[error("'{0}' is no unit of a rate: as bit, Mbit, Gbit/s or MB/s")]
    BadUnit(String),
    /// There is nothing to read.
    #[error("{how} found nothing in the {whose} output{said}")]
    Nothing {
        /// The pointer or pattern.
        how: String,
        /// Client's or server's.
        whose: &'static str,
        /// Last line of the output.
        said: String,
    },
    /// The text is not a number.
    #[error("'{0}' is not a number")]
    Number(String),
}

impl Reading {
    /// Parses a reading as written in a scenario file; `rate` is a goodput.
    pub fn parse(text: &str, rate: bool) -> Result<Self, ReadingError> {
        let (server, way) = match text.strip_prefix(SERVER) {
            Some(way) => (true, way),
            None => (false, text),
        };
        let refused = || {
            let also = if rate { " or bytes" } else { "" };
            ReadingError::Way(text.into(), also)
        };
        if way == "bytes" && rate && !server {
            return Ok(Self {
                server,
                what: What::Bytes,
                unit: None,
            });
        }
        let (head, how) = way.split_once(':').ok_or_else(refused)?;
        let (kind, unit) = match head.split_once('[') {
            Some((kind, unit)) => (kind, Some(unit.strip_suffix(']').ok_or_else(refused)?)),
            None => (head, None),
        };
        if let Some(unit) = unit {
            if !rate {
                return Err(ReadingError::Unit(text.into()));
            }
            rate_of(1.0, unit)?;
        }
        let what = match kind {
            "json" if how.starts_with('/') => What::Json(how.into()),
            "json" => return Err(ReadingError::Pointer(how.into())),
            "regex" => What::Regex(Box::new(pattern(how, rate)?)),
            _ => return Err(refused()),
        };
        Ok(Self {
            server,
            what,
            unit: unit.map(Into::into),
        })
    }

    /// Figure in the printed `[stdout, stderr]`; a rate in bit/s.
    pub(super) fn find(&self, output: [&str; 2]) -> Result<f64, ReadingError> {
        let nothing = |how: &str| ReadingError::Nothing {
            how: how.into(),
            whose: if self.server { "server's" } else { "client's" },
            said: output
                .into_iter()
                .find_map(said)
                .unwrap_or_else(|| "; it printed nothing".into()),
        };
        let (number, printed) = match &self.what {
            What::Json(pointer) => {
                let found = json(output[0]).and_then(|root| root.pointer(pointer).cloned());
                let found = found.ok_or_else(|| nothing(pointer))?;
                (as_number(&found)?, None)
            }
            What::Regex(regex) => {
                let last = |text| regex.captures_iter(text).last();
                let last = output.into_iter().find_map(last);
                let last = last.ok_or_else(|| nothing(regex.as_str()))?;
                let group = |i| last.get(i).map(|found| found.as_str());
                let number = group(1).ok_or_else(|| nothing(regex.as_str()))?;
                (parsed(number)?, group(2))
            }
            What::Bytes => return Err(nothing("bytes")),
        };
        match self.unit.as_deref().or(printed) {
            Some(unit) => rate_of(number, unit),
            None => Ok(number),
        }
    }
}

fn pattern(text: &str, rate: bool) -> Result<Regex, ReadingError> {
    let regex = Regex::new(text).map_err(|e| ReadingError::Pattern(e.to_string()))?;
    match regex.captures_len() {
        1 => Err(ReadingError::Group(text.into())),
        2 => Ok(regex),
        _ if rate => Ok(regex),
        _ => Err(ReadingError::Unit(text.into())),
    }
}

/// The output as JSON, or the last of its lines that is an object.
fn json(output: &str) -> Option<Value> {
    let object = |text: &str| serde_json::from_str(text).ok().filter(Value::is_object);
    object(output).or_else(|| output.lines().rev().find_map(object))
}

fn as_number(value: &Value) -> Result<f64, ReadingError> {
    match value {
        Value::Number(number) => number
            .as_f64()
            .ok_or_else(|| ReadingError::Number(value.to_string())),
        Value::String(text) => parsed(text),
        other => Err(ReadingError::Number(other.to_string())),
    }
}

fn parsed(text: &str) -> Result<f64, ReadingError> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(ReadingError::Number(text.into())),
    }
}

/// `number` of `unit` in bit/s. Programs also write `Mbits/sec`.
fn rate_of(number: f64, unit: &str) -> Result<f64, ReadingError> {
    let plain = unit.trim().replace("/sec", "/s");
    let one: Rate = format!("1{plain}")
        .parse()
        .map_err(|_| ReadingError::BadUnit(unit.into()))?;
    let rate = number * one.as_f64();
    if rate.is_finite() && rate >= 0.0 {
        Ok(rate)
    } else {
        Err(ReadingError::Number(format!("{number} {unit}")))
    }
}

/// `; its last line was: ...`.
fn said(output: &str) -> Option<String> {
    let line = output.lines().rfind(|line| !line.trim().is_empty())?;
    let short: String = line.trim().chars().take(200).collect();
    Some(format!("; its last line was: {short}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(how: &str, output: &str) -> Result<f64, String> {
        let rate = !how.starts_with("metric ");
        let how = how.trim_start_matches("metric ");
        let reading = Reading::parse(how, rate).map_err(|e| e.to_string())?;
        reading.find([output, ""]).map_err(|e| e.to_string())
    }

    #[test]
    fn figures_are_found() {
        let json = "warming up\n{\"a\": {\"b\": [7, \"2.5\"]}, \"rate\": 3}\nbye\n";
        let text = "10 Mbits/sec\n1.50 Gbits/sec  sender\n0.25 Gbits/sec  receiver\n";
        for (how, output, expected) in [
            ("json:/a/b/0", json, 7.0),
            ("json:/a/b/1", json, 2.5),
            ("json[Mbit]:/rate", json, 3e6),
            ("json[KiB/s]:/rate", json, 3.0 * 8_192.0),
            ("json:/x", "{\n \"x\": 1e9\n}", 1e9),
            ("regex:([0-9.]+) (\\w+/sec)", text, 0.25e9),
            ("regex:([0-9.]+) (\\w+/sec) +sender", text, 1.5e9),
            ("regex[MB/s]:([0-9.]+) Gbits/sec", text, 0.25 * 8e6),
            ("metric regex:p99 = ([0-9.]+) ms", "p99 = 12.5 ms", 12.5),
            ("metric server:json:/rate", json, 3.0),
        ] {
            let found = find(how, output).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-12, "{how}: {found}");
        }
    }

    #[test]
    fn stderr_is_read_where_stdout_has_nothing() {
        let reading = Reading::parse("regex:([0-9]+) bit/s", true).unwrap();
        let found = |output| reading.find(output).unwrap().to_string();
        assert_eq!(found(["", "5 bit/s"]), "5");
        assert_eq!(found(["7 bit/s", "5 bit/s"]), "7");
        let none = reading.find(["", "oops"]).unwrap_err().to_string();
        assert!(none.contains("its last line was: oops"), "{none}");
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        for (how, output, expected) in [
            ("json:/a", "", "it printed nothing"),
            ("json:/a", "{\"b\": 1}", "/a found nothing"),
            ("json:/a", "oops", "its last line was: oops"),
            ("json:/a", "{\"a\": [1]}", "is not a number"),
            (
                "regex:rate ([0-9]+)",
                "no figures\n",
                "client's output; its last line was: no figures",
            ),
            ("regex:rate (.*)", "rate NaN\n", "'NaN' is not a number"),
            ("regex:([0-9]+) (.*)", "3 apples", "'apples' is no unit"),
            ("server:json:/a", "oops", "server's output"),
        ] {
            let said = find(how, output).unwrap_err();
            assert!(said.contains(expected), "{how}: {said}");
        }
    }

    #[test]
    fn bad_ways_are_refused() {
        for (how, expected) in [
            ("rate", "no way to read a figure"),
            ("xml:/a", "or bytes"),
            ("server:bytes", "no way to read"),
            ("metric bytes", "no way to read"),
            ("json:a/b", "no JSON pointer"),
            ("json[Mbit:/a", "no way to read"),
            ("json[parsec]:/a", "'parsec' is no unit"),
            ("metric json[Mbit]:/a", "only the goodput has a unit"),
            ("regex:(", "unclosed group"),
            ("regex:abc", "has no group"),
            ("metric regex:(a)(b)", "only the goodput has a unit"),
        ] {
            let said = find(how, "").unwrap_err();
            assert!(said.contains(expected), "{how}: {said}");
        }
    }
}
