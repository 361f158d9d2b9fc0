//! What does a session say on its control lane? One byte of type, then the original's bytes where it has
//! any. Here both ends may send, and nobody asks for a name: whoever has data announces it as a file, with
//! which bytes of which objects it is made of; the other says that it may come, and from then on gives
//! feedback.

use farhaul_core::{
    codec::{DecodeError, Reader},
    layout::Layout,
    pull::Wanted,
};

use super::wire::{FEEDBACK, FILE_INFO, Feedback, FileInfo};

/// Runs of bytes that one file is made of, at most.
pub(super) const MAX_RUNS: usize = 4_096;

/// One message.
#[derive(Debug)]
pub(super) enum Message {
    /// 1: a file, and how many blocks it has.
    File(Layout, u32),
    /// 2: let it come.
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
    let Some((kind, body)) = bytes.split_first() else {
        return Ok(None);
    };
    let whole = |len: usize| body.get(..len);
    let (message, len) = match kind {
        1 => match file(body, block) {
            Ok(decoded) => decoded,
            Err(DecodeError::Truncated) => return Ok(None),
            Err(error) => return Err(error),
        },
        2 => match whole(2) {
            // Its datagrams are answered, nobody else's.
            Some([0, 0]) => (Message::Go, 2),
            Some(_) => return Err(DecodeError::Malformed("port")),
            None => return Ok(None),
        },
        3 => match whole(FEEDBACK) {
            Some(body) => (Message::Feedback(Feedback::decode(body)?), FEEDBACK),
            None => return Ok(None),
        },
        4 => match whole(4) {
            Some(body) => (Message::Cut(Reader::new(body).u32()?), 4),
            None => return Ok(None),
        },
        _ => return Err(DecodeError::Malformed("type of a control message")),
    };
    Ok(Some((message, 1 + len)))
}

/// A file that can be received, in blocks of `block` bytes, and how long its announcement is.
fn file(body: &[u8], block: u32) -> Result<(Message, usize), DecodeError> {
    let mut r = Reader::new(body);
    let info = FileInfo::decode(r.take(FILE_INFO)?)?;
    if info.block_size != block {
        return Err(DecodeError::Malformed("size of a block"));
    }
    let layout = Layout::decode_runs(&mut r, block, MAX_RUNS)?;
    let fits = (1..=Wanted::MAX_UNITS).contains(&layout.packets());
    if !fits || layout.len() != info.size {
        return Err(DecodeError::Malformed("size of a file"));
    }
    let len = body.len() - r.rest().len();
    Ok((Message::File(layout, info.blocks), len))
}
