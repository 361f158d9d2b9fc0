//! The sans-IO transport engine of farhaul.
//!
//! It has no clock, socket, thread or file: time is an argument, randomness is handed in, bytes come
//! from and go to a [`store::Store`]. The same sessions therefore run in the simulator and on real
//! sockets.

pub mod rng;
pub mod time;
pub mod units;
