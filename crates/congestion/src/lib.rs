//! Congestion laws, one file each, and the registry that finds them by name.
//!
//! A law of the window family is two short functions, [`Growth::grow`] and [`Growth::keep`]; the
//! shell [`Windowed`] supplies slow start, pacing, episodes, undo and timeouts. A law of another
//! kind implements [`CongestionController`](farhaul_core::congestion::CongestionController) itself.
//! To add one: write its file, declare it here, name it in [`laws`].

mod cubic;
mod fixed;
mod haul;
mod registry;
mod reno;
mod slow_start;
mod window;

pub use cubic::Cubic;
pub use fixed::Fixed;
pub use haul::Haul;
pub use registry::{Error, Factory, Kind, Law, Parameter, Values, laws, lookup};
pub use reno::Reno;
pub use slow_start::{Classic, HyStart, SlowStart, Start};
pub use window::{Cause, Cut, Growth, Window, Windowed};
