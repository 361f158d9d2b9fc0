//! The laboratory: chooses, drives, measures and compares protocols. The feature `studies` has the simulator, the emulator and
//! what runs on them; without it there are the parts for real networks.
//!
//! - [`registry`]: every protocol that can be run, by name
//! - [`emulated`]: this program at both ends of an emulated network
//! - [`scenario`]: networks, flows and expectations from a file, simulated over many seeds
//! - [`mod@study`]: the experiments of a paper, its published numbers ([`mod@reference`]) and figures
//! - [`plot`], [`report`]: figures, and the page that shows them beside published ones
//! - [`probe`]: what the emulator really does, measured from outside
//! - [`run_store`]: folders of runs

#![cfg_attr(
    not(feature = "studies"),
    allow(dead_code, reason = "parts that only studies use")
)]

#[cfg(feature = "studies")]
pub mod emulated;
#[cfg(feature = "studies")]
pub mod hash;
#[cfg(feature = "studies")]
mod parallel;
pub mod plot;
#[cfg(feature = "studies")]
pub mod probe;
#[cfg(feature = "studies")]
pub mod reference;
pub mod registry;
#[cfg(feature = "studies")]
pub mod report;
#[cfg(feature = "studies")]
pub mod run_store;
#[cfg(feature = "studies")]
pub mod scenario;
#[cfg(feature = "studies")]
mod starts;
#[cfg(feature = "studies")]
pub mod study;
#[cfg(feature = "studies")]
mod unit;

#[cfg(feature = "studies")]
pub use unit::Unit;
