//! How is PA-UDP chosen?

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::{Descriptor, Protocol};
use farhaul_protocols::pa_udp::{Config, DESCRIPTOR, client, server};

use super::{Choice, ChoiceError, End, Entry, udt::whole};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "rate",
        about: "bytes of data per time that the link carries: sent at where the receiver's disk is no limit",
        kind: Kind::Rate,
        default: "900Mbit",
    },
    Parameter {
        name: "mtu",
        about: "largest packet, bytes, IP and UDP included",
        kind: Kind::Number(128.0, 65_535.0),
        default: "1500",
    },
];

/// The only law there is.
const LAW: &str = "pa-udp";

/// The entry. One lane: its control connections belong to one socket.
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
        return refused("pa-udp authenticates nobody: --peer-key has no meaning with it; use haul");
    }
    if choice.law.as_deref().is_some_and(|law| law != LAW) {
        return refused("pa-udp has a law of its own and takes no other: set pa-udp:rate=");
    }
    let config = Config {
        link: values.rate("rate"),
        max_rate: choice.max_rate,
        mtu: whole(values, "mtu"),
    };
    Ok(match end {
        End::Client => Box::new(client(&config)),
        End::Server => Box::new(server(&config)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, protocol};

    #[test]
    fn laws_and_keys_have_no_meaning_with_it() {
        let refusal = |choice: &Choice| {
            let made = protocol("pa-udp:rate=1Gbit").unwrap().server(choice);
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
