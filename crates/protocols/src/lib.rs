//! Published transport protocols, one folder each: `wire` (formats), the session, `entry` (the choices of a user).
//! None of them knows whether it runs in the simulator or on sockets.

mod config;
pub mod entry;
pub mod fobs;
pub mod gtp;
pub mod mtp;
pub mod pa_udp;
pub mod rbudp;
pub mod rudp;
pub mod rwtp;
pub mod sabul;
pub mod tcp;
pub mod ttp;
pub mod udt;

pub use config::ConfigError;

use entry::Entry;

/// Every protocol of this crate, in the order of their listing.
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
