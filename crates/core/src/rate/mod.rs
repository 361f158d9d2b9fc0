//! How fast does data arrive, and how fast is it taken?

mod delivery;
mod intake;

pub use delivery::{Delivery, Progress};
pub use intake::{Intake, Taken, Way};
