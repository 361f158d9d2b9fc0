//! Discrete events in virtual time: sessions of any protocol over modelled links.
//!
//! [`run`] takes a [`Scenario`] and a maker of protocols, and answers with a [`SimReport`]. The same
//! seed gives the same run, event by event; [`SimReport::trace_hash`] says so. Sessions run unsealed
//! here: only the solid head of a datagram is carried, payload bytes are virtual.
//!
//! What it does not do: a host takes no time to think, its receive buffer never overflows, and
//! everything a session releases in one turn reaches the link at that instant.

mod app;
mod end;
mod network;
mod queue;
mod report;
mod scenario;
mod trace;
mod world;

pub use report::{FlowReport, LinkReport, Point, SideReport, SimReport};
pub use scenario::{Error, FlowConfig, Scenario};
pub use world::{Maker, run};
