//! Speaks as the original's client and server do. Over TCP go revision, challenge, answer, verdict;
//! then requests, each of a file or of a list, one after the other. While a file comes, feedback
//! goes back. Here are both ends without sockets and disks. Each file has a UDP port of the
//! client's choice, and its blocks count from 1.
//!
//! What the original leaves open: a file without bytes has no blocks, and is stopped at once.
//!
//! Invariant: of what the peer said at most [`MAX_LIST`] bytes are kept.

mod client;
mod server;

#[cfg(test)]
mod tests;

use farhaul_core::{
    codec::DecodeError,
    layout::{Layout, Run},
    pull::Wanted,
};

pub use self::{
    client::{FileClient, News},
    server::{Asked, FileServer},
};
use super::wire::FileInfo;

/// Bytes of a list of names at most.
pub const MAX_LIST: usize = 4 << 20;

/// A file in blocks of `block` bytes, if it has not too many.
fn layout(size: u64, block: u32) -> Result<Layout, DecodeError> {
    let mut layout = Layout::new(block);
    let (object, offset) = (0, 0);
    let run = Run {
        object,
        offset,
        len: size,
    };
    if !layout.push(run) || layout.packets() > Wanted::MAX_UNITS {
        return Err(DecodeError::Malformed(
            "number of blocks: larger ones are needed",
        ));
    }
    Ok(layout)
}

/// Description of a file in the server's answer.
fn info(layout: &Layout, epoch: u32) -> FileInfo {
    FileInfo {
        size: layout.len(),
        block_size: layout.payload(),
        blocks: u32::try_from(layout.packets()).unwrap_or(u32::MAX),
        epoch,
    }
}

/// Takes `len` bytes off the front of `kept`, if they are all there.
fn take(kept: &mut Vec<u8>, len: usize) -> Option<Vec<u8>> {
    (kept.len() >= len).then(|| kept.drain(..len).collect())
}
