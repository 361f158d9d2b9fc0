//! The laboratory: how is a protocol chosen, driven, measured and compared?
//!
//! - [`bench`]: a bulk transfer from memory to memory over any session, measured at both ends
//! - [`measure`]: processor time, memory and rtt distributions
//! - [`tcp`]: the kernel's own transport on the same path
//! - [`nearest`]: the name somebody probably meant

pub mod bench;
pub mod measure;
mod nearest;

pub mod tcp;

pub use nearest::nearest;
