//! How is SABUL chosen?

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::{Descriptor, Protocol};
use farhaul_protocols::sabul::{Config, DESCRIPTOR, client, server};

use super::{Choice, ChoiceError, End, Entry, udt::whole};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "window",
        about: "packets that may be unacknowledged",
        kind: Kind::Number(1.0, 25_000_000.0),
        default: "25600",
    },
    Parameter {
        name: "mss",
        about: "largest packet, bytes, IP and UDP included",
        kind: Kind::Number(128.0, 65_535.0),
        default: "1500",
    },
];

/// The entry. One lane: its control connections belong to one socket.
pub(super) fn entry() -> Entry {
    Entry::new(&DESCRIPTOR, "sabul", false, PARAMETERS, make)
}

fn make(
    _: &'static Descriptor,
    choice: &Choice,
    values: &Values,
    end: End,
) -> Result<Box<dyn Protocol>, ChoiceError> {
    if !choice.peers.is_empty() {
        return Err(ChoiceError::Refused(
            "SABUL authenticates nobody: --peer-key has no meaning with it; use haul".into(),
        ));
    }
    let config = Config {
        law: choice.law.clone().unwrap_or_else(|| "sabul".into()),
        max_rate: choice.max_rate,
        mss: whole(values, "mss"),
        window: whole(values, "window"),
        ..Config::default()
    };
    let sabul = match end {
        End::Client => client(&config),
        End::Server => server(&config),
    };
    let sabul = sabul.map_err(|e| ChoiceError::Refused(e.to_string()))?;
    Ok(Box::new(sabul))
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, protocol};

    #[test]
    fn parameters_are_checked_and_keys_refused() {
        let choice = Choice::default();
        assert!(protocol("sabul:mss=9000").unwrap().server(&choice).is_ok());
        assert!(protocol("sabul:window=0").is_err());
        let law = Choice {
            law: Some("sabul:variant=aimd".into()),
            ..Choice::default()
        };
        assert!(protocol("sabul").unwrap().client(&law).is_ok());
        let keys = Choice {
            peers: vec!["fh-pub1x".into()],
            ..Choice::default()
        };
        let refused = protocol("sabul").unwrap().client(&keys).err().unwrap();
        assert!(refused.to_string().contains("use haul"), "{refused}");
    }
}
