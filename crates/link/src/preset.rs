//! What does a well-known kind of path look like? Named settings, with the sources of their numbers,
//! so that people can compare results without agreeing on eight numbers first.

use std::time::Duration;

use farhaul_core::units::{Rate, Size};

use crate::{
    config::{Jitter, PathConfig, QueueLimit},
    loss::Loss,
    parse::{ParseError, duration, share},
};

/// A named kind of path, the same in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name; `kachan-2013` takes `:RTT,LOSS`.
    pub name: &'static str,
    /// What it models, and the source of its numbers.
    pub about: &'static str,
    rtt_us: u64,
    rate: Rate,
    queue_ms: u64,
    loss: f64,
    jitter_us: u64,
}

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "lan",
        about: "10 Gbit/s, 0.2 ms: one machine room",
        rtt_us: 200,
        rate: Rate::gbit(10),
        queue_ms: 2,
        loss: 0.0,
        jitter_us: 0,
    },
    Preset {
        name: "metro",
        about: "10 Gbit/s, 4 ms: about 300 km of fibre there and back at 5 us/km, with equipment",
        rtt_us: 4_000,
        rate: Rate::gbit(10),
        queue_ms: 10,
        loss: 0.000_001,
        jitter_us: 20,
    },
    Preset {
        name: "transatlantic",
        about: "10 Gbit/s, 75 ms: London to New York by cable, one packet in 100,000 lost",
        rtt_us: 75_000,
        rate: Rate::gbit(10),
        queue_ms: 15,
        loss: 0.000_01,
        jitter_us: 50,
    },
    Preset {
        name: "transpacific",
        about: "10 Gbit/s, 150 ms: US west coast to Singapore by cable, one packet in 10,000 lost",
        rtt_us: 150_000,
        rate: Rate::gbit(10),
        queue_ms: 15,
        loss: 0.000_1,
        jitter_us: 100,
    },
    Preset {
        name: "geo-satellite",
        about: "100 Mbit/s, 560 ms: 35,786 km up and down, twice, with coding delay; 0.1 % loss",
        rtt_us: 560_000,
        rate: Rate::mbit(100),
        queue_ms: 200,
        loss: 0.001,
        jitter_us: 1_000,
    },
    Preset {
        name: "lossy-wifi",
        about: "200 Mbit/s, 20 ms: a crowded radio channel, 1 % loss in bursts of 4, 5 ms of jitter",
        rtt_us: 20_000,
        rate: Rate::mbit(200),
        queue_ms: 100,
        loss: 0.01,
        jitter_us: 5_000,
    },
    Preset {
        name: KACHAN,
        about: "10 Gbit/s, 18 MB of queue, loss in both directions: the grid of Kachan and Siemens, 2013",
        rtt_us: 0,
        rate: Rate::gbit(10),
        queue_ms: 0,
        loss: 0.0,
        jitter_us: 0,
    },
];

const KACHAN: &str = "kachan-2013";

impl Preset {
    fn path(&self) -> PathConfig {
        let wifi = self.name == "lossy-wifi";
        PathConfig {
            rate: self.rate,
            delay: Duration::from_micros(self.rtt_us / 2),
            queue: QueueLimit::Time(Duration::from_millis(self.queue_ms)),
            loss: match self.loss {
                0.0 => Loss::None,
                p if wifi => Loss::bursts(p, 4.0),
                p => Loss::Random(p),
            },
            jitter: (self.jitter_us > 0).then_some(Jitter {
                spread: Duration::from_micros(self.jitter_us),
                reorder: false,
            }),
            ..PathConfig::default()
        }
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
    fn unknown_names_are_answered_with_the_known_ones() {
        let message = preset("mars").unwrap_err().to_string();
        assert!(message.starts_with("no path is called 'mars': known are lan, metro"));
        assert!(preset("lan:5ms").is_err());
        assert!(preset("kachan-2013").is_err());
    }
}
