//! Chooses UDT. There are two presets of one protocol: as libudt behaves, and fixed on the same
//! wire.

use std::time::Duration;

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::{Descriptor, Protocol};
use farhaul_protocols::udt::{Behaviour, Framing, Udt, UdtConfig};

use super::{Choice, ChoiceError, End, Entry, protocol, refused};

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
pub(super) fn entries() -> [Entry; 2] {
    let descriptor = |behaviour| {
        let config = UdtConfig {
            behaviour,
            ..UdtConfig::default()
        };
        Udt::client(config)
            .expect("the default configuration is valid")
            .descriptor()
    };
    let entry = |behaviour, make| {
        Entry::new(
            descriptor(behaviour),
            law(behaviour),
            true,
            PARAMETERS,
            make,
        )
    };
    [
        entry(Behaviour::Libudt, libudt),
        entry(Behaviour::Fixed, tuned),
    ]
}

fn libudt(
    _: &'static Descriptor,
    choice: &Choice,
    values: &Values,
    end: End,
) -> Result<Box<dyn Protocol>, ChoiceError> {
    make(Behaviour::Libudt, Framing::Records, choice, values, end)
}

fn tuned(
    _: &'static Descriptor,
    choice: &Choice,
    values: &Values,
    end: End,
) -> Result<Box<dyn Protocol>, ChoiceError> {
    make(Behaviour::Fixed, Framing::Records, choice, values, end)
}

/// A client or listener of a raw ordered byte stream, for programs that use libudt's stream sockets.
pub fn stream(
    spec: &str,
    choice: &Choice,
    listens: bool,
) -> Result<Box<dyn Protocol>, ChoiceError> {
    let entry = protocol(spec)?;
    let behaviour = match entry.descriptor.name {
        "udt4" => Behaviour::Libudt,
        "udt4-tuned" => Behaviour::Fixed,
        other => {
            return refused(format_args!(
                "{other} is not UDT version 4: choose udt4 or udt4-tuned"
            ));
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
) -> Result<Box<dyn Protocol>, ChoiceError> {
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
    Ok(Box::new(udt.or_else(refused)?))
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, protocol};

    #[test]
    fn presets_take_parameters_and_refuse_what_cannot_be() {
        let choice = Choice::default();
        for spec in ["udt4", "udt4-tuned", "udt4:mss=1500,window=8192"] {
            assert!(protocol(spec).unwrap().server(&choice).is_ok(), "{spec}");
        }
        assert!(protocol("udt4:mss=70000").is_err());
        let tiny = protocol("udt4:mss=10")
            .unwrap()
            .client(&choice)
            .err()
            .unwrap();
        assert!(tiny.to_string().contains("mss is from 76"), "{tiny}");
        let keys = Choice {
            peers: vec!["fh-pub1x".into()],
            ..Choice::default()
        };
        assert!(protocol("udt4").unwrap().client(&keys).is_err());
    }
}
