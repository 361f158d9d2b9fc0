//! Defines what a protocol on the [shell](super) implements. A [`Machine`] decides which packet is
//! sent next and in which format, how received packets are handled, and which feedback is sent.

use std::time::Duration;

use crate::{
    codec::{DecodeError, NoRoom, Writer},
    datagram::Ecn,
    layout::Layout,
    protocol::CloseReason,
    send::Permit,
    stats::{Stats, Why},
    store::{Extent, ObjectId, Sink},
    time::Instant,
};

/// A received datagram of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Datagram type; 0 on sessions with a control lane, whose datagrams have no type byte.
    pub kind: u8,
    /// Payload after the shell's header.
    pub bytes: &'a [u8],
    /// Offset of `bytes` within the batch.
    pub at: usize,
    /// UDP payload bytes.
    pub wire: u32,
    /// ECN codepoint with which the packet was received.
    pub ecn: Ecn,
}

impl Incoming<'_> {
    /// The data behind the first `header` of [`Self::bytes`], as bytes of `object` from `offset`.
    pub fn extent(
        &self,
        header: usize,
        object: ObjectId,
        offset: u64,
    ) -> Result<Extent, DecodeError> {
        let len = self.bytes.len().checked_sub(header);
        let len = len.ok_or(DecodeError::Malformed("data"))?;
        Extent::new(object, offset, len, self.at + header)
    }
}

/// A packet being written: a header, then data from the store.
#[derive(Debug)]
pub struct Packet<'a> {
    header: Writer<'a>,
    /// Bytes before the header in the batch's buffer.
    at: usize,
    room: u32,
    len: u32,
    /// True if the peer reads the data itself, so that a simulator carries it.
    read: bool,
    extents: &'a mut Vec<Extent>,
}

impl<'a> Packet<'a> {
    pub(crate) const fn new(
        header: Writer<'a>,
        at: usize,
        room: u32,
        extents: &'a mut Vec<Extent>,
    ) -> Self {
        Self {
            header,
            at,
            room,
            len: 0,
            read: false,
            extents,
        }
    }

    /// Bytes of data that fit.
    pub const fn room(&self) -> u32 {
        self.room - self.len
    }

    /// Writer for the header, before the data; a machine must write exactly [`Machine::HEADER`] bytes.
    pub const fn header(&mut self) -> &mut Writer<'a> {
        &mut self.header
    }

    /// Appends `len` bytes of `object` from `offset`, at most [`Self::room`].
    #[inline]
    pub fn data(&mut self, object: ObjectId, offset: u64, len: u32) {
        let len = len.min(self.room());
        let at = self.at + self.header.len() + self.len as usize;
        self.extents.push(Extent {
            object,
            offset,
            len,
            at: u32::try_from(at).unwrap_or(u32::MAX),
        });
        self.len += len;
    }

    /// Appends the data of packet `n` of `layout`; returns its length.
    pub fn unit(&mut self, layout: &Layout, n: u64) -> u64 {
        let before = self.len;
        for piece in layout.pieces(n) {
            self.data(piece.object, piece.offset, piece.len);
        }
        (self.len - before).into()
    }

    /// Pads the rest of the packet with zeros.
    pub fn pad(&mut self) {
        let rest = self.len as usize..self.room as usize;
        if let Some(rest) = self.header.unwritten().get_mut(rest) {
            rest.fill(0);
            self.len = self.room;
        }
    }

    /// UDP payload bytes so far.
    #[inline]
    pub fn wire(&self) -> u32 {
        u32::try_from(self.header.len()).unwrap_or(u32::MAX) + self.len
    }

    /// Marks the data as parsed by the peer's session, so that a simulator has to carry its bytes.
    pub const fn is_read(&mut self) {
        self.read = true;
    }

    /// Bytes that mean something to the protocols.
    #[inline]
    pub(super) const fn solid(&self) -> usize {
        let data = if self.read { self.len as usize } else { 0 };
        self.header.len() + data
    }
}

/// The protocol-specific part of a session. Input from the peer is untrusted; output must fit the space
/// provided.
pub trait Machine: Send + 'static {
    /// Type of a data packet on sessions without a control lane.
    const DATA: u8 = 0x48;
    /// Bytes of a data packet between the shell's head and its data.
    const HEADER: usize;
    /// True if the machine works only with a control lane, false if only without one; none: with
    /// and without.
    const LANE: Option<bool> = None;

    /// Appends what the peer must know before the session opens, at most
    /// [`MAX_GREETING`](super::MAX_GREETING) bytes.
    fn greeting(&self, _into: &mut Vec<u8>) {}

    /// The peer's greeting.
    fn on_greeting(&mut self, _bytes: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    /// Datagrams may be received, with up to `datagram` bytes of UDP payload; `rtt` as measured. A listener is
    /// called twice: first, when it may only receive, with a zero `rtt`.
    fn open(&mut self, now: Instant, datagram: u32, rtt: Duration);

    /// Handles a datagram; appends the extents to be placed.
    fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError>;

    /// Parses buffered control messages; returns the number of bytes consumed, 0 if the first message is
    /// incomplete.
    fn on_control(&mut self, _now: Instant, _bytes: &[u8]) -> Result<usize, DecodeError> {
        Err(DecodeError::Malformed("control message"))
    }

    /// Appends control messages, at most `room` bytes; nothing if none is due or it does not fit.
    fn poll_control(&mut self, _now: Instant, _room: usize, _into: &mut Vec<u8>) {}

    /// Writes one datagram without data and returns its type, if one is due. One that does not fit is not
    /// sent; the machine has to repeat its content.
    fn poll_datagram(&mut self, _now: Instant, _w: &mut Writer<'_>) -> Result<Option<u8>, NoRoom> {
        Ok(None)
    }

    /// Free space and drained bytes of the store; called before each received batch and before each attempt
    /// to send.
    fn on_sink(&mut self, _now: Instant, _sink: Sink) {}

    /// Permit to send data now.
    fn permit(&mut self, now: Instant) -> Permit;

    /// Writes the next data packet; false if none may be sent.
    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool;

    /// The packets written since the last call were sent, `bytes` in total.
    fn batch_sent(&mut self, _now: Instant, _bytes: u64) {}

    /// Time to call [`Self::on_timer`], and why.
    fn deadline(&self) -> Option<(Instant, Why)>;

    /// The deadline expired.
    fn on_timer(&mut self, _now: Instant) {}

    /// Queues data.
    fn send(&mut self, object: ObjectId, offset: u64, len: u64);

    /// Bytes queued and never sent.
    fn unsent(&self) -> u64;

    /// Discards data queued and never sent.
    fn cancel_unsent(&mut self);

    /// True if everything queued has been acknowledged.
    fn is_delivered(&self) -> bool;

    /// Time since which packets have been sent and none reported as received.
    fn blocked_since(&self) -> Option<Instant> {
        None
    }

    /// The session is closed: nothing more is received or sent, though it may linger.
    fn on_close(&mut self) {}

    /// Reason to close the session: the congestion law failed, or the peer makes no progress.
    fn failure(&self) -> Option<CloseReason> {
        None
    }

    /// Adds its counters to `stats`.
    fn fill_stats(&self, stats: &mut Stats);
}
