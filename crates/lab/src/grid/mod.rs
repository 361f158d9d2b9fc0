//! Where are runs kept, and in which backend were they made?
//!
//! - [`RunStore`]: a folder of runs
//! - [`Backend`]: simulator or emulator

mod run_store;

pub use run_store::{Backend, Kept, RunStore};
