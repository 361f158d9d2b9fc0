//! What has arrived, and when is it reported?

mod arrivals;
mod feedback;
mod gaps;
mod slots;

pub use arrivals::Arrivals;
pub use feedback::{Budget, Schedule};
pub use gaps::{Arrival, Gaps};
pub use slots::Slots;
