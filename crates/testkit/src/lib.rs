//! For tests only: a [`Pair`] of sessions without a network, a [`Pattern`] that checks every byte, the
//! liveness promise ([`assert_live`]), and two plain protocols: [`Steady`], which costs next to nothing,
//! and [`bare`], the engine's skeleton under any congestion law.

mod bare;
mod endpoint;
mod live;
mod pair;
mod pattern;
mod steady;

pub use bare::{Bare, BareWire, bare};
pub use endpoint::{Admitted, Endpoint, Reaction, Sent};
pub use live::{assert_live, seeds};
pub use pair::{Datagram, Fate, Pair, Said, Side};
pub use pattern::Pattern;
pub use steady::Steady;
