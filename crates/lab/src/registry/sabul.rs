//! Chooses SABUL.

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::{Descriptor, Protocol};
use farhaul_protocols::sabul::{Config, DESCRIPTOR, boxed};

use super::{Choice, ChoiceError, End, Entry, refused};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "window",
        about: "packets that may be unacknowledged",
        kind: Kind::Whole(1, 25_000_000),
        default: "25600",
    },
    Parameter {
        name: "mss",
        about: "largest packet, bytes, IP and UDP included",
        kind: Kind::Whole(128, 65_535),
        default: "1500",
    },
];

/// The entry. No parallel sessions: its control connections belong to one socket.
pub(super) fn entry() -> Entry {
    Entry::new(&DESCRIPTOR, "sabul", false, PARAMETERS, make)
}

fn make(
    _: &'static Descriptor,
    choice: &Choice,
    values: &Values,
    end: End,
) -> Result<Box<dyn Protocol>, ChoiceError> {
    let config = Config {
        law: choice.law.clone().unwrap_or_else(|| "sabul".into()),
        max_rate: choice.max_rate,
        mss: values.whole("mss"),
        window: values.whole("window"),
        ..Config::default()
    };
    boxed(&config, end.accepts()).or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, protocol};

    #[test]
    fn parameters_are_checked() {
        let choice = Choice::default();
        assert!(protocol("sabul:mss=9000").unwrap().server(&choice).is_ok());
        assert!(protocol("sabul:window=0").is_err());
        let law = Choice {
            law: Some("sabul:variant=aimd".into()),
            ..Choice::default()
        };
        assert!(protocol("sabul").unwrap().client(&law).is_ok());
    }
}
