//! The sending half: asks the law what may leave, keeps the record of what left, and turns reports
//! into acknowledgements, losses, samples and repairs.

mod report;
mod timeout;

use std::{collections::VecDeque, time::Duration};

use super::{Report, tail::Tail};
use crate::{
    congestion::{CongestionController, Facts, Guard, Mail, PathView, RateSample, Sharing},
    datagram::CongestionHeader,
    loss::Ranges,
    path::{QueueDelay, Rtt},
    rate::{Delivery, Intake},
    send::{Budget, Content, FactLog, Outbox, Pacer, Permit, Piece, Sent, SentLog, State},
    stats::{Stats, Why},
    store::ObjectId,
    time::Instant,
    units::{Rate, Size},
};

/// Packets by which a later one must have overtaken to call an earlier one lost (RFC 9002 §6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// Packets a first timeout re-sends beyond the window; twice as many after each in a row, up to eight a
/// second, so that a burst of losses that ends after so many packets does end.
const PROBES: u32 = 2;
const MOST_PROBES: u32 = 8;
/// The longest pause between tail probes.
const MAX_TIMEOUT: Duration = Duration::from_secs(1);

/// Path measures.
#[derive(Debug)]
struct Path {
    datagram: u32,
    rtt: Rtt,
    queue: QueueDelay,
    delivery: Delivery,
    intake: Intake,
    last_rate: Option<RateSample>,
    interval: Duration,
}

/// The most packets of which records are kept: 40 MiB of them.
const MAX_RECORDS: u64 = 1 << 20;
/// Records that data leaves to small frames.
const SPARE: u64 = 1 << 12;

/// What reports have told so far.
#[derive(Debug, Default)]
struct Coverage {
    /// Everything below has been told of without a hole.
    end: u64,
    largest_acked: Option<u64>,
    want: Option<u64>,
    asked_at: Option<Instant>,
    /// Since when reports leave out what lies above `end`.
    stuck_since: Option<Instant>,
    /// No packet below is outstanding.
    decided: u64,
    /// `end` after each of the last reports: decided records are kept that long, so that a late
    /// arrival is recognised.
    ends: [u64; 4],
    ce: u64,
    state_due: bool,
    reorder_window: Duration,
}

/// Rounds, episodes and timeouts.
#[derive(Debug, Default)]
struct Clocks {
    round: u64,
    round_end: u64,
    episode_end: u64,
    backoff: u32,
    probes: u32,
    progress_at: Option<Instant>,
    /// Since when nothing is in flight, after something was.
    idle_since: Option<Instant>,
}

#[derive(Debug, Default)]
struct Counters {
    sent_bytes: u64,
    in_flight: u64,
    outstanding: u64,
    data_sent: u64,
    repaired: u64,
    retransmits: u64,
    data_acked: u64,
    /// Wire bytes.
    delivered: u64,
    lost: u64,
    /// Wire bytes.
    lost_bytes: u64,
    spurious: u64,
    episodes: u64,
    timeouts: u64,
}

/// What one report or timer changed.
#[derive(Debug, Default)]
struct Change {
    acked_bytes: u64,
    acked_packets: u32,
    newest: Option<(u64, Sent)>,
    lost_bytes: u64,
    lost_packets: u32,
    lost_span: Option<(u64, u64)>,
    spurious: u32,
}

/// Sender side of the skeleton.
pub struct Sender {
    law: Guard,
    max_rate: Rate,
    log: SentLog,
    facts: FactLog,
    outbox: Outbox,
    pacer: Pacer,
    path: Path,
    coverage: Coverage,
    clocks: Clocks,
    tail: Tail,
    count: Counters,
    stream_acked: Ranges,
    probe_results: VecDeque<(u64, bool)>,
}

impl Sender {
    /// A sender governed by `law`, never above `max_rate`.
    pub fn new(law: Box<dyn CongestionController>, max_rate: Rate) -> Self {
        Self {
            outbox: Outbox::new(law.repair_order()),
            law: Guard::new(law),
            max_rate,
            log: SentLog::default(),
            facts: FactLog::default(),
            pacer: Pacer::new(),
            path: Path {
                datagram: 1_200,
                rtt: Rtt::new(Duration::from_millis(100)),
                queue: QueueDelay::default(),
                delivery: Delivery::default(),
                intake: Intake::default(),
                last_rate: None,
                interval: Duration::from_millis(5),
            },
            coverage: Coverage::default(),
            clocks: Clocks::default(),
            tail: Tail::default(),
            count: Counters::default(),
            stream_acked: Ranges::default(),
            probe_results: VecDeque::new(),
        }
    }

    /// Never faster than `max_rate` from now on, besides what it was made with; and this much of
    /// shared links. False, and nothing is changed, if the law cannot.
    pub fn govern(&mut self, max_rate: Rate, sharing: Sharing) -> bool {
        let can = self.law.set_sharing(sharing);
        if can {
            self.max_rate = self.max_rate.min(max_rate);
        }
        can
    }

    /// The path opened: `datagram` is the UDP payload of a full datagram, `rtt` what the handshake
    /// showed.
    pub fn start(&mut self, now: Instant, datagram: u32, rtt: Duration) {
        self.path.datagram = datagram;
        self.path.rtt = Rtt::new(rtt);
        let view = self.view();
        self.law.on_start(now, &view);
    }

    /// The UDP payload of a full datagram changed.
    pub fn set_datagram(&mut self, bytes: u32) {
        self.path.datagram = bytes;
    }

    /// The UDP payload of a full datagram.
    pub fn datagram(&self) -> u32 {
        self.path.datagram
    }

    /// The path itself changed: measures start again from `rtt`.
    pub fn reset_path(&mut self, now: Instant, rtt: Duration) {
        self.path.rtt = Rtt::new(rtt);
        self.path.queue = QueueDelay::default();
        self.path.intake = Intake::default();
        let view = self.view();
        self.law.on_start(now, &view);
    }

    /// The connection closes.
    pub fn close(&mut self, now: Instant) {
        self.law.tell(now, |law| law.on_close(now));
    }

    fn view(&self) -> PathView {
        PathView {
            datagram: self.path.datagram,
            srtt: self.path.rtt.smoothed(),
            min_rtt: self.path.rtt.min(),
            feedback_interval: self.path.interval,
            in_flight: Size::from_bytes(self.count.in_flight),
        }
    }

    /// Queues `len` bytes of `object` from `offset`.
    pub fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.outbox.push(object, offset, len);
    }

    /// New object bytes not sent once.
    pub fn unsent(&self) -> u64 {
        self.outbox.unsent()
    }

    /// Forgets new object data not sent once.
    pub fn cancel_unsent(&mut self) {
        self.outbox.cancel_unsent();
    }

    /// Everything queued has been acknowledged.
    pub fn delivered_all(&self) -> bool {
        self.outbox.is_empty() && self.count.outstanding == 0
    }

    /// May anything leave at `now`?
    pub fn permit(&mut self, now: Instant) -> Permit {
        let mut allowance = self.law.allowance();
        allowance.rate = allowance.rate.min(self.max_rate);
        let budget = Budget {
            allowance,
            pacer: &self.pacer,
            in_flight: self.count.in_flight,
            granted: self.path.intake.granted(),
            has_data: self.peek().is_some(),
            probes: self.clocks.probes,
        };
        let permit = if self.is_full() {
            Permit::Hold(Why::Peer)
        } else {
            budget.permit(now)
        };
        if let Permit::Hold(Why::Application | Why::Peer) = permit {
            self.path.delivery.app_limited(self.log.next());
        }
        permit
    }

    /// As many records are kept as data may take.
    fn is_full(&self) -> bool {
        self.log.len() >= MAX_RECORDS - SPARE && self.clocks.probes == 0
    }

    /// Something else than the law limits what is sent.
    fn is_limited_elsewhere(&self) -> bool {
        self.outbox.is_empty() || self.path.intake.granted() < self.law.allowance().window.bytes()
    }

    /// Object and offset of what goes next.
    pub fn peek(&self) -> Option<(ObjectId, u64)> {
        let tail = || self.tail().map(|(_, piece)| (piece.object, piece.offset));
        self.outbox.peek().or_else(tail)
    }

    /// With nothing else to send: a packet worth sending once more.
    fn tail(&self) -> Option<(u64, Piece)> {
        let count = &self.count;
        self.tail
            .next(&self.log, count.outstanding, count.data_sent)
    }

    /// Takes up to `max` bytes of what goes next.
    pub fn next_piece(&mut self, max: u32) -> Option<Piece> {
        if !self.outbox.is_empty() {
            return self.outbox.next(max);
        }
        let tail = self.tail();
        self.tail.fits(max);
        // Only what was peeked at: its header is written already.
        let (number, piece) = tail.filter(|(_, piece)| piece.len <= max)?;
        self.tail.begin(number, &piece);
        Some(Piece {
            repair: true,
            ..piece
        })
    }

    /// The packet number the next [`Self::log`] gives.
    pub fn next_number(&self) -> u64 {
        self.log.next()
    }

    /// Packet numbers begin here, not at 0; nothing has been sent.
    pub const fn begin_at(&mut self, number: u64) {
        self.log.begin_at(number);
    }

    /// Leaves out the next packet number. Whoever reports on it has not seen what it reports on, as an
    /// optimistic acknowledger would (RFC 9000 §21.4).
    pub fn skip(&mut self) {
        self.make_room();
        self.log.skip();
    }

    /// With as many records as there may be, the oldest packet is decided without the peer.
    fn make_room(&mut self) {
        if self.log.len() < MAX_RECORDS {
            return;
        }
        let oldest = self.log.first();
        if let Some(sent) = self.log.get_mut(oldest) {
            sent.copies_lost = sent.copies;
            match sent.state {
                State::Outstanding => self.lose(oldest, &mut Change::default()),
                State::Copied => self.abandon_copies(oldest),
                _ => {}
            }
        }
        self.log.trim(self.log.next());
    }

    /// Records a packet of `wire` bytes; returns its number.
    pub fn log(&mut self, now: Instant, content: Content, wire: u32) -> u64 {
        self.make_room();
        let quiet = content == Content::Quiet;
        self.count.sent_bytes += u64::from(wire);
        if !quiet {
            if self.count.in_flight == 0 {
                self.clocks.progress_at = Some(now);
                if let Some(since) = self.clocks.idle_since.take() {
                    let idle = now.since(since);
                    self.law.tell(now, |law| law.on_idle_restart(now, idle));
                }
            }
            self.count.in_flight += u64::from(wire);
            self.clocks.probes = self.clocks.probes.saturating_sub(1);
        }
        let content = self.account(content);
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let sent_bytes_low = self.count.sent_bytes as u32;
        let state = if quiet {
            State::Quiet
        } else {
            State::Outstanding
        };
        self.log.push(Sent {
            at: now,
            content,
            wire,
            state,
            sent_bytes_low,
            copies: 0,
            copies_lost: 0,
            covered: false,
        })
    }

    /// Counts the data of a packet; a piece handed out as a copy becomes one.
    fn account(&mut self, content: Content) -> Content {
        let Content::Piece(piece) = content else {
            return content;
        };
        if piece.repair {
            self.count.repaired += u64::from(piece.len);
            self.count.retransmits += 1;
        } else {
            self.count.data_sent += u64::from(piece.len);
        }
        if let Some(original) = self.tail.take() {
            if let Some(sent) = self.log.get_mut(original) {
                sent.copies += 1;
            }
            return Content::Copy(original);
        }
        self.count.outstanding += 1;
        content
    }

    /// A batch of `bytes` left.
    pub fn batch_sent(&mut self, now: Instant, bytes: u64) {
        let rate = self.law.allowance().rate.min(self.max_rate);
        self.pacer.charge(now, bytes, rate);
        let facts = Facts {
            sent_at: now,
            in_flight: Size::from_bytes(self.count.in_flight),
            delivered: Size::from_bytes(self.count.delivered),
            lost: Size::from_bytes(self.count.lost_bytes),
            app_limited: self.is_limited_elsewhere(),
        };
        self.facts.push(self.log.next(), facts);
        let view = self.view();
        self.law.on_sent(now, Size::from_bytes(bytes), &view);
    }

    /// Contiguous acknowledged prefix of the stream.
    pub fn stream_acked(&self) -> u64 {
        self.stream_acked.prefix()
    }

    /// Number and fate of an MTU probe, once each.
    pub fn probe_result(&mut self) -> Option<(u64, bool)> {
        self.probe_results.pop_front()
    }

    /// Everything below is decided: the receiver need not mention it again.
    pub fn settled(&self) -> u64 {
        self.log.first()
    }

    /// How often feedback is wished for.
    pub fn interval(&self) -> Duration {
        self.path.interval
    }

    /// The receiver should hear [`Self::settled`] and [`Self::interval`].
    pub fn state_due(&self) -> bool {
        self.coverage.state_due
    }

    /// It was told.
    pub fn state_sent(&mut self) {
        self.coverage.state_due = false;
    }

    /// Nothing is known of the packets from here on: ask. Given once per reason.
    pub fn take_want(&mut self) -> Option<u64> {
        self.coverage.want.take()
    }

    /// A want waits to be sent.
    pub fn want_due(&self) -> bool {
        self.coverage.want.is_some()
    }

    /// What routers are told with each datagram of the next batch.
    pub fn congestion_header(&self) -> Option<CongestionHeader> {
        self.law.law().congestion_header()
    }

    /// After how many packets feedback is wished for, if not by time alone.
    pub fn wished_packets(&self) -> Option<u32> {
        self.law.law().feedback_wish().packets
    }

    /// The law's receiving half said something.
    pub fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        self.law.tell(now, |law| law.on_message(now, bytes));
    }

    /// Something of the law waits to be sent.
    pub fn has_mail(&self) -> bool {
        self.law.has_mail()
    }

    /// What the law says to its receiving half.
    pub fn mail(&mut self) -> &mut Mail {
        self.law.mail()
    }

    /// Wire bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.count.in_flight
    }

    /// Timeouts in a row without feedback.
    pub fn backoff(&self) -> u32 {
        self.clocks.backoff
    }

    /// Smoothed rtt.
    pub fn srtt(&self) -> Duration {
        self.path.rtt.smoothed()
    }

    /// Why the session must end, if the law has failed.
    pub fn failure(&self) -> Option<String> {
        self.law.failure()
    }

    /// The law, for a look inside.
    pub fn law(&self) -> &dyn CongestionController {
        self.law.law()
    }

    /// Adds this half's counters.
    pub fn fill_stats(&self, stats: &mut Stats) {
        let allowance = self.law.allowance();
        stats.data_sent = self.count.data_sent;
        stats.repaired = self.count.repaired;
        stats.data_acked = self.count.data_acked;
        stats.packets_lost = self.count.lost;
        stats.packets_spurious = self.count.spurious;
        stats.retransmits = self.count.retransmits;
        stats.episodes = self.count.episodes;
        stats.timeouts = self.count.timeouts;
        stats.datagram_size = self.path.datagram;
        stats.rtt_min = self.path.rtt.min_ever();
        stats.rtt_smoothed = stats.rtt_min.map(|_| self.path.rtt.smoothed());
        stats.pacing_rate = allowance.rate.min(self.max_rate);
        stats.window = allowance.window.bytes();
        let seen = self.law.law().observe();
        stats.ssthresh = seen.ssthresh;
        stats.phase = seen.phase;
        stats.in_flight = self.count.in_flight;
        (stats.law_faults, stats.law_fault) = self.law.faults();
    }
}
