//! Applies a report: arrivals, then losses, then samples. The law gets losses first, then
//! acknowledgements, both of one report together.

use std::time::Duration;

use super::{Acked, Change, Content, Fullness, Lost, PACKET_THRESHOLD, Report, Sender};
use crate::{
    codec::DecodeError,
    rate::{Drained, RatePath},
    recv::Schedule,
    send::{Newest, Piece, STREAM, Signals, State},
    time::Instant,
    units::Rate,
};

/// Besides three round trips, how long a peer's reports may omit packets.
const REPORT_TIMEOUT: Duration = Duration::from_millis(500);
/// Share of losses from which on a path is taken to be full.
const HEAVY_LOSS: f64 = 0.1;
/// Fewer lost packets in a row are no outage.
const OUTAGE: u32 = 32;
/// Reports of no more packets often end with feedback of ours.
const FEW: u32 = 4;
/// A start's burst is shorter.
const LEAST_OUTAGE: Duration = Duration::from_millis(20);
/// Feedback is not requested more often.
pub(super) const LEAST_INTERVAL: Duration = Duration::from_micros(100);

impl Sender {
    /// A report arrived.
    pub fn on_report(&mut self, now: Instant, report: &Report) -> Result<(), DecodeError> {
        if report.largest >= self.next_number() {
            return Err(DecodeError::Malformed("feedback on packets never sent"));
        }
        let before = self.in_flight();
        let mut change = Change::default();
        self.take_runs(report, &mut change.acked)?;
        self.cover(now, report);
        self.find_losses(now, &mut change.lost);
        self.forget(now);
        self.conclude(now, before, report, &change);
        Ok(())
    }

    /// Marks what arrived.
    fn take_runs(&mut self, report: &Report, acked: &mut Acked) -> Result<(), DecodeError> {
        const BAD: DecodeError = DecodeError::Malformed("feedback runs");
        let mut next = report.largest + 1;
        for (i, run) in report.runs.iter().enumerate() {
            let low = next.checked_sub(*run).ok_or(BAD)?;
            if *run == 0 {
                return Err(BAD);
            }
            if i % 2 == 0 {
                for number in (low.max(self.settled())..next).rev() {
                    self.ack(number, acked)?;
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

    fn ack(&mut self, number: u64, acked: &mut Acked) -> Result<(), DecodeError> {
        let Some(sent) = self.flight.ack(number, acked) else {
            return Ok(());
        };
        let packet = sent.content;
        match (sent.state, packet.content) {
            (State::Skipped, _) => {
                return Err(DecodeError::Malformed("feedback on a packet never sent"));
            }
            (State::Copied, _) => self.outstanding -= 1,
            (State::Outstanding, Content::Piece(_)) if !packet.covered => self.outstanding -= 1,
            _ => {}
        }
        match packet.content {
            Content::Piece(piece) if !packet.covered => {
                self.arrived(&piece, sent.state == State::Outstanding);
            }
            Content::Copy(original) => self.cover_original(original),
            Content::Probe => self.probe_results.push_back((number, true)),
            Content::Piece(_) | Content::Other | Content::Quiet => {}
        }
        Ok(())
    }

    /// A piece arrived; `counts` unless its repair will be counted.
    fn arrived(&mut self, piece: &Piece, counts: bool) {
        let len = u64::from(piece.len);
        self.flight.count.data_acked += if counts { len } else { 0 };
        if piece.object == STREAM {
            self.stream_acked.insert(piece.offset..piece.offset + len);
        } else {
            self.objects_acked += len;
        }
    }

    /// A copy arrived: the packet it was made of needs no repair.
    fn cover_original(&mut self, original: u64) {
        let Some(sent) = self.flight.get_mut(original) else {
            return;
        };
        let open = match sent.state {
            State::Outstanding => !sent.content.covered,
            State::Copied => true,
            _ => false,
        };
        if open {
            sent.content.covered = true;
            if sent.state == State::Copied {
                sent.state = State::Lost;
            }
            if let Content::Piece(piece) = sent.content.content {
                self.outstanding -= 1;
                self.arrived(&piece, true);
            }
        }
    }

    /// A copy was lost: if it was the last hope of its original, that is repaired.
    fn lose_copy(&mut self, original: u64) {
        let Some(sent) = self.flight.get_mut(original) else {
            return;
        };
        sent.content.copies_lost += 1;
        if sent.state == State::Copied && sent.content.copies_lost == sent.content.copies {
            self.abandon_copies(original);
        }
    }

    /// No copy of a lost packet will arrive: it is repaired.
    pub(super) fn abandon_copies(&mut self, original: u64) {
        if let Some(sent) = self.flight.get_mut(original) {
            sent.state = State::Lost;
            if let Content::Piece(piece) = sent.content.content {
                self.outstanding -= 1;
                self.outbox.repair(piece);
            }
        }
    }

    fn cover(&mut self, now: Instant, report: &Report) {
        let srtt = self.path.rtt.smoothed();
        let coverage = &mut self.coverage;
        let known = coverage.end.max(self.flight.log().first());
        let stuck_since = *coverage.stuck_since.get_or_insert(now);
        if report.from <= known || now.since(stuck_since) > srtt * 3 + REPORT_TIMEOUT {
            // A peer that does not report some packets, though asked, does not keep their records
            // here for ever: they count as reported missing.
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

    /// Declares reported gaps lost, once overtaken by enough packets and time.
    fn find_losses(&mut self, now: Instant, lost: &mut Lost) {
        let Some(largest) = self.coverage.largest_acked else {
            return;
        };
        let window = self.flight.path.reordering;
        let newest_at = self.flight.log().get(largest).map_or(now, |s| s.at);
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
        for number in self.settled().max(self.coverage.decided)..overtaken {
            let Some(sent) = self.flight.log().get(number) else {
                continue;
            };
            if sent.state != State::Outstanding {
                continue;
            }
            if sent.at + window <= newest_at {
                self.lose(number, lost);
            } else {
                undecided = undecided.or(Some(number));
            }
        }
        self.coverage.decided = undecided.unwrap_or(overtaken.max(self.coverage.decided));
    }

    /// Forgets decided packets that were covered three reports, and 1.5 to 2 reordering windows, ago.
    fn forget(&mut self, now: Instant) {
        let coverage = &mut self.coverage;
        let pause = self.flight.path.reordering / 2;
        if coverage.noted_at.is_none_or(|at| now.since(at) >= pause) {
            coverage.noted_at = Some(now);
            coverage.ends.rotate_left(1);
            coverage.ends[3] = coverage.end;
        }
        self.flight.trim(self.coverage.ends[0]);
    }

    pub(super) fn lose(&mut self, number: u64, lost: &mut Lost) {
        let Some(sent) = self.flight.take_off(number) else {
            return;
        };
        let packet = sent.content;
        let hope = !packet.covered && packet.copies > packet.copies_lost;
        match packet.content {
            Content::Piece(_) if hope => {
                if let Some(sent) = self.flight.get_mut(number) {
                    sent.state = State::Copied;
                }
                self.tail.lost(number);
            }
            Content::Piece(piece) if !packet.covered => {
                self.outstanding -= 1;
                self.outbox.repair(piece);
            }
            Content::Copy(original) => self.lose_copy(original),
            Content::Probe => {
                self.probe_results.push_back((number, false));
                return;
            }
            Content::Piece(_) | Content::Other | Content::Quiet => {}
        }
        self.flight.count_lost(number, &sent, lost);
    }

    /// Tells the law: losses first, then acknowledgements.
    fn conclude(&mut self, now: Instant, before: u64, report: &Report, change: &Change) {
        let Change { acked, lost } = change;
        self.clocks.unheard = false;
        if acked.packets > 0 {
            self.clocks.progress_at = Some(now);
            self.end_outage(acked, lost);
            self.clocks.backoff = 0;
            self.clocks.probes = 0;
        }
        self.measure_room(report, before);
        let (rtt, queue_delay) = self.measure(now, before, report, acked);
        if let Some((_, last)) = lost.span() {
            self.flight.tell_losses(now, before, lost, last);
        }
        if acked.spurious > 0 {
            let step = (self.path.rtt.min() / 8).max(Duration::from_micros(500));
            let widest = self.srtt();
            let window = &mut self.flight.path.reordering;
            *window = (*window + step).min(widest);
            self.flight.governor.notify(now, |law| law.on_undo(now));
        }
        let largest = self.coverage.largest_acked.unwrap_or(report.largest);
        let round_start = self.flight.round(largest);
        let ce = report.ce.saturating_sub(self.coverage.ce);
        self.coverage.ce = self.coverage.ce.max(report.ce);
        if let Some(queue) = queue_delay {
            let heavy = self
                .path
                .last_rate
                .is_some_and(|rate| rate.loss > HEAVY_LOSS && rate.is_telling());
            let held = self.flight.governor.is_held_by_user();
            self.path.fullness = if heavy || ce > 0 || held {
                Fullness::Full
            } else if queue > self.queue_limit() {
                Fullness::Queued
            } else {
                Fullness::Calm
            };
        }
        let rate = self.path.last_rate.take().filter(|_| acked.packets > 0);
        let signals = Signals {
            rtt,
            queue_delay,
            rate,
            receiver: None,
            ce,
            round_start,
            app_limited: self.is_limited_elsewhere(),
        };
        self.flight.tell_acks(now, acked, signals);
    }

    /// After an outage packets find no queue of ours, and perhaps another path. The least delays
    /// begin anew, as RFC 9002 section 5.2 has it after persistent congestion. There was one if a
    /// packet arrived that was sent after a timeout and those before it did not. There was one,
    /// too, if almost all was lost for half a round trip and 20 ms: a queue that is being served
    /// takes some time of that.
    fn end_outage(&mut self, acked: &Acked, lost: &Lost) {
        let silent_at = self.clocks.silent_at.take();
        if lost.packets < OUTAGE {
            return;
        }
        let newest = acked.newest.map(|newest| newest.at);
        let was_silent = newest
            .zip(silent_at)
            .is_some_and(|(sent, silent)| sent >= silent);
        if was_silent || self.is_all_lost(lost) {
            self.path.rtt.forget_min();
            self.path.queue.forget_least();
        }
    }

    fn is_all_lost(&self, lost: &Lost) -> bool {
        let Some((first, last)) = lost.span() else {
            return false;
        };
        let sent_at = |number| self.flight.log().get(number).map(|sent| sent.at);
        let Some((from, to)) = sent_at(first).zip(sent_at(last)) else {
            return false;
        };
        // Feedback of our own takes numbers, too.
        u64::from(lost.packets) * 10 >= (last - first + 1) * 9
            && to.since(from) >= (self.srtt() / 2).max(LEAST_OUTAGE)
    }

    /// Without any sample yet, feedback of ours that arrived as the last will do: where both ends send
    /// little, every report may end in it.
    fn measure_by_quiet(&mut self, now: Instant, report: &Report) {
        let quiet = self.flight.log().get(report.largest);
        let quiet = quiet.filter(|sent| sent.state == State::Quiet);
        if let (None, Some(sent)) = (self.path.rtt.min_ever(), quiet) {
            let held = Duration::from_micros(report.delay_us);
            let sample = now.since(sent.at).saturating_sub(held);
            self.add_rtt(now, sample);
        }
    }

    fn add_rtt(&mut self, now: Instant, sample: Duration) {
        if !sample.is_zero() {
            self.path.rtt.update(now, sample);
            self.flight.path.srtt = self.path.rtt.smoothed();
            self.flight.path.min_rtt = self.path.rtt.min();
        }
    }

    fn measure(
        &mut self,
        now: Instant,
        before: u64,
        report: &Report,
        acked: &Acked,
    ) -> (Option<Duration>, Option<Duration>) {
        if report.delay_us == Report::NO_DELAY {
            return (None, None);
        }
        // Only a packet newer than all that were acknowledged shows a round trip (RFC 9002, section
        // 5.1).
        let largest = Some(report.largest).filter(|n| self.coverage.largest_acked == Some(*n));
        let Some(newest) = acked.newest.filter(|n| Some(n.number) == largest) else {
            self.measure_by_quiet(now, report);
            self.sample_by_quiet(now, report, acked);
            return (None, None);
        };
        let sample = now
            .since(newest.at)
            .saturating_sub(Duration::from_micros(report.delay_us));
        self.add_rtt(now, sample);
        // No packet waited longer than its round trip took, whatever the receiver's clock says.
        let queue = self.path.queue.update(now, newest.at, report.arrived_us);
        let queue = queue.min(sample);
        self.measure_intake(report, before);
        self.sample(now, report, &newest);
        ((!sample.is_zero()).then_some(sample), Some(queue))
    }

    /// The delivery rate up to the newest packet that the report is of.
    fn sample(&mut self, now: Instant, report: &Report, newest: &Newest) {
        let ms = Duration::from_millis;
        let about_one_rtt = self.srtt().clamp(ms(25), ms(100));
        let arrived = (report.arrived_us, report.bytes);
        self.path.last_rate = self.flight.sample(newest, arrived, about_one_rtt);
        self.path.sampled_at = now;
        if let Some(rate) = self.path.last_rate {
            self.flight.path.feedback_interval = self.feedback_interval(rate.rate);
        }
    }

    /// Takes an rtt sample from the arrival of our own feedback, after a round trip without a
    /// sample. Where reports cover a packet or two, the newest packet may be such feedback in each.
    /// Being short, feedback shows no rtt that data has.
    fn sample_by_quiet(&mut self, now: Instant, report: &Report, acked: &Acked) {
        let waited = now.since(self.path.sampled_at) >= self.srtt();
        if !(1..=FEW).contains(&acked.packets) || !waited {
            return;
        }
        let sent = self.flight.log().get(report.largest);
        if let Some(sent) = sent.filter(|sent| sent.state == State::Quiet) {
            let newest = Newest::of(report.largest, sent);
            self.sample(now, report, &newest);
        }
    }

    fn measure_intake(&mut self, report: &Report, before: u64) {
        let way = self.way(before);
        self.path.drain.update(taken(report), &way);
    }

    /// A report of the backlog carries no time of arrival.
    fn measure_room(&mut self, report: &Report, before: u64) {
        if report.delay_us != Report::NO_DELAY {
            let way = self.way(before);
            self.path.credit.update(taken(report), report.room, &way);
            let pace = self.path.credit.pace();
            self.flight.governor.set_taken(pace);
        }
    }

    fn way(&self, before: u64) -> RatePath {
        RatePath {
            rtt: self.srtt(),
            interval: self.interval(),
            datagram: self.datagram(),
            in_flight: before,
            window: self.window(),
        }
    }

    /// The queueing delay above which a path is full.
    fn queue_limit(&self) -> Duration {
        let ms = Duration::from_millis;
        (self.srtt() / 8).clamp(ms(4), ms(10))
    }

    /// Feedback interval to request: shorter when nothing new is left, since the sender then waits
    /// for losses.
    fn feedback_interval(&self, rate: Rate) -> Duration {
        let interval = self.requested_interval(rate);
        if self.outbox.has_new() {
            interval
        } else {
            self.tail_interval(interval)
        }
    }

    /// Feedback interval at the tail: at most `interval`, and a thirty-second of an rtt between 1
    /// and 10 ms if the law does not request another.
    pub(super) fn tail_interval(&self, interval: Duration) -> Duration {
        let ms = Duration::from_millis;
        if self.law().feedback_request().interval.is_some() {
            return interval;
        }
        interval.min((self.srtt() / 32).clamp(ms(1), ms(10)))
    }

    /// The interval is an eighth of an rtt between 5 and 10 ms, stretched on slow paths to 16
    /// datagrams (but not beyond a quarter rtt or 25 ms). The law may request another one.
    pub(super) fn requested_interval(&self, rate: Rate) -> Duration {
        let ms = Duration::from_millis;
        let srtt = self.srtt();
        let request = self.law().feedback_request();
        if let Some(interval) = request.interval {
            return interval.clamp(LEAST_INTERVAL, Schedule::MAX_INTERVAL);
        }
        let later = request.shortest.min(Schedule::MAX_INTERVAL);
        let base = (srtt / 8).clamp(ms(5), ms(10)).max(later);
        let slow = rate.time_for(16 * u64::from(self.datagram()));
        let interval = slow.clamp(base, (srtt / 4).max(ms(25)).max(base));
        let longest = request.longest.unwrap_or(interval);
        interval.min(longest.max(LEAST_INTERVAL))
    }
}

const fn taken(report: &Report) -> Drained {
    Drained {
        at_us: report.arrived_us.saturating_add(report.delay_us),
        bytes: report.bytes,
        delay: Duration::from_micros(report.delay_us),
    }
}
