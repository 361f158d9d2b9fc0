//! Registry of every protocol that can be run, by name, made from one kind of [`Choice`], so that
//! commands know none of them.

use std::sync::Arc;

use farhaul_congestion::{List, Values, is_name, nearest};
use farhaul_core::protocol::Protocol as _;
use farhaul_haul::{Haul, HaulConfig, Identity, PathMemory, PeerPolicy, PublicKey};
pub use farhaul_protocols::entry::{Choice, ChoiceError, End, Entry, Host, Made, NO_LAW};

/// Seed of the identity of simulated ends.
const SIMULATED_SEED: [u8; 32] = [7; 32];

static PROTOCOLS: List<Entry> = List::new(|| {
    let published = farhaul_protocols::entries();
    std::iter::once(haul(None)).chain(published).collect()
});

/// Every protocol, in the order of their listing: those of farhaul, then those [added](add).
pub fn protocols() -> &'static [Entry] {
    PROTOCOLS.all()
}

/// Adds a protocol from elsewhere, for this process.
pub fn add(entry: Entry) -> Result<(), ChoiceError> {
    let name = entry.descriptor.name;
    if !is_name(name) {
        return Err(ChoiceError::Refused(format!(
            "'{name}' is not a valid protocol name: letters, digits, '-', '_' and '.'"
        )));
    }
    if PROTOCOLS.add(entry, |known| known.descriptor.name == name) {
        return Ok(());
    }
    Err(ChoiceError::Refused(format!(
        "protocol '{name}' cannot be added: the name is in use"
    )))
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
    Ok(entry.with(settings)?)
}

/// Entry of haul, whose clients resume from what `memory` has of the path.
///
/// # Panics
/// If haul's default configuration were invalid.
pub fn haul(memory: Option<Arc<PathMemory>>) -> Entry {
    let itself =
        Haul::client(HaulConfig::new(SIMULATED_SEED)).expect("the default configuration is valid");
    let make = move |_, choice: &Choice, _: &Values, end| make_haul(memory.clone(), choice, end);
    Entry::new(itself.descriptor(), "haul", true, &[], make)
}

fn make_haul(memory: Option<Arc<PathMemory>>, choice: &Choice, end: End) -> Made {
    let identity = match &choice.identity {
        Some(bytes) => Identity::from_seed(bytes),
        None if choice.simulated => Identity::from_seed(&SIMULATED_SEED),
        None => Identity::generate(),
    };
    let mut config = HaulConfig::new(*identity.map_err(ChoiceError::refused)?.seed());
    if let Some(law) = &choice.law {
        config.law.clone_from(law);
    }
    config.max_rate = choice.max_rate;
    config.memory = memory;
    config.plain = choice.simulated;
    if !choice.peers.is_empty() {
        let keys: Result<Vec<PublicKey>, _> = choice.peers.iter().map(|k| k.parse()).collect();
        config.peers = PeerPolicy::Keys(keys.map_err(ChoiceError::refused)?);
    }
    let haul = match end {
        End::Client => Haul::client(config),
        End::Server => Haul::server(config),
    };
    Ok(Box::new(haul.map_err(ChoiceError::refused)?))
}

#[cfg(all(test, feature = "published"))]
mod tests;
