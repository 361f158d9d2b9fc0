//! The pause between two looks at another process.

use std::{thread, time::Duration};

/// Pauses: a loop without it would take the processor from the process that it waits for.
#[expect(
    clippy::disallowed_methods,
    reason = "no event tells of another process's files"
)]
pub(crate) fn pause() {
    thread::sleep(Duration::from_millis(1));
}
