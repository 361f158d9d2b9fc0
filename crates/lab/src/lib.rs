//! The laboratory: chooses, drives, measures and compares protocols.
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
//! - [`nearest`]: the nearest valid name

pub mod bench;
pub mod delay;
mod disk;
pub mod doctor;
pub mod emulated;
pub mod hash;
pub mod host;
pub mod http;
pub mod iperf;
pub mod measure;
mod nearest;
mod parallel;
pub mod plot;
pub mod probe;
pub mod reference;
pub mod registry;
pub mod report;
pub mod run_store;
pub mod scenario;
mod starts;
pub mod stopwatch;
pub mod stream;
pub mod study;
pub mod tcp;
pub mod udp;
mod unit;
pub mod visit;

pub use nearest::{distance, nearest};
pub use unit::Unit;
