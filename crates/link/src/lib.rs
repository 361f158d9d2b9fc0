//! Models what a network does to a packet. One [`Path`] models one direction. A path is offered
//! packets with the time. It returns for each when the packet is delivered, and whether it was
//! marked, corrupted or duplicated, or why it was dropped. A path owns no clock, socket or packet,
//! so the simulator and the emulator share it.
//!
//! A packet meets, in this order: MTU, policer, queue management (`CoDel` or RED), the bottleneck,
//! blackouts, random loss (or before the policer, see [`LossPlace`]), damage and duplication. Then
//! comes propagation with jitter and reordering.
//!
//! Limits: the queue is first in, first out, for all flows together. A verdict is final when given,
//! so queue management decides on arrival (it knows exactly how long the packet will wait). Losses
//! and damage do not depend on packet length.

mod bottleneck;
mod config;
mod counters;
mod describe;
mod loss;
mod parse;
mod path;
mod preset;
mod queue_management;
mod shares;
mod xcp;

pub use config::{
    Aqm, ConfigError, Jitter, LossPlace, PathConfig, Policer, QueueLimit, Reorder, Router, Step,
    Window,
};
pub use counters::{Counters, DropCause};
pub use describe::describe;
pub use farhaul_core::datagram::Ecn;
pub use loss::{Loss, LossTrace};
pub use parse::{ParseError, duration, share};
pub use path::{Path, Verdict};
pub use preset::{PRESETS, Preset, preset};
