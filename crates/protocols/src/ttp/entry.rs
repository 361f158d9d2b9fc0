//! Entry of the Tsunami UDP protocol.

use std::time::Duration;

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::Descriptor;

use super::{
    Config, DESCRIPTOR, Loss, server,
    wire::{HEADER, Parameters, Ratio},
};
use crate::config::mtu;
use crate::entry::{Choice, ChoiceError, End, Entry, Made};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "rate",
        about: "bits of blocks per second that the receiver requests, at most 4.29Gbit",
        kind: Kind::Rate,
        default: "650Mbit",
    },
    Parameter {
        name: "block",
        about: "bytes of a block, from 64; 0: what fits the packet",
        kind: Kind::Whole(0, 65_501),
        default: "0",
    },
    mtu("1500"),
    Parameter {
        name: "error",
        about: "errors, in per cent as the receiver counts them, beyond which the sender slows down",
        kind: Kind::Number(0.0, 99.0),
        default: "7.5",
    },
    Parameter {
        name: "slower",
        about: "by which the gap between blocks is then multiplied, at 100 % of errors",
        kind: Kind::Number(1.0, 2.5),
        default: "1.0416667",
    },
    Parameter {
        name: "faster",
        about: "by which it is multiplied otherwise",
        kind: Kind::Number(0.1, 1.0),
        default: "0.8333333",
    },
    Parameter {
        name: "lossless",
        about: "off: blocks older than losswindow are given up; simulator only",
        kind: Kind::Flag,
        default: "on",
    },
    Parameter {
        name: "losswindow",
        about: "ms; 0: nothing is requested again",
        kind: Kind::Whole(0, 60_000),
        default: "1000",
    },
];

/// The only law there is.
const LAW: &str = "ttp";

/// The entry. No parallel sessions: its control connections belong to one socket.
pub(crate) fn entry() -> Entry {
    Entry::new(&DESCRIPTOR, LAW, false, PARAMETERS, make)
}

fn make(_: &'static Descriptor, choice: &Choice, values: &Values, end: End) -> Made {
    let lossless = values.flag("lossless");
    if !lossless && !choice.simulated {
        let why =
            "ttp:lossless=off abandons data, which is allowed in the simulator only: leave it on";
        return Err(ChoiceError::refused(why));
    }
    let Ok(rate) = u32::try_from(values.rate("rate").bps()) else {
        let why = "ttp sends its rate in 32 bits: at most 4.29Gbit";
        return Err(ChoiceError::refused(why));
    };
    let mut config = Config {
        max_rate: choice.max_rate,
        mtu: values.whole("mtu"),
        ..Config::default()
    };
    let block = values.whole("block");
    if block > 0 && block + HEADER + 28 > config.mtu {
        let mtu = config.mtu;
        return Err(ChoiceError::Refused(format!(
            "a block of {block} bytes does not fit a packet of {mtu}: nothing is fragmented here, set ttp:mtu="
        )));
    }
    config.wanted = Parameters {
        block_size: if block > 0 {
            block
        } else {
            config.wanted.block_size
        },
        rate,
        error_rate: rounded(values.number("error") * 1_000.0),
        slower: ratio(values.number("slower")),
        faster: ratio(values.number("faster")),
    };
    if !lossless {
        let window = Duration::from_millis(values.whole("losswindow").into());
        config.loss = Loss::Borne(window);
    }
    let endpoint = server(&config).map_err(ChoiceError::refused)?;
    Ok(endpoint.boxed(end.accepts()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bounds of the parameters are those of the integers"
)]
fn rounded(x: f64) -> u32 {
    x.round() as u32
}

/// The nearest ratio whose denominator is a divisor of 24,000, in least terms: 25/24, 5/6.
fn ratio(x: f64) -> Ratio {
    let (above, below) = (rounded(x * 24_000.0), 24_000);
    let (mut divisor, mut rest) = (below, above);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let word = |n: u32| u16::try_from(n / divisor).unwrap_or(u16::MAX);
    Ratio {
        above: word(above),
        below: word(below),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(settings: &str, choice: &Choice) -> String {
        let made = entry().with(settings).unwrap().client(choice);
        made.err().expect("refused").to_string()
    }

    #[test]
    fn parameters_are_the_originals_and_what_cannot_be_is_refused() {
        let original = Parameters::default();
        assert_eq!(ratio(1.041_666_7), original.slower);
        assert_eq!(ratio(0.833_333_3), original.faster);
        let choice = Choice::default();
        for settings in ["", "rate=1Gbit,block=1024", "mtu=9000,error=2"] {
            let entry = entry().with(settings).unwrap();
            assert!(entry.server(&choice).is_ok(), "{settings}");
        }
        assert!(entry().with("rate=0bit").is_err() || !refusal("rate=0bit", &choice).is_empty());
        for (settings, words) in [
            ("rate=5Gbit", "32 bits"),
            ("block=32768", "does not fit a packet of 1500"),
            ("block=10", "from 64 to 65,501"),
            ("lossless=off", "simulator"),
        ] {
            let text = refusal(settings, &choice);
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn in_the_simulator_it_may_lose() {
        let simulated = Choice {
            simulated: true,
            ..Choice::default()
        };
        let lossy = entry().with("lossless=off,losswindow=0").unwrap();
        assert!(lossy.client(&simulated).is_ok());
    }
}
