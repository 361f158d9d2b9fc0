//! Congestion laws, one file each, and the registry that finds them by name.
//!
//! A law of the window family is two short functions, [`Growth::grow`] and [`Growth::keep`]; the
//! shell [`Windowed`] supplies slow start, pacing, episodes, undo and timeouts. A law of another
//! kind implements [`CongestionController`](farhaul_core::congestion::CongestionController) itself.
//! To add one: write its file, declare it here, name it in [`laws`].

mod bbr;
mod bic;
mod compound;
mod cubic;
mod cubic_2_6_25;
mod daimd;
mod fast;
mod fixed;
mod haul;
mod hstcp;
mod htcp;
mod illinois;
mod law;
mod ledbat;
mod list;
mod parameters;
mod registry;
mod reno;
mod rounds;
mod sabul;
mod scalable;
mod slow_start;
mod tfrc;
mod vegas;
mod westwood;
mod window;
mod xcp;

pub use bbr::Bbr;
pub use bic::Bic;
pub use compound::Compound;
pub use cubic::Cubic;
pub use cubic_2_6_25::OldCubic;
pub use daimd::Daimd;
pub use fast::Fast;
pub use fixed::Fixed;
pub use haul::Haul;
pub use hstcp::HighSpeed;
pub use htcp::HTcp;
pub use illinois::Illinois;
pub use law::{Law, MakeReceiver, ReceiverGroup};
pub use ledbat::{Ledbat, LedbatStart};
pub use list::List;
pub use parameters::{Kind, Parameter, ParameterError, Values, nearest};
pub use registry::{AddError, Error, Factory, Wrap, add, is_name, laws, lookup};
pub use reno::Reno;
pub use rounds::{Base, Round, Rounds};
pub use sabul::{SIGNAL as SABUL_SIGNAL, Sabul};
pub use scalable::Scalable;
pub use slow_start::{Backlog, Classic, HyStart, Limited, Skip, SlowStart, Start};
pub use tfrc::Tfrc;
pub use vegas::Vegas;
pub use westwood::Westwood;
pub use window::{Cause, Counting, Cut, Growth, Window, Windowed};
pub use xcp::{Xcp, XcpReceiver};
