//! Tracks what is on its way, chooses what goes next, and decides whether it may go now.

mod commanded;
mod debt;
mod flight;
mod governor;
mod line;
mod log;
mod outbox;
mod pacer;
mod permit;
mod schedule;
mod snapshots;

use std::time::Duration;

pub use commanded::Commanded;
pub use debt::Debt;
pub use flight::{Acked, Counters, Flight, Lost, Newest, Signals};
pub use governor::Governor;
pub use line::Line;
pub use log::{Sent, SentLog, State};
pub use outbox::{Outbox, Piece};
pub use pacer::Pacer;
pub use permit::{Demand, Permit};
pub use schedule::Schedule;
pub use snapshots::Snapshots;

/// Packets that are due within so long leave together, so that a sender is not woken for each.
const QUANTUM: Duration = Duration::from_micros(250);

use crate::store::ObjectId;

/// Pieces of this object are the ordered control stream, filled from the session's own buffer.
pub const STREAM: ObjectId = u32::MAX;
