//! Registry of every protocol that can be run, by name, made from one kind of [`Choice`], so that
//! commands know none of them.

mod fobs;
mod gtp;
mod mtp;
mod pa_udp;
mod rbudp;
mod rudp;
mod rwtp;
mod sabul;
mod ttp;
pub mod udt;

use std::{fmt, sync::Arc};

use farhaul_congestion::{
    Factory, Kind, List, Parameter, ParameterError, Values, is_name, lookup, nearest,
};
use farhaul_core::{
    protocol::{Descriptor, Protocol, Provenance},
    units::Rate,
};
use farhaul_haul::{Haul, HaulConfig, Identity, PathMemory, PeerPolicy, PublicKey};
use farhaul_protocols::{
    gtp::Group,
    tcp::{self, Tcp},
};

use farhaul_measure::stopwatch::Stopwatch;

/// Seed of the identity of simulated ends.
const SIMULATED_SEED: [u8; 32] = [7; 32];

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
    /// Parameters that earlier connections proved of paths; haul only.
    pub memory: Option<Arc<PathMemory>>,
    /// True for the simulator: no sealing.
    pub simulated: bool,
    /// Measures the time spent inside the law; protocol `tcp` only.
    pub stopwatch: Option<Stopwatch>,
    /// Host on which servers receive.
    pub host: Host,
}

/// A receiving host. Servers made with the same one share what the receivers of a host share; a client is always a
/// host of its own.
#[derive(Clone, Debug, Default)]
pub struct Host {
    gtp: Group,
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

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |n| format!(" (did you mean '{n}'?)"))
}

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
    values: Values,
    make: Make,
}

/// Makes an endpoint of the protocol that is described so.
pub type Make =
    fn(&'static Descriptor, &Choice, &Values, End) -> Result<Box<dyn Protocol>, ChoiceError>;

/// End of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that opens sessions.
    Client,
    /// The end that also accepts sessions.
    Server,
}

impl Entry {
    /// The protocol as it was chosen, for a reader, who has to know which of them only behave like
    /// the original.
    pub fn label(&self, chosen: &str) -> String {
        match self.descriptor.provenance {
            Provenance::Model => format!("{chosen} (a model)"),
            _ => chosen.into(),
        }
    }

    /// An entry with the defaults of its parameters.
    ///
    /// # Panics
    /// If a parameter's default is not of its kind.
    pub fn new(
        descriptor: &'static Descriptor,
        default_law: &'static str,
        lanes: bool,
        parameters: &'static [Parameter],
        make: Make,
    ) -> Self {
        Self {
            descriptor,
            default_law,
            lanes,
            blasts: false,
            parameters,
            values: Values::parse(descriptor.name, parameters, "").expect("defaults are valid"),
            make,
        }
    }

    /// An endpoint that opens sessions.
    pub fn client(&self, choice: &Choice) -> Result<Box<dyn Protocol>, ChoiceError> {
        self.endpoint(choice, End::Client)
    }

    /// An endpoint that accepts sessions.
    pub fn server(&self, choice: &Choice) -> Result<Box<dyn Protocol>, ChoiceError> {
        self.endpoint(choice, End::Server)
    }

    fn endpoint(&self, choice: &Choice, end: End) -> Result<Box<dyn Protocol>, ChoiceError> {
        self.check(choice)?;
        (self.make)(self.descriptor, choice, &self.values, end)
    }

    /// Refuses what has no meaning with this protocol, so that no protocol has to by itself.
    fn check(&self, choice: &Choice) -> Result<(), ChoiceError> {
        if choice.stopwatch.is_some() && self.descriptor.name != "tcp" {
            return refused("only protocol tcp measures the time of its law");
        }
        let name = self.descriptor.name;
        if !self.descriptor.sealed && !choice.peers.is_empty() {
            return refused(format_args!(
                "{name} is neither encrypted nor authenticated: --peer-key has no meaning with it; use haul"
            ));
        }
        let law = choice.law.as_deref();
        let other = law.is_some_and(|law| law != self.default_law);
        if other && self.default_law == NO_LAW {
            return refused(format_args!(
                "{name} has no congestion law: it sends at the rate it is given, as {name}:rate=1Gbit"
            ));
        }
        if other && lookup(self.default_law).is_err() {
            return refused(format_args!(
                "{name} has a law of its own and accepts no other: set its parameters, as {name}:NAME=VALUE"
            ));
        }
        let law = law.and_then(|law| lookup(law).ok());
        if let Some(law) = law.filter(Factory::needs_routers)
            && name != "haul"
        {
            let law = law.law().name;
            return refused(format_args!(
                "{name} does not carry what routers write, which congestion law {law} needs: \
                 choose protocol haul, or another law"
            ));
        }
        Ok(())
    }
}

impl End {
    /// Returns true if this end takes incoming sessions.
    const fn accepts(self) -> bool {
        matches!(self, Self::Server)
    }
}

fn refused<T>(why: impl fmt::Display) -> Result<T, ChoiceError> {
    Err(ChoiceError::Refused(why.to_string()))
}

/// The size of packets.
const fn mtu(default: &'static str) -> Parameter {
    Parameter {
        name: "mtu",
        about: "largest packet, bytes, IP and UDP included",
        kind: Kind::Whole(128, 65_535),
        default,
    }
}

static PROTOCOLS: List<Entry> = List::new(own);

/// Every protocol, in the order of their listing: those of farhaul, then those [added](add).
pub fn protocols() -> &'static [Entry] {
    PROTOCOLS.all()
}

/// Adds a protocol from elsewhere, for this process.
pub fn add(entry: Entry) -> Result<(), ChoiceError> {
    let name = entry.descriptor.name;
    if !is_name(name) {
        return refused(format_args!(
            "'{name}' is not a valid protocol name: letters, digits, '-', '_' and '.'"
        ));
    }
    if PROTOCOLS.add(entry, |known| known.descriptor.name == name) {
        return Ok(());
    }
    refused(format_args!(
        "protocol '{name}' cannot be added: the name is in use"
    ))
}

/// The protocols of farhaul.
fn own() -> Vec<Entry> {
    let haul_itself =
        Haul::client(HaulConfig::new(SIMULATED_SEED)).expect("the default configuration is valid");
    [
        Entry::new(haul_itself.descriptor(), "haul", true, &[], haul),
        Entry::new(&tcp::DESCRIPTOR, "cubic", true, tcp::PARAMETERS, make_tcp),
    ]
    .into_iter()
    .chain(udt::entries())
    .chain([sabul::entry(), ttp::entry(), pa_udp::entry()])
    .chain([gtp::entry()])
    .chain(rbudp::entries())
    .chain(fobs::entries())
    .chain([rwtp::entry(), rudp::entry()])
    .chain(mtp::entries())
    .collect()
}

/// The protocol written as `name` or `name:parameter=value,...`.
pub fn protocol(spec: &str) -> Result<Entry, ChoiceError> {
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    let names = || protocols().iter().map(|p| p.descriptor.name);
    let entry = protocols()
        .iter()
        .find(|p| p.descriptor.name == name.trim())
        .ok_or_else(|| ChoiceError::Unknown {
            name: name.into(),
            nearest: nearest(name, names()).map(Into::into),
            known: names().collect::<Vec<_>>().join(", "),
        })?;
    let values = Values::parse(entry.descriptor.name, entry.parameters, settings)?;
    Ok(Entry {
        values,
        ..entry.clone()
    })
}

fn haul(
    _: &'static Descriptor,
    choice: &Choice,
    _: &Values,
    end: End,
) -> Result<Box<dyn Protocol>, ChoiceError> {
    let identity = match &choice.identity {
        Some(bytes) => Identity::from_seed(bytes),
        None if choice.simulated => Identity::from_seed(&SIMULATED_SEED),
        None => Identity::generate(),
    };
    let mut config = HaulConfig::new(*identity.or_else(refused)?.seed());
    if let Some(law) = &choice.law {
        config.law.clone_from(law);
    }
    config.max_rate = choice.max_rate;
    config.memory.clone_from(&choice.memory);
    config.plain = choice.simulated;
    if !choice.peers.is_empty() {
        let keys: Result<Vec<PublicKey>, _> = choice.peers.iter().map(|k| k.parse()).collect();
        config.peers = PeerPolicy::Keys(keys.or_else(refused)?);
    }
    let haul = match end {
        End::Client => Haul::client(config),
        End::Server => Haul::server(config),
    };
    Ok(Box::new(haul.or_else(refused)?))
}

fn make_tcp(
    _: &'static Descriptor,
    choice: &Choice,
    values: &Values,
    end: End,
) -> Result<Box<dyn Protocol>, ChoiceError> {
    let mut law = lookup(choice.law.as_deref().unwrap_or("cubic")).or_else(refused)?;
    if let Some(watch) = &choice.stopwatch {
        law = law.wrapped(watch.wrap());
    }
    let mut config = tcp::Config::new(law, values);
    config.max_rate = choice.max_rate;
    Ok(match end {
        End::Client => Box::new(Tcp::client(config)),
        End::Server => Box::new(Tcp::server(config)),
    })
}

#[cfg(test)]
mod tests;
