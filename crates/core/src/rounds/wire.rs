//! How does a sender tell of a block? Its bytes (8), those of a packet (4), runs (4), each object (4), offset
//! (8), length (8); big-endian. Whatever decodes is within the limits of [rounds](super).

use super::{MAX_PACKETS, MAX_RUNS};
use crate::{
    codec::{DecodeError, Reader},
    layout::{Layout, Run},
};

/// Bytes of a run.
const RUN: usize = 20;

/// Appends a block's layout.
pub fn encode_layout(layout: &Layout, into: &mut Vec<u8>) {
    into.extend(layout.len().to_be_bytes());
    into.extend(layout.payload().to_be_bytes());
    into.extend(
        u32::try_from(layout.runs().len())
            .unwrap_or(u32::MAX)
            .to_be_bytes(),
    );
    for run in layout.runs() {
        into.extend(run.object.to_be_bytes());
        into.extend(run.offset.to_be_bytes());
        into.extend(run.len.to_be_bytes());
    }
}

/// Reads what [`encode_layout`] wrote.
pub fn decode_layout(r: &mut Reader<'_>) -> Result<Layout, DecodeError> {
    const BAD: DecodeError = DecodeError::Malformed("block");
    let (len, payload, count) = (r.u64()?, r.u32()?, r.u32()?);
    let count = usize::try_from(count).map_err(|_| BAD)?;
    if payload == 0 || payload > 65_535 || count == 0 || count > MAX_RUNS {
        return Err(BAD);
    }
    let mut runs = Reader::new(r.take(RUN * count)?);
    let mut layout = Layout::new(payload);
    for _ in 0..count {
        let run = Run {
            object: runs.u32()?,
            offset: runs.u64()?,
            len: runs.u64()?,
        };
        if run.len == 0 || !layout.push(run) {
            return Err(BAD);
        }
    }
    // Runs that belong together are one.
    if layout.len() == len && layout.packets() <= MAX_PACKETS && layout.runs().len() == count {
        Ok(layout)
    } else {
        Err(BAD)
    }
}
