//! A fluid link for laws that need more than a window: a rate, a queue, a delay, and a share lost
//! at random. Feedback comes every so often with everything that the engine would say of it. Steps
//! take a tenth of a ms; there is no randomness: losses come at regular distances.

use std::{collections::VecDeque, time::Duration};

use farhaul_core::{
    congestion::{
        AckEvent, CongestionController, LossEvent, PathView, RateSample, ReceiverRates, TxSnapshot,
    },
    time::Instant,
    units::{Rate, Size},
};

const STEP: Duration = Duration::from_micros(100);

/// Packets that left in one step.
#[derive(Clone, Copy)]
struct Flight {
    number: u64,
    packets: u64,
    lost: u64,
    facts: TxSnapshot,
    /// Rate from packet to packet, as the receiver sees them.
    spacing: Rate,
    sent_bytes: u64,
    queued: Duration,
    back_at: Instant,
}

/// State of the receiver when it reported.
#[derive(Clone, Copy)]
struct Progress {
    at: Instant,
    bytes: u64,
    sent_at: Instant,
    sent_bytes: u64,
    packets: u64,
    lost: u64,
}

pub(crate) struct FluidPath {
    pub(crate) now: Instant,
    pub(crate) capacity: Rate,
    pub(crate) rtt: Duration,
    /// Bytes.
    pub(crate) buffer: u64,
    /// Packets one of which is lost at random; 0: none.
    pub(crate) lose_one_in: u64,
    /// True to report the capacity and the arrival speed, as UDT's receiver does.
    pub(crate) tells_rates: bool,
    /// Part of its allowance that the sender uses.
    pub(crate) app_rate: Rate,
    pub(crate) feedback: Duration,
    /// Feedback interval that the law requested; a busy receiver makes it longer.
    pub(crate) requested: Duration,
    datagram: u64,
    /// Time until which the link is busy.
    free: Instant,
    flying: VecDeque<Flight>,
    history: VecDeque<Progress>,
    credit: u64,
    next_number: u64,
    sent_bytes: u64,
    pub(crate) in_flight: u64,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    lost_packets: u64,
    round: u64,
    round_end: u64,
    episode_end: u64,
    next_feedback: Instant,
    min_rtt: Duration,
    last_rtt: Duration,
    pub(crate) worst_queue: Duration,
}

impl FluidPath {
    pub(crate) fn new(capacity: Rate, rtt_ms: u64, datagram: u32, buffer: u64) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let rtt = Duration::from_millis(rtt_ms);
        Self {
            now,
            capacity,
            rtt,
            buffer,
            lose_one_in: 0,
            tells_rates: false,
            app_rate: Rate::UNLIMITED,
            feedback: Duration::from_millis(10),
            requested: Duration::from_millis(10),
            datagram: u64::from(datagram),
            free: now,
            flying: VecDeque::new(),
            history: VecDeque::new(),
            credit: 0,
            next_number: 0,
            sent_bytes: 0,
            in_flight: 0,
            delivered: 0,
            lost: 0,
            lost_packets: 0,
            round: 0,
            round_end: 0,
            episode_end: 0,
            next_feedback: now,
            min_rtt: rtt,
            last_rtt: rtt,
            worst_queue: Duration::ZERO,
        }
    }

    pub(crate) fn view(&self) -> PathView {
        PathView {
            datagram: u32::try_from(self.datagram).expect("a datagram is small"),
            srtt: self.last_rtt,
            min_rtt: self.min_rtt,
            feedback_interval: self.requested,
            reordering: Duration::ZERO,
            in_flight: Size::from_bytes(self.in_flight),
        }
    }

    pub(crate) fn start(&self, law: &mut dyn CongestionController) {
        law.on_start(self.now, &self.view());
    }

    /// Runs for `lasts`; returns the rate delivered meanwhile.
    pub(crate) fn run(&mut self, law: &mut dyn CongestionController, lasts: Duration) -> Rate {
        self.run_with(law, lasts, &mut |_, _| {})
    }

    /// Runs the law; `watch` sees the law after each feedback.
    pub(crate) fn run_with(
        &mut self,
        law: &mut dyn CongestionController,
        lasts: Duration,
        watch: &mut dyn FnMut(&Self, &dyn CongestionController),
    ) -> Rate {
        let (end, before) = (self.now + lasts, self.delivered);
        while self.now < end {
            self.now += STEP;
            if law.next_tick().is_some_and(|at| at <= self.now) {
                law.on_tick(self.now);
            }
            if self.now >= self.next_feedback && self.report(law) {
                self.next_feedback = self.now + self.feedback;
                watch(self, law);
            }
            self.send(law);
        }
        Rate::of(self.delivered - before, lasts)
    }

    fn send(&mut self, law: &mut dyn CongestionController) {
        let allowed = law.allowance();
        let rate = allowed.rate.min(self.app_rate);
        // A sender that was held back catches up one step at most.
        self.credit = (self.credit + rate.bytes_in(STEP)).min(rate.bytes_in(STEP) + self.datagram);
        let room = allowed.window.bytes().saturating_sub(self.in_flight);
        let packets = (self.credit / self.datagram).min(room.div_ceil(self.datagram));
        if packets == 0 {
            return;
        }
        let bytes = packets * self.datagram;
        self.credit -= bytes;
        let facts = TxSnapshot {
            sent_at: self.now,
            in_flight: Size::from_bytes(self.in_flight + bytes),
            delivered: Size::from_bytes(self.delivered),
            lost: Size::from_bytes(self.lost),
            app_limited: self.app_rate < allowed.rate,
        };
        self.in_flight += bytes;
        self.sent_bytes += bytes;
        let flight = self.offer(packets, rate, facts);
        self.flying.push_back(flight);
        self.next_number += packets;
        law.on_sent(self.now, Size::from_bytes(bytes), &self.view());
    }

    /// Through the queue.
    fn offer(&mut self, packets: u64, rate: Rate, facts: TxSnapshot) -> Flight {
        let number = self.next_number;
        let random = (number + packets)
            .checked_div(self.lose_one_in)
            .map_or(0, |after| after - number / self.lose_one_in);
        self.free = self.free.max(self.now);
        let backlog = self.capacity.bytes_in(self.free.since(self.now));
        let room = self.buffer.saturating_sub(backlog) / self.datagram;
        // The link itself serves some of them meanwhile.
        let fits = packets.min(room);
        self.free += self.capacity.time_for(fits * self.datagram);
        let queued = self.free.since(self.now);
        self.worst_queue = self.worst_queue.max(queued);
        Flight {
            number,
            packets,
            lost: (packets - fits + random).min(packets),
            facts,
            spacing: rate.min(self.capacity),
            sent_bytes: self.sent_bytes,
            queued,
            back_at: self.now + queued + self.rtt,
        }
    }

    /// Sends a feedback packet, if there is anything to report.
    fn report(&mut self, law: &mut dyn CongestionController) -> bool {
        let before = self.in_flight;
        let (mut acked, mut lost) = (0, 0);
        let mut newest: Option<Flight> = None;
        let mut losses: Option<(Flight, Flight)> = None;
        while let Some(flight) = self.flying.front().copied()
            && flight.back_at <= self.now
        {
            self.flying.pop_front();
            acked += flight.packets - flight.lost;
            lost += flight.lost;
            if flight.lost > 0 {
                losses = Some((losses.map_or(flight, |(first, _)| first), flight));
            }
            if flight.packets > flight.lost {
                newest = Some(flight);
            }
        }
        self.in_flight -= (acked + lost) * self.datagram;
        self.lost += lost * self.datagram;
        self.lost_packets += lost;
        self.delivered += acked * self.datagram;
        if let Some((oldest, last)) = losses {
            self.lose(law, before, lost, &oldest, &last);
        }
        if let Some(newest) = newest {
            self.acknowledge(law, before, acked, &newest);
        }
        newest.is_some() || losses.is_some()
    }

    fn lose(
        &mut self,
        law: &mut dyn CongestionController,
        before: u64,
        lost: u64,
        oldest: &Flight,
        newest: &Flight,
    ) {
        let end = newest.number + newest.packets - 1;
        let new_episode = end >= self.episode_end;
        if new_episode {
            self.episode_end = self.next_number;
        }
        law.on_loss(&LossEvent {
            now: self.now,
            lost: Size::from_bytes(lost * self.datagram),
            packets: u32::try_from(lost).expect("few"),
            span: (oldest.number, end),
            new_episode,
            in_flight_before: Size::from_bytes(before),
            oldest: oldest.facts,
            newest: newest.facts,
            lost_total: Size::from_bytes(self.lost),
            path: self.view(),
        });
    }

    fn acknowledge(
        &mut self,
        law: &mut dyn CongestionController,
        before: u64,
        acked: u64,
        newest: &Flight,
    ) {
        let round_start = newest.number >= self.round_end;
        if round_start {
            self.round += 1;
            self.round_end = self.next_number;
        }
        self.last_rtt = self.rtt + newest.queued;
        self.min_rtt = self.min_rtt.min(self.last_rtt);
        let window = law.sample_window().unwrap_or(self.last_rtt);
        let rate = self.sample(newest, window);
        law.on_ack(&AckEvent {
            now: self.now,
            acked: Size::from_bytes(acked * self.datagram),
            packets: u32::try_from(acked).expect("few"),
            round: self.round,
            round_start,
            in_flight_before: Size::from_bytes(before),
            delivered: Size::from_bytes(self.delivered),
            lost: Size::from_bytes(self.lost),
            newest: Some(newest.facts),
            receiver: self.tells_rates.then_some(ReceiverRates {
                arrival: newest.spacing,
                capacity: Some(self.capacity),
            }),
            rtt: Some(self.last_rtt),
            queue_delay: Some(newest.queued),
            rate,
            ce: 0,
            app_limited: newest.facts.app_limited,
            path: self.view(),
        });
    }

    fn sample(&mut self, newest: &Flight, window: Duration) -> Option<RateSample> {
        let to = Progress {
            at: newest.back_at,
            bytes: self.delivered,
            sent_at: newest.facts.sent_at,
            sent_bytes: newest.sent_bytes,
            packets: newest.number,
            lost: self.lost_packets,
        };
        while self
            .history
            .get(1)
            .is_some_and(|p| to.at.since(p.at) >= window)
        {
            self.history.pop_front();
        }
        let from = self.history.front().copied();
        self.history.push_back(to);
        let from = from?;
        let sent = to.sent_at.since(from.sent_at);
        let interval = to.at.since(from.at).max(sent);
        let share = (to.lost - from.lost) as f64 / (to.packets - from.packets).max(1) as f64;
        (interval >= Duration::from_micros(500)).then(|| RateSample {
            packets: 1_000,
            rate: Rate::of(to.bytes - from.bytes, interval),
            sent: Rate::of(to.sent_bytes - from.sent_bytes, sent),
            interval,
            app_limited: newest.facts.app_limited,
            loss: share.min(1.0),
        })
    }
}
