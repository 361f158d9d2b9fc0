//! Events on control lanes, for the sessions that have them.

/// Event on a lane, for its session.
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "no other system has control lanes")
)]
pub(crate) enum News {
    /// Nothing that concerns a session happened.
    Nothing,
    /// The lane is connected.
    Opened(usize),
    /// The lane may have bytes to pass on.
    Heard(usize),
    /// The lane took what waited.
    Writable(usize),
    /// The lane is over.
    Over(usize, String),
}
