//! A TCP sender. Bytes get sequence numbers when they first leave, control stream before objects.
//! Acknowledged bytes retire, lost ones leave again, and the law sets how much leaves at once.
//!
//! `backlog` may hold acknowledgements back, `ack` reads them, `output` decides what leaves, `timer` what
//! silence means; `rack` and `episode` are the rules of detection and reduction.

mod ack;
mod backlog;
mod episode;
mod output;
mod rack;
mod timer;

use std::{collections::VecDeque, time::Duration};

use farhaul_core::{
    congestion::{LossEvent, PathView, RateSample, TxSnapshot},
    path::{QueueDelay, Rtt},
    rate::Delivery,
    send::{Counters, Governor, Outbox},
    stats::Stats,
    time::Instant,
    units::{Rate, Size},
};

pub(super) use ack::Acknowledgement;

use self::{
    backlog::Backlog,
    episode::{Episode, Phase, Step},
    rack::Rack,
};
use super::{Config, scoreboard::Scoreboard, wire::DATA_HEADER};

/// Segments with which a window starts (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;
/// The timeout before any sample (RFC 6298 §2.1), and the longest (§2.5 allows no less).
const INITIAL_RTO: Duration = Duration::from_secs(1);
const MAX_RTO: Duration = Duration::from_mins(1);
/// Rtt before any sample, where a timeout is not meant.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Time for which the least rtt is remembered.
const MEMORY: Duration = Duration::from_secs(10);

/// A plain header.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const HEADER: u32 = DATA_HEADER as u32;

/// Grants of the peer.
#[derive(Debug, Default)]
struct Peer {
    /// One past the highest sequence number it takes.
    edge: u64,
    /// Time of the next question to a peer that cannot be sent to.
    probe_at: Option<Instant>,
    probes: u32,
}

/// Deadlines.
#[derive(Debug, Default)]
struct Timers {
    rto: Option<Instant>,
    /// Timeouts in a row.
    backoff: u32,
    /// Time of the tail loss probe.
    pto: Option<Instant>,
    /// Time at which RACK will know.
    reorder: Option<Instant>,
    last_sent: Option<Instant>,
}

/// A tail loss probe (RFC 8985 §7).
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// One past its last sequence number.
    end: u64,
    again: bool,
}

/// Measures of the path.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) datagram: u32,
    rtt: Rtt,
    queue: QueueDelay,
    delivery: Delivery,
    rate: Option<RateSample>,
    rate_at: Option<Instant>,
    /// The peer's clock, unwrapped, µs.
    clock: u64,
    /// The longest segment that was ever acknowledged.
    proven: u32,
}

/// Congestion marks echoed by the peer (RFC 3168 §6.1.2).
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Reacted to until everything below is acknowledged.
    point: u64,
    /// True if the peer is to be informed that the window was reduced.
    pub(super) reduced: bool,
}

/// The sending half.
pub(super) struct Sender {
    config: Config,
    backlog: Backlog,
    pub(super) governor: Governor,
    pub(super) board: Scoreboard,
    pub(super) outbox: Outbox,
    /// Indices of segments to send again, some no longer.
    repairs: VecDeque<u64>,
    /// Repairs of this episode on their way: index, number of the transmission, and the next new
    /// sequence number then; for `fack` only.
    repaired: VecDeque<(u64, u64, u64)>,
    rack: Rack,
    episode: Episode,
    /// Duplicate acknowledgements in a row, where there is no SACK.
    duplicates: u32,
    /// Everything below has been looked at by RFC 6675 ...
    judged: u64,
    /// ... and by its rule for packets that are not known to be lost.
    guessed: u64,
    probe: Option<Probe>,
    /// True if the pacer is what holds the next segment.
    paced: bool,
    /// True if a probe is to leave whatever the window.
    probe_due: bool,
    peer: Peer,
    timers: Timers,
    pub(super) path: Path,
    /// Packet-timed round trips, and the number of the transmission whose acknowledgement ends this one.
    rounds: u64,
    round_end: u64,
    pub(super) marks: Marks,
    count: Counters,
    duplicate_acks: u64,
    /// Bytes of the ordered stream acknowledged.
    pub(super) stream_acked: u64,
    sack: bool,
}

impl Sender {
    pub(super) fn new(config: Config) -> Self {
        Self {
            governor: Governor::new(
                config.law.make(),
                config.max_rate.unwrap_or(Rate::UNLIMITED),
            )
            .with_pacing(config.pacing),
            backlog: Backlog::new(config.sack_cost),
            board: Scoreboard::default(),
            outbox: Outbox::default(),
            repairs: VecDeque::new(),
            repaired: VecDeque::new(),
            rack: Rack::default(),
            episode: Episode::new(config.reduction),
            duplicates: 0,
            judged: 0,
            guessed: 0,
            probe: None,
            paced: false,
            probe_due: false,
            peer: Peer::default(),
            timers: Timers::default(),
            path: Path {
                datagram: 1_200,
                rtt: Rtt::new(INITIAL_RTT).with_memory(MEMORY),
                queue: QueueDelay::default(),
                delivery: Delivery::default(),
                rate: None,
                rate_at: None,
                clock: 0,
                proven: 0,
            },
            rounds: 0,
            round_end: 0,
            marks: Marks::default(),
            count: Counters::default(),
            duplicate_acks: 0,
            stream_acked: 0,
            sack: true,
            config,
        }
    }

    /// The handshake is done: the peer understands SACK or not; `rtt` is what it showed.
    pub(super) fn start(&mut self, now: Instant, datagram: u32, sack: bool, rtt: Option<Duration>) {
        self.path.datagram = datagram;
        self.sack = sack && self.config.sack();
        if let Some(rtt) = rtt {
            self.path.rtt.update(now, rtt);
        }
        let view = self.view();
        self.governor.on_start(now, &view);
    }

    /// The peer takes everything below `edge`.
    pub(super) fn grant(&mut self, edge: u64) {
        self.peer.edge = self.peer.edge.max(edge);
    }

    /// Least wait of a repair or an acknowledgement.
    pub(super) fn srtt(&self) -> Duration {
        self.path.rtt.smoothed()
    }

    /// The timeout in force (RFC 6298), with the floor where the settings want it.
    pub(super) fn rto(&self) -> Duration {
        let backoff = 1 << self.timers.backoff.min(10);
        if let Some(interval) = self.governor.timeout() {
            return interval.saturating_mul(backoff);
        }
        let (variation, floor) = (self.path.rtt.variation() * 4, self.config.rto_min);
        let base = match self.path.rtt.sampled() {
            None => INITIAL_RTO,
            Some(smoothed) if self.config.rto_whole => (smoothed + variation).max(floor),
            Some(smoothed) => smoothed + variation.max(floor),
        };
        (base * backoff).min(MAX_RTO)
    }

    /// True if everything given is acknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.outbox.is_empty() && self.board.outstanding() == 0
    }

    /// Wire bytes in flight; what duplicate acknowledgements stand for has left the network.
    fn in_flight(&self) -> u64 {
        let left = u64::from(self.duplicates) * u64::from(self.path.datagram);
        self.board.in_flight().saturating_sub(left)
    }

    /// Bytes that may be in flight.
    fn window(&self) -> u64 {
        self.episode
            .window(self.governor.allowance().window.bytes())
    }

    fn view(&self) -> PathView {
        PathView {
            datagram: self.path.datagram,
            srtt: self.path.rtt.smoothed(),
            min_rtt: self.path.rtt.min(),
            feedback_interval: Duration::ZERO,
            reordering: Duration::ZERO,
            in_flight: Size::from_bytes(self.in_flight()),
        }
    }

    /// Facts of a segment that leaves at `now`; its own bytes in flight are still to be added.
    fn facts(&self, now: Instant) -> TxSnapshot {
        TxSnapshot {
            sent_at: now,
            in_flight: Size::from_bytes(self.in_flight()),
            delivered: Size::from_bytes(self.count.delivered),
            lost: Size::from_bytes(self.count.lost_bytes),
            app_limited: self.outbox.is_empty(),
        }
    }

    /// Moves the window of recovery: `delivered` wire bytes left the network. `safe`: the first unacknowledged
    /// byte moved, and no further loss was found. `first`: recovery began with it.
    fn step(&mut self, delivered: u64, safe: bool, first: bool) {
        let step = Step {
            delivered,
            flight: self.in_flight(),
            target: self.governor.allowance().window.bytes(),
            safe,
            datagram: u64::from(self.path.datagram),
        };
        self.episode.step(&step, first);
    }

    /// Reports `lost` to the law; a new episode begins if none is open.
    fn tell_losses(&mut self, now: Instant, lost: &Losses, before: u64) {
        let (Some(oldest), Some(newest)) = (lost.oldest, lost.newest) else {
            return;
        };
        let new_episode = self.episode.phase == Phase::Open;
        if new_episode {
            self.count.episodes += 1;
            self.episode
                .enter(Phase::Recovery, self.board.nxt(), before);
        }
        let path = self.view();
        self.governor.on_loss(&LossEvent {
            now,
            lost: Size::from_bytes(lost.bytes),
            packets: lost.packets,
            span: (oldest.1, newest.1),
            new_episode,
            oldest: oldest.0,
            newest: newest.0,
            lost_total: Size::from_bytes(self.count.lost_bytes),
            in_flight_before: Size::from_bytes(before),
            path,
        });
    }

    /// Segment `index` is believed lost.
    fn lose(&mut self, index: u64, losses: &mut Losses) {
        lose(&mut self.board, &mut self.repairs, index, losses);
    }

    const fn count_losses(&mut self, losses: &Losses) {
        self.count.lost += losses.packets as u64;
        self.count.lost_bytes += losses.bytes;
    }

    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        self.count.fill_stats(stats);
        self.governor.fill_stats(stats);
        stats.duplicate_acks = self.duplicate_acks;
        stats.datagram_size = self.path.datagram;
        stats.rtt_min = self.path.rtt.min_ever();
        stats.rtt_smoothed = self.path.rtt.sampled();
        stats.rto = Some(self.rto());
        stats.window = self.window();
        stats.peer_window = Some(self.peer.edge.saturating_sub(self.board.una()));
        stats.phase = match self.episode.phase {
            Phase::Open => stats.phase,
            Phase::Recovery => "recovery",
            Phase::Loss => "loss",
        };
        stats.in_flight = self.in_flight();
    }

    /// Longest payload of a segment behind a plain header.
    const fn payload(&self) -> u32 {
        self.path.datagram - HEADER
    }
}

/// Losses found at one instant.
#[derive(Debug, Default)]
struct Losses {
    bytes: u64,
    packets: u32,
    /// Snapshot and number of the first transmission among them ...
    oldest: Option<(TxSnapshot, u64)>,
    /// ... and of the last.
    newest: Option<(TxSnapshot, u64)>,
}

fn lose(board: &mut Scoreboard, repairs: &mut VecDeque<u64>, index: u64, losses: &mut Losses) {
    let Some(segment) = board.lose(index) else {
        return;
    };
    repairs.push_back(index);
    let fact = (segment.facts, segment.serial);
    losses.bytes += segment.wire();
    losses.packets += 1;
    if losses.oldest.is_none_or(|(_, serial)| fact.1 < serial) {
        losses.oldest = Some(fact);
    }
    if losses.newest.is_none_or(|(_, serial)| fact.1 > serial) {
        losses.newest = Some(fact);
    }
}

#[cfg(test)]
mod tests {
    use farhaul_congestion::{Values, lookup};

    use super::*;
    use crate::tcp::PARAMETERS;

    fn sender(words: &str) -> Sender {
        let values = Values::parse("tcp", PARAMETERS, words).unwrap();
        Sender::new(Config::new(lookup("cubic").unwrap(), &values))
    }

    #[test]
    fn timeouts_of_rfc_6298() {
        let ms = Duration::from_millis;
        let now = Instant::EPOCH;
        let mut s = sender("rto=rfc6298,rto_min=1000");
        assert_eq!(s.rto(), ms(1_000));
        s.path.rtt.update(now, ms(500));
        assert_eq!(s.rto(), ms(1_500), "three times the first sample");
        s.path.rtt.update(now, ms(100));
        assert_eq!(s.srtt(), ms(450));
        assert_eq!(s.path.rtt.variation(), Duration::from_micros(287_500));
        s.timers.backoff = 1;
        assert_eq!(s.rto(), ms(3_200));
        s.timers.backoff = 21;
        assert_eq!(s.rto(), MAX_RTO);
        s.timers.backoff = 0;
        assert_eq!(s.rto(), ms(1_600));
    }

    #[test]
    fn linux_keeps_its_floor_on_the_variation() {
        let ms = Duration::from_millis;
        let mut s = sender("rto=linux,rto_min=200");
        for _ in 0..100 {
            s.path.rtt.update(Instant::EPOCH, ms(100));
        }
        assert_eq!(s.rto(), ms(300));
    }
}
