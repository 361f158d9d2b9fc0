//! Chooses the Tsunami UDP protocol.

use std::time::Duration;

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::{Descriptor, Protocol};
use farhaul_protocols::ttp::{
    Config, DESCRIPTOR, Loss, boxed,
    wire::{HEADER, Parameters, Ratio},
};

use super::{Choice, ChoiceError, End, Entry, mtu, refused};

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
pub(super) fn entry() -> Entry {
    Entry::new(&DESCRIPTOR, LAW, false, PARAMETERS, make)
}

fn make(
    _: &'static Descriptor,
    choice: &Choice,
    values: &Values,
    end: End,
) -> Result<Box<dyn Protocol>, ChoiceError> {
    let lossless = values.flag("lossless");
    if !lossless && !choice.simulated {
        return refused(
            "ttp:lossless=off abandons data, which is allowed in the simulator only: leave it on",
        );
    }
    let Ok(rate) = u32::try_from(values.rate("rate").bps()) else {
        return refused("ttp sends its rate in 32 bits: at most 4.29Gbit");
    };
    let mut config = Config {
        max_rate: choice.max_rate,
        mtu: values.whole("mtu"),
        ..Config::default()
    };
    let block = values.whole("block");
    if block > 0 && block + HEADER + 28 > config.mtu {
        let text = format!(
            "a block of {block} bytes does not fit a packet of {}: nothing is fragmented here, set ttp:mtu=",
            config.mtu
        );
        return refused(text);
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
    boxed(&config, end.accepts()).or_else(refused)
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
    use super::{
        super::{Choice, protocol},
        *,
    };

    fn refusal(spec: &str, choice: &Choice) -> String {
        let made = protocol(spec).unwrap().client(choice);
        made.err().expect("refused").to_string()
    }

    #[test]
    fn parameters_are_the_originals_and_what_cannot_be_is_refused() {
        let original = Parameters::default();
        assert_eq!(ratio(1.041_666_7), original.slower);
        assert_eq!(ratio(0.833_333_3), original.faster);
        let choice = Choice::default();
        for spec in ["ttp", "ttp:rate=1Gbit,block=1024", "ttp:mtu=9000,error=2"] {
            assert!(protocol(spec).unwrap().server(&choice).is_ok(), "{spec}");
        }
        assert!(
            protocol("ttp:rate=0bit").is_err() || !refusal("ttp:rate=0bit", &choice).is_empty()
        );
        for (spec, words) in [
            ("ttp:rate=5Gbit", "32 bits"),
            ("ttp:block=32768", "does not fit a packet of 1500"),
            ("ttp:block=10", "from 64 to 65,501"),
            ("ttp:lossless=off", "simulator"),
        ] {
            let text = refusal(spec, &choice);
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn in_the_simulator_it_may_lose() {
        let simulated = Choice {
            simulated: true,
            ..Choice::default()
        };
        let lossy = protocol("ttp:lossless=off,losswindow=0").unwrap();
        assert!(lossy.client(&simulated).is_ok());
    }
}
