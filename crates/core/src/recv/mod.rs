//! Tracks what has arrived, and when it is reported.

mod arrivals;
mod feedback;
mod gaps;
mod slots;

pub use arrivals::Arrivals;
pub use feedback::{Budget, Schedule};
pub use gaps::{Arrival, Gaps};
pub use slots::Slots;
