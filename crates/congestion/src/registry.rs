//! Which law does a name mean? `cubic:beta=0.8,slow_start=classic` is a law and its parameters, each
//! typed, bounded and documented; what is misspelt is refused with the nearest name.

use std::fmt;

use farhaul_core::{
    congestion::CongestionController,
    units::{Rate, Size},
};

use crate::{
    bic, compound, cubic, cubic_2_6_25, fast, fixed, haul, hstcp, htcp, illinois, ledbat, reno,
    scalable,
    slow_start::{Classic, HyStart, Limited},
    vegas, westwood,
    window::{Counting, Growth, Windowed},
};

/// Every law, in the order of their listing.
static LAWS: &[Law] = &[
    haul::LAW,
    cubic::LAW,
    cubic_2_6_25::LAW,
    reno::LAW,
    bic::LAW,
    hstcp::LAW,
    scalable::LAW,
    htcp::LAW,
    westwood::LAW,
    illinois::LAW,
    vegas::LAW,
    compound::LAW,
    fast::LAW,
    ledbat::LAW,
    fixed::LAW,
];

/// Every law that can be chosen.
pub fn laws() -> &'static [Law] {
    LAWS
}

/// A law as the registry knows it.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Paper, RFC or document.
    pub citation: &'static str,
    /// What can be set.
    pub parameters: &'static [Parameter],
    /// Makes a controller; every parameter has a value.
    pub(crate) make: fn(&Values) -> Box<dyn CongestionController>,
}

/// One named parameter of a law.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// One line, with the unit.
    pub about: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is if nothing is said, as one would write it.
    pub default: &'static str,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A number between the two, inclusive.
    Number(f64, f64),
    /// A rate with its unit.
    Rate,
    /// A size.
    Size,
    /// `on` or `off`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(low, high) => write!(f, "a number from {low} to {high}"),
            Self::Rate => f.write_str("a rate such as 8Gbit"),
            Self::Size => f.write_str("a size such as 64KiB"),
            Self::Flag => f.write_str("on or off"),
            Self::Choice(words) => f.write_str(&words.join(" or ")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Number(f64),
    Rate(Rate),
    Size(Size),
    Flag(bool),
    Choice(&'static str),
}

impl Kind {
    fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Number(low, high) => {
                let number = text.parse().ok()?;
                (low..=high)
                    .contains(&number)
                    .then_some(Value::Number(number))
            }
            Self::Rate => text.parse().ok().map(Value::Rate),
            Self::Size => text.parse().ok().map(Value::Size),
            Self::Flag => match text {
                "on" | "true" | "yes" => Some(Value::Flag(true)),
                "off" | "false" | "no" => Some(Value::Flag(false)),
                _ => None,
            },
            Self::Choice(words) => words.iter().find(|w| **w == text).map(|w| Value::Choice(w)),
        }
    }
}

/// The values of a law's parameters.
#[derive(Clone, Debug)]
pub struct Values(Vec<(&'static str, Value)>);

impl Values {
    fn get(&self, name: &str) -> Value {
        self.0
            .iter()
            .find(|(n, _)| *n == name)
            .expect("a law reads only parameters that it declares")
            .1
    }

    /// A [`Kind::Number`].
    ///
    /// # Panics
    /// This and its kin panic if the law has no such parameter of that kind.
    pub fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Number(n) => n,
            other => wrong(name, other),
        }
    }

    /// A [`Kind::Rate`].
    pub fn rate(&self, name: &str) -> Rate {
        match self.get(name) {
            Value::Rate(r) => r,
            other => wrong(name, other),
        }
    }

    /// A [`Kind::Size`].
    pub fn size(&self, name: &str) -> Size {
        match self.get(name) {
            Value::Size(s) => s,
            other => wrong(name, other),
        }
    }

    /// A [`Kind::Flag`].
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Value::Flag(b) => b,
            other => wrong(name, other),
        }
    }

    /// A [`Kind::Choice`].
    pub fn choice(&self, name: &str) -> &'static str {
        match self.get(name) {
            Value::Choice(c) => c,
            other => wrong(name, other),
        }
    }
}

fn wrong(name: &str, value: Value) -> ! {
    panic!("parameter {name} is declared as another kind: {value:?}")
}

/// Makes controllers of one law with one set of parameters.
#[derive(Clone, Debug)]
pub struct Factory {
    law: &'static Law,
    values: Values,
    spec: String,
}

impl Factory {
    /// The law.
    pub const fn law(&self) -> &'static Law {
        self.law
    }

    /// A new controller.
    pub fn make(&self) -> Box<dyn CongestionController> {
        (self.law.make)(&self.values)
    }
}

impl fmt::Display for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spec)
    }
}

/// Why a law was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No law of that name.
    #[error("no congestion law '{name}'{}; there are {known}", did_you_mean(.nearest.as_deref()))]
    UnknownLaw {
        /// As given.
        name: String,
        /// What may have been meant.
        nearest: Option<String>,
        /// All names.
        known: String,
    },
    /// The law has no parameter of that name.
    #[error("{law} has no parameter '{name}'{}; it has {known}", did_you_mean(.nearest.as_deref()))]
    UnknownParameter {
        /// The law.
        law: &'static str,
        /// As given.
        name: String,
        /// What may have been meant.
        nearest: Option<String>,
        /// All names.
        known: String,
    },
    /// A parameter without `=`, or given twice.
    #[error("'{0}': write each parameter once, as name=value, separated by commas")]
    Malformed(String),
    /// Not what the parameter takes.
    #[error("{law}: {name} is {expected}, not '{value}'")]
    BadValue {
        /// The law.
        law: &'static str,
        /// The parameter.
        name: &'static str,
        /// As given.
        value: String,
        /// What it takes.
        expected: String,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |n| format!(" (did you mean '{n}'?)"))
}

/// The law written as `name` or `name:parameter=value,...`.
///
/// # Panics
/// Never for any `spec`; only if a law's declared default is not of its declared kind.
pub fn lookup(spec: &str) -> Result<Factory, Error> {
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    let law = LAWS
        .iter()
        .find(|law| law.name == name.trim())
        .ok_or_else(|| Error::UnknownLaw {
            name: name.into(),
            nearest: nearest(name, LAWS.iter().map(|l| l.name)),
            known: list(LAWS.iter().map(|l| l.name)),
        })?;
    let mut given: Vec<(&'static Parameter, Value)> = Vec::new();
    for setting in settings.split(',').filter(|s| !s.trim().is_empty()) {
        let (parameter, value) = parse_setting(law, setting)?;
        if given.iter().any(|(p, _)| p.name == parameter.name) {
            return Err(Error::Malformed(spec.into()));
        }
        given.push((parameter, value));
    }
    let values = law.parameters.iter().map(|p| {
        let set = given.iter().find(|(q, _)| q.name == p.name);
        let value = set.map_or_else(
            || p.kind.parse(p.default).expect("defaults are valid"),
            |(_, v)| *v,
        );
        (p.name, value)
    });
    Ok(Factory {
        law,
        values: Values(values.collect()),
        spec: spec.into(),
    })
}

fn parse_setting(law: &'static Law, setting: &str) -> Result<(&'static Parameter, Value), Error> {
    let (name, value) = setting
        .split_once('=')
        .ok_or_else(|| Error::Malformed(setting.into()))?;
    let (name, value) = (name.trim(), value.trim());
    let names = || law.parameters.iter().map(|p| p.name);
    let parameter = law
        .parameters
        .iter()
        .find(|p| p.name == name)
        .ok_or_else(|| Error::UnknownParameter {
            law: law.name,
            name: name.into(),
            nearest: nearest(name, names()),
            known: list(names()),
        })?;
    let parsed = parameter.kind.parse(value).ok_or_else(|| Error::BadValue {
        law: law.name,
        name: parameter.name,
        value: value.into(),
        expected: parameter.kind.to_string(),
    })?;
    Ok((parameter, parsed))
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The name fewest edits away, if no more than a third of it is wrong.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let typed = typed.trim().to_ascii_lowercase();
    names
        .map(|name| (edits(&typed, name), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().max(3) / 3)
        .map(|(_, name)| name.to_string())
}

/// Levenshtein's distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The parameter shared by all window laws.
pub(crate) const START: Parameter = Parameter {
    name: "slow_start",
    about: "how slow start ends: when the rtt rises (hystart, RFC 9406), on a loss (classic), or on a \
            loss after steps of 50 datagrams (limited, RFC 3742)",
    kind: Kind::Choice(&["hystart", "classic", "limited"]),
    default: "hystart",
};

/// The parameter shared by all window laws that lets them count as old senders did.
pub(crate) const COUNTING: Parameter = Parameter {
    name: "counting",
    about: "what makes the window grow: bytes acknowledged, or acknowledgements (Linux before 3.x)",
    kind: Kind::Choice(&["bytes", "acks"]),
    default: "bytes",
};

/// `law` behind the slow start chosen by [`START`], growing by what [`COUNTING`] says.
pub(crate) fn with_start<G: Growth + 'static>(
    values: &Values,
    law: G,
) -> Box<dyn CongestionController> {
    let counting = counting(values);
    match values.choice(START.name) {
        "classic" => Box::new(Windowed::new(Classic, law).counting(counting)),
        "limited" => Box::new(Windowed::new(Limited, law).counting(counting)),
        _ => Box::new(Windowed::new(HyStart::default(), law).counting(counting)),
    }
}

/// The value of [`COUNTING`].
pub(crate) fn counting(values: &Values) -> Counting {
    match values.choice(COUNTING.name) {
        "acks" => Counting::Acks,
        _ => Counting::Bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_law_can_be_made_with_its_defaults() {
        for law in laws() {
            let made = lookup(law.name).unwrap().make();
            assert_eq!(made.name(), law.name);
            assert!(made.allowance().rate > Rate::ZERO);
        }
    }

    #[test]
    fn parameters_are_applied() {
        let made = lookup("fixed:rate=8Gbit, quantum=1KiB").unwrap().make();
        assert_eq!(made.allowance().rate, Rate::gbit(8));
        assert_eq!(made.allowance().quantum, Size::from_bytes(1_024));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (spec, message) in [
            (
                "cubik",
                "no congestion law 'cubik' (did you mean 'cubic'?); there are ",
            ),
            ("quux", "no congestion law 'quux'; there are "),
            (
                "reno:bta=0.8",
                "reno has no parameter 'bta' (did you mean 'beta'?); it has beta, slow_start, counting",
            ),
            (
                "reno:beta=2",
                "reno: beta is a number from 0.1 to 0.99, not '2'",
            ),
            (
                "reno:beta=NaN",
                "reno: beta is a number from 0.1 to 0.99, not 'NaN'",
            ),
            (
                "reno:slow_start=fast",
                "reno: slow_start is hystart or classic or limited, not 'fast'",
            ),
            (
                "fixed:rate=8",
                "fixed: rate is a rate such as 8Gbit, not '8'",
            ),
            (
                "reno:beta",
                "'beta': write each parameter once, as name=value, separated by commas",
            ),
        ] {
            let error = lookup(spec).unwrap_err().to_string();
            let names = if message.ends_with("there are ") {
                list(LAWS.iter().map(|l| l.name))
            } else {
                String::new()
            };
            assert_eq!(error, format!("{message}{names}"));
        }
        assert!(lookup("reno:beta=0.5,beta=0.6").is_err());
    }
}
