//! Measures how fast data arrives, and how fast the receiver takes it.

mod credit;
mod delivery;
mod drain;
mod median;

pub use credit::Credit;
pub use delivery::{Delivery, Progress};
pub use drain::{DrainEstimate, Drained, RatePath};
pub use median::MedianWindow;
