//! Format of a block's announcement: its bytes (8), those of a packet (4), and its runs;
//! big-endian. Everything that decodes is within the limits of [rounds](super).

use super::MAX_PACKETS;
use crate::{
    codec::{DecodeError, Reader},
    layout::{Layout, MAX_RUNS},
};

/// Appends a block's layout.
pub fn encode_layout(layout: &Layout, into: &mut Vec<u8>) {
    into.extend(layout.len().to_be_bytes());
    into.extend(layout.payload().to_be_bytes());
    layout.encode_runs(into);
}

/// Reads what [`encode_layout`] wrote.
pub fn decode_layout(r: &mut Reader<'_>) -> Result<Layout, DecodeError> {
    const BAD: DecodeError = DecodeError::Malformed("block");
    let (len, payload) = (r.u64()?, r.u32()?);
    if payload == 0 || payload > 65_535 {
        return Err(BAD);
    }
    let layout = Layout::decode_runs(r, payload, MAX_RUNS)?;
    if layout.len() == len && layout.packets() <= MAX_PACKETS {
        Ok(layout)
    } else {
        Err(BAD)
    }
}
