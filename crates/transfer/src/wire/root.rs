//! Digest of one file's content, as messages carry it.

/// Bytes per block.
pub(crate) const BLOCK: u64 = 1 << 20;

/// Root of a file or chaining value of a block.
pub(crate) type Hash = [u8; 32];

/// Digest of one file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) file: u64,
    /// True if blocks without content went into the root as such.
    pub(crate) sparse: bool,
    pub(crate) hash: Hash,
}
