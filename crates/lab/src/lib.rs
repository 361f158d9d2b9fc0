//! The laboratory: how is a protocol chosen, driven, measured and compared?
//!
//! - [`bench`]: a bulk transfer from memory to memory over any session, measured at both ends
//! - [`measure`]: processor time, memory and rtt distributions
//! - [`nearest`]: the name somebody probably meant

pub mod bench;
pub mod measure;
mod nearest;

pub use nearest::nearest;
