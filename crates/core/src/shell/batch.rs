//! Composes a batch packet by packet: a header, and data to be filled in by the store; packets
//! equal in length, but for the last.

use super::machine::Packet;
use crate::{
    codec::{NoRoom, Writer},
    datagram::TxBuf,
    store::Extent,
};

/// A batch of one packet of up to `size` bytes that `write` writes; false if it does not.
pub(super) fn single(
    size: usize,
    out: &mut TxBuf,
    write: impl FnOnce(&mut Writer<'_>) -> Result<bool, NoRoom>,
) -> bool {
    out.begin(size);
    let mut w = Writer::new(out.next_segment());
    let written = write(&mut w) == Ok(true);
    let len = w.len();
    if written {
        out.commit(len, len);
    }
    written
}

/// Lets `next` write packets of up to `datagram` bytes, with `header` bytes before their data,
/// until the batch is full or `next` writes no more. `next` gets the bytes written before. Returns
/// the bytes written in the end. The data that the store fills in are in `extents`.
#[inline]
pub(super) fn compose(
    (header, datagram): (usize, usize),
    out: &mut TxBuf,
    extents: &mut Vec<Extent>,
    mut next: impl FnMut(&mut Packet<'_>, u64) -> bool,
) -> u64 {
    extents.clear();
    let room = u32::try_from(datagram.saturating_sub(header)).unwrap_or(u32::MAX);
    let fit = out.begin(datagram);
    let (mut count, mut sent) = (0, 0);
    while count < fit {
        let at = out.next_at();
        let mut packet = Packet::new(Writer::new(out.next_segment()), at, room, extents);
        if !next(&mut packet, sent) {
            break;
        }
        let wire = packet.wire() as usize;
        let solid = packet.solid();
        out.commit(wire, solid);
        count += 1;
        sent += wire as u64;
        if wire < datagram {
            break;
        }
    }
    sent
}
