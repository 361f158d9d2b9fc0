//! What does a protocol write that is built on the [shell](super)? A [`Machine`]: which packet goes next
//! and what it says, what arriving packets mean, and what is said about them.

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

/// A datagram of the machine's that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Its type; 0 on sessions with a control lane, whose datagrams have no type.
    pub kind: u8,
    /// What follows the shell's head.
    pub bytes: &'a [u8],
    /// Place of `bytes` in the batch.
    pub at: usize,
    /// UDP payload bytes.
    pub wire: u32,
    /// Its mark.
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
    /// The peer reads the data itself, so that a simulator carries it.
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

    /// Where the header goes, before the data: of a machine's packets exactly [`Machine::HEADER`] bytes more.
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

    /// Appends packet `n` of `layout`; how many bytes it has.
    pub fn unit(&mut self, layout: &Layout, n: u64) -> u64 {
        let before = self.len;
        for piece in layout.pieces(n) {
            self.data(piece.object, piece.offset, piece.len);
        }
        (self.len - before).into()
    }

    /// Fills what is left of the room with zeros.
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

    /// The peer's session reads the data, rather than placing it.
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

/// A protocol's part of a session. It may be told anything by the peer; what it says is at most what it
/// was given room for.
pub trait Machine: Send + 'static {
    /// Type of a data packet on sessions without a control lane.
    const DATA: u8 = 0x48;
    /// Bytes of a data packet between the shell's head and its data.
    const HEADER: usize;

    /// Appends what the peer must know before the session opens, at most
    /// [`MAX_GREETING`](super::MAX_GREETING) bytes.
    fn greeting(&self, _into: &mut Vec<u8>) {}

    /// The peer's greeting.
    fn on_greeting(&mut self, _bytes: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    /// Datagrams may pass, with up to `datagram` bytes of UDP payload; an answer takes `rtt`. A listener is
    /// told twice: at first, when it may receive, `rtt` is zero.
    fn open(&mut self, now: Instant, datagram: u32, rtt: Duration);

    /// A datagram; adds what is to be placed.
    fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError>;

    /// The control messages not understood yet; returns how many bytes were, 0 if the first message is
    /// not all there.
    fn on_control(&mut self, _now: Instant, _bytes: &[u8]) -> Result<usize, DecodeError> {
        Err(DecodeError::Malformed("control message"))
    }

    /// Appends control messages, at most `room` bytes; none: nothing is due, or it does not fit.
    fn poll_control(&mut self, _now: Instant, _room: usize, _into: &mut Vec<u8>) {}

    /// Writes one datagram without data and returns its type, if one is due. One that does not fit is not
    /// sent; what it should have said is the machine's to say again.
    fn poll_datagram(&mut self, _now: Instant, _w: &mut Writer<'_>) -> Result<Option<u8>, NoRoom> {
        Ok(None)
    }

    /// What the store can take and what has left it: before each batch that arrived, and whenever something
    /// may leave.
    fn on_sink(&mut self, _now: Instant, _sink: Sink) {}

    /// May data leave?
    fn permit(&mut self, now: Instant) -> Permit;

    /// Writes the next packet; false if none may leave.
    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool;

    /// The packets written last left, `bytes` in all.
    fn batch_sent(&mut self, _now: Instant, _bytes: u64) {}

    /// When to call [`Self::on_timer`], and why.
    fn deadline(&self) -> Option<(Instant, Why)>;

    /// The deadline passed.
    fn on_timer(&mut self, _now: Instant) {}

    /// Queues data.
    fn send(&mut self, object: ObjectId, offset: u64, len: u64);

    /// Bytes queued and not sent once.
    fn unsent(&self) -> u64;

    /// Forgets them.
    fn cancel_unsent(&mut self);

    /// All that was queued is acknowledged.
    fn is_delivered(&self) -> bool;

    /// Since when packets leave and none arrives, as far as the peer says.
    fn blocked_since(&self) -> Option<Instant> {
        None
    }

    /// The session ends: nothing more is received or sent. It may be kept for a while.
    fn on_close(&mut self) {}

    /// Why the session must end: its law has failed, or the peer does not do its part.
    fn failure(&self) -> Option<CloseReason> {
        None
    }

    /// Adds its counters.
    fn fill_stats(&self, stats: &mut Stats);
}
