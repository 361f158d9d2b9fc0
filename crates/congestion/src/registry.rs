//! Registry of laws by name. `cubic:beta=0.8,slow_start=classic` is a law and its parameters, each
//! typed, bounded and documented; a misspelt name is refused with the nearest one.

use std::{fmt, sync::Arc};

use farhaul_core::congestion::CongestionController;

use crate::{
    List, bbr, bic, compound, cubic, cubic_2_6_25, daimd, fast, fixed, haul, hstcp, htcp, illinois,
    law::Law,
    ledbat,
    parameters::{ParameterError, Values, did_you_mean, list, nearest},
    reno, sabul, scalable, tfrc, vegas, westwood, xcp,
};

/// The laws of this crate, in the order of their listing.
static OWN: &[Law] = &[
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
    bbr::LAW,
    daimd::LAW,
    sabul::LAW,
    tfrc::LAW,
    xcp::LAW,
    fixed::LAW,
];

static LAWS: List<Law> = List::new(|| OWN.to_vec());

/// Every law that can be chosen: those of this crate, then those [added](add).
pub fn laws() -> &'static [Law] {
    LAWS.all()
}

/// Reason why a law was not added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// There is one of that name.
    #[error("the congestion law '{0}' exists already")]
    Taken(&'static str),
    /// The law could not be looked up.
    #[error("'{0}' is not a valid name: letters, digits, '-', '_' and '.' only")]
    Name(&'static str),
    /// A parameter's default is not of its kind.
    #[error(transparent)]
    Default(#[from] ParameterError),
}

/// True if the name can be typed before a colon and parameters.
pub fn is_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.chars().all(good)
}

/// Adds a law from elsewhere, for this process.
pub fn add(law: Law) -> Result<(), AddError> {
    if !is_name(law.name) {
        return Err(AddError::Name(law.name));
    }
    Values::parse(law.name, law.parameters, "")?;
    if LAWS.add(law, |known| known.name == law.name) {
        Ok(())
    } else {
        Err(AddError::Taken(law.name))
    }
}

/// A wrapper around every controller created, to observe it.
#[derive(Clone)]
pub struct Wrap(Arc<Around>);

type Around = dyn Fn(Box<dyn CongestionController>) -> Box<dyn CongestionController> + Send + Sync;

impl Wrap {
    /// Puts `around` around controllers.
    pub fn new(
        around: impl Fn(Box<dyn CongestionController>) -> Box<dyn CongestionController>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(around))
    }
}

impl fmt::Debug for Wrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wrap")
    }
}

/// Makes controllers of one law with one set of parameters.
#[derive(Clone, Debug)]
pub struct Factory {
    law: &'static Law,
    values: Values,
    spec: String,
    wrap: Option<Wrap>,
}

impl Factory {
    /// The law.
    pub const fn law(&self) -> &'static Law {
        self.law
    }

    /// True if the law lives by what routers write into its packets. Only a simulator has such
    /// routers.
    pub fn needs_routers(&self) -> bool {
        self.make().congestion_header().is_some()
    }

    /// A new controller.
    pub fn make(&self) -> Box<dyn CongestionController> {
        let made = (self.law.make)(&self.values);
        match &self.wrap {
            Some(Wrap(around)) => around(made),
            None => made,
        }
    }

    /// Puts `wrap` around each law that the factory makes.
    #[must_use]
    pub fn wrapped(mut self, wrap: Wrap) -> Self {
        self.wrap = Some(wrap);
        self
    }
}

impl fmt::Display for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spec)
    }
}

/// Reason why a law was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No law of that name.
    #[error("no congestion law '{name}'{}; there are {known}", did_you_mean(.nearest.as_deref()))]
    UnknownLaw {
        /// Name as given.
        name: String,
        /// The nearest valid name.
        nearest: Option<String>,
        /// All names.
        known: String,
    },
    /// A parameter is wrong.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
}

/// The law written as `name` or `name:parameter=value,...`.
///
/// # Panics
/// Never for any `spec`; only if a law's declared default is not of its declared kind.
pub fn lookup(spec: &str) -> Result<Factory, Error> {
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    let laws = laws();
    let law = laws
        .iter()
        .find(|law| law.name == name.trim())
        .ok_or_else(|| Error::UnknownLaw {
            name: name.into(),
            nearest: nearest(name, laws.iter().map(|l| l.name)).map(Into::into),
            known: list(laws.iter().map(|l| l.name)),
        })?;
    let values = Values::parse(law.name, law.parameters, settings)?;
    Ok(Factory {
        law,
        values,
        spec: spec.into(),
        wrap: None,
    })
}

#[cfg(test)]
mod tests {
    use farhaul_core::units::{Rate, Size};

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
                "reno: 'beta' has no value: write name=value, separated by commas",
            ),
        ] {
            let error = lookup(spec).unwrap_err().to_string();
            let names = if message.ends_with("there are ") {
                list(laws().iter().map(|l| l.name))
            } else {
                String::new()
            };
            assert_eq!(error, format!("{message}{names}"));
        }
        let twice = lookup("reno:beta=0.5,beta=0.6").unwrap_err();
        assert_eq!(twice.to_string(), "reno: beta is given twice");
    }
}
