//! Parts that makers of endpoints share: their errors, the law by which an endpoint sends, the size of packets.

use farhaul_congestion::{Factory, Kind, Parameter, lookup};

/// Reason why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The congestion law.
    #[error("congestion law: {0}")]
    Law(#[from] farhaul_congestion::Error),
    /// The law's receiving half cannot be carried.
    #[error("the law '{law}' needs a receiving half, which {protocol} does not carry")]
    Half {
        /// The law.
        law: &'static str,
        /// Protocol that does not carry the half.
        protocol: &'static str,
    },
    /// A number out of its range.
    #[error("{0}")]
    Range(&'static str),
}

/// The law of this name, for a `protocol` that carries nothing for a receiving half.
pub(crate) fn sending_law(name: &str, protocol: &'static str) -> Result<Factory, ConfigError> {
    let factory = lookup(name)?;
    let law = factory.make();
    if law.receiver().is_some() {
        let law = law.name();
        return Err(ConfigError::Half { law, protocol });
    }
    Ok(factory)
}

/// The size of packets.
pub(crate) const fn mtu(default: &'static str) -> Parameter {
    Parameter {
        name: "mtu",
        about: "largest packet, bytes, IP and UDP included",
        kind: Kind::Whole(128, 65_535),
        default,
    }
}
