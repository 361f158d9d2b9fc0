//! How does a batch come together? Packet by packet: a head, the machine's header, data to be filled in
//! by the store; equal in length, but for the last.

use super::machine::{Machine, Packet};
use crate::{codec::Writer, datagram::TxBuf, store::Extent, time::Instant};

/// Writes packets of `machine` behind `head` until about `bytes` are written, the batch is full or
/// nothing more may leave; returns the bytes written. What the store is to fill in is in `extents`.
pub(super) fn compose<M: Machine>(
    machine: &mut M,
    now: Instant,
    (head, datagram): (&[u8], usize),
    bytes: u64,
    out: &mut TxBuf,
    extents: &mut Vec<Extent>,
) -> u64 {
    extents.clear();
    let room = datagram.saturating_sub(head.len() + M::HEADER);
    let fit = out.begin(datagram);
    let (mut count, mut sent) = (0, 0);
    while count < fit && (count == 0 || sent + datagram as u64 <= bytes) {
        let at = out.next_at() + head.len();
        let Some((start, rest)) = out.next_segment().split_at_mut_checked(head.len()) else {
            break;
        };
        start.copy_from_slice(head);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let mut packet = Packet::new(Writer::new(rest), (head.len(), at), room, extents);
        if !machine.next_packet(now, &mut packet) {
            break;
        }
        let (header, data) = packet.lens();
        debug_assert_eq!(header, M::HEADER, "a header has one length");
        let solid = head.len() + header;
        let wire = solid + data;
        out.commit(wire, solid);
        count += 1;
        sent += wire as u64;
        if wire < datagram {
            break;
        }
    }
    sent
}
