//! The part that all receiver-driven (pull) sessions share. The sender offers a file, the receiver
//! requests its units, and confirms a complete file. A file that gets nothing for too long ends the
//! session. A protocol implements [`Style`]: what its receiver requests, when, and in which format.
//!
//! Invariants: one file at a time each way; messages are composed only once the previous ones were sent.

use std::{ops::Range, time::Duration};

use super::{Extension, Fetch, MAX_RANGES, Message, NUMBER, Source};
use crate::{
    codec::{DecodeError, NoRoom, Writer},
    protocol::CloseReason,
    send::Permit,
    session::earliest,
    shell::{HEAD, Incoming, Machine, Messages, Packet},
    stats::{Stats, Why},
    store::{Extent, ObjectId, Sink},
    time::Instant,
    units::Rate,
};

/// Header bytes of a unit's datagram, without a control lane and with one.
pub const HEADS: u32 = 13;
const HEADS_WITH_LANE: u32 = 8;
const _: () = assert!(HEADS as usize == HEAD + NUMBER && HEADS_WITH_LANE as usize == NUMBER);
/// Type of a request datagram.
pub const REQUEST: u8 = 0x49;

/// The protocol-specific part of a pull session.
pub trait Style: Send + 'static {
    /// The protocol's own messages on the control channel.
    type Extension: Extension;
    /// True if the protocol has a control lane; has to equal the descriptor's `control_lane`.
    const LANE: bool = false;

    /// A new sending half.
    fn source(&self) -> Source;

    /// The handshake is done; `rtt` as measured.
    fn open(&mut self, rtt: Duration);

    /// The store's free space (`sink`) was updated.
    fn on_sink(&mut self, _ends: &Ends) {}

    /// The peer offers a file and can send at up to `most`.
    fn on_offer(&mut self, now: Instant, ends: &mut Ends, most: Rate);

    /// Handles one of the protocol's own control messages.
    fn on_extension(
        &mut self,
        _now: Instant,
        _ends: &mut Ends,
        _message: Self::Extension,
    ) -> Result<(), DecodeError> {
        Ok(())
    }

    /// Handles a request datagram.
    fn on_request(&mut self, _source: &mut Source, _bytes: &[u8]) -> Result<(), DecodeError> {
        Err(DecodeError::Malformed("type of a datagram"))
    }

    /// Writes a request datagram; false if there is nothing to request.
    fn poll_request(
        &mut self,
        _now: Instant,
        _ends: &mut Ends,
        _w: &mut Writer<'_>,
    ) -> Result<bool, NoRoom> {
        Ok(false)
    }

    /// Handles a received unit.
    fn on_unit(
        &mut self,
        now: Instant,
        fetch: &mut Fetch,
        unit: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        fetch.on_unit(now, unit, place).map(|_| ())
    }

    /// Called when the time [`Ends::check_at`] was reached: evaluate what was received.
    fn on_check(&mut self, _now: Instant, _ends: &mut Ends) {}

    /// True if a completely received file may be confirmed now.
    fn is_over(&mut self, _ends: &Ends) -> bool {
        true
    }

    /// Called when the file is finished, or the session closed.
    fn on_end(&mut self) {}

    /// A further deadline for [`Self::on_timer`].
    fn deadline(&self, _ends: &Ends) -> Option<Instant> {
        None
    }

    /// A deadline expired.
    fn on_timer(&mut self, _now: Instant, _ends: &mut Ends) {}
}

/// Both halves of a session.
#[derive(Debug)]
pub struct Ends {
    /// Sending half.
    pub source: Source,
    /// Receiving half.
    pub fetch: Fetch,
    /// Time to evaluate next what was received of the file ([`Style::on_check`]).
    pub check_at: Option<Instant>,
    /// Space in the store.
    pub sink: Sink,
    /// Time at which `sink` was updated last.
    pub sink_at: Instant,
    /// UDP payload of a full datagram.
    pub datagram: u32,
    /// Round-trip time of the handshake.
    pub rtt: Duration,
    messages: Messages,
    failed: Option<CloseReason>,
}

impl Ends {
    /// Queues a control message to the peer.
    pub fn send(&mut self, message: &impl Extension) {
        message.encode(self.messages.more());
    }

    /// True if the store has no room for another datagram.
    pub fn is_full(&self) -> bool {
        self.sink.free < self.datagram.into()
    }

    /// Ranges to request now from a sender at `rate`, if checked every `interval`. They are newly
    /// missing units, and those still missing whose last request should have been answered by now.
    pub fn missing(&mut self, now: Instant, rate: Rate, interval: Duration) -> Vec<Range<u64>> {
        let repair = self.rtt + interval;
        let gap = rate.time_for(2 * u64::from(self.datagram));
        let pauses = (repair, repair + gap);
        self.fetch.missing(now, pauses, MAX_RANGES)
    }

    /// Closes the session for `reason`, unless it already failed.
    pub fn fail(&mut self, reason: CloseReason) {
        self.failed.get_or_insert(reason);
    }
}

/// The [`Machine`] of a receiver-driven session.
#[derive(Debug)]
pub struct PullMachine<S> {
    style: S,
    ends: Ends,
}

impl<S: Style> PullMachine<S> {
    /// A machine with the protocol part `style`.
    pub fn new(style: S) -> Self {
        Self {
            ends: Ends {
                source: style.source(),
                fetch: Fetch::default(),
                check_at: None,
                sink: Sink::ENDLESS,
                sink_at: Instant::EPOCH,
                datagram: 1,
                rtt: Duration::ZERO,
                messages: Messages::default(),
                failed: None,
            },
            style,
        }
    }

    /// Composes the messages that are due.
    fn compose(&mut self, now: Instant) {
        let (style, ends) = (&mut self.style, &mut self.ends);
        if ends.check_at.is_some_and(|at| at <= now) {
            style.on_check(now, ends);
        }
        let over = ends.fetch.is_complete() && style.is_over(ends);
        let over = over.then(|| ends.fetch.finish()).flatten();
        if over.is_some() {
            ends.check_at = None;
            style.on_end();
        }
        let most = ends.source.most();
        let due: [Option<Message<S::Extension>>; 3] = [
            over.map(Message::Done),
            ends.source.take_cut().map(Message::Cut),
            ends.source
                .announce(now)
                .map(|offer| Message::Offer(most, offer.clone())),
        ];
        for message in due.into_iter().flatten() {
            message.encode(ends.messages.more());
        }
    }
}

impl<S: Style> Machine for PullMachine<S> {
    const HEADER: usize = NUMBER;
    const LANE: Option<bool> = Some(S::LANE);

    fn open(&mut self, _now: Instant, datagram: u32, rtt: Duration) {
        let heads = if S::LANE { HEADS_WITH_LANE } else { HEADS };
        self.ends.source.set_payload(datagram.saturating_sub(heads));
        (self.ends.datagram, self.ends.rtt) = (datagram, rtt);
        self.style.open(rtt);
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        if S::LANE || datagram.kind == Self::DATA {
            let fetch = &mut self.ends.fetch;
            self.style.on_unit(now, fetch, datagram, place)
        } else if datagram.kind == REQUEST {
            let source = &mut self.ends.source;
            self.style.on_request(source, datagram.bytes)
        } else {
            Err(DecodeError::Malformed("type of a datagram"))
        }
    }

    fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, DecodeError> {
        let Some((message, len)) = Message::decode(bytes)? else {
            return Ok(0);
        };
        let ends = &mut self.ends;
        match message {
            Message::Offer(most, offer) => {
                ends.fetch.on_offer(now, offer)?;
                self.style.on_offer(now, ends, most);
            }
            Message::Done(first) => ends.source.on_done(first)?,
            Message::Cut(end) => ends.fetch.on_cut(end)?,
            Message::Own(own) => self.style.on_extension(now, ends, own)?,
        }
        Ok(len)
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        if self.ends.messages.is_empty() {
            self.compose(now);
        }
        self.ends.messages.leave(room, into);
    }

    fn poll_datagram(&mut self, now: Instant, w: &mut Writer<'_>) -> Result<Option<u8>, NoRoom> {
        let written = self.style.poll_request(now, &mut self.ends, w)?;
        Ok(written.then_some(REQUEST))
    }

    fn on_sink(&mut self, now: Instant, sink: Sink) {
        (self.ends.sink, self.ends.sink_at) = (sink, now);
        if self.ends.is_full() {
            // Who waits for the disk does not wait for the network.
            self.ends.fetch.restart_timeout(now);
        }
        self.style.on_sink(&self.ends);
    }

    fn permit(&mut self, now: Instant) -> Permit {
        self.ends.source.permit(now)
    }

    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        self.ends.source.write(now, packet)
    }

    fn batch_sent(&mut self, now: Instant, _bytes: u64) {
        self.ends.source.batch_sent(now);
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        let ends = &self.ends;
        // Nothing is composed while earlier messages wait.
        let check = ends.check_at.filter(|_| ends.messages.is_empty());
        let given_up = ends.fetch.gives_up_at();
        let given_up = given_up.filter(|_| ends.failed.is_none());
        let receives = [check, given_up, self.style.deadline(ends)];
        let receives = receives.into_iter().flatten().min();
        earliest([
            ends.source.deadline(),
            receives.map(|at| (at, Why::Feedback)),
        ])
    }

    fn on_timer(&mut self, now: Instant) {
        self.ends.source.on_timer(now);
        self.style.on_timer(now, &mut self.ends);
        if let Some(reason) = self.ends.fetch.failure(now) {
            self.ends.fail(reason);
        }
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.ends.source.push(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.ends.source.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.ends.source.cancel_unsent();
    }

    fn is_delivered(&self) -> bool {
        self.ends.source.is_idle()
    }

    fn blocked_since(&self) -> Option<Instant> {
        self.ends.source.silent_since()
    }

    fn on_close(&mut self) {
        self.ends.check_at = None;
        self.style.on_end();
    }

    fn failure(&self) -> Option<CloseReason> {
        let failed = || self.ends.failed.clone();
        self.ends.source.failure().or_else(failed)
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.ends.source.fill_stats(stats);
        stats.dropped_duplicate = self.ends.fetch.again();
        stats.datagram_size = self.ends.datagram;
    }
}

#[cfg(test)]
mod tests;
