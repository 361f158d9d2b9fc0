//! Congestion laws written outside farhaul, with its public interface alone:
//!
//! - [`SimpleTcp`]: a law of the window family, the one that Gu & Grossman print to show how little it
//!   takes;
//! - [`grants`]: a rate control that lives at the receiver and shares one host's capacity among all who
//!   send to it, with messages of its own;
//! - [`simulate`]: what it takes to see either at work.

pub mod grants;
mod simple_tcp;
mod simulate;

pub use simple_tcp::{SIMPLE_TCP, SimpleTcp};
pub use simulate::{Shares, simulate};
