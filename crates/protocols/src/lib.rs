//! Published transport protocols, one folder each: `wire` (formats), `policy` (decisions), the session.
//! None of them knows whether it runs in the simulator or on sockets.

pub mod fobs;
pub mod gtp;
pub mod pa_udp;
pub mod rbudp;
pub mod rwtp;
pub mod sabul;
pub mod tcp;
pub mod ttp;
pub mod udt;
