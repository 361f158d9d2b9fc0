//! Entries of RBUDP: as the original, with two sets of parameters that have names, and without the
//! pauses between blocks.

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::{protocol::Descriptor, rounds::Style};

use super::{BEST, Config, KACHAN, OVERLAP, RBUDP, server};
use crate::config::mtu;
use crate::entry::{Choice, ChoiceError, End, Entry, Made, NO_LAW};

/// The parameters, with these defaults.
const fn parameters(
    rate: &'static str,
    block: &'static str,
    payload: &'static str,
    whole_us: &'static str,
    window: &'static str,
    overtake: &'static str,
) -> [Parameter; 8] {
    [
        Parameter {
            name: "rate",
            about: "bytes of data per time, which nothing changes",
            kind: Kind::Rate,
            default: rate,
        },
        Parameter {
            name: "block",
            about: "bytes in a block",
            kind: Kind::Size,
            default: block,
        },
        Parameter {
            name: "payload",
            about: "bytes of data in a packet; 0: as many as fit",
            kind: Kind::Whole(0, 65_000),
            default: payload,
        },
        Parameter {
            name: "whole-us",
            about: "gaps are whole microseconds, as in the original",
            kind: Kind::Flag,
            default: whole_us,
        },
        Parameter {
            name: "window",
            about: "blocks in flight at once; the original has one",
            kind: Kind::Whole(1, 32),
            default: window,
        },
        Parameter {
            name: "overtake",
            about: "packets at the end of a block that DONE overtakes, and that are sent again",
            kind: Kind::Whole(0, 1_000),
            default: overtake,
        },
        Parameter {
            name: "spin",
            about: "wait for the next packet in a loop, as the original, which takes a whole core",
            kind: Kind::Flag,
            default: "off",
        },
        mtu("9000"),
    ]
}

static ORIGINAL: [Parameter; 8] = parameters("600Mbit", "64MiB", "0", "on", "1", "0");
static MEASURED: [Parameter; 8] = parameters("9.6Gbit", "64MiB", "8800", "on", "1", "1");
static LARGE: [Parameter; 8] = parameters("9.6Gbit", "2GiB", "0", "off", "1", "0");
static OVERLAPPED: [Parameter; 8] = parameters("9.6Gbit", "64MiB", "0", "off", "32", "0");

/// The entries. No parallel sessions: its control connections belong to one socket.
pub(crate) fn entries() -> [Entry; 4] {
    [
        (&RBUDP, &ORIGINAL),
        (&KACHAN, &MEASURED),
        (&BEST, &LARGE),
        (&OVERLAP, &OVERLAPPED),
    ]
    .map(|(descriptor, parameters)| {
        let mut entry = Entry::new(descriptor, NO_LAW, false, parameters, make);
        entry.blasts = Config::BLASTS;
        entry
    })
}

fn make(descriptor: &'static Descriptor, choice: &Choice, values: &Values, end: End) -> Made {
    let block = values.size("block").bytes();
    if block == 0 {
        let why = "a block has at least one byte: set block=64MiB or so";
        return Err(ChoiceError::refused(why));
    }
    let payload = values.whole("payload");
    let config = Config {
        rate: values.rate("rate"),
        max_rate: choice.max_rate,
        block,
        payload: (payload > 0).then_some(payload),
        mtu: values.whole("mtu"),
        whole_us: values.flag("whole-us"),
        window: usize::try_from(values.whole("window")).unwrap_or(usize::MAX),
        overtake: values.whole("overtake"),
        // Hosts of the simulator take no time.
        spin: values.flag("spin") && !choice.simulated,
    };
    Ok(server(descriptor, &config).boxed(end.accepts()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked_and_what_has_no_meaning_is_refused() {
        let choice = Choice::default();
        let all = entries();
        for (entry, settings) in all.iter().zip(["rate=8Gbit,spin=on", "", "", "window=3"]) {
            let entry = entry.with(settings).unwrap();
            assert!(entry.server(&choice).is_ok(), "{}", entry.descriptor.name);
        }
        assert!(all[0].with("window=33").is_err());
        let none = all[0].with("block=0B").unwrap();
        let refused = none.client(&choice).err().unwrap();
        assert!(
            refused.to_string().contains("at least one byte"),
            "{refused}"
        );
    }
}
