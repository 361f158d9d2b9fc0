//! Entries of FOBS: in segments, and greedy.

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::{protocol::Descriptor, units::Rate};

use super::{Config, GREEDY, Mode, SEGMENTS, server};
use crate::config::mtu;
use crate::entry::{Choice, ChoiceError, End, Entry, Made, NO_LAW};

const RATE: Parameter = Parameter {
    name: "rate",
    about: "bytes of data per time; in segments the most",
    kind: Kind::Rate,
    default: "900Mbit",
};
const CHUNK: Parameter = Parameter {
    name: "chunk",
    about: "bytes in a chunk",
    kind: Kind::Size,
    default: "100000000B",
};
static SEGMENTED: [Parameter; 5] = [
    RATE,
    CHUNK,
    Parameter {
        name: "segment",
        about: "packets in a segment",
        kind: Kind::Whole(1, 1_000_000),
        default: "10000",
    },
    Parameter {
        name: "tolerance",
        about: "per cent of a segment that may be lost before the rate falls",
        kind: Kind::Number(0.0, 100.0),
        default: "1",
    },
    mtu("1500"),
];
static GREEDILY: [Parameter; 4] = [
    RATE,
    CHUNK,
    Parameter {
        name: "every",
        about: "new packets after which the receiver reports",
        kind: Kind::Whole(1, 1_000_000),
        default: "1000",
    },
    mtu("1500"),
];

/// The fastest that greedy sends, which always has something to send.
const FASTEST: Rate = Rate::gbit(1_000);
/// Seconds in which the packets between two reports have to leave.
const REPORT_WINDOW_SECS: u64 = 10;

/// The entries. No parallel sessions: its control connections belong to one socket.
pub(crate) fn entries() -> [Entry; 2] {
    [
        Entry::new(&SEGMENTS, NO_LAW, false, &SEGMENTED, make),
        Entry::new(&GREEDY, NO_LAW, false, &GREEDILY, make),
    ]
}

fn make(descriptor: &'static Descriptor, choice: &Choice, values: &Values, end: End) -> Made {
    let mode = if descriptor.name == GREEDY.name {
        Mode::Greedy {
            every: values.whole("every"),
        }
    } else {
        Mode::Segments {
            packets: values.whole("segment"),
            tolerance: values.number("tolerance") / 100.0,
        }
    };
    let config = Config {
        mode,
        rate: values.rate("rate").min(FASTEST),
        max_rate: choice.max_rate,
        chunk: values.size("chunk").bytes(),
        mtu: values.whole("mtu"),
    };
    if config.chunk == 0 {
        let why = "a chunk has at least one byte: set chunk=100MB or so";
        return Err(ChoiceError::refused(why));
    }
    if let Mode::Greedy { every } = mode
        && config.highest_rate().bps() * REPORT_WINDOW_SECS
            < u64::from(every) * u64::from(config.mtu) * 8
    {
        let why = "too slow for the reports: the packets between two of them take more than 10 s; \
                   set a smaller every=";
        return Err(ChoiceError::refused(why));
    }
    Ok(server(&config).boxed(end.accepts()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked_and_what_has_no_meaning_is_refused() {
        let choice = Choice::default();
        let [segments, greedy] = entries();
        for made in [
            segments.with("rate=95Mbit,segment=5000"),
            greedy.with("every=500"),
        ] {
            assert!(made.unwrap().server(&choice).is_ok());
        }
        assert!(segments.with("every=500").is_err());
        let refused = |entry: &Entry, choice: &Choice, words: &str| {
            let refused = entry.client(choice).err().unwrap();
            assert!(refused.to_string().contains(words), "{refused}");
        };
        let none = segments.with("chunk=0B").unwrap();
        refused(&none, &choice, "at least one byte");
        let slow = Choice {
            max_rate: Some(Rate::mbit(1)),
            ..Choice::default()
        };
        refused(&greedy, &slow, "smaller every=");
    }
}
