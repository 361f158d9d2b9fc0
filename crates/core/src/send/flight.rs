//! Records of packets in flight and the events that the congestion law gets. The file has packets
//! by number, the counters of a sender, rounds and episodes of loss, and the one place that makes a
//! law's events.
//!
//! A protocol whose repairs get new numbers [`push`](Flight::push)es them, and records of decided
//! packets are forgotten. One whose repairs [keep](Flight::keeping) theirs has them
//! [`mark`](Flight::mark_lost)ed, takes them with [`next_lost`](Flight::next_lost) and
//! [`resend`](Flight::resend)s them; records stay until everything before them has arrived.

use std::{ops::Range, time::Duration};

use super::{Governor, Permit, Sent, SentLog, Snapshots, State};
use crate::{
    congestion::{
        AckEvent, CongestionController, LossEvent, PathView, RateSample, ReceiverRates, TxSnapshot,
    },
    loss::Ranges,
    rate::{Delivery, Progress},
    session::earliest,
    stats::{Stats, Why},
    time::Instant,
    units::{Rate, Size},
};

/// Sender counters. "Wire" bytes are UDP payload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Wire bytes, repairs included.
    pub sent_bytes: u64,
    /// Wire bytes neither acknowledged nor believed lost.
    pub in_flight: u64,
    /// Wire bytes acknowledged.
    pub delivered: u64,
    /// Packets believed lost.
    pub lost: u64,
    /// Wire bytes believed lost.
    pub lost_bytes: u64,
    /// Packets believed lost that arrived.
    pub spurious: u64,
    /// Data bytes sent for the first time.
    pub data_sent: u64,
    /// Data bytes sent again.
    pub repaired: u64,
    /// Packets with data sent again.
    pub retransmits: u64,
    /// Data bytes acknowledged.
    pub data_acked: u64,
    /// Episodes of loss.
    pub episodes: u64,
    /// Timeouts.
    pub timeouts: u64,
}

impl Counters {
    /// Copies the counters into `stats`.
    pub const fn fill_stats(&self, stats: &mut Stats) {
        stats.data_sent = self.data_sent;
        stats.repaired = self.repaired;
        stats.retransmits = self.retransmits;
        stats.data_acked = self.data_acked;
        stats.packets_lost = self.lost;
        stats.packets_spurious = self.spurious;
        stats.episodes = self.episodes;
        stats.timeouts = self.timeouts;
        stats.in_flight = self.in_flight;
    }
}

/// The newest packet acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Newest {
    /// Number of the packet.
    pub number: u64,
    /// Time at which the packet was last sent.
    pub at: Instant,
    /// True if the packet was retransmitted.
    pub resent: bool,
    sent_bytes_low: u32,
    batch: u32,
}

impl Newest {
    /// Packet `number`.
    pub const fn of<X>(number: u64, sent: &Sent<X>) -> Self {
        Self {
            number,
            at: sent.at,
            resent: sent.resent,
            sent_bytes_low: sent.sent_bytes_low,
            batch: sent.batch,
        }
    }
}

/// Acknowledgements not yet passed to the congestion law.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acked {
    /// Wire bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u32,
    /// Packets that were believed lost.
    pub spurious: u32,
    /// The newest, believed lost or not.
    pub newest: Option<Newest>,
    in_flight_before: u64,
}

/// Losses not yet passed to the congestion law.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// Wire bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u32,
    /// The first and the last that was noticed: number and batch.
    ends: Option<[(u64, u32); 2]>,
}

impl Lost {
    /// Numbers of the first and the last packet declared lost.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.ends.map(|[first, last]| (first.0, last.0))
    }

    /// Adds packet `number`.
    pub fn add<X>(&mut self, number: u64, sent: &Sent<X>) {
        self.bytes += u64::from(sent.wire);
        self.packets += 1;
        let this = (number, sent.batch);
        let first = self.ends.map_or(this, |[first, _]| first);
        self.ends = Some([first, this]);
    }
}

/// Samples taken with acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signals {
    /// A round-trip time.
    pub rtt: Option<Duration>,
    /// Queueing delay on the path.
    pub queue_delay: Option<Duration>,
    /// The delivery rate.
    pub rate: Option<RateSample>,
    /// Rates that the receiver measured.
    pub receiver: Option<ReceiverRates>,
    /// Packets newly reported as marked.
    pub ce: u64,
    /// True for the first acknowledgement of a round.
    pub round_start: bool,
    /// True if the sender lacks data, not allowance.
    pub app_limited: bool,
}

/// Sent-packet records, counters and congestion state of a sender.
pub struct Flight<X> {
    /// Congestion control and pacing.
    pub governor: Governor,
    /// The path, for the law; `in_flight` is filled in.
    pub path: PathView,
    /// Counters.
    pub count: Counters,
    /// Delivery rates.
    pub delivery: Delivery,
    log: SentLog<X>,
    keeps: bool,
    /// True if the pace held the next packet back.
    paced: bool,
    snapshots: Snapshots,
    /// Packets to be sent again under their numbers.
    marked: Ranges,
    round: u64,
    round_end: u64,
    episode_end: u64,
    /// Time since which nothing is in flight, after something was.
    idle_since: Option<Instant>,
}

impl<X: Copy + Default> Flight<X> {
    /// A flight with nothing sent, governed by `law`, never faster than `max_rate`.
    pub fn new(law: Box<dyn CongestionController>, max_rate: Rate) -> Self {
        Self {
            governor: Governor::new(law, max_rate),
            path: PathView::default(),
            count: Counters::default(),
            delivery: Delivery::default(),
            log: SentLog::default(),
            keeps: false,
            paced: false,
            snapshots: Snapshots::default(),
            marked: Ranges::default(),
            round: 0,
            round_end: 0,
            episode_end: 0,
            idle_since: None,
        }
    }

    /// Like [`Self::new`], for a protocol whose repairs keep their numbers.
    pub fn keeping(law: Box<dyn CongestionController>, max_rate: Rate) -> Self {
        Self {
            keeps: true,
            ..Self::new(law, max_rate)
        }
    }

    /// Packet numbers begin here; nothing has been sent.
    pub const fn begin_at(&mut self, number: u64) {
        self.log.begin_at(number);
        self.round_end = number;
        self.episode_end = number;
    }

    /// The path is known, or it changed: the law begins.
    pub fn start(&mut self, now: Instant) {
        let view = self.view();
        self.governor.on_start(now, &view);
    }

    /// The path as the law sees it.
    pub fn view(&self) -> PathView {
        PathView {
            in_flight: Size::from_bytes(self.count.in_flight),
            ..self.path
        }
    }

    /// The records.
    pub const fn log(&self) -> &SentLog<X> {
        &self.log
    }

    /// The record of `number`, to change what it carried.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Sent<X>> {
        self.log.get_mut(number)
    }

    /// Skips the next packet number.
    pub fn skip(&mut self) {
        self.log.skip();
    }

    /// Records a new packet of `wire` bytes; a [`State::Quiet`] one is not in flight.
    pub fn push(&mut self, now: Instant, content: X, wire: u32, state: State) -> u64 {
        self.count.sent_bytes += u64::from(wire);
        if state == State::Outstanding {
            self.add(now, wire);
        }
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let sent_bytes_low = self.count.sent_bytes as u32;
        if !self.keeps {
            self.log.make_room();
        }
        self.log.push(Sent {
            at: now,
            content,
            sent_bytes_low,
            batch: self.snapshots.next(),
            wire: u16::try_from(wire).unwrap_or(u16::MAX),
            state,
            resent: false,
        })
    }

    fn add(&mut self, now: Instant, wire: u32) {
        if self.count.in_flight == 0
            && let Some(since) = self.idle_since.take()
        {
            let idle = now.since(since);
            self.governor
                .notify(now, |law| law.on_idle_restart(now, idle));
        }
        self.count.in_flight += u64::from(wire);
    }

    /// Retransmits packet `number` under the same number.
    pub fn resend(&mut self, now: Instant, number: u64) {
        let batch = self.snapshots.next();
        let Some(sent) = self.log.get_mut(number) else {
            return;
        };
        let wire = u32::from(sent.wire);
        let off = sent.state != State::Outstanding;
        (sent.at, sent.batch) = (now, batch);
        (sent.state, sent.resent) = (State::Outstanding, true);
        self.count.sent_bytes += u64::from(wire);
        if off {
            self.add(now, wire);
        }
    }

    /// Records packet `number` as sent, with `data` bytes of data in `wire`: the next one, or a
    /// retransmission.
    pub fn send(&mut self, now: Instant, number: u64, content: X, (data, wire): (u32, u32)) {
        if number < self.log.next() {
            self.resend(now, number);
            self.count.repaired += u64::from(data);
            self.count.retransmits += 1;
        } else {
            self.count.data_sent += u64::from(data);
            self.push(now, content, wire, State::Outstanding);
        }
    }

    /// A batch of `bytes` was sent.
    pub fn batch_sent(&mut self, now: Instant, bytes: u64, app_limited: bool) {
        self.paced = false;
        self.governor.charge(now, bytes);
        let snapshot = TxSnapshot {
            sent_at: now,
            in_flight: Size::from_bytes(self.count.in_flight),
            delivered: Size::from_bytes(self.count.delivered),
            lost: Size::from_bytes(self.count.lost_bytes),
            app_limited,
        };
        self.snapshots.push(self.log.next(), snapshot);
        let view = self.view();
        self.governor.on_sent(now, Size::from_bytes(bytes), &view);
    }

    /// Marks packet `number` acknowledged; returns its previous record unless it already was.
    pub fn ack(&mut self, number: u64, acked: &mut Acked) -> Option<Sent<X>> {
        let sent = self.log.get_mut(number)?;
        let before = *sent;
        match before.state {
            State::Acked | State::Quiet => return None,
            State::Skipped => return Some(before),
            State::Lost | State::Copied => {
                acked.spurious += 1;
                self.count.spurious += 1;
                self.marked.remove(number..number + 1);
            }
            State::Outstanding => {
                if acked.packets == 0 {
                    acked.in_flight_before = self.count.in_flight;
                }
                self.count.in_flight -= u64::from(before.wire);
                acked.bytes += u64::from(before.wire);
                acked.packets += 1;
            }
        }
        sent.state = State::Acked;
        self.count.delivered += u64::from(before.wire);
        if acked.newest.is_none_or(|newest| number > newest.number) {
            acked.newest = Some(Newest::of(number, &before));
        }
        Some(before)
    }

    /// Cumulative acknowledgement up to `end`; `each` is called with every record removed.
    pub fn ack_below(&mut self, end: u64, acked: &mut Acked, mut each: impl FnMut(&Sent<X>)) {
        self.marked.remove(0..end);
        for number in self.log.first()..end.min(self.log.next()) {
            self.ack(number, acked);
            if let Some(sent) = self.log.get(number) {
                each(sent);
            }
        }
        self.trim(end);
    }

    /// Takes packet `number` out of flight; its record as it was before, if it was not lost already.
    pub fn take_off(&mut self, number: u64) -> Option<Sent<X>> {
        let sent = self.log.get_mut(number)?;
        let before = *sent;
        match before.state {
            State::Outstanding => self.count.in_flight -= u64::from(before.wire),
            State::Acked => {}
            State::Lost | State::Copied | State::Quiet | State::Skipped => return None,
        }
        sent.state = State::Lost;
        Some(before)
    }

    /// Counts a packet that was [`taken off`](Self::take_off) as lost.
    pub fn count_lost(&mut self, number: u64, sent: &Sent<X>, lost: &mut Lost) {
        let wire = u64::from(sent.wire);
        self.count.lost += 1;
        self.count.lost_bytes += wire;
        lost.add(number, sent);
    }

    /// Declares the packets of `range` lost and queues them for retransmission.
    pub fn mark_lost(&mut self, range: Range<u64>, lost: &mut Lost) {
        self.mark_lost_if(range, lost, |_| true);
    }

    /// Like [`Self::mark_lost`], for those packets for which `are` holds.
    pub fn mark_lost_if(
        &mut self,
        range: Range<u64>,
        lost: &mut Lost,
        are: impl Fn(&Sent<X>) -> bool,
    ) {
        for number in range {
            if !self.log.get(number).is_some_and(&are) {
                continue;
            }
            if let Some(sent) = self.take_off(number) {
                self.count_lost(number, &sent, lost);
            }
            // One that was taken and did not leave is marked again.
            let is_lost = |sent: &Sent<X>| sent.state == State::Lost;
            if self.log.get(number).is_some_and(is_lost) {
                self.marked.insert(number..number + 1);
            }
        }
    }

    /// True if packets are queued for retransmission.
    pub fn has_lost(&self) -> bool {
        !self.marked.is_empty()
    }

    /// Takes the lowest number queued for retransmission.
    pub fn next_lost(&mut self) -> Option<(u64, X)> {
        while let Some(number) = self.marked.pop_first() {
            if let Some(sent) = self.log.get(number) {
                return Some((number, sent.content));
            }
        }
        None
    }

    /// Removes `range` from the retransmission queue.
    pub fn unmark(&mut self, range: Range<u64>) {
        self.marked.remove(range);
    }

    /// Permit to send at `now`; `new` says whether new data may. Retransmissions are
    /// limited by pacing alone: everything else may depend on them.
    pub fn permit(&mut self, now: Instant, new: Result<(), Why>) -> Permit {
        let permit = match new {
            Err(why) if !self.has_lost() => Permit::Hold(why),
            _ => self.governor.pace(now),
        };
        self.paced = permit == Permit::Hold(Why::Pacing);
        permit
    }

    /// Time at which pacing permits the next packet, if it is the limit, or the law's timer
    /// expires.
    pub fn deadline(&self) -> Option<(Instant, Why)> {
        let pacing = self.paced.then(|| self.governor.wake()).flatten();
        let tick = self.governor.next_tick();
        earliest([
            tick.map(|at| (at, Why::Law)),
            pacing.map(|at| (at, Why::Pacing)),
        ])
    }

    /// Checks that one more full packet fits the congestion window, `used` bytes of which are taken.
    /// An error names what holds the sender.
    pub fn fits(&self, used: u64) -> Result<(), Why> {
        let datagram = u64::from(self.path.datagram);
        let window = self.governor.allowance().window.bytes().max(datagram);
        if used + datagram > window {
            Err(Why::Window)
        } else {
            Ok(())
        }
    }

    /// A delivery rate: `bytes` had arrived at `arrived_us`, with the newest packet of `acked`.
    pub fn sample(
        &mut self,
        newest: &Newest,
        (arrived_us, bytes): (u64, u64),
        window: Duration,
    ) -> Option<RateSample> {
        // Less than 4 GiB can have left since.
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let behind = (self.count.sent_bytes as u32).wrapping_sub(newest.sent_bytes_low);
        let progress = Progress {
            arrived_us,
            bytes,
            sent: newest.at,
            sent_bytes: self.count.sent_bytes - u64::from(behind),
            packet: newest.number,
            lost: self.count.lost,
        };
        let window = self.governor.law().sample_window().unwrap_or(window);
        self.delivery.update(progress, window)
    }

    /// Notes that packets up to `newest` were acknowledged; true if this begins a new round trip.
    pub fn round(&mut self, newest: u64) -> bool {
        let start = newest >= self.round_end;
        if start {
            self.round += 1;
            self.round_end = self.log.next();
        }
        start
    }

    /// Reports `lost` to the law, with the `in_flight` bytes before; packet `number` decides whether a loss
    /// episode begins.
    pub fn tell_losses(&mut self, now: Instant, in_flight: u64, lost: &Lost, number: u64) {
        let Some([first, last]) = lost.ends else {
            return;
        };
        let new_episode = number >= self.episode_end;
        if new_episode {
            self.episode_end = self.log.next();
            self.count.episodes += 1;
        }
        let path = self.view();
        self.governor.on_loss(&LossEvent {
            now,
            lost: Size::from_bytes(lost.bytes),
            packets: lost.packets,
            span: (first.0, last.0),
            new_episode,
            oldest: self.snapshots.get(first.1).unwrap_or_default(),
            newest: self.snapshots.get(last.1).unwrap_or_default(),
            lost_total: Size::from_bytes(self.count.lost_bytes),
            in_flight_before: Size::from_bytes(in_flight),
            path,
        });
    }

    /// Reports `acked` to the law.
    pub fn tell_acks(&mut self, now: Instant, acked: &Acked, signals: Signals) {
        if acked.packets > 0 {
            let path = self.view();
            self.governor.on_ack(&AckEvent {
                now,
                acked: Size::from_bytes(acked.bytes),
                packets: acked.packets,
                round: self.round,
                round_start: signals.round_start,
                in_flight_before: Size::from_bytes(acked.in_flight_before),
                rtt: signals.rtt,
                queue_delay: signals.queue_delay,
                rate: signals.rate,
                delivered: Size::from_bytes(self.count.delivered),
                lost: Size::from_bytes(self.count.lost_bytes),
                newest: acked.newest.and_then(|n| self.snapshots.get(n.batch)),
                receiver: signals.receiver,
                ce: signals.ce,
                app_limited: signals.app_limited,
                path,
            });
        }
        if self.count.in_flight == 0 && self.idle_since.is_none() {
            self.idle_since = Some(now);
        }
        self.snapshots.trim(self.log.first());
    }

    /// The retransmission timeout expired, for the `backoff`th time in a row.
    pub fn on_silence(&mut self, now: Instant, backoff: u32) {
        self.count.timeouts += 1;
        self.governor
            .notify(now, |law| law.on_timeout(now, backoff));
    }

    /// Removes records of acknowledged and lost packets below `keep`.
    pub fn trim(&mut self, keep: u64) {
        self.log.trim(keep);
    }

    /// Adds the counters.
    pub fn fill_stats(&self, stats: &mut Stats) {
        self.count.fill_stats(stats);
        stats.datagram_size = self.path.datagram;
        self.governor.fill_stats(stats);
    }
}

#[cfg(test)]
mod tests;
