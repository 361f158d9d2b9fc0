//! One connection: handshake, keys, the two halves of [`arq`](farhaul_core::arq), stream, mtu
//! search, path and life joined. `send` writes what leaves, `recv` takes what arrives; this file
//! holds the state, the clock and the application's side.

mod recv;
mod send;

use std::{sync::Arc, time::Duration};

use farhaul_congestion::Fixed;
use farhaul_core::{
    arq::{Receiver, Report, STREAM, Sender},
    closing::Closing,
    congestion::Sharing,
    datagram::{MAX_SEGMENTS, Received, Transmit, TxBuf},
    life::Life,
    live::Alive,
    protocol::{CloseReason, Event, Session, Turn},
    session::{AppSide, earliest},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    stream::{Incoming, Outgoing},
    time::Instant,
    units::{Rate, Size},
};

use crate::{
    crypto::Side,
    handshake::{Agreed, Handshake, Ids},
    identity::PublicKey,
    laws::{Law, Receivers},
    memory::{PathEntry, PathMemory},
    mtu::Mtu,
    path::Path,
    seal::Seal,
    wire::{BASE_DATAGRAM, feedback::Known},
};

/// Minimum of the rtt sample of the handshake.
const LEAST_RTT: Duration = Duration::from_micros(100);
/// Longest time that a peer may go without room for anything.
const STARVED: Duration = Duration::from_mins(5);
/// Pauses between asking a peer whose window or store is full.
const NUDGE: Duration = Duration::from_millis(50);
const MAX_NUDGES: u32 = 6;
/// Timeouts in a row after which marks are suspected of being the reason.
const ECN_SUSPECT: u32 = 3;

/// Time whose datagrams leave together at a constant rate.
const TOGETHER: Duration = Duration::from_micros(100);

/// Settings that do not change.
pub(crate) struct Settings {
    pub(crate) side: Side,
    pub(crate) update_after: u64,
    pub(crate) answer: Duration,
    /// Law of a server, for clients whose datagrams a byte stream carries.
    pub(crate) tunnel_law: Option<Law>,
    pub(crate) receivers: Receivers,
    pub(crate) memory: Option<Arc<PathMemory>>,
    /// First packet number.
    pub(crate) first: u64,
    /// Kept as long as the session exists, so that its factory can check.
    #[expect(dead_code, reason = "held, not read")]
    pub(crate) alive: Alive,
}

/// Frames that want an acknowledgement.
#[derive(Debug, Default)]
struct Asks {
    ready: bool,
    ping: bool,
    credit: bool,
}

impl Asks {
    const fn any(&self) -> bool {
        self.ready || self.ping || self.credit
    }
}

/// Choice of sending datagrams as capable of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Marks {
    /// Nothing sent with marks has been acknowledged.
    #[default]
    Trying,
    /// Marks get through.
    Proven,
    /// Marks may be what the path swallows.
    GivenUp,
}

/// Small frames waiting to be sent.
#[derive(Debug, Default)]
struct Todo {
    asks: Asks,
    ecn: Marks,
    nudge_at: Option<Instant>,
    nudges: u32,
    /// Time since which the peer's store has taken nothing, having had no room, and the bytes that
    /// it had taken.
    starved: Option<(Instant, u64)>,
}

#[derive(Default)]
struct Streams {
    out: Outgoing,
    inc: Incoming,
}

/// The report being read, and what its low bits are completed from.
#[derive(Default)]
struct IncomingReport {
    report: Report,
    known: Known,
}

/// A session of haul.
pub(crate) struct HaulSession {
    settings: Settings,
    ids: Ids,
    handshake: Option<Handshake>,
    seal: Option<Seal>,
    sender: Sender,
    receiver: Receiver,
    streams: Streams,
    mtu: Mtu,
    path: Path,
    life: Life<Closing>,
    todo: Todo,
    /// The packet number that is left out next, once it was drawn.
    skip_at: Option<u64>,
    /// The ack-frequency request sent last.
    requested: Option<u32>,
    incoming_report: IncomingReport,
    /// Extents of the batch in hand, for the store to fill or to take; kept, so that a batch
    /// allocates nothing.
    extents: Vec<Extent>,
    /// Bytes that the store can still take of the batch that arrived.
    free: u64,
    app: AppSide,
    /// Declaration of the peer's application.
    peer_app: Vec<u8>,
    /// Key of the peer whose path this is, for the memory.
    peer_key: Option<PublicKey>,
    /// Entry that the session resumed from, and when.
    resumed: Option<(Instant, PathEntry)>,
}

impl HaulSession {
    pub(crate) fn new(
        settings: Settings,
        handshake: Handshake,
        sender: Sender,
        mtu: Mtu,
        path: Path,
        life: Life<Closing>,
    ) -> Self {
        Self {
            ids: handshake.ids(),
            settings,
            handshake: Some(handshake),
            seal: None,
            sender,
            receiver: Receiver::default(),
            streams: Streams::default(),
            mtu,
            path,
            life,
            todo: Todo::default(),
            skip_at: None,
            requested: None,
            incoming_report: IncomingReport::default(),
            extents: Vec::with_capacity(MAX_SEGMENTS),
            free: 0,
            app: AppSide::default(),
            peer_app: Vec::new(),
            peer_key: None,
            resumed: None,
        }
    }

    /// The handshake may have finished.
    fn conclude(&mut self, now: Instant) {
        let Some(handshake) = &mut self.handshake else {
            return;
        };
        self.ids = handshake.ids();
        match handshake.agreed() {
            Ok(None) => {}
            Ok(Some(agreed)) => {
                let rtt = handshake.rtt().unwrap_or_default().max(LEAST_RTT);
                self.open(now, agreed, rtt);
            }
            Err(refusal) => self.fail(now, refusal.into()),
        }
    }

    /// Sets the receiving half that the peer's law requests; false if this end does not have it.
    fn receive_by(&mut self, now: Instant, rtt: Duration, name: &str) -> bool {
        let law = self.settings.receivers.make(name);
        let known = law.is_some();
        if let Some(law) = law {
            self.receiver.set_law(now, rtt, law);
        }
        known
    }

    fn open(&mut self, now: Instant, agreed: Agreed, rtt: Duration) {
        let after = self.settings.update_after;
        self.seal = Some(Seal::new(agreed.keys, agreed.ratchet, after));
        let cap = usize::try_from(agreed.params.max_datagram).unwrap_or(usize::MAX);
        self.mtu.limit(cap);
        self.mtu.search();
        self.life.limit_idle(agreed.params.idle);
        if agreed.params.tunnel
            && self.settings.side == Side::Server
            && let Some(law) = &self.settings.tunnel_law
        {
            self.sender.set_law(law.make());
        }
        self.sender.begin_at(self.settings.first);
        self.receiver.begin_at(self.settings.first);
        self.sender.start(now, self.datagram(), rtt);
        if !agreed.params.tunnel {
            self.peer_key = agreed.peer_key.as_deref().and_then(PublicKey::from_slice);
            self.recall(now);
        }
        self.todo.asks.ready = self.settings.side == Side::Server;
        if let Some(name) = &agreed.params.law
            && !self.receive_by(now, rtt, name)
        {
            let text = format!("the sender's congestion law needs '{name}' at this end");
            self.fail(now, CloseReason::Protocol(text));
            return;
        }
        self.peer_app = agreed.params.app;
        self.app.connected(agreed.peer_key);
    }

    /// Resumes if an earlier connection proved something of the path.
    fn recall(&mut self, now: Instant) {
        let memory = self.settings.memory.as_ref().zip(self.peer_key);
        let address = self.path.active().ip();
        if let Some(entry) = memory.and_then(|(memory, peer)| memory.take(now, &peer, address)) {
            if self.sender.resume(now, &entry.saved) {
                self.mtu
                    .resume(usize::try_from(entry.datagram).unwrap_or(0));
                self.sender.set_datagram(self.datagram());
            }
            self.resumed = Some((now, entry));
        }
    }

    /// The next connection begins with what this one proved.
    fn remember(&mut self, now: Instant) {
        let memory = self.settings.memory.as_ref().zip(self.peer_key.take());
        let Some((memory, peer)) = memory else {
            return;
        };
        // What was not confirmed, or not even used, stays and is no younger.
        let taken = self.resumed;
        let saved = self.sender.saved().or(taken.map(|(_, entry)| entry.saved));
        if let Some(saved) = saved {
            let resumed = taken.filter(|(_, entry)| entry.saved == saved);
            let age = resumed.map_or(Duration::ZERO, |(at, entry)| entry.age + now.since(at));
            let entry = PathEntry {
                peer: Some(peer),
                address: resumed.map_or(self.path.active().ip(), |(_, entry)| entry.address),
                saved,
                datagram: resumed.map_or(self.datagram(), |(_, entry)| entry.datagram),
                age,
            };
            memory.note(now, entry);
        }
    }

    fn datagram(&self) -> u32 {
        u32::try_from(self.mtu.datagram()).unwrap_or(u32::MAX)
    }

    fn rtt(&self) -> Duration {
        if self.seal.is_some() {
            self.sender.srtt()
        } else {
            let known = self.handshake.as_ref().and_then(Handshake::rtt);
            known.unwrap_or(Duration::from_millis(100))
        }
    }

    /// Ends the session for `reason`; the peer is notified if possible.
    pub(crate) fn fail(&mut self, now: Instant, reason: CloseReason) {
        if !self.life.is_open() {
            return;
        }
        let nothing_left = self.handshake.as_ref().is_some_and(|h| !h.sent_anything());
        let close_frame = Closing::of(&reason).filter(|_| self.seal.is_some() || !nothing_left);
        self.close_with(now, close_frame, reason);
    }

    fn close_with(&mut self, now: Instant, close_frame: Option<Closing>, reason: CloseReason) {
        self.remember(now);
        self.life.close(now, close_frame, self.rtt());
        self.sender.close(now);
        self.receiver.notify(now, |law| law.on_close(now));
        self.app.close(now, reason);
    }

    /// Ends the session, as the peer did.
    fn ended(&mut self, now: Instant, reason: CloseReason) {
        self.remember(now);
        self.app.close(now, reason);
        self.life.end();
    }

    /// Gives the sender what the peer's window takes of the stream.
    fn pump_stream(&mut self) {
        while let Some((offset, len)) = self.streams.out.take_queueable() {
            self.sender.send(STREAM, offset, len);
            self.todo.nudges = 0;
        }
    }

    /// Reads off what feedback or a timeout decided.
    fn settle(&mut self, now: Instant) {
        while let Some((number, acked)) = self.sender.probe_result() {
            if self.mtu.on_result(now, number, acked) {
                self.sender.set_datagram(self.datagram());
            }
        }
        self.streams.out.on_acked(self.sender.stream_acked());
        if let Some(text) = self.sender.failure() {
            self.fail(now, CloseReason::Internal(text));
        }
        let done = self.sender.delivered_all() && !self.streams.out.is_blocked();
        self.app.settle(done);
    }

    /// True if the peer's store has accepted nothing for too long. Room alone is no progress: it
    /// may be reported in vain.
    fn is_starved_too_long(&mut self, now: Instant) -> bool {
        let acked = self.sender.objects_acked();
        let same = |(_, before): &(Instant, u64)| *before == acked && self.sender.owes_objects();
        self.todo.starved = self.todo.starved.filter(same);
        if !self.sender.is_starved() {
            return false;
        }
        let (since, _) = *self.todo.starved.get_or_insert((now, acked));
        now.since(since) >= STARVED
    }

    /// A ping is sent for a full window or store while nothing else is in flight to be answered.
    fn nudge(&mut self, now: Instant) {
        let starved = self.sender.is_starved();
        let blocked = self.streams.out.is_blocked() || starved;
        let stuck = blocked && self.sender.in_flight() == 0;
        if self.is_starved_too_long(now) {
            let text = format!(
                "the receiver has had no free space for {} s",
                STARVED.as_secs()
            );
            self.fail(now, CloseReason::Starved(text));
        }
        match self.todo.nudge_at {
            Some(at) if stuck && at <= now => {
                self.todo.nudge_at = None;
                self.todo.nudges = (self.todo.nudges + 1).min(MAX_NUDGES);
                self.todo.asks.ping = true;
            }
            None if stuck && self.seal.is_some() => {
                let pause = (NUDGE + self.rtt() * 2) * (1 << self.todo.nudges);
                self.todo.nudge_at = Some(now + pause);
            }
            Some(_) if !stuck => self.todo.nudge_at = None,
            _ => {}
        }
    }

    fn on_handshake_timer(&mut self, now: Instant) {
        let Some(handshake) = &mut self.handshake else {
            return;
        };
        handshake.on_timeout(now);
        if self.seal.is_some() {
            return;
        }
        let since = now.since(handshake.started());
        if !handshake.answered() && since >= self.settings.answer {
            self.ended(now, CloseReason::NoAnswer);
        } else if since >= self.settings.answer * 3 {
            self.ended(now, CloseReason::Unfinished);
        }
    }

    fn on_sealed_timers(&mut self, now: Instant) {
        if now >= self.life.idle_at() {
            self.ended(now, CloseReason::TimedOut);
            return;
        }
        self.todo.asks.ping |= self.life.ping(now);
        self.sender.on_timeout(now);
        self.receiver.on_timeout(now);
        let backoff = self.sender.backoff();
        if self.mtu.on_timeouts(backoff) {
            self.sender.set_datagram(self.datagram());
        }
        if backoff >= ECN_SUSPECT && self.todo.ecn == Marks::Trying {
            self.todo.ecn = Marks::GivenUp;
        }
        self.mtu.on_timeout(now);
        self.settle(now);
        self.nudge(now);
    }

    fn handshake_deadline(&self) -> Option<Instant> {
        let handshake = self.handshake.as_ref().filter(|_| self.seal.is_none())?;
        let multiple = if handshake.answered() { 3 } else { 1 };
        Some(handshake.started() + self.settings.answer * multiple)
    }
}

impl Session for HaulSession {
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, mut batch: Received<'_>) {
        self.receive(turn, &mut batch);
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        self.life.on_timeout(now);
        if !self.life.is_open() {
            return;
        }
        self.on_handshake_timer(now);
        if self.seal.is_some() {
            self.on_sealed_timers(now);
        }
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        // As the law stands before the batch.
        let header = self.sender.congestion_header();
        let transmit = self.transmit(turn, out)?;
        out.header = header;
        Some(transmit)
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        if !self.life.is_open() {
            return self.life.deadline();
        }
        let due = self.handshake.as_ref().and_then(Handshake::due);
        let handshake = due.into_iter().chain(self.handshake_deadline()).min();
        let handshake = handshake.map(|at| (at, Why::Handshake));
        if self.seal.is_none() {
            return handshake;
        }
        let life = [self.mtu.due(), self.path.due(), self.todo.nudge_at];
        let life = life.into_iter().flatten().min();
        earliest([
            handshake,
            self.life.deadline(),
            life.map(|at| (at, Why::Liveness)),
            self.receiver.feedback_due().map(|at| (at, Why::Feedback)),
            self.receiver.next_tick().map(|at| (at, Why::Law)),
            self.sender.next_timeout(),
        ])
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.app.poll_event()
    }

    fn ping(&mut self) -> bool {
        let open = self.seal.is_some() && self.life.is_open();
        self.todo.asks.ping |= open;
        open
    }

    fn path_changed(&mut self, now: Instant) {
        if self.ping() {
            self.new_path(now);
        }
    }

    fn peer_app(&self) -> &[u8] {
        &self.peer_app
    }

    fn is_address_validated(&self) -> bool {
        let handshake = self.handshake.as_ref();
        handshake.is_none_or(Handshake::is_address_validated)
    }

    fn govern(&mut self, max_rate: Rate, sharing: Sharing) -> bool {
        self.sender.govern(max_rate, sharing)
    }

    fn send_constantly(&mut self, now: Instant, rate: Rate) -> bool {
        if !self.life.is_open() {
            return false;
        }
        let together = Size::from_bytes(rate.bytes_in(TOGETHER));
        let law = Fixed::new(rate, together);
        self.sender.replace_law(now, Box::new(law));
        true
    }

    fn split(&mut self, lanes: u32) -> bool {
        self.sender.split(lanes)
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        if self.app.give(object, len) {
            self.sender.send(object, offset, len);
        }
    }

    fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.cancel_unsent();
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.app.write(bytes) {
            self.streams.out.write(bytes);
            self.pump_stream();
        }
    }

    fn unwritten(&self) -> usize {
        self.streams.out.pending()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        self.streams.inc.read(into);
        self.todo.asks.credit |= self.streams.inc.credit_due();
    }

    fn close(&mut self, now: Instant, code: u32, text: &str) {
        let text = text.to_owned();
        self.fail(now, CloseReason::Local { code, text });
    }

    fn is_closed(&self) -> bool {
        self.life.is_over()
    }

    fn stats(&self) -> Stats {
        let mut stats = self.app.stats;
        self.sender.fill_stats(&mut stats);
        stats.law_faults += self.receiver.faults();
        stats.key_updates = self.seal.as_ref().map_or(0, Seal::updates);
        if self.seal.is_none() {
            stats.datagram_size = u32::try_from(BASE_DATAGRAM).unwrap_or(u32::MAX);
        }
        stats
    }
}
