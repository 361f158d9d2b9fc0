//! The sending half: asks the law what may be sent, records sent packets, and turns reports
//! into acknowledgements, losses, samples and repairs.

mod report;
mod timeout;

use std::{collections::VecDeque, time::Duration};

use super::{
    Content, Packet, Report,
    tail::{Fullness, Idle, Spending, Tail},
};
use crate::{
    congestion::{CongestionController, Mail, RateSample, SavedPath, Sharing},
    datagram::CongestionHeader,
    loss::Ranges,
    path::{QueueDelay, Rtt},
    rate::{Credit, DrainEstimate},
    send::{Acked, Demand, Flight, Lost, Outbox, Permit, Piece, State},
    stats::{Stats, Why},
    store::ObjectId,
    time::Instant,
    units::Rate,
};

/// Packets by which a later one must have overtaken to call an earlier one lost (RFC 9002 §6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// Packets that a first timeout re-sends beyond the window; twice as many after each in a row, up
/// to eight a second. A burst of losses that ends after some number of packets so does end.
const PROBES: u32 = 2;
const MOST_PROBES: u32 = 8;
/// The longest pause between tail probes.
const MAX_TIMEOUT: Duration = Duration::from_secs(1);

/// Path measures, beside the flight's.
#[derive(Debug)]
struct Path {
    rtt: Rtt,
    queue: QueueDelay,
    drain: DrainEstimate,
    credit: Credit,
    last_rate: Option<RateSample>,
    sampled_at: Instant,
    fullness: Fullness,
}

/// Most packets whose records are kept: 56 MiB of records.
const MAX_RECORDS: u64 = 1 << 20;
/// Records reserved for small frames.
const SPARE: u64 = 1 << 12;

/// Packets that reports have covered so far.
#[derive(Debug, Default)]
struct Coverage {
    /// Number below which reports have covered everything without a hole.
    end: u64,
    largest_acked: Option<u64>,
    want: Option<u64>,
    asked_at: Option<Instant>,
    /// Time since which reports leave out packets above `end`.
    stuck_since: Option<Instant>,
    /// No packet below is outstanding.
    decided: u64,
    /// `end` at each of the last times it was noted: decided records are kept that long, so that a late arrival is recognised.
    ends: [u64; 4],
    noted_at: Option<Instant>,
    ce: u64,
    state_due: bool,
    /// Feedback interval last requested of the receiver.
    requested: Option<Duration>,
}

/// Timeouts.
#[derive(Debug, Default)]
struct Clocks {
    backoff: u32,
    probes: u32,
    progress_at: Option<Instant>,
    /// Time at which feedback last was not there in time, until there is some.
    silent_at: Option<Instant>,
    /// True if the last timeout was not the first without any report since.
    unheard: bool,
}

/// Acknowledgements and losses caused by one report or timer.
#[derive(Debug, Default)]
struct Change {
    acked: Acked,
    lost: Lost,
}

/// Sending half of the ARQ.
pub struct Sender {
    flight: Flight<Packet>,
    outbox: Outbox,
    path: Path,
    coverage: Coverage,
    clocks: Clocks,
    tail: Tail,
    /// Pieces on their way or to be sent again.
    outstanding: u64,
    stream_acked: Ranges,
    /// Bytes of objects that were acknowledged.
    objects_acked: u64,
    probe_results: VecDeque<(u64, bool)>,
}

impl Sender {
    /// A sender governed by `law`, never above `max_rate`.
    pub fn new(law: Box<dyn CongestionController>, max_rate: Rate) -> Self {
        Self {
            outbox: Outbox::new(law.repair_order()),
            flight: Flight::new(law, max_rate),
            path: Path {
                rtt: Rtt::new(Duration::from_millis(100)),
                queue: QueueDelay::default(),
                drain: DrainEstimate::default(),
                credit: Credit::default(),
                last_rate: None,
                sampled_at: Instant::EPOCH,
                fullness: Fullness::default(),
            },
            coverage: Coverage::default(),
            clocks: Clocks::default(),
            tail: Tail::default(),
            outstanding: 0,
            stream_acked: Ranges::default(),
            objects_acked: 0,
            probe_results: VecDeque::new(),
        }
    }

    /// Sends by another law; only before [`Self::start`].
    pub fn set_law(&mut self, law: Box<dyn CongestionController>) {
        self.outbox = Outbox::new(law.repair_order());
        self.flight = Flight::new(law, self.flight.governor.configured());
    }

    /// Lowers the rate limit to `max_rate` and sets the share of contended links to claim.
    /// False, and nothing is changed, if the law does not support it.
    pub fn govern(&mut self, max_rate: Rate, sharing: Sharing) -> bool {
        self.flight.governor.govern(max_rate, sharing)
    }

    /// Sends by another law from `now` on.
    pub fn replace_law(&mut self, now: Instant, law: Box<dyn CongestionController>) {
        self.flight.governor.replace_law(law);
        self.flight.start(now);
    }

    /// Makes this session one of `lanes` that have one share together; false if the law does not
    /// support it.
    pub fn split(&mut self, lanes: u32) -> bool {
        self.flight.governor.split(lanes)
    }

    /// The path opened: `datagram` is the UDP payload of a full datagram, `rtt` what the handshake
    /// showed.
    pub fn start(&mut self, now: Instant, datagram: u32, rtt: Duration) {
        self.set_datagram(datagram);
        self.set_rtt(Rtt::new(rtt));
        self.begin(now);
    }

    /// The law begins. If the packet requests feedback after a time of its own, the sender first
    /// reports that time to the receiver.
    fn begin(&mut self, now: Instant) {
        self.flight.start(now);
        self.path.sampled_at = now;
        if self.law().feedback_request().is_timed() {
            let rate = self.law().allowance().rate;
            self.flight.path.feedback_interval = self.requested_interval(rate);
            self.coverage.state_due = true;
        }
    }

    /// Resumes from what an earlier connection proved of the path; false if the rtt says that the
    /// path is another. Called after [`Self::start`].
    pub fn resume(&mut self, now: Instant, saved: &SavedPath) -> bool {
        let same = saved.is_like(self.flight.path.min_rtt);
        if same {
            let governor = &mut self.flight.governor;
            governor.notify(now, |law| law.resume(now, saved));
            let rate = self.law().allowance().rate;
            self.flight.path.feedback_interval = self.requested_interval(rate);
        }
        same
    }

    /// Parameters of the path that this connection has proved.
    pub fn saved(&self) -> Option<SavedPath> {
        self.flight.governor.law().saved()
    }

    /// The UDP payload of a full datagram changed.
    pub fn set_datagram(&mut self, bytes: u32) {
        self.flight.path.datagram = bytes;
    }

    /// The UDP payload of a full datagram.
    pub fn datagram(&self) -> u32 {
        self.flight.path.datagram
    }

    fn set_rtt(&mut self, rtt: Rtt) {
        self.flight.path.srtt = rtt.smoothed();
        self.flight.path.min_rtt = rtt.min();
        self.path.rtt = rtt;
    }

    /// The path changed: estimators restart from `rtt`.
    pub fn reset_path(&mut self, now: Instant, rtt: Duration) {
        self.path.queue = QueueDelay::default();
        self.path.drain = DrainEstimate::default();
        self.flight.path.reordering = Duration::ZERO;
        self.clocks.unheard = false;
        self.set_rtt(Rtt::new(rtt));
        self.begin(now);
    }

    /// The connection closes.
    pub fn close(&mut self, now: Instant) {
        self.flight.governor.notify(now, |law| law.on_close(now));
    }

    /// Queues `len` bytes of `object` from `offset`.
    pub fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.outbox.push(object, offset, len);
    }

    /// Object bytes queued and never sent.
    pub fn unsent(&self) -> u64 {
        self.outbox.unsent()
    }

    /// Discards object data queued and never sent.
    pub fn cancel_unsent(&mut self) {
        self.outbox.cancel_unsent();
    }

    /// True if everything queued has been acknowledged.
    pub fn delivered_all(&self) -> bool {
        self.outbox.is_empty() && self.outstanding == 0
    }

    /// Permit to send anything at `now`.
    pub fn permit(&mut self, now: Instant) -> Permit {
        self.choose_copy(now);
        let permit = if self.is_mute() {
            Permit::Hold(Why::Repair)
        } else if self.is_full() {
            Permit::Hold(Why::Peer)
        } else {
            self.ask_governor(now)
        };
        if let Permit::Hold(Why::Application | Why::Peer) = permit {
            self.flight.delivery.app_limited(self.next_number());
        }
        permit
    }

    fn ask_governor(&self, now: Instant) -> Permit {
        let demand = Demand {
            in_flight: self.in_flight(),
            granted: self.granted_next(),
            has_data: self.peek().is_some(),
            probes: self.clocks.probes,
        };
        match self.flight.governor.permit(now, demand) {
            Permit::Hold(Why::Pacing) if self.is_paced_by_store() => Permit::Hold(Why::Peer),
            // The stream goes on a packet at a time, so that nothing else leaves with it.
            Permit::Send { .. } if self.clocks.unheard || self.in_flight() >= self.granted() => {
                Permit::Send { bytes: 1 }
            }
            permit => permit,
        }
    }

    /// Bytes that may be in flight with the next data: the stream needs no room in the store.
    fn granted_next(&self) -> u64 {
        if self.outbox.has_stream() {
            return self.path.drain.granted();
        }
        self.granted()
    }

    /// True if as many records are kept as data may take.
    fn is_full(&self) -> bool {
        self.flight.log().len() >= MAX_RECORDS - SPARE && self.clocks.probes == 0
    }

    /// True if nothing but the probe packets of timeouts is sent, and those have left.
    const fn is_mute(&self) -> bool {
        self.clocks.unheard && self.clocks.probes == 0
    }

    /// Bytes that may be in flight, as far as the peer's host and its store are concerned.
    fn granted(&self) -> u64 {
        self.path.drain.granted().min(self.path.credit.granted())
    }

    /// True if the peer's store is full: no object data may be sent.
    fn is_store_full(&self) -> bool {
        self.path.credit.granted() < u64::from(self.datagram())
    }

    fn is_paced_by_store(&self) -> bool {
        self.path.credit.pace() < self.law().allowance().rate
    }

    /// True if sending is blocked by the peer's store.
    pub fn is_starved(&self) -> bool {
        self.is_store_full() && self.outbox.has_objects()
    }

    /// True if object data is queued or in flight.
    pub fn owes_objects(&self) -> bool {
        self.outbox.has_objects() || self.outstanding > 0
    }

    /// Grows with every acknowledgement of object data.
    pub const fn objects_acked(&self) -> u64 {
        self.objects_acked
    }

    fn window(&self) -> u64 {
        self.flight.governor.allowance().window.bytes()
    }

    /// True if something else than the law limits sending.
    fn is_limited_elsewhere(&self) -> bool {
        self.outbox.is_empty() || self.granted() < self.window() || self.is_paced_by_store()
    }

    /// Object and offset of the data that is sent next.
    pub fn peek(&self) -> Option<(ObjectId, u64)> {
        let copy = || {
            self.tail
                .ready()
                .map(|(_, piece)| (piece.object, piece.offset))
        };
        self.outbox.peek().or_else(copy)
    }

    /// With nothing else to send: looks for a packet worth sending once more.
    fn choose_copy(&mut self, now: Instant) {
        if self.outbox.is_empty() && self.outstanding > 0 {
            let idle = self.idle(now);
            self.tail.choose(self.flight.log(), &idle);
        } else {
            self.tail.wait();
        }
    }

    fn idle(&self, now: Instant) -> Idle {
        let count = &self.flight.count;
        // A path that lost more than this share was overfilled, whatever the last report shows.
        let fullness = if count.lost_bytes > count.sent_bytes / 16 {
            Fullness::Full
        } else {
            self.path.fullness
        };
        // Where almost nothing is lost, copies of what was sent once would be wasted.
        let lost = count.lost.saturating_sub(count.spurious) * u64::from(self.datagram());
        let lossy = lost > count.sent_bytes / 1_000;
        Idle {
            now,
            srtt: self.srtt(),
            spending: Spending::new(count.data_sent, fullness, lossy),
        }
    }

    /// Takes up to `max` bytes of the data that is sent next.
    pub fn next_piece(&mut self, max: u32) -> Option<Piece> {
        if !self.outbox.is_empty() {
            return self.outbox.next(max);
        }
        // Only what was peeked at: its header is written already.
        self.tail.fits(max);
        let piece = self.tail.begin()?;
        Some(Piece {
            repair: true,
            ..piece
        })
    }

    /// Bytes of copies sent so far.
    #[cfg(test)]
    pub(super) const fn copied(&self) -> u64 {
        self.tail.spent()
    }

    /// The packet number the next [`Self::log`] gives.
    pub fn next_number(&self) -> u64 {
        self.flight.log().next()
    }

    /// Packet numbers begin here, not at 0; nothing has been sent.
    pub const fn begin_at(&mut self, number: u64) {
        self.flight.begin_at(number);
    }

    /// Skips the next packet number. A peer that acknowledges it has not received it: an
    /// optimistic ACK attack (RFC 9000 §21.4).
    pub fn skip(&mut self) {
        self.make_room();
        self.flight.skip();
    }

    /// With as many records as there may be, the oldest packet is decided without the peer.
    fn make_room(&mut self) {
        if self.flight.log().len() < MAX_RECORDS {
            return;
        }
        let oldest = self.flight.log().first();
        if let Some(sent) = self.flight.get_mut(oldest) {
            sent.content.copies_lost = sent.content.copies;
            match sent.state {
                State::Outstanding => self.lose(oldest, &mut Lost::default()),
                State::Copied => self.abandon_copies(oldest),
                _ => {}
            }
        }
        self.flight.trim(self.next_number());
    }

    /// Records a packet of `wire` bytes; returns its number.
    pub fn log(&mut self, now: Instant, content: Content, wire: u32) -> u64 {
        self.make_room();
        let state = if content == Content::Quiet {
            State::Quiet
        } else {
            if self.in_flight() == 0 {
                self.clocks.progress_at = Some(now);
            }
            self.clocks.probes = self.clocks.probes.saturating_sub(1);
            State::Outstanding
        };
        let packet = Packet {
            content: self.account(now, content),
            ..Packet::default()
        };
        let number = self.flight.push(now, packet, wire, state);
        if let Content::Piece(piece) = packet.content
            && !self.outbox.has_new()
        {
            self.begin_tail(now, number, piece.repair);
        }
        if matches!(packet.content, Content::Piece(_) | Content::Copy(_)) {
            self.choose_copy(now);
        }
        number
    }

    /// Notes that packet `number` was sent, and nothing new is left: losses are to be reported
    /// soon.
    fn begin_tail(&mut self, now: Instant, number: u64, repair: bool) {
        let idle = self.idle(now);
        self.tail.sent(number, repair, self.flight.log(), &idle);
        let interval = self.tail_interval(self.flight.path.feedback_interval);
        if interval < self.flight.path.feedback_interval {
            self.flight.path.feedback_interval = interval;
            self.coverage.state_due = true;
        }
    }

    /// Counts the data of a packet; a piece handed out as a copy becomes one.
    fn account(&mut self, now: Instant, content: Content) -> Content {
        let Content::Piece(piece) = content else {
            return content;
        };
        let count = &mut self.flight.count;
        if piece.repair {
            count.repaired += u64::from(piece.len);
            count.retransmits += 1;
        } else {
            count.data_sent += u64::from(piece.len);
        }
        if let Some(original) = self.tail.take() {
            let idle = self.idle(now);
            if let Some(sent) = self.flight.get_mut(original) {
                sent.content.copies += 1;
                self.tail.copied(original, sent.content.copies, &idle);
            }
            return Content::Copy(original);
        }
        self.outstanding += 1;
        content
    }

    /// A batch of `bytes` was sent.
    pub fn batch_sent(&mut self, now: Instant, bytes: u64) {
        let limited = self.is_limited_elsewhere();
        self.flight.batch_sent(now, bytes, limited);
    }

    /// Contiguous acknowledged prefix of the stream.
    pub fn stream_acked(&self) -> u64 {
        self.stream_acked.prefix()
    }

    /// Number and fate of an MTU probe, once each.
    pub fn probe_result(&mut self) -> Option<(u64, bool)> {
        self.probe_results.pop_front()
    }

    /// All packets below are acknowledged or declared lost: reports need not cover them.
    pub fn settled(&self) -> u64 {
        self.flight.log().first()
    }

    /// Feedback interval usually requested.
    pub fn interval(&self) -> Duration {
        self.flight.path.feedback_interval
    }

    /// Feedback interval for packets sent now: shorter within a train.
    fn requested(&self) -> Duration {
        let train = self.law().feedback_request().train;
        train.map_or(self.interval(), |train| {
            self.interval().min(train.max(report::LEAST_INTERVAL))
        })
    }

    /// The law may request other feedback for what it sends from now on. A train is not announced without data.
    fn request_feedback(&mut self) {
        let train = self.law().feedback_request().train.is_some();
        if train && self.delivered_all() {
            return;
        }
        let last = self.coverage.requested;
        self.coverage.state_due |= last.map_or(train, |last| last != self.requested());
    }

    /// True if [`Self::settled`] and what [`Self::take_state`] gives are to be sent to the receiver.
    pub fn state_due(&self) -> bool {
        self.coverage.state_due
    }

    /// Returns the feedback interval for packets sent now, and notes that the receiver is being
    /// given that interval.
    pub fn take_state(&mut self) -> Duration {
        let interval = self.requested();
        self.coverage.state_due = false;
        self.coverage.requested = Some(interval);
        interval
    }

    /// Takes a pending report request: the first packet that it covers. Given once per reason.
    pub fn take_want(&mut self) -> Option<u64> {
        self.coverage.want.take()
    }

    /// True if a report request waits to be sent.
    pub fn want_due(&self) -> bool {
        self.coverage.want.is_some()
    }

    /// Congestion header of each datagram of the next batch.
    pub fn congestion_header(&self) -> Option<CongestionHeader> {
        self.law().congestion_header()
    }

    /// Packets after which feedback is requested, if not by time alone.
    pub fn requested_packets(&self) -> Option<u32> {
        self.law().feedback_request().packets
    }

    /// Handles a message of the law's receiving half.
    pub fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        self.flight
            .governor
            .notify(now, |law| law.on_message(now, bytes));
    }

    /// True if messages of the law wait to be sent.
    pub fn has_mail(&self) -> bool {
        self.flight.governor.has_mail()
    }

    /// Outgoing messages to the law's receiving half.
    pub fn mail(&mut self) -> &mut Mail {
        self.flight.governor.mail()
    }

    /// Wire bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.flight.count.in_flight
    }

    /// Timeouts in a row without feedback for which the path may be the reason.
    pub fn backoff(&self) -> u32 {
        if self.is_store_full() {
            return 0;
        }
        self.clocks.backoff
    }

    /// Smoothed rtt.
    pub fn srtt(&self) -> Duration {
        self.path.rtt.smoothed()
    }

    /// Reason to close the session, if the law has failed.
    pub fn failure(&self) -> Option<String> {
        self.flight.governor.failure()
    }

    /// The law, for inspection.
    pub fn law(&self) -> &dyn CongestionController {
        self.flight.governor.law()
    }

    /// Adds this half's counters.
    pub fn fill_stats(&self, stats: &mut Stats) {
        self.flight.fill_stats(stats);
        stats.peer_window = Some(self.granted()).filter(|granted| *granted < u64::MAX);
        stats.rtt_min = self.path.rtt.min_ever();
        stats.rtt_smoothed = stats.rtt_min.map(|_| self.srtt());
        stats.rtt_latest = self.path.rtt.latest();
        stats.rtt_samples = self.path.rtt.samples();
    }
}
