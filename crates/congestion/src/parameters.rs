//! Parameters of a law or a protocol, written `name=value,name=value`. Each parameter is typed,
//! bounded and documented; a misspelt name is refused with the nearest one.

use std::fmt;

use farhaul_core::units::{Rate, Size};

/// One named parameter of a law or a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: &'static str,
    /// One line, with the unit.
    pub about: &'static str,
    /// Kind of value that the parameter takes.
    pub kind: Kind,
    /// The default, as written on the command line.
    pub default: &'static str,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A number between the two, inclusive.
    Number(f64, f64),
    /// A number between these bounds, without a fraction.
    Whole(u32, u32),
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
            Self::Whole(low, high) => write!(f, "a whole number from {low} to {high}"),
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
    Whole(u32),
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
            Self::Whole(low, high) => {
                let number: f64 = text.parse().ok()?;
                let fits = (low.into()..=high.into()).contains(&number) && number.fract() == 0.0;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "within the bounds, which are the integer's"
                )]
                fits.then_some(Value::Whole(number as u32))
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

/// The values of a law's or a protocol's parameters.
#[derive(Clone, Debug)]
pub struct Values(Vec<Set>);

#[derive(Clone, Copy, Debug)]
struct Set {
    name: &'static str,
    value: Value,
    given: bool,
}

impl Values {
    fn get(&self, name: &str) -> Value {
        self.find(name).value
    }

    fn find(&self, name: &str) -> &Set {
        self.0
            .iter()
            .find(|set| set.name == name)
            .expect("only declared parameters are read")
    }

    /// True if the parameter was set, if only to its default.
    ///
    /// # Panics
    /// This and its kin panic if no parameter of that name (and kind) was declared.
    pub fn is_given(&self, name: &str) -> bool {
        self.find(name).given
    }

    /// A [`Kind::Number`].
    ///
    /// # Panics
    /// See [`Self::is_given`].
    pub fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Number(n) => n,
            other => wrong(name, other),
        }
    }

    /// A [`Kind::Whole`].
    pub fn whole(&self, name: &str) -> u32 {
        match self.get(name) {
            Value::Whole(n) => n,
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

    /// Value of a [`Kind::Flag`].
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

/// Reason to refuse parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// There is no parameter of that name.
    #[error("{owner} has no parameter '{name}'{}; it has {known}", did_you_mean(.nearest.as_deref()))]
    Unknown {
        /// The law or protocol.
        owner: &'static str,
        /// Name as given.
        name: String,
        /// The nearest valid name.
        nearest: Option<String>,
        /// All names.
        known: String,
    },
    /// A parameter without `=`.
    #[error("{owner}: '{setting}' has no value: write name=value, separated by commas")]
    NoValue {
        /// The law or protocol.
        owner: &'static str,
        /// Setting as given.
        setting: String,
    },
    /// A parameter given twice.
    #[error("{owner}: {name} is given twice")]
    Twice {
        /// The law or protocol.
        owner: &'static str,
        /// The parameter.
        name: &'static str,
    },
    /// The value is not what the parameter takes.
    #[error("{owner}: {name} is {expected}, not '{value}'")]
    BadValue {
        /// The law or protocol.
        owner: &'static str,
        /// The parameter.
        name: &'static str,
        /// Value as given.
        value: String,
        /// Values that the parameter takes.
        expected: String,
    },
}

impl Values {
    /// Every parameter's value: as set in `settings` (`name=value,...`), or its default. Messages
    /// name the `owner`.
    ///
    /// # Panics
    /// Never for any `settings`; only if a declared default is not of its declared kind.
    pub fn parse(
        owner: &'static str,
        parameters: &'static [Parameter],
        settings: &str,
    ) -> Result<Self, ParameterError> {
        let mut given: Vec<(&'static str, Value)> = Vec::new();
        for setting in settings.split(',').filter(|s| !s.trim().is_empty()) {
            let (name, value) = parse_setting(owner, parameters, setting)?;
            if given.iter().any(|(known, _)| *known == name) {
                return Err(ParameterError::Twice { owner, name });
            }
            given.push((name, value));
        }
        let values = parameters.iter().map(|p| {
            let set = given.iter().find(|(name, _)| *name == p.name);
            Set {
                name: p.name,
                value: set.map_or_else(
                    || p.kind.parse(p.default).expect("defaults are valid"),
                    |(_, value)| *value,
                ),
                given: set.is_some(),
            }
        });
        Ok(Self(values.collect()))
    }
}

fn parse_setting(
    owner: &'static str,
    parameters: &'static [Parameter],
    setting: &str,
) -> Result<(&'static str, Value), ParameterError> {
    let (name, value) = setting
        .split_once('=')
        .ok_or_else(|| ParameterError::NoValue {
            owner,
            setting: setting.trim().into(),
        })?;
    let (name, value) = (name.trim(), value.trim());
    let names = || parameters.iter().map(|p| p.name);
    let parameter =
        parameters
            .iter()
            .find(|p| p.name == name)
            .ok_or_else(|| ParameterError::Unknown {
                owner,
                name: name.into(),
                nearest: nearest(name, names()).map(Into::into),
                known: list(names()),
            })?;
    let parsed = parameter
        .kind
        .parse(value)
        .ok_or_else(|| ParameterError::BadValue {
            owner,
            name: parameter.name,
            value: value.into(),
            expected: parameter.kind.to_string(),
        })?;
    Ok((parameter.name, parsed))
}

pub(crate) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |n| format!(" (did you mean '{n}'?)"))
}

pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The one of `names` fewest edits away from `typed`, unless more than half of the longer word differs.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.trim().to_ascii_lowercase();
    names
        .into_iter()
        .map(|name| (strsim::levenshtein(&typed, name), name))
        .min()
        .filter(|(distance, name)| distance * 2 <= name.len().max(typed.len()))
        .map(|(_, name)| name)
}
