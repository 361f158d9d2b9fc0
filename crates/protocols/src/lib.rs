//! Published transport protocols, one folder each: `wire` (formats), `policy` (decisions), the session.
//! None of them knows whether it runs in the simulator or on sockets.

mod config;
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
