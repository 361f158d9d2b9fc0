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
/// Places that one request names.
pub(crate) const MOST_PLACES: usize = 1_024;
/// Bytes that they take on the wire.
pub(crate) const MOST_PLACE_BYTES: usize = 24 << 10;
/// Bytes of patterns that travel to a server.
pub(crate) const MOST_PATTERN_BYTES: usize = 16 << 10;
/// Attributes of one entry.
pub(crate) const MOST_ATTRIBUTES: usize = 256;
/// Bytes of their names and values.
pub(crate) const ATTRIBUTES: usize = 16 << 10;
/// Bytes of the name of an attribute, and of a user.
pub(crate) const ATTRIBUTE_NAME: usize = 255;
/// Shards of a copy, and so stripes of a file.
pub(crate) const MOST_SHARDS: u32 = 10_000;
/// Highest number of parallel sessions of one copy.
pub const MOST_LANES: u32 = 64;
