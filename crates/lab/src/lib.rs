//! The laboratory: chooses, drives, measures and compares protocols. The feature `studies` has the simulator, the emulator and
//! what runs on them; without it there are the parts for real networks.
//!
//! - [`registry`]: every protocol that can be run, by name
//! - [`mod@bench`]: a bulk transfer from memory to memory over any session, measured at both ends
//! - [`host`], [`doctor`]: which machine this is, and whether it is fit
//! - [`mod@visit`]: what the way to a server is like
//! - [`measure`]: processor time, memory and rtt distributions
//! - [`tcp`], [`iperf`], [`udp`]: the kernel's own transport on the same path, and datagrams beside it
//! - [`delay`]: how long a packet takes through the kernel's UDP and TCP
//! - [`emulated`]: this program at both ends of an emulated network
//! - [`scenario`]: networks, flows and expectations from a file, simulated over many seeds
//! - [`mod@study`]: the experiments of a paper, its published numbers ([`mod@reference`]) and figures
//! - [`plot`], [`report`]: figures, and the page that shows them beside published ones
//! - [`probe`]: what the emulator really does, measured from outside
//! - [`http`]: small pages and figures for programs that speak HTTP
//! - [`run_store`]: folders of runs
//! - [`stopwatch`]: the time spent inside a law

#![cfg_attr(
    not(feature = "studies"),
    allow(dead_code, reason = "parts that only studies use")
)]

pub mod bench;
pub mod delay;
mod disk;
pub mod doctor;
#[cfg(feature = "studies")]
pub mod emulated;
#[cfg(feature = "studies")]
pub mod hash;
pub mod host;
pub mod http;
pub mod iperf;
pub mod measure;
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
pub mod stopwatch;
pub mod stream;
#[cfg(feature = "studies")]
pub mod study;
pub mod tcp;
pub mod udp;
#[cfg(feature = "studies")]
mod unit;
pub mod visit;

#[cfg(feature = "studies")]
pub use unit::Unit;
