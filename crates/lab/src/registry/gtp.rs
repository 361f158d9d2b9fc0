//! How is GTP chosen, and who shares a receiving host?

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::{Descriptor, Protocol};
use farhaul_protocols::gtp::{Config, DESCRIPTOR, client, server};

use super::{Choice, ChoiceError, End, Entry, udt::whole};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "capacity",
        about: "what the receiving host takes in, counted in packets with their headers",
        kind: Kind::Rate,
        default: "1Gbit",
    },
    Parameter {
        name: "mtu",
        about: "largest packet, bytes, IP and UDP included",
        kind: Kind::Number(128.0, 65_535.0),
        default: "1500",
    },
];

/// The only law there is.
const LAW: &str = "gtp";

/// The entry. Lanes would compete as flows of their own.
pub(super) fn entry() -> Entry {
    Entry::new(&DESCRIPTOR, LAW, false, PARAMETERS, make)
}

fn make(
    _: &'static Descriptor,
    choice: &Choice,
    values: &Values,
    end: End,
) -> Result<Box<dyn Protocol>, ChoiceError> {
    let refused = |text: &str| Err(ChoiceError::Refused(text.into()));
    if !choice.peers.is_empty() {
        return refused("gtp authenticates nobody: --peer-key has no meaning with it; use haul");
    }
    if choice.law.as_deref().is_some_and(|law| law != LAW) {
        return refused("gtp has a law of its own and takes no other: set gtp:capacity=");
    }
    let config = Config {
        capacity: values.rate("capacity"),
        max_rate: choice.max_rate,
        mtu: whole(values, "mtu"),
    };
    Ok(match end {
        End::Client => Box::new(client(&config)),
        End::Server => Box::new(server(&config, &choice.host.gtp)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, protocol};

    #[test]
    fn laws_and_keys_have_no_meaning_with_it() {
        let refusal = |choice: &Choice| {
            let made = protocol("gtp:capacity=10Gbit").unwrap().server(choice);
            made.err().map(|e| e.to_string())
        };
        assert_eq!(refusal(&Choice::default()), None);
        let law = Choice {
            law: Some("cubic".into()),
            ..Choice::default()
        };
        assert!(refusal(&law).unwrap().contains("law of its own"));
        let keys = Choice {
            peers: vec!["fh-pub1x".into()],
            ..Choice::default()
        };
        assert!(refusal(&keys).unwrap().contains("use haul"));
    }
}
