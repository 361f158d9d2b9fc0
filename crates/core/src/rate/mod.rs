//! How fast does data arrive?

mod delivery;

pub use delivery::{Delivery, Progress};
