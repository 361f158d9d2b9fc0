//! Entry of SABUL.

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::Descriptor;

use super::{Config, DESCRIPTOR, server};
use crate::entry::{Choice, ChoiceError, End, Entry, Made};

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
pub(crate) fn entry() -> Entry {
    Entry::new(&DESCRIPTOR, "sabul", false, PARAMETERS, make)
}

fn make(_: &'static Descriptor, choice: &Choice, values: &Values, end: End) -> Made {
    let config = Config {
        law: choice.law.clone().unwrap_or_else(|| "sabul".into()),
        max_rate: choice.max_rate,
        mss: values.whole("mss"),
        window: values.whole("window"),
        ..Config::default()
    };
    let endpoint = server(&config).map_err(ChoiceError::refused)?;
    Ok(endpoint.boxed(end.accepts()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked() {
        let choice = Choice::default();
        let large = entry().with("mss=9000").unwrap();
        assert!(large.server(&choice).is_ok());
        assert!(entry().with("window=0").is_err());
        let law = Choice {
            law: Some("sabul:variant=aimd".into()),
            ..Choice::default()
        };
        assert!(entry().client(&law).is_ok());
    }
}
