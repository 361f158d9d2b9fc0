//! How does a batch come together? Packet by packet: a head, the protocol's header, data to be filled in
//! by the store; equal in length, but for the last.

use super::machine::Packet;
use crate::{codec::Writer, datagram::TxBuf, store::Extent};

/// Has `next` write packets of up to `datagram` bytes, with `header` bytes between `head` and their data,
/// until the batch is full or it writes no more; it is told how many bytes were written before. Returns how many were
/// in the end. What the store is to fill in is in `extents`.
pub(super) fn compose(
    (head, header, datagram): (&[u8], usize, usize),
    out: &mut TxBuf,
    extents: &mut Vec<Extent>,
    mut next: impl FnMut(&mut Packet<'_>, u64) -> bool,
) -> u64 {
    extents.clear();
    let room = datagram.saturating_sub(head.len() + header);
    let fit = out.begin(datagram);
    let (mut count, mut sent) = (0, 0);
    while count < fit {
        let at = out.next_at() + head.len();
        let Some((start, rest)) = out.next_segment().split_at_mut_checked(head.len()) else {
            break;
        };
        start.copy_from_slice(head);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let mut packet = Packet::new(Writer::new(rest), (head.len(), at), room, extents);
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
