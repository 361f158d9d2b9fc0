//! Timetable of rates: a rate, or rates from given times on, in local time.

use std::{fmt, str::FromStr};

use farhaul_core::units::Rate;
use farhaul_io::clock;
use jiff::{Timestamp, civil::Time, tz::TimeZone};

use crate::typed;

/// Rates by time of day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timetable {
    /// Rates, each with its beginning, earliest first; the last one holds until the first one of
    /// the next day.
    rates: Vec<(Time, Rate)>,
    /// Text as it was given.
    text: String,
}

impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Timetable {
    /// The rate now.
    pub(crate) fn now(&self) -> Rate {
        let [(_, always)] = self.rates[..] else {
            let now = Timestamp::from_duration(clock::since_1970().try_into().unwrap_or_default());
            let now = now.unwrap_or(Timestamp::MAX);
            return self.at(TimeZone::system().to_datetime(now).time());
        };
        always
    }

    fn at(&self, time: Time) -> Rate {
        let before = self.rates.iter().rev().find(|(from, _)| *from <= time);
        // Before the first of the day it is the last of the day before.
        before
            .or(self.rates.last())
            .map_or(Rate::UNLIMITED, |(_, rate)| *rate)
    }

    /// The rate, if it is the same at any time.
    pub(crate) fn always(&self) -> Option<Rate> {
        match self.rates[..] {
            [(_, rate)] => Some(rate),
            _ => None,
        }
    }
}

impl FromStr for Timetable {
    type Err = String;

    /// `500Mbit`, or `08:00 500Mbit 19:00 off`.
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "write a rate, or times and rates as in '08:00 500Mbit 19:00 off'";
        let words: Vec<_> = text.split_whitespace().collect();
        if let [rate] = words[..] {
            let rate = typed::limit(rate)?;
            let rates = vec![(Time::midnight(), rate)];
            let text = text.into();
            return Ok(Self { rates, text });
        }
        if words.is_empty() || words.len() % 2 > 0 {
            return Err(FORM.into());
        }
        let mut rates: Vec<(Time, Rate)> = Vec::new();
        for pair in words.chunks(2) {
            let from = time(pair[0])
                .ok_or_else(|| format!("'{}' is not a time of day: {FORM}", pair[0]))?;
            let rate = match pair[1] {
                "off" => Rate::UNLIMITED,
                rate => typed::limit(rate).map_err(|e| format!("{e}, or the word off"))?,
            };
            if rates.last().is_some_and(|(before, _)| *before >= from) {
                return Err(format!("{} is not later than the time before it", pair[0]));
            }
            rates.push((from, rate));
        }
        let text = text.into();
        Ok(Self { rates, text })
    }
}

/// `HH:MM`.
fn time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| match text.len() {
        1 | 2 if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    Time::new(
        number(hour)?,
        number(minute).filter(|_| minute.len() == 2)?,
        0,
        0,
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_holds_from_its_time_until_the_next_one() {
        let table: Timetable = "08:00 500Mbit 19:00 off 23:30 1Gbit".parse().unwrap();
        let at = |text| table.at(time(text).unwrap());
        for (time, rate) in [
            ("00:00", Rate::gbit(1)),
            ("7:59", Rate::gbit(1)),
            ("08:00", Rate::mbit(500)),
            ("18:59", Rate::mbit(500)),
            ("19:00", Rate::UNLIMITED),
            ("23:29", Rate::UNLIMITED),
            ("23:30", Rate::gbit(1)),
        ] {
            assert_eq!(at(time), rate, "{time}");
        }
        assert_eq!(table.always(), None);
        let one: Timetable = "2Gbit".parse().unwrap();
        assert_eq!(
            (one.always(), one.now()),
            (Some(Rate::gbit(2)), Rate::gbit(2))
        );
        let same: Timetable = "00:00 1Gbit 12:00 1Gbit".parse().unwrap();
        assert_eq!(same.now(), Rate::gbit(1));
    }

    #[test]
    fn what_is_no_timetable_is_refused_with_the_form() {
        for (bad, hint) in [
            ("", "08:00 500Mbit"),
            ("08:00", "rate"),
            ("08:00 1Gbit 19:00", "08:00 500Mbit"),
            ("8 1Gbit", "not a time of day"),
            ("24:00 1Gbit", "not a time of day"),
            ("08:60 1Gbit", "not a time of day"),
            ("08:0 1Gbit", "not a time of day"),
            ("+8:00 1Gbit", "not a time of day"),
            ("08:00 100", "or the word off"),
            ("19:00 off 08:00 1Gbit", "not later"),
            ("08:00 off 08:00 1Gbit", "not later"),
        ] {
            let why = bad.parse::<Timetable>().unwrap_err();
            assert!(why.contains(hint), "{bad}: {why}");
        }
    }
}
