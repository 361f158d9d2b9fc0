//! Limits that messages are cut to and that decoding insists on. `docs/protocols/transfer.md` lists them message by message.

/// Longest frame, without its length.
pub(crate) const MAX_FRAME: usize = 64 << 10;
/// Bodies are cut near this size, which leaves room for one largest item.
pub(crate) const TARGET_FRAME: usize = 32 << 10;
/// Entries in one message.
pub(crate) const ENTRIES: usize = 1_024;
/// Bytes of paths and targets, not shortened, in one message.
pub(crate) const NAMES: usize = 64 << 10;
/// Bytes of a text for people.
pub(crate) const TEXT: usize = 8 << 10;
/// Shares in a list of them.
pub(crate) const SHARES: usize = 1_024;
/// Bytes of their names.
pub(crate) const SHARES_BYTES: usize = 32 << 10;
