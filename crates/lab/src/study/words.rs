//! Puts the names of scenarios into words: variables, their values, and cases.

use crate::scenario::{Case, name_of, shown, table_of};

/// Units that values are written with, and the same as pages write them.
const UNITS: [(&str, &str); 18] = [
    ("%", "%"),
    ("us", "us"),
    ("ms", "ms"),
    ("s", "s"),
    ("min", "min"),
    ("bit", "bit/s"),
    ("kbit", "kbit/s"),
    ("Mbit", "Mbit/s"),
    ("Gbit", "Gbit/s"),
    ("B", "bytes"),
    ("kB", "kB"),
    ("MB", "MB"),
    ("GB", "GB"),
    ("KiB", "KiB"),
    ("MiB", "MiB"),
    ("GiB", "GiB"),
    ("packets", "packets"),
    ("BDP", "BDP"),
];

/// The name of a variable: `RTT` for `rtt`, and `rival` for `rival.name`.
pub(super) fn variable(name: &str) -> String {
    let table = table_of(name);
    let own = if name == name_of(table) { table } else { name };
    let last = own.rsplit('.').next().unwrap_or(own);
    match last {
        "rtt" | "mtu" | "mss" => last.to_uppercase(),
        other => other.replace(['_', '-'], " "),
    }
}

/// A value: a number stands apart from its unit, and everything else is as it is written.
pub(super) fn value(text: &str) -> String {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let at = text.find(|c| !digits(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let unit = UNITS.iter().find(|(written, _)| *written == unit.trim());
    match unit {
        Some((_, unit)) if !number.is_empty() => format!("{number} {unit}"),
        _ => text.into(),
    }
}

/// A case: its variables with their values; a system, protocol or law goes by its value alone.
pub(super) fn setting(case: &Case) -> String {
    let word = |(name, own): (&String, &String)| match variable(name).as_str() {
        "system" | "protocol" | "law" => value(own),
        variable => format!("{variable} {}", value(own)),
    };
    shown(case).map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_values_and_cases_are_put_into_words() {
        for (name, words) in [
            ("rtt", "RTT"),
            ("loss", "loss"),
            ("system.name", "system"),
            ("system.mss", "MSS"),
            ("cell.rtt", "RTT"),
            ("send_buffer", "send buffer"),
        ] {
            assert_eq!(variable(name), words);
        }
        for (text, words) in [
            ("50ms", "50 ms"),
            ("0.1%", "0.1 %"),
            ("12300kbit", "12300 kbit/s"),
            ("100MB", "100 MB"),
            ("8", "8"),
            ("udt4-2014", "udt4-2014"),
            ("ge:1%,4", "ge:1%,4"),
            ("ms", "ms"),
        ] {
            assert_eq!(value(text), words);
        }
        let case = [
            ("rtt", "0ms"),
            ("loss", "2%"),
            ("system.name", "mtp"),
            ("system.rate", "10Gbit"),
        ];
        let case: Case = case.map(|(k, v)| (k.into(), v.into())).into();
        assert_eq!(setting(&case), "loss 2 %, RTT 0 ms, mtp");
        assert_eq!(setting(&Case::new()), "");
    }
}
