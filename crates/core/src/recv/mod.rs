//! What has arrived, and when is it reported?

mod arrivals;
mod feedback;

pub use arrivals::Arrivals;
pub use feedback::{Budget, Schedule};
