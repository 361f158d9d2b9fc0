//! The laboratory: compares protocols in the simulator and on the emulator, and shows the results.
//!
//! - [`emulated`]: this program at both ends of an emulated network
//! - [`scenario`]: networks, flows and expectations from a file, simulated over many seeds
//! - [`mod@study`]: the experiments of a paper, its published numbers ([`mod@reference`]) and figures
//! - [`plot`], [`report`]: figures, and the page that shows them beside published ones
//! - [`probe`]: what the emulator really does, measured from outside
//! - [`run_store`]: folders of runs

pub mod emulated;
pub mod hash;
mod parallel;
pub mod plot;
pub mod probe;
pub mod reference;
pub mod report;
pub mod run_store;
pub mod scenario;
mod starts;
pub mod study;
mod unit;

pub use unit::Unit;
