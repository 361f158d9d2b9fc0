//! A flow apart from its two ends: its application's supply and milestones, and its series.

use std::time::Duration;

use farhaul_core::{stats::Stats, time::Instant, units::Rate};

use crate::{
    app::{Climb, Supply},
    end::End,
    report::{FlowReport, Point, SideReport, millis, rate, ratio},
    scenario::{FlowConfig, Scenario},
};

/// A flow apart from its two ends.
pub(crate) struct Flow {
    pub(crate) config: FlowConfig,
    pub(crate) start: Instant,
    /// Delays without queues: from the client to the server, and back.
    pub(crate) delays: [Duration; 2],
    /// The link on the way there that leaves this flow the least.
    pub(crate) bottleneck: usize,
    pub(crate) supply: Supply,
    pub(crate) climb: Climb,
    pub(crate) connected: Option<Instant>,
    pub(crate) completed: Option<Instant>,
    pub(crate) delivered: Option<Instant>,
    /// Time at which nothing more was to be expected.
    pub(crate) over: Option<Instant>,
    /// True if neither end has anything left to do.
    pub(crate) finished: bool,
    /// Bytes that the receiver had when the flow was stopped.
    pub(crate) stopped_with: Option<u64>,
    pub(crate) series: Vec<Point>,
    /// Bytes received and re-sent at the last point of the series.
    pub(crate) sampled: (u64, u64),
}

impl Flow {
    pub(crate) fn new(scenario: &Scenario, config: &FlowConfig) -> Self {
        let start = Instant::EPOCH + config.start;
        let ways = scenario.ways(config);
        let delays = ways.map(|way| {
            let links = way.iter().filter_map(|link| scenario.link(*link));
            links.map(|link| link.delay).sum::<Duration>() + config.extra_delay
        });
        let rtt = delays[0] + delays[1];
        let (bottleneck, share) = slowest(scenario, ways[0]);
        Self {
            config: *config,
            start,
            delays,
            supply: Supply::new(config.bytes, config.write),
            climb: Climb::new(start, rtt, share),
            bottleneck,
            connected: None,
            completed: None,
            delivered: None,
            over: None,
            finished: false,
            stopped_with: None,
            series: Vec::new(),
            sampled: (0, 0),
        }
    }

    pub(crate) fn on_received(&mut self, now: Instant, total: u64) {
        self.climb.note(now, total);
        if self.completed.is_none() && self.config.bytes.is_some_and(|n| total >= n) {
            self.completed = Some(now);
        }
    }

    /// `dropped` are its datagrams, `queue` bytes of all flows.
    pub(crate) fn sample(
        &mut self,
        now: Instant,
        interval: Duration,
        sender: &Stats,
        received: u64,
        (dropped, queue): (u64, u64),
    ) {
        let seconds = now.since(self.start).min(interval).as_secs_f64();
        let (received_before, repaired_before) = self.sampled;
        self.sampled = (received, sender.repaired);
        self.series.push(Point {
            at: now.since(Instant::EPOCH).as_secs_f64(),
            goodput_bits_per_second: rate(received - received_before, seconds),
            delivered: received,
            snd_nxt: sender.data_sent,
            sent: sender.datagrams_sent,
            dropped,
            repaired: sender.repaired - repaired_before,
            retransmits: sender.retransmits,
            duplicate_acks: sender.duplicate_acks,
            episodes: sender.episodes,
            timeouts: sender.timeouts,
            rate_bits_per_second: sender.pacing_rate.as_f64(),
            window: sender.window,
            ssthresh: sender.ssthresh,
            peer_window: sender.peer_window,
            in_flight: sender.in_flight,
            rtt_ms: sender.rtt_smoothed.map(millis),
            rto_ms: sender.rto.map(millis),
            phase: sender.phase,
            queue,
        });
    }

    pub(crate) fn report(
        self,
        now: Instant,
        client: &End,
        server: &End,
        dropped: [u64; 2],
    ) -> FlowReport {
        let since = |at: Instant| at.since(self.start).as_secs_f64();
        let received = self.stopped_with.unwrap_or(server.sink.bytes);
        let seconds = since(self.completed.or(self.over).unwrap_or(now));
        let (sender, receiver) = (client.stats(), server.stats());
        FlowReport {
            start: self.config.start.as_secs_f64(),
            seconds,
            received_bytes: received,
            goodput_bits_per_second: rate(received, seconds),
            connected: self.connected.map(since),
            completed: self.completed.map(since),
            delivered: self.delivered.map(since),
            time_to_90_percent: self.climb.reached.map(|d| d.as_secs_f64()),
            dropped,
            wire_over_goodput: ratio(sender.wire_sent, received),
            feedback_kib_per_gib: ratio(receiver.feedback_sent, received)
                .map(|r| r * f64::from(1 << 20)),
            closed: [&client.closed, &server.closed]
                .map(|reason| reason.as_ref().map(ToString::to_string)),
            reasons: [client.closed.clone(), server.closed.clone()],
            sender: SideReport::new(&sender),
            receiver: SideReport::new(&receiver),
            series: self.series,
        }
    }
}

/// The link of `way` that leaves each of its flows the least, and how much that is.
fn slowest(scenario: &Scenario, way: &[usize]) -> (usize, Rate) {
    let users = |link: usize| {
        let crosses = |flow: &&FlowConfig| scenario.ways(flow)[0].contains(&link);
        scenario.flows.iter().filter(crosses).count().max(1) as u64
    };
    way.iter()
        .filter_map(|link| {
            let share = scenario.link(*link)?.rate.bps() / users(*link);
            Some((*link, Rate::from_bps(share)))
        })
        .min_by_key(|(_, share)| *share)
        .unwrap_or((0, Rate::UNLIMITED))
}
