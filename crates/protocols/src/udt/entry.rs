//! Entries of UDT. There are two presets of one protocol: as libudt behaves, and fixed on the same
//! wire.

use std::time::Duration;

use farhaul_congestion::{Kind, Parameter, Values};

use super::{
    Behaviour, Framing, Udt, UdtConfig,
    protocol::{LIBUDT, TUNED},
};
use crate::entry::{Choice, ChoiceError, End, Entry, Made};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "window",
        about: "receive window, packets",
        kind: Kind::Whole(32, 16_777_216),
        default: "131072",
    },
    Parameter {
        name: "mss",
        about: "largest packet, bytes, IP and UDP included; 0: the interface's, at most 9000",
        kind: Kind::Whole(0, 65_535),
        default: "0",
    },
    Parameter {
        name: "wake",
        about: "time in which a receiver that sleeps between packets takes the second of a pair, µs",
        kind: Kind::Whole(1, 100_000),
        default: "1",
    },
];

/// The law of `udt4`: UDT's own, but with a window as large as libudt is configured with for such paths.
const LAW: &str = "daimd:window=131072";
/// The law of `udt4-tuned`: the same, without initial estimates, and with one decrease for all
/// losses in a round trip.
const TUNED_LAW: &str = "daimd:window=131072,first=none,cuts=1";

const fn law(behaviour: Behaviour) -> &'static str {
    match behaviour {
        Behaviour::Libudt => LAW,
        Behaviour::Fixed => TUNED_LAW,
    }
}

/// The two entries.
pub(crate) fn entries() -> [Entry; 2] {
    [(&LIBUDT, Behaviour::Libudt), (&TUNED, Behaviour::Fixed)].map(|(descriptor, behaviour)| {
        let make = move |_, choice: &Choice, values: &Values, end| {
            make(behaviour, Framing::Records, choice, values, end)
        };
        Entry::new(descriptor, law(behaviour), true, PARAMETERS, make)
    })
}

/// A client or listener of a raw ordered byte stream, for programs that use libudt's stream sockets.
pub fn stream(entry: &Entry, choice: &Choice, listens: bool) -> Made {
    let behaviour = match entry.descriptor.name {
        "udt4" => Behaviour::Libudt,
        "udt4-tuned" => Behaviour::Fixed,
        other => {
            return Err(ChoiceError::Refused(format!(
                "{other} is not UDT version 4: choose udt4 or udt4-tuned"
            )));
        }
    };
    entry.check(choice)?;
    let end = if listens { End::Server } else { End::Client };
    make(behaviour, Framing::Stream, choice, &entry.values, end)
}

fn make(
    behaviour: Behaviour,
    framing: Framing,
    choice: &Choice,
    values: &Values,
    end: End,
) -> Made {
    let mss = values.whole("mss");
    let config = UdtConfig {
        behaviour,
        framing,
        law: choice.law.clone().unwrap_or_else(|| law(behaviour).into()),
        max_rate: choice.max_rate,
        mss: (mss > 0).then_some(mss),
        wake: Duration::from_micros(values.whole("wake").into()),
        window: values.whole("window"),
        cookie_key: choice.simulated.then_some([7, 7]),
        ..UdtConfig::default()
    };
    let udt = match end {
        End::Client => Udt::client(config),
        End::Server => Udt::server(config),
    };
    Ok(Box::new(udt.map_err(ChoiceError::refused)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_take_parameters_and_refuse_what_cannot_be() {
        let choice = Choice::default();
        let [libudt, tuned] = entries();
        assert!(tuned.server(&choice).is_ok());
        for settings in ["", "mss=1500,window=8192"] {
            let entry = libudt.with(settings).unwrap();
            assert!(entry.server(&choice).is_ok(), "{settings}");
        }
        assert!(libudt.with("mss=70000").is_err());
        let tiny = libudt.with("mss=10").unwrap();
        let tiny = tiny.client(&choice).err().unwrap();
        assert!(tiny.to_string().contains("mss is from 76"), "{tiny}");
        let keys = Choice {
            peers: vec!["fh-pub1x".into()],
            ..Choice::default()
        };
        assert!(libudt.client(&keys).is_err());
        let stream = stream(&libudt, &keys, true).err().unwrap();
        assert!(stream.to_string().contains("use haul"), "{stream}");
    }
}
