//! Presets of well-known kinds of path: named settings, with the sources of their numbers. So
//! people can compare results without agreeing on eight numbers first.

use std::time::Duration;

use farhaul_core::units::{Rate, Size};

use crate::{
    config::{Jitter, PathConfig, QueueLimit, Step, Window},
    loss::Loss,
    parse::{ParseError, duration, share},
};

/// Changes of a path: every `slot` the next value of each list, from the start again after the last
/// one. The lists have lengths without a common divisor, so that few slots are alike.
#[derive(Clone, Copy, Debug)]
struct Course {
    slot: Duration,
    rates: &'static [Rate],
    rtts_ms: &'static [u64],
    /// Time for which nothing gets through as a slot begins.
    holes_ms: &'static [u64],
}

impl Course {
    const NONE: Self = Self {
        slot: Duration::from_secs(1),
        rates: &[],
        rtts_ms: &[],
        holes_ms: &[],
    };
    /// The course is followed that long.
    const LASTS: Duration = Duration::from_hours(1);

    /// Each slot after the first with its value.
    fn steps<T: Copy, U>(&self, values: &[T], step: impl Fn(Duration, T) -> U) -> Vec<U> {
        let slots = (1..).map(|n: u32| self.slot * n);
        let values = values.iter().cycle().skip(1);
        slots
            .zip(values)
            .take_while(|(at, _)| *at < Self::LASTS)
            .map(|(at, value)| step(at, *value))
            .collect()
    }

    fn apply(&self, path: &mut PathConfig) {
        path.rate_steps = self.steps(self.rates, |at, to| Step { at, to });
        path.delay_steps = self.steps(self.rtts_ms, |at, rtt| Step {
            at,
            to: Duration::from_millis(rtt) / 2,
        });
        path.blackouts = self.steps(self.holes_ms, |from, hole| Window {
            from,
            lasts: Duration::from_millis(hole),
        });
        path.blackouts.retain(|hole| !hole.lasts.is_zero());
    }
}

const fn mbit<const N: usize>(rates: [u64; N]) -> [Rate; N] {
    let mut all = [Rate::ZERO; N];
    let mut i = 0;
    while i < N {
        all[i] = Rate::mbit(rates[i]);
        i += 1;
    }
    all
}

/// A named kind of path, the same in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name of the preset; `kachan-2013` takes `:RTT,LOSS`.
    pub name: &'static str,
    /// Kind of path modelled, and the source of the numbers.
    pub about: &'static str,
    rtt_us: u64,
    rate: Rate,
    queue_ms: u64,
    loss: f64,
    /// Packets lost together.
    burst: f64,
    jitter_us: u64,
    course: Course,
}

/// A clean path that stays as it is.
const STEADY: Preset = Preset {
    name: "",
    about: "",
    rtt_us: 0,
    rate: Rate::gbit(10),
    queue_ms: 0,
    loss: 0.0,
    burst: 1.0,
    jitter_us: 0,
    course: Course::NONE,
};

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "lan",
        about: "10 Gbit/s, 0.2 ms: one machine room",
        rtt_us: 200,
        queue_ms: 2,
        ..STEADY
    },
    Preset {
        name: "metro",
        about: "10 Gbit/s, 4 ms: about 300 km of fibre there and back at 5 us/km, with equipment",
        rtt_us: 4_000,
        queue_ms: 10,
        loss: 0.000_001,
        jitter_us: 20,
        ..STEADY
    },
    Preset {
        name: "transatlantic",
        about: "10 Gbit/s, 75 ms: London to New York by cable, one packet in 100,000 lost",
        rtt_us: 75_000,
        queue_ms: 15,
        loss: 0.000_01,
        jitter_us: 50,
        ..STEADY
    },
    Preset {
        name: "transpacific",
        about: "10 Gbit/s, 150 ms: US west coast to Singapore by cable, one packet in 10,000 lost",
        rtt_us: 150_000,
        queue_ms: 15,
        loss: 0.000_1,
        jitter_us: 100,
        ..STEADY
    },
    Preset {
        name: "wifi",
        about: "200 Mbit/s, 20 ms: a crowded radio channel whose rate is adapted every 5 s, 1 % loss in bursts of 4, 5 ms of jitter",
        rtt_us: 20_000,
        rate: Rate::mbit(200),
        queue_ms: 100,
        loss: 0.01,
        burst: 4.0,
        jitter_us: 5_000,
        course: Course {
            slot: Duration::from_secs(5),
            rates: &mbit([200, 140, 240, 90, 180]),
            rtts_ms: &[],
            holes_ms: &[0, 0, 0, 0, 100, 0, 0, 0],
        },
    },
    Preset {
        name: "lte",
        about: "13 Mbit/s at the median, 70 ms: a moving handset, another rate every 2 s, half a second of queue, a handover every 26 s",
        rtt_us: 70_000,
        rate: Rate::mbit(13),
        queue_ms: 500,
        jitter_us: 8_000,
        course: Course {
            slot: Duration::from_secs(2),
            rates: &mbit([13, 9, 20, 6, 15, 24, 11, 30, 4]),
            rtts_ms: &[],
            holes_ms: &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 80],
        },
        ..STEADY
    },
    Preset {
        name: "leo",
        about: "190 Mbit/s and 50 ms at the median: a low constellation, another satellite every 15 s, with an outage of 100 to 500 ms",
        rtt_us: 50_000,
        rate: Rate::mbit(190),
        queue_ms: 100,
        loss: 0.001,
        jitter_us: 2_000,
        course: Course {
            slot: Duration::from_secs(15),
            rates: &mbit([190, 150, 220, 110, 250, 180, 90, 300, 200]),
            rtts_ms: &[50, 42, 58, 38, 52, 64, 46],
            holes_ms: &[100, 250, 150, 500, 200],
        },
        ..STEADY
    },
    Preset {
        name: "geo",
        about: "100 Mbit/s, 600 ms: a geostationary satellite and the way on the ground; 0.1 % loss",
        rtt_us: 600_000,
        rate: Rate::mbit(100),
        queue_ms: 200,
        loss: 0.001,
        jitter_us: 1_000,
        ..STEADY
    },
    Preset {
        name: KACHAN,
        about: "10 Gbit/s, 18 MB of queue, loss in both directions: the grid of Kachan and Siemens, 2013",
        ..STEADY
    },
];

const KACHAN: &str = "kachan-2013";

impl Preset {
    fn path(&self) -> PathConfig {
        let mut path = PathConfig {
            rate: self.rate,
            delay: Duration::from_micros(self.rtt_us / 2),
            queue: QueueLimit::Time(Duration::from_millis(self.queue_ms)),
            loss: match self.loss {
                0.0 => Loss::None,
                p if self.burst > 1.0 => Loss::bursts(p, self.burst),
                p => Loss::Random(p),
            },
            jitter: (self.jitter_us > 0).then_some(Jitter {
                spread: Duration::from_micros(self.jitter_us),
                reorder: false,
            }),
            ..PathConfig::default()
        };
        self.course.apply(&mut path);
        path
    }
}

/// Either direction of the preset called `text`; `kachan-2013:200ms,1%` carries its RTT and loss.
pub fn preset(text: &str) -> Result<PathConfig, ParseError> {
    let (name, values) = match text.split_once(':') {
        Some((name, values)) => (name, Some(values)),
        None => (text, None),
    };
    if name == KACHAN {
        let what = "of the form kachan-2013:200ms,1% (RTT, loss)";
        let malformed = || ParseError::Malformed(text.into(), what);
        let (rtt, loss) = values
            .and_then(|v| v.split_once(','))
            .ok_or_else(malformed)?;
        return Ok(kachan_2013(duration(rtt)?, share(loss)?));
    }
    let found = PRESETS.iter().find(|preset| preset.name == name);
    match (found, values) {
        (Some(preset), None) => Ok(preset.path()),
        (Some(_), Some(_)) => Err(ParseError::Malformed(
            text.into(),
            "a preset; only kachan-2013 takes values",
        )),
        (None, _) => {
            let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
            Err(ParseError::UnknownPreset(text.into(), names.join(", ")))
        }
    }
}

/// One cell of the grid of Kachan and Siemens (2013).
fn kachan_2013(rtt: Duration, loss: f64) -> PathConfig {
    PathConfig {
        rate: Rate::gbit(10),
        delay: rtt / 2,
        queue: QueueLimit::Bytes(Size::from_bytes(18_000_000)),
        loss: if loss > 0.0 {
            Loss::Random(loss)
        } else {
            Loss::None
        },
        ..PathConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_valid_path() {
        for known in PRESETS.iter().filter(|known| known.name != KACHAN) {
            preset(known.name).unwrap().validate().unwrap();
        }
        let cell = preset("kachan-2013:200ms,1%").unwrap();
        cell.validate().unwrap();
        assert_eq!(cell.delay, Duration::from_millis(100));
        assert_eq!(cell.loss, Loss::Random(0.01));
    }

    #[test]
    fn profiles_that_change_begin_with_their_medians_and_end_after_an_hour() {
        let hour = Duration::from_hours(1);
        let leo = preset("leo").unwrap();
        assert_eq!(leo.rate_steps.len(), 239, "one every 15 s");
        assert_eq!(leo.delay_steps.len(), 239);
        assert_eq!(leo.blackouts.len(), 239);
        for (slot, hole) in (1..).zip(&leo.blackouts) {
            assert_eq!(hole.from, Duration::from_secs(15 * slot));
            assert!((100..=500).contains(&hole.lasts.as_millis()), "{hole:?}");
        }
        for name in ["wifi", "lte", "leo"] {
            let path = preset(name).unwrap();
            assert!(path.rate_steps.iter().all(|step| step.at < hour));
            let known = PRESETS.iter().find(|known| known.name == name).unwrap();
            let median = |mut all: Vec<u64>| {
                all.sort_unstable();
                all[all.len() / 2]
            };
            if name != "wifi" {
                let rates = known.course.rates.iter().map(|rate| rate.bps());
                assert_eq!(median(rates.collect()), path.rate.bps(), "{name}");
            }
            assert_eq!(known.course.rates[0], path.rate, "the first slot");
            if let Some(first) = known.course.rtts_ms.first() {
                assert_eq!(median(known.course.rtts_ms.into()), *first);
                assert_eq!(path.delay * 2, Duration::from_millis(*first));
            }
        }
        assert!(preset("geo").unwrap().rate_steps.is_empty());
    }

    #[test]
    fn unknown_names_are_answered_with_the_known_ones() {
        let message = preset("mars").unwrap_err().to_string();
        assert!(message.starts_with("no path is called 'mars': known are lan, metro"));
        assert!(preset("lan:5ms").is_err());
        assert!(preset("kachan-2013").is_err());
    }
}
