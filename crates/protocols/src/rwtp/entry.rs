//! Entry of the model of RWTP.

use std::time::Duration;

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::Descriptor;

use super::{Config, RWTP, server};
use crate::config::mtu;
use crate::entry::{Choice, ChoiceError, End, Entry, Made, NO_LAW};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "rate",
        about: "bytes of UDP payload per time, which nothing changes",
        kind: Kind::Rate,
        default: "9Gbit",
    },
    Parameter {
        name: "buffer",
        about: "bytes from the first missing one to the last sent, at most",
        kind: Kind::Size,
        default: "1GiB",
    },
    Parameter {
        name: "blocked-us",
        about: "pause of the sender for each missing packet reported, as on hosts of 2014; 0: none",
        kind: Kind::Whole(0, 9_000),
        default: "48",
    },
    mtu("8828"),
];

/// The entry. No parallel sessions: two would each send at the preset rate.
pub(crate) fn entry() -> Entry {
    Entry::new(&RWTP, NO_LAW, false, PARAMETERS, make)
}

fn make(_: &'static Descriptor, choice: &Choice, values: &Values, end: End) -> Made {
    let buffer = values.size("buffer").bytes();
    if buffer > 16 << 30 {
        return Err(ChoiceError::refused("a buffer has at most 16GiB"));
    }
    let config = Config {
        rate: values.rate("rate"),
        max_rate: choice.max_rate,
        buffer,
        mtu: values.whole("mtu"),
        blocked: Duration::from_micros(values.whole("blocked-us").into()),
    };
    Ok(server(&config).boxed(end.accepts()))
}

#[cfg(test)]
mod tests {
    use farhaul_core::protocol::Provenance;

    use super::*;

    #[test]
    fn it_is_a_model_and_what_has_no_meaning_is_refused() {
        let choice = Choice::default();
        let model = entry()
            .with("rate=5Gbit,buffer=64MiB,blocked-us=0")
            .unwrap();
        assert!(model.server(&choice).is_ok());
        assert_eq!(model.descriptor.provenance, Provenance::Model);
        let large = entry().with("buffer=17GiB").unwrap();
        assert!(large.client(&choice).is_err());
    }
}
