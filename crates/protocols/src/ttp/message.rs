//! Messages of a session on its control lane: one byte of type, then the original's bytes where it
//! has any. Here both ends may send, and nobody asks for a name. The end that has data announces it
//! as a file, with which bytes of which objects it is made of. The other answers that it may come,
//! and from then on gives feedback.

use farhaul_core::{
    codec::{DecodeError, Reader, whole},
    layout::{Layout, MAX_RUNS},
    pull::Wanted,
};

use super::wire::{FEEDBACK, FILE_INFO, Feedback, FileInfo};

/// One message.
#[derive(Debug)]
pub(super) enum Message {
    /// 1: a file, and how many blocks it has.
    File(Layout, u32),
    /// 2: the file may come.
    Go,
    /// 3: feedback.
    Feedback(Feedback),
    /// 4: the file ends with this block.
    Cut(u32),
}

/// Appends the announcement of a file in blocks of `block` bytes.
pub(super) fn put_file(into: &mut Vec<u8>, layout: &Layout, block: u32) {
    into.push(1);
    let info = FileInfo {
        size: layout.len(),
        block_size: block,
        blocks: u32::try_from(layout.packets()).unwrap_or(u32::MAX),
        epoch: 0,
    };
    info.encode(into);
    layout.encode_runs(into);
}

/// Appends that a file may come to where this end's datagrams come from.
pub(super) fn put_go(into: &mut Vec<u8>) {
    into.extend([2, 0, 0]);
}

/// Appends feedback.
pub(super) fn put_feedback(into: &mut Vec<u8>, feedback: Feedback) {
    into.push(3);
    feedback.encode(into);
}

/// Appends that the file ends with this block.
pub(super) fn put_cut(into: &mut Vec<u8>, last: u32) {
    into.push(4);
    into.extend(last.to_be_bytes());
}

/// The first message in `bytes` and its length; none if it is not all there. Files are in blocks of
/// `block` bytes.
pub(super) fn decode(bytes: &[u8], block: u32) -> Result<Option<(Message, usize)>, DecodeError> {
    whole(bytes, |r| read(r, block))
}

fn read(r: &mut Reader<'_>, block: u32) -> Result<Message, DecodeError> {
    Ok(match r.u8()? {
        1 => file(r, block)?,
        // Its datagrams are answered, nobody else's.
        2 if r.u16()? == 0 => Message::Go,
        2 => return Err(DecodeError::Malformed("port")),
        3 => Message::Feedback(Feedback::decode(r.take(FEEDBACK)?)?),
        4 => Message::Cut(r.u32()?),
        _ => return Err(DecodeError::Malformed("type of a control message")),
    })
}

/// A file that can be received, in blocks of `block` bytes.
fn file(r: &mut Reader<'_>, block: u32) -> Result<Message, DecodeError> {
    let info = FileInfo::decode(r.take(FILE_INFO)?)?;
    if info.block_size != block {
        return Err(DecodeError::Malformed("size of a block"));
    }
    let layout = Layout::decode_runs(r, block, MAX_RUNS)?;
    let fits = (1..=Wanted::MAX_UNITS).contains(&layout.packets());
    if !fits || layout.len() != info.size {
        return Err(DecodeError::Malformed("size of a file"));
    }
    Ok(Message::File(layout, info.blocks))
}
