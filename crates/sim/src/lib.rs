//! Discrete events in virtual time: sessions of any protocol over modelled links.
//!
//! [`run`] takes a [`Scenario`] and a maker of protocols, and answers with a [`SimReport`]. The same
//! seed gives the same run, event by event, as [`SimReport::trace_hash`] shows. Sessions run unencrypted
//! here: only the solid head of a datagram is carried, payload bytes are virtual. Links may be shared
//! and chained; a host's interface is a link of its own; cross traffic does not listen. An
//! [`Observer`] is notified without changing anything.
//!
//! Limits: a host takes no time to think, and its receive buffer never overflows. Everything that a
//! session releases in one turn reaches the link at that instant.

mod app;
mod cross;
mod disk;
mod end;
mod flow;
mod lane;
mod network;
mod observe;
mod pcapng;
mod qlog;
mod queue;
mod report;
mod scenario;
mod trace;
mod world;

pub use disk::DiskConfig;
pub use observe::{Moment, Observer, Packet, Side};
pub use pcapng::Pcapng;
pub use qlog::Qlog;
pub use report::{
    CrossPoint, CrossReport, FlowReport, LinkReport, Point, SideReport, SimReport, mean_and_p95,
};
pub use scenario::{Bursts, CrossConfig, Error, FlowConfig, Route, Scenario};
pub use world::{Apps, Maker, run, run_apps, run_observed, run_until};
