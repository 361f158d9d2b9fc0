//! An entry of a protocol in the list of those that can be chosen: its description, its parameters, and the function
//! that makes an endpoint. Each protocol has its own in its folder.

use std::{fmt, sync::Arc};

use farhaul_congestion::{Factory, Parameter, ParameterError, Values, Wrap, lookup};
use farhaul_core::{
    protocol::{Descriptor, Protocol, Provenance},
    units::Rate,
};

#[cfg(feature = "published")]
use crate::gtp::Group;

/// The law of protocols that have a rate instead.
pub const NO_LAW: &str = "none";

/// Choices for making an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Congestion law with its parameters, as `cubic:beta=0.8`; the protocol's own by default.
    pub law: Option<String>,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Identity of this end: an ed25519 seed or PKCS#8 document; a new one by default.
    pub identity: Option<Vec<u8>>,
    /// Public keys of the peers that are accepted; everybody's if empty.
    pub peers: Vec<String>,
    /// True for the simulator: no sealing.
    pub simulated: bool,
    /// Observer around the law; protocol `tcp` only.
    pub wrap: Option<Wrap>,
    /// Host on which servers receive.
    pub host: Host,
}

/// A receiving host. Servers made with the same one share what the receivers of a host share; a client is always a
/// host of its own.
#[derive(Clone, Debug, Default)]
pub struct Host {
    #[cfg(feature = "published")]
    pub(crate) gtp: Group,
}

/// Reason why a protocol could not be chosen or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// No protocol of that name.
    #[error("no protocol '{name}'{}; there are: {known}", did_you_mean(.nearest.as_deref()))]
    Unknown {
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
    /// The protocol cannot be made like this.
    #[error("{0}")]
    Refused(String),
}

impl ChoiceError {
    /// The protocol cannot be made, for this reason.
    pub fn refused(why: impl fmt::Display) -> Self {
        Self::Refused(why.to_string())
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |n| format!(" (did you mean '{n}'?)"))
}

/// End of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that opens sessions.
    Client,
    /// The end that also accepts sessions.
    Server,
}

impl End {
    /// Returns true if this end takes incoming sessions.
    pub const fn accepts(self) -> bool {
        matches!(self, Self::Server)
    }
}

/// An endpoint of a protocol, or why there is none.
pub type Made = Result<Box<dyn Protocol>, ChoiceError>;

type Make = dyn Fn(&'static Descriptor, &Choice, &Values, End) -> Made + Send + Sync;

/// A protocol that can be chosen, with its parameters.
#[derive(Clone)]
pub struct Entry {
    /// Description of the protocol.
    pub descriptor: &'static Descriptor,
    /// Law that the protocol uses if none is chosen; [`NO_LAW`] if it takes none. If it is not the
    /// name of a law there is, it is the protocol's own, and no other is taken.
    pub default_law: &'static str,
    /// True if several parallel sessions can run, each a session of its own.
    pub lanes: bool,
    /// True if the rate of a first blast is counted.
    pub blasts: bool,
    /// Parameters that can be set.
    pub parameters: &'static [Parameter],
    pub(crate) values: Values,
    make: Arc<Make>,
}

impl Entry {
    /// An entry with the defaults of its parameters; `make` makes an endpoint of the protocol that is described so.
    ///
    /// # Panics
    /// If a parameter's default is not of its kind.
    pub fn new(
        descriptor: &'static Descriptor,
        default_law: &'static str,
        lanes: bool,
        parameters: &'static [Parameter],
        make: impl Fn(&'static Descriptor, &Choice, &Values, End) -> Made + Send + Sync + 'static,
    ) -> Self {
        Self {
            descriptor,
            default_law,
            lanes,
            blasts: false,
            parameters,
            values: Values::parse(descriptor.name, parameters, "").expect("defaults are valid"),
            make: Arc::new(make),
        }
    }

    /// The entry with its parameters as in `settings`, which are `name=value,...`.
    pub fn with(&self, settings: &str) -> Result<Self, ParameterError> {
        let values = Values::parse(self.descriptor.name, self.parameters, settings)?;
        Ok(Self {
            values,
            ..self.clone()
        })
    }

    /// The protocol as it was chosen, for a reader, who has to know which of them only behave like
    /// the original.
    pub fn label(&self, chosen: &str) -> String {
        match self.descriptor.provenance {
            Provenance::Model => format!("{chosen} (a model)"),
            _ => chosen.into(),
        }
    }

    /// An endpoint that opens sessions.
    pub fn client(&self, choice: &Choice) -> Made {
        self.endpoint(choice, End::Client)
    }

    /// An endpoint that accepts sessions.
    pub fn server(&self, choice: &Choice) -> Made {
        self.endpoint(choice, End::Server)
    }

    fn endpoint(&self, choice: &Choice, end: End) -> Made {
        self.check(choice)?;
        (self.make)(self.descriptor, choice, &self.values, end)
    }

    /// Refuses what has no meaning with this protocol, so that no protocol has to by itself.
    pub(crate) fn check(&self, choice: &Choice) -> Result<(), ChoiceError> {
        let name = self.descriptor.name;
        let law = choice.law.as_deref();
        let other = law.is_some_and(|law| law != self.default_law);
        let chosen = law.and_then(|law| lookup(law).ok());
        let why = if choice.wrap.is_some() && name != "tcp" {
            "only protocol tcp measures the time of its law".into()
        } else if !self.descriptor.sealed && !choice.peers.is_empty() {
            format!(
                "{name} is neither encrypted nor authenticated: --peer-key has no meaning with it; use haul"
            )
        } else if other && self.default_law == NO_LAW {
            format!(
                "{name} has no congestion law: it sends at the rate it is given, as {name}:rate=1Gbit"
            )
        } else if other && lookup(self.default_law).is_err() {
            format!(
                "{name} has a law of its own and accepts no other: set its parameters, as {name}:NAME=VALUE"
            )
        } else if let Some(law) = chosen.filter(Factory::needs_routers)
            && name != "haul"
        {
            let law = law.law().name;
            format!(
                "{name} does not carry what routers write, which congestion law {law} needs: \
                 choose protocol haul, or another law"
            )
        } else {
            return Ok(());
        };
        Err(ChoiceError::Refused(why))
    }
}
