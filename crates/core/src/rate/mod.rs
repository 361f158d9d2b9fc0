//! How fast does data arrive, and how fast is it taken?

mod credit;
mod delivery;
mod intake;

pub use credit::Credit;
pub use delivery::{Delivery, Progress};
pub use intake::{Intake, Taken, Way};
