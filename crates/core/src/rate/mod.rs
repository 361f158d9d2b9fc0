//! How fast does data arrive, and how fast is it taken?

mod credit;
mod delivery;
mod drain;
mod median;

pub use credit::Credit;
pub use delivery::{Delivery, Progress};
pub use drain::{DrainEstimate, Drained, RatePath};
pub use median::MedianWindow;
