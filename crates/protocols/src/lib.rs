//! Published transport protocols, one folder each: `wire` (formats), the session, `entry` (the choices of a user).
//! None of them knows whether it runs in the simulator or on sockets.

#[cfg(feature = "published")]
mod config;
pub mod entry;
#[cfg(feature = "published")]
pub mod fobs;
#[cfg(feature = "published")]
pub mod gtp;
#[cfg(feature = "published")]
pub mod mtp;
#[cfg(feature = "published")]
pub mod pa_udp;
#[cfg(feature = "published")]
pub mod rbudp;
#[cfg(feature = "published")]
pub mod rudp;
#[cfg(feature = "published")]
pub mod rwtp;
#[cfg(feature = "published")]
pub mod sabul;
#[cfg(feature = "published")]
pub mod tcp;
#[cfg(feature = "published")]
pub mod ttp;
#[cfg(feature = "published")]
pub mod udt;

#[cfg(feature = "published")]
pub use config::ConfigError;

use entry::Entry;

/// Every protocol of this crate, in the order of their listing; without the feature `published` none.
#[cfg(not(feature = "published"))]
pub const fn entries() -> Vec<Entry> {
    Vec::new()
}

/// Every protocol of this crate, in the order of their listing.
#[cfg(feature = "published")]
pub fn entries() -> Vec<Entry> {
    [tcp::entry()]
        .into_iter()
        .chain(udt::entries())
        .chain([sabul::entry(), ttp::entry(), pa_udp::entry(), gtp::entry()])
        .chain(rbudp::entries())
        .chain(fobs::entries())
        .chain([rwtp::entry(), rudp::entry()])
        .chain(mtp::entries())
        .collect()
}
