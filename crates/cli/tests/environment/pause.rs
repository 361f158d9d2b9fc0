//! What is between two looks at what another process does.

use std::{thread, time::Duration};

/// Whoever looks all the time takes the processor from whom it waits for.
#[expect(
    clippy::disallowed_methods,
    reason = "no event tells of another process's files"
)]
pub(crate) fn pause() {
    thread::sleep(Duration::from_millis(1));
}
