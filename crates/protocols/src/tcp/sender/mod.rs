//! What does a TCP sender do? Bytes get sequence numbers when they first leave, control stream before
//! objects; what is acknowledged retires; what is lost leaves again; the law says how much at once.
//!
//! `ack` reads acknowledgements, `output` decides what leaves, `timer` what silence means; `rack` and
//! `episode` are the rules of detection and reduction.

mod ack;
mod episode;
mod output;
mod rack;
mod rtt;
mod timer;

use std::{collections::VecDeque, time::Duration};

use farhaul_core::{
    congestion::{Guard, LossEvent, PathView, RateSample, TxSnapshot},
    path::QueueDelay,
    rate::Delivery,
    send::{Outbox, Pacer},
    stats::Stats,
    store::ObjectId,
    time::Instant,
    units::Size,
};

pub(super) use ack::Acknowledgement;
pub(super) use output::{Permit, Piece};

use self::{
    episode::{Episode, Phase},
    rack::Rack,
    rtt::Rtt,
};
use super::{Config, scoreboard::Scoreboard, wire::DATA_HEADER};

/// Segments with which a window starts (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;

/// A plain header.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const HEADER: u32 = DATA_HEADER as u32;

/// What the peer grants.
#[derive(Debug, Default)]
struct Peer {
    /// One past the highest sequence number it takes.
    edge: u64,
    /// It cannot be sent to, and is asked when this is due.
    probe_at: Option<Instant>,
    probes: u32,
}

/// Deadlines.
#[derive(Debug, Default)]
struct Timers {
    rto: Option<Instant>,
    /// Tail loss probe.
    pto: Option<Instant>,
    /// RACK will know by then.
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
struct Path {
    datagram: u32,
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

/// Packet-timed round trips.
#[derive(Debug, Default)]
struct Rounds {
    count: u64,
    /// Number of the transmission whose acknowledgement ends this one.
    end: u64,
}

/// Congestion marks echoed by the peer (RFC 3168 §6.1.2).
#[derive(Debug, Default)]
struct Marks {
    /// Reacted to until everything below is acknowledged.
    point: u64,
    /// The peer is to be told that the window was reduced.
    reduced: bool,
}

#[derive(Debug, Default)]
struct Counters {
    sent_bytes: u64,
    data_sent: u64,
    data_acked: u64,
    repaired: u64,
    retransmits: u64,
    delivered: u64,
    lost_bytes: u64,
    lost: u64,
    spurious: u64,
    duplicate_acks: u64,
    episodes: u64,
    timeouts: u64,
}

/// The sending half.
pub(super) struct Sender {
    config: Config,
    law: Guard,
    board: Scoreboard,
    outbox: Outbox,
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
    /// ... and by its rule for what is not known to be lost.
    guessed: u64,
    probe: Option<Probe>,
    /// The pacer is what holds the next segment.
    paced: bool,
    /// A probe is to leave whatever the window.
    probe_due: bool,
    peer: Peer,
    timers: Timers,
    pacer: Pacer,
    path: Path,
    rounds: Rounds,
    marks: Marks,
    count: Counters,
    stream_acked: u64,
    sack: bool,
}

impl Sender {
    pub(super) fn new(config: Config) -> Self {
        Self {
            law: Guard::new(config.law.make()),
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
            pacer: Pacer::new(),
            path: Path {
                datagram: 1_200,
                rtt: Rtt::new(config.rto_min, config.rto_whole),
                queue: QueueDelay::default(),
                delivery: Delivery::default(),
                rate: None,
                rate_at: None,
                clock: 0,
                proven: 0,
            },
            rounds: Rounds::default(),
            marks: Marks::default(),
            count: Counters::default(),
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
        self.law.on_start(now, &view);
    }

    /// The peer takes everything below `edge`.
    pub(super) fn grant(&mut self, edge: u64) {
        self.peer.edge = self.peer.edge.max(edge);
    }

    /// Why the session must end, if the law has failed.
    pub(super) fn failure(&self) -> Option<String> {
        self.law.failure()
    }

    /// The connection ends.
    pub(super) fn close(&mut self, now: Instant) {
        self.law.tell(now, |law| law.on_close(now));
    }

    /// UDP payload bytes of a full datagram.
    pub(super) const fn datagram(&self) -> u32 {
        self.path.datagram
    }

    /// What a repair or an acknowledgement waits for at least.
    pub(super) fn srtt(&self) -> Duration {
        self.path.rtt.smoothed()
    }

    /// The timeout in force.
    pub(super) fn rto(&self) -> Duration {
        let own = || self.path.rtt.rto();
        self.law.timeout().map_or_else(own, |interval| {
            interval * (1 << self.path.rtt.backoff().min(10))
        })
    }

    /// First unacknowledged sequence number.
    pub(super) const fn una(&self) -> u64 {
        self.board.una()
    }

    /// Next new sequence number.
    pub(super) const fn nxt(&self) -> u64 {
        self.board.nxt()
    }

    pub(super) fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.outbox.push(object, offset, len);
    }

    pub(super) const fn unsent(&self) -> u64 {
        self.outbox.unsent()
    }

    pub(super) fn cancel_unsent(&mut self) {
        self.outbox.cancel_unsent();
    }

    /// Bytes of the ordered stream acknowledged.
    pub(super) const fn stream_acked(&self) -> u64 {
        self.stream_acked
    }

    /// Everything given is acknowledged.
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
        self.episode.window(self.law.allowance().window.bytes())
    }

    fn view(&self) -> PathView {
        PathView {
            datagram: self.path.datagram,
            srtt: self.path.rtt.smoothed(),
            min_rtt: self.path.rtt.min(),
            feedback_interval: Duration::ZERO,
            in_flight: Size::from_bytes(self.in_flight()),
        }
    }

    /// What is so for a segment that leaves at `now`; its own bytes in flight are still to be added.
    fn facts(&self, now: Instant) -> TxSnapshot {
        TxSnapshot {
            sent_at: now,
            in_flight: Size::from_bytes(self.in_flight()),
            delivered: Size::from_bytes(self.count.delivered),
            lost: Size::from_bytes(self.count.lost_bytes),
            app_limited: self.outbox.is_empty(),
        }
    }

    /// The law hears of `lost`; a new episode begins if none is open.
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
        self.law.on_loss(&LossEvent {
            now,
            lost: Size::from_bytes(lost.bytes),
            packets: lost.packets,
            span: (oldest.1, newest.1),
            new_episode,
            oldest: oldest.0,
            newest: newest.0,
            lost_total: Size::from_bytes(self.count.lost_bytes),
            in_flight_before: Size::from_bytes(before),
            path: self.view(),
        });
    }

    /// Segment `index` is believed lost.
    fn lose(&mut self, index: u64, losses: &mut Losses) {
        if lose(&mut self.board, &mut self.repairs, index, losses) {
            self.count_losses(losses);
        }
    }

    const fn count_losses(&mut self, losses: &mut Losses) {
        self.count.lost += losses.uncounted.0;
        self.count.lost_bytes += losses.uncounted.1;
        losses.uncounted = (0, 0);
    }

    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        let allowance = self.law.allowance();
        let seen = self.law.law().observe();
        stats.data_sent = self.count.data_sent;
        stats.data_acked = self.count.data_acked;
        stats.repaired = self.count.repaired;
        stats.retransmits = self.count.retransmits;
        stats.packets_lost = self.count.lost;
        stats.packets_spurious = self.count.spurious;
        stats.duplicate_acks = self.count.duplicate_acks;
        stats.episodes = self.count.episodes;
        stats.timeouts = self.count.timeouts;
        (stats.law_faults, stats.law_fault) = self.law.faults();
        stats.datagram_size = self.path.datagram;
        stats.rtt_min = self.path.rtt.min_ever();
        stats.rtt_smoothed = self.path.rtt.sampled();
        stats.rto = Some(self.rto());
        stats.pacing_rate = allowance.rate;
        stats.window = self.window();
        stats.ssthresh = seen.ssthresh;
        stats.peer_window = Some(self.peer.edge.saturating_sub(self.board.una()));
        stats.phase = match self.episode.phase {
            Phase::Open => seen.phase,
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
    uncounted: (u64, u64),
}

fn lose(
    board: &mut Scoreboard,
    repairs: &mut VecDeque<u64>,
    index: u64,
    losses: &mut Losses,
) -> bool {
    if !board.lose(index) {
        return false;
    }
    repairs.push_back(index);
    if let Some(segment) = board.get(index) {
        let fact = (segment.facts, segment.serial);
        losses.bytes += segment.wire();
        losses.packets += 1;
        losses.uncounted.0 += 1;
        losses.uncounted.1 += segment.wire();
        if losses.oldest.is_none_or(|(_, serial)| fact.1 < serial) {
            losses.oldest = Some(fact);
        }
        if losses.newest.is_none_or(|(_, serial)| fact.1 > serial) {
            losses.newest = Some(fact);
        }
    }
    true
}
