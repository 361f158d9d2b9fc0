//! What is on its way, what goes next, and may it go now?

mod facts;
mod log;
mod outbox;
mod pacer;
mod permit;

pub use facts::FactLog;
pub use log::{Content, Sent, SentLog, State};
pub use outbox::{Outbox, Piece};
pub use pacer::Pacer;
pub use permit::{Budget, Permit};

use crate::store::ObjectId;

/// Pieces of this object are the ordered control stream, filled from the session's own buffer.
pub const STREAM: ObjectId = u32::MAX;
