//! The sending half: asks the law what may leave, keeps the record of what left, and turns reports
//! into acknowledgements, losses, samples and repairs.

use std::{collections::VecDeque, time::Duration};

use super::{Report, tail::Tail};
use crate::{
    codec::DecodeError,
    congestion::{AckEvent, CongestionController, LossEvent, PathView, RateSample},
    loss::Ranges,
    path::{QueueDelay, Rtt},
    rate::{Delivery, Progress},
    send::{Budget, Content, Outbox, Pacer, Permit, Piece, STREAM, Sent, SentLog, State},
    stats::{Stats, Why},
    store::ObjectId,
    time::Instant,
    units::{Rate, Size},
};

/// Packets by which a later one must have overtaken to call an earlier one lost (RFC 9002 §6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// Packets a timeout re-sends beyond the window.
const PROBES: u32 = 2;
/// The longest pause between tail probes.
const MAX_TIMEOUT: Duration = Duration::from_secs(1);

/// Path measures.
#[derive(Debug)]
struct Path {
    datagram: u32,
    rtt: Rtt,
    queue: QueueDelay,
    delivery: Delivery,
    last_rate: Option<RateSample>,
    interval: Duration,
}

/// What reports have told so far.
#[derive(Debug, Default)]
struct Coverage {
    /// Everything below has been told of without a hole.
    end: u64,
    largest_acked: Option<u64>,
    want: Option<u64>,
    asked_at: Option<Instant>,
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
}

#[derive(Debug, Default)]
struct Counters {
    sent_bytes: u64,
    in_flight: u64,
    outstanding: u64,
    data_sent: u64,
    repaired: u64,
    data_acked: u64,
    lost: u64,
    spurious: u64,
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
    law: Box<dyn CongestionController>,
    max_rate: Rate,
    log: SentLog,
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
            law,
            max_rate,
            log: SentLog::default(),
            outbox: Outbox::default(),
            pacer: Pacer::new(),
            path: Path {
                datagram: 1_200,
                rtt: Rtt::new(Duration::from_millis(100)),
                queue: QueueDelay::default(),
                delivery: Delivery::default(),
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

    /// The path opened: `datagram` is the UDP payload of a full datagram, `rtt` what the handshake
    /// showed.
    pub fn start(&mut self, now: Instant, datagram: u32, rtt: Duration) {
        self.path.datagram = datagram;
        self.path.rtt = Rtt::new(rtt);
        self.law.on_start(now, &self.view());
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
        self.law.on_start(now, &self.view());
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
            has_data: self.peek().is_some(),
            probes: self.clocks.probes,
        };
        let permit = budget.permit(now);
        if permit == Permit::Hold(Why::Application) {
            self.path.delivery.app_limited(self.log.next());
        }
        permit
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
        let (number, piece) = self.tail().filter(|(_, piece)| piece.len <= max)?;
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

    /// Records a packet of `wire` bytes; returns its number.
    pub fn log(&mut self, now: Instant, content: Content, wire: u32) -> u64 {
        let quiet = content == Content::Quiet;
        self.count.sent_bytes += u64::from(wire);
        if !quiet {
            if self.count.in_flight == 0 {
                self.clocks.progress_at = Some(now);
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
        let view = self.view();
        self.law.on_sent(now, Size::from_bytes(bytes), &view);
    }

    /// A report arrived.
    pub fn on_report(&mut self, now: Instant, report: &Report) -> Result<(), DecodeError> {
        if report.largest >= self.log.next() {
            return Err(DecodeError::Malformed("feedback on packets never sent"));
        }
        let before = self.count.in_flight;
        let mut change = Change::default();
        self.take_runs(report, &mut change)?;
        self.cover(now, report);
        self.find_losses(now, &mut change);
        self.coverage.ends.rotate_left(1);
        self.coverage.ends[3] = self.coverage.end;
        self.log.trim(self.coverage.ends[0]);
        self.conclude(now, before, report, &change);
        Ok(())
    }

    /// Marks what arrived.
    fn take_runs(&mut self, report: &Report, change: &mut Change) -> Result<(), DecodeError> {
        const BAD: DecodeError = DecodeError::Malformed("feedback runs");
        let mut next = report.largest + 1;
        for (i, run) in report.runs.iter().enumerate() {
            let low = next.checked_sub(*run).ok_or(BAD)?;
            if *run == 0 {
                return Err(BAD);
            }
            if i % 2 == 0 {
                for number in (low.max(self.log.first())..next).rev() {
                    self.ack(number, change);
                }
            }
            next = low;
        }
        if next == report.from {
            Ok(())
        } else {
            Err(BAD)
        }
    }

    fn ack(&mut self, number: u64, change: &mut Change) {
        let Some(sent) = self.log.get_mut(number) else {
            return;
        };
        let mut spurious = false;
        match sent.state {
            State::Acked | State::Quiet => return,
            State::Lost | State::Copied => {
                if sent.state == State::Copied {
                    self.count.outstanding -= 1;
                }
                sent.state = State::Acked;
                spurious = true;
                change.spurious += 1;
                self.count.spurious += 1;
            }
            State::Outstanding => {
                sent.state = State::Acked;
                self.count.in_flight -= u64::from(sent.wire);
                change.acked_bytes += u64::from(sent.wire);
                change.acked_packets += 1;
                if matches!(sent.content, Content::Piece(_)) && !sent.covered {
                    self.count.outstanding -= 1;
                }
            }
        }
        let sent = *sent;
        if change.newest.is_none_or(|(n, _)| number > n) {
            change.newest = Some((number, sent));
        }
        match sent.content {
            Content::Piece(piece) if !sent.covered => self.arrived(&piece, !spurious),
            Content::Copy(original) => self.cover_original(original),
            Content::Probe => self.probe_results.push_back((number, true)),
            Content::Piece(_) | Content::Other | Content::Quiet => {}
        }
    }

    /// A piece arrived; `counts` unless its repair will be counted.
    fn arrived(&mut self, piece: &Piece, counts: bool) {
        let len = u64::from(piece.len);
        self.count.data_acked += if counts { len } else { 0 };
        if piece.object == STREAM {
            self.stream_acked.insert(piece.offset..piece.offset + len);
        }
    }

    /// A copy arrived: the packet it was made of needs no repair.
    fn cover_original(&mut self, original: u64) {
        let Some(sent) = self.log.get_mut(original) else {
            return;
        };
        let open = match sent.state {
            State::Outstanding => !sent.covered,
            State::Copied => true,
            _ => false,
        };
        if open {
            sent.covered = true;
            if sent.state == State::Copied {
                sent.state = State::Lost;
            }
            if let Content::Piece(piece) = sent.content {
                self.count.outstanding -= 1;
                self.arrived(&piece, true);
            }
        }
    }

    /// A copy was lost: if it was the last hope of its original, that is repaired.
    fn lose_copy(&mut self, original: u64) {
        let Some(sent) = self.log.get_mut(original) else {
            return;
        };
        sent.copies_lost += 1;
        if sent.state == State::Copied && sent.copies_lost == sent.copies {
            sent.state = State::Lost;
            if let Content::Piece(piece) = sent.content {
                self.count.outstanding -= 1;
                self.outbox.repair(piece);
            }
        }
    }

    fn cover(&mut self, now: Instant, report: &Report) {
        let srtt = self.path.rtt.smoothed();
        let coverage = &mut self.coverage;
        let known = coverage.end.max(self.log.first());
        if report.from <= known {
            coverage.end = known.max(report.largest + 1);
            coverage.want = None;
        } else if coverage.asked_at.is_none_or(|at| now.since(at) > srtt) {
            coverage.want = Some(known);
            coverage.asked_at = Some(now);
        }
        coverage.largest_acked = coverage.largest_acked.max(Some(report.largest));
        coverage.state_due = true;
    }

    /// Decides what was told missing: lost once overtaken by enough packets and time.
    fn find_losses(&mut self, now: Instant, change: &mut Change) {
        let Some(largest) = self.coverage.largest_acked else {
            return;
        };
        let window = self.coverage.reorder_window;
        let newest_at = self.log.get(largest).map_or(now, |s| s.at);
        let threshold = if window.is_zero() {
            PACKET_THRESHOLD
        } else {
            0
        };
        let overtaken = self
            .coverage
            .end
            .min((largest + 1).saturating_sub(threshold));
        let mut undecided = None;
        for number in self.log.first().max(self.coverage.decided)..overtaken {
            let Some(sent) = self.log.get(number) else {
                continue;
            };
            if sent.state != State::Outstanding {
                continue;
            }
            if sent.at + window <= newest_at {
                self.lose(number, change);
            } else {
                undecided = undecided.or(Some(number));
            }
        }
        self.coverage.decided = undecided.unwrap_or(overtaken.max(self.coverage.decided));
    }

    fn lose(&mut self, number: u64, change: &mut Change) {
        let Some(sent) = self.log.get_mut(number) else {
            return;
        };
        let hope = !sent.covered && sent.copies > sent.copies_lost;
        sent.state = if hope { State::Copied } else { State::Lost };
        let (content, wire, covered) = (sent.content, sent.wire, sent.covered);
        self.count.in_flight -= u64::from(wire);
        match content {
            Content::Piece(_) if hope => {}
            Content::Piece(piece) if !covered => {
                self.count.outstanding -= 1;
                self.outbox.repair(piece);
            }
            Content::Copy(original) => self.lose_copy(original),
            Content::Probe => {
                self.probe_results.push_back((number, false));
                return;
            }
            Content::Piece(_) | Content::Other | Content::Quiet => {}
        }
        self.count.lost += 1;
        change.lost_bytes += u64::from(wire);
        change.lost_packets += 1;
        let first = change.lost_span.map_or(number, |(f, _)| f);
        change.lost_span = Some((first, number));
    }

    /// Tells the law: losses first, then acknowledgements.
    fn conclude(&mut self, now: Instant, before: u64, report: &Report, change: &Change) {
        if change.acked_packets > 0 {
            self.clocks.progress_at = Some(now);
            self.clocks.backoff = 0;
            self.clocks.probes = 0;
        }
        let (rtt, queue_delay) = self.measure(now, report, change);
        if let Some(span) = change.lost_span {
            let new_episode = span.1 >= self.clocks.episode_end;
            if new_episode {
                self.clocks.episode_end = self.log.next();
            }
            self.law.on_loss(&LossEvent {
                now,
                lost: Size::from_bytes(change.lost_bytes),
                packets: change.lost_packets,
                span,
                new_episode,
                in_flight_before: Size::from_bytes(before),
                path: self.view(),
            });
        }
        if change.spurious > 0 {
            let step = (self.path.rtt.min() / 8).max(Duration::from_micros(500));
            let widest = self.path.rtt.smoothed();
            self.coverage.reorder_window = (self.coverage.reorder_window + step).min(widest);
            self.law.on_undo(now);
        }
        if self.coverage.largest_acked >= Some(self.clocks.round_end) {
            self.clocks.round += 1;
            self.clocks.round_end = self.log.next();
        }
        let ce = report.ce.saturating_sub(self.coverage.ce);
        self.coverage.ce = self.coverage.ce.max(report.ce);
        if change.acked_packets > 0 {
            self.law.on_ack(&AckEvent {
                now,
                acked: Size::from_bytes(change.acked_bytes),
                packets: change.acked_packets,
                round: self.clocks.round,
                in_flight_before: Size::from_bytes(before),
                rtt,
                queue_delay,
                rate: self.path.last_rate.take(),
                ce,
                app_limited: self.outbox.is_empty(),
                path: self.view(),
            });
        }
    }

    fn measure(
        &mut self,
        now: Instant,
        report: &Report,
        change: &Change,
    ) -> (Option<Duration>, Option<Duration>) {
        let Some((number, sent)) = change.newest.filter(|(n, _)| *n == report.largest) else {
            return (None, None);
        };
        if report.delay_us == Report::NO_DELAY {
            return (None, None);
        }
        let sample = now
            .since(sent.at)
            .saturating_sub(Duration::from_micros(report.delay_us));
        if !sample.is_zero() {
            self.path.rtt.update(now, sample);
        }
        let queue = self.path.queue.update(now, sent.at, report.arrived_us);
        let progress = Progress {
            arrived_us: report.arrived_us,
            bytes: report.bytes,
            sent: sent.at,
            sent_bytes: self.sent_bytes_at(&sent),
            packet: number,
            lost: self.count.lost,
        };
        let ms = Duration::from_millis;
        let about_one_rtt = self.path.rtt.smoothed().clamp(ms(25), ms(100));
        let window = self.law.sample_window().unwrap_or(about_one_rtt);
        self.path.last_rate = self.path.delivery.update(progress, window);
        if let Some(rate) = self.path.last_rate {
            self.path.interval = self.wished_interval(rate.rate);
        }
        ((!sample.is_zero()).then_some(sample), Some(queue))
    }

    /// The full count from its low half: less than 4 GiB can have left since.
    fn sent_bytes_at(&self, sent: &Sent) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let behind = (self.count.sent_bytes as u32).wrapping_sub(sent.sent_bytes_low);
        self.count.sent_bytes - u64::from(behind)
    }

    /// An eighth of an rtt between 5 and 10 ms, stretched on slow paths to 16 datagrams (but not
    /// beyond a quarter rtt or 25 ms); a fifth of the sample window when the law wants finer ones.
    fn wished_interval(&self, rate: Rate) -> Duration {
        let ms = Duration::from_millis;
        let srtt = self.path.rtt.smoothed();
        let base = (srtt / 8).clamp(ms(5), ms(10));
        let slow = rate.time_for(16 * u64::from(self.path.datagram));
        let interval = slow.clamp(base, (srtt / 4).max(ms(25)));
        self.law.sample_window().map_or(interval, |w| {
            if w < ms(25) {
                w / 5
            } else {
                interval.min(w / 2)
            }
        })
    }

    /// No feedback in time, or the law's own timer.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.law.next_tick().is_some_and(|at| at <= now) {
            self.law.on_tick(now);
        }
        if self.silence_deadline().is_none_or(|at| at > now) {
            return;
        }
        self.clocks.backoff += 1;
        self.count.timeouts += 1;
        self.clocks.progress_at = Some(now);
        self.law.on_timeout(now, self.clocks.backoff);
        self.clocks.probes = PROBES;
        self.coverage.want = Some(self.coverage.end.max(self.log.first()));
        self.coverage.asked_at = Some(now);
        self.repair_oldest();
    }

    /// Re-sends the oldest outstanding pieces without waiting to hear of them.
    fn repair_oldest(&mut self) {
        let mut change = Change::default();
        let mut found = 0;
        for number in self.log.first()..self.log.next() {
            let Some(sent) = self.log.get(number) else {
                break;
            };
            if sent.state == State::Outstanding {
                self.lose(number, &mut change);
                found += 1;
                if found == PROBES {
                    break;
                }
            }
        }
    }

    fn silence_deadline(&self) -> Option<Instant> {
        if self.count.in_flight == 0 {
            return None;
        }
        let timeout = self.path.rtt.timeout(self.path.interval);
        let longest = MAX_TIMEOUT.max(timeout);
        let timeout = timeout
            .saturating_mul(1 << self.clocks.backoff.min(6))
            .min(longest);
        self.clocks.progress_at.map(|at| at + timeout)
    }

    /// The next deadline.
    pub fn next_timeout(&self) -> Option<(Instant, Why)> {
        let silence = self.silence_deadline().map(|at| (at, Why::Repair));
        let law = self.law.next_tick().map(|at| (at, Why::Law));
        let allowance = self.law.allowance();
        let sendable = self.peek().is_some()
            && (self.count.in_flight < allowance.window.bytes() || self.clocks.probes > 0);
        let rate = allowance.rate.min(self.max_rate);
        let pacing = sendable
            .then(|| self.pacer.wake(rate, allowance.quantum.bytes()))
            .flatten()
            .map(|at| (at, Why::Pacing));
        [silence, law, pacing]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
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

    /// The law, for a look inside.
    pub fn law(&self) -> &dyn CongestionController {
        &*self.law
    }

    /// Adds this half's counters.
    pub fn fill_stats(&self, stats: &mut Stats) {
        let allowance = self.law.allowance();
        stats.data_sent = self.count.data_sent;
        stats.repaired = self.count.repaired;
        stats.data_acked = self.count.data_acked;
        stats.packets_lost = self.count.lost;
        stats.packets_spurious = self.count.spurious;
        stats.timeouts = self.count.timeouts;
        stats.datagram_size = self.path.datagram;
        stats.rtt_min = self.path.rtt.min_ever();
        stats.rtt_smoothed = stats.rtt_min.map(|_| self.path.rtt.smoothed());
        stats.pacing_rate = allowance.rate.min(self.max_rate);
        stats.window = allowance.window.bytes();
        stats.in_flight = self.count.in_flight;
    }
}
