//! Where are runs kept, and in which backend were they made?
//!
//! - [`RunStore`]: a folder of runs
//! - [`Backend`]: simulator or emulator

mod bounds;
mod run_store;

pub use bounds::{BoundsError, Verdict};
pub use run_store::{Backend, Kept, RunStore};
