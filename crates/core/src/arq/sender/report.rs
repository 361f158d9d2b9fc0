//! What does a report change? Arrivals, then losses, then samples; the law hears losses first, then
//! acknowledgements, both of one report together.

use std::time::Duration;

use super::{Change, PACKET_THRESHOLD, Report, Sender};
use crate::{
    codec::DecodeError,
    congestion::{AckEvent, LossEvent},
    rate::{Progress, Taken, Way},
    recv::Schedule,
    send::{Content, Piece, STREAM, Sent, State},
    time::Instant,
    units::{Rate, Size},
};

/// How long a peer may leave packets out of its reports, beside three round trips.
const PATIENCE: Duration = Duration::from_millis(500);
/// Feedback is not wished for more often.
const LEAST_INTERVAL: Duration = Duration::from_micros(100);

impl Sender {
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
                    self.ack(number, change)?;
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

    fn ack(&mut self, number: u64, change: &mut Change) -> Result<(), DecodeError> {
        let Some(sent) = self.log.get_mut(number) else {
            return Ok(());
        };
        let mut spurious = false;
        match sent.state {
            State::Acked | State::Quiet => return Ok(()),
            State::Skipped => {
                return Err(DecodeError::Malformed("feedback on a packet never sent"));
            }
            State::Lost | State::Copied => {
                if sent.state == State::Copied {
                    self.count.outstanding -= 1;
                }
                sent.state = State::Acked;
                self.count.delivered += u64::from(sent.wire);
                spurious = true;
                change.spurious += 1;
                self.count.spurious += 1;
            }
            State::Outstanding => {
                sent.state = State::Acked;
                self.count.in_flight -= u64::from(sent.wire);
                self.count.delivered += u64::from(sent.wire);
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
        Ok(())
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
            self.abandon_copies(original);
        }
    }

    /// No copy of a lost packet will arrive: it is repaired.
    pub(super) fn abandon_copies(&mut self, original: u64) {
        if let Some(sent) = self.log.get_mut(original) {
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
        let stuck_since = *coverage.stuck_since.get_or_insert(now);
        if report.from <= known || now.since(stuck_since) > srtt * 3 + PATIENCE {
            // A peer that does not tell of some packets, though asked, does not keep their records here
            // for ever: they count as told missing.
            coverage.end = known.max(report.largest + 1);
            coverage.want = None;
            coverage.stuck_since = None;
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

    pub(super) fn lose(&mut self, number: u64, change: &mut Change) {
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
        self.count.lost_bytes += u64::from(wire);
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
        let (rtt, queue_delay) = self.measure(now, before, report, change);
        if let Some(span) = change.lost_span {
            let new_episode = span.1 >= self.clocks.episode_end;
            if new_episode {
                self.clocks.episode_end = self.log.next();
                self.count.episodes += 1;
            }
            let path = self.view();
            self.law.on_loss(&LossEvent {
                now,
                lost: Size::from_bytes(change.lost_bytes),
                packets: change.lost_packets,
                span,
                new_episode,
                oldest: self.facts.get(span.0).unwrap_or_default(),
                newest: self.facts.get(span.1).unwrap_or_default(),
                lost_total: Size::from_bytes(self.count.lost_bytes),
                in_flight_before: Size::from_bytes(before),
                path,
            });
        }
        if change.spurious > 0 {
            let step = (self.path.rtt.min() / 8).max(Duration::from_micros(500));
            let widest = self.path.rtt.smoothed();
            self.coverage.reorder_window = (self.coverage.reorder_window + step).min(widest);
            self.law.tell(now, |law| law.on_undo(now));
        }
        let round_start = self.coverage.largest_acked >= Some(self.clocks.round_end);
        if round_start {
            self.clocks.round += 1;
            self.clocks.round_end = self.log.next();
        }
        let ce = report.ce.saturating_sub(self.coverage.ce);
        self.coverage.ce = self.coverage.ce.max(report.ce);
        if change.acked_packets > 0 {
            let path = self.view();
            self.law.on_ack(&AckEvent {
                now,
                acked: Size::from_bytes(change.acked_bytes),
                packets: change.acked_packets,
                round: self.clocks.round,
                round_start,
                in_flight_before: Size::from_bytes(before),
                rtt,
                queue_delay,
                rate: self.path.last_rate.take(),
                delivered: Size::from_bytes(self.count.delivered),
                lost: Size::from_bytes(self.count.lost_bytes),
                newest: change.newest.and_then(|(number, _)| self.facts.get(number)),
                receiver: None,
                ce,
                app_limited: self.is_limited_elsewhere(),
                path,
            });
        }
        self.facts.trim(self.log.first());
        if self.count.in_flight == 0 && self.clocks.idle_since.is_none() {
            self.clocks.idle_since = Some(now);
        }
    }

    /// Without any sample yet, feedback of ours that arrived as the last will do: where both ends send
    /// little, every report may end in it.
    fn measure_by_quiet(&mut self, now: Instant, report: &Report) {
        let quiet = self.log.get(report.largest);
        let quiet = quiet.filter(|sent| sent.state == State::Quiet);
        if let (None, Some(sent)) = (self.path.rtt.min_ever(), quiet) {
            let held = Duration::from_micros(report.delay_us);
            let sample = now.since(sent.at).saturating_sub(held);
            if !sample.is_zero() {
                self.path.rtt.update(now, sample);
            }
        }
    }

    fn measure(
        &mut self,
        now: Instant,
        before: u64,
        report: &Report,
        change: &Change,
    ) -> (Option<Duration>, Option<Duration>) {
        if report.delay_us == Report::NO_DELAY {
            return (None, None);
        }
        let Some((number, sent)) = change.newest.filter(|(n, _)| *n == report.largest) else {
            self.measure_by_quiet(now, report);
            return (None, None);
        };
        let sample = now
            .since(sent.at)
            .saturating_sub(Duration::from_micros(report.delay_us));
        if !sample.is_zero() {
            self.path.rtt.update(now, sample);
        }
        let queue = self.path.queue.update(now, sent.at, report.arrived_us);
        self.measure_intake(report, before);
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
        let window = self.law.law().sample_window().unwrap_or(about_one_rtt);
        self.path.last_rate = self.path.delivery.update(progress, window);
        if let Some(rate) = self.path.last_rate {
            self.path.interval = self.wished_interval(rate.rate);
        }
        ((!sample.is_zero()).then_some(sample), Some(queue))
    }

    fn measure_intake(&mut self, report: &Report, before: u64) {
        let taken = Taken {
            at_us: report.arrived_us.saturating_add(report.delay_us),
            bytes: report.bytes,
            delay: Duration::from_micros(report.delay_us),
        };
        let way = Way {
            rtt: self.path.rtt.smoothed(),
            interval: self.path.interval,
            datagram: self.path.datagram,
            in_flight: before,
            window: self.law.allowance().window.bytes(),
        };
        self.path.intake.update(taken, &way);
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
        if let Some(wish) = self.law.law().feedback_wish().interval {
            return wish.clamp(LEAST_INTERVAL, Schedule::MAX_INTERVAL);
        }
        self.law.law().sample_window().map_or(interval, |w| {
            if w < ms(25) {
                w / 5
            } else {
                interval.min(w / 2)
            }
        })
    }
}
