//! Sets of sequence numbers: a bitmap for the hot, dense set and sorted ranges for what is reported
//! or kept.

mod bitmap;
mod ranges;

pub use bitmap::{Bitmap, Insert};
pub use ranges::Ranges;
