//! For tests only: a [`Pair`] of sessions without a network, a [`Pattern`] that checks every byte, the
//! liveness promise ([`assert_live`]), and [`Steady`], a cheap session at a fixed rate.

mod live;
mod pair;
mod pattern;
mod steady;

pub use live::{assert_live, seeds};
pub use pair::{Datagram, Fate, Node, Pair, Side};
pub use pattern::Pattern;
pub use steady::Steady;
