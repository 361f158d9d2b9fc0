//! For tests only:
//!
//! - for sessions: a [`Pair`] of them without a network, or one [`Driver`] driven by hand; a [`Pattern`]
//!   that checks every byte; the liveness promise ([`assert_live`])
//! - for fuzz targets: a session with any input, with a control lane ([`fuzz_lane_session`]) and without
//!   ([`fuzz_datagram_session`])
//! - for applications: a [`FakeSession`]
//! - for what takes long: a short form and a long one ([`scale`])
//! - two protocols in clear: [`Steady`], which costs next to nothing, and [`bare`], the engine's skeleton
//!   under any congestion law

mod bare;
mod datagrams;
mod driver;
mod fake;
mod lane;
mod live;
mod pair;
mod pattern;
mod scale;
mod steady;

pub use bare::{Bare, BareWire, bare};
pub use datagrams::fuzz_datagram_session;
pub use driver::{Admitted, Driver, Reaction, Sent};
pub use fake::FakeSession;
pub use lane::fuzz_lane_session;
pub use live::{assert_live, seeds};
pub use pair::{Datagram, Fate, LaneEvent, Pair, Side};
pub use pattern::Pattern;
pub use scale::scale;
pub use steady::{Steady, SteadyMachine};
