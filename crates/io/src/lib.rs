//! Real time: threads that own sockets, sessions and applications.

mod app;

pub use app::App;

/// Wakes the shard thread from another thread.
#[derive(Clone, Debug)]
pub struct Waker;
