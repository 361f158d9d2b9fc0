//! The part that all sessions that send in rounds share: a schedule of packets, and blocks that are
//! announced and reported on. A protocol implements [`Style`]: its formats and its rate.

use std::time::Duration;

use super::{Leaving, Report, RoundReceiver, RoundSender};
use crate::{
    codec::{DecodeError, NoRoom, Writer},
    layout::Layout,
    send::{Permit, Schedule},
    session::earliest,
    shell::{HEAD, Incoming, Machine, Messages, Packet},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

/// Pause before the round that follows a fruitless one; twice as long after each further one, up to
/// [`LONGEST`].
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// Control messages between the two ends.
#[derive(Debug)]
pub enum RoundMessage<'a> {
    /// The receiver is ready for the block that begins at this number.
    Ready(u32),
    /// The block is truncated: the rest will not be sent.
    Cut(u32),
    /// Announces a block.
    Block(u32, &'a Layout),
    /// End of a round of the block: requests a report.
    Asked {
        /// The block's first number.
        first: u32,
        /// The round, from 0.
        round: u32,
        /// Packets.
        sent: u64,
    },
    /// Reports which packets were received.
    Report(Report),
}

/// The protocol-specific part of a session that sends in rounds.
pub trait Style: Send + 'static {
    /// Bytes before a packet's data.
    const HEADER: usize;
    /// True if the descriptor has a control lane.
    const LANE: bool = false;
    /// True if the first round of the first block is a blast, whose rate is counted.
    const BLASTS: bool = false;

    /// A new sending half.
    fn sender(&self) -> RoundSender;

    /// Decodes the number of a received packet.
    fn number(bytes: &[u8]) -> Result<u32, DecodeError>;

    /// Writes the header of a data packet.
    fn head(leaving: &Leaving<'_>, w: &mut Writer<'_>) -> Result<(), NoRoom>;

    /// Payload bytes per packet, at most `most`.
    fn payload(&self, most: u32) -> u32 {
        most
    }

    /// Time to wait for late packets after the end of a round.
    fn grace(&self, _rtt: Duration) -> Duration {
        Duration::ZERO
    }

    /// Packets at the end of a block's first round that the question overtakes.
    fn overtaken(&self) -> u64 {
        0
    }

    /// Payload rate of the next round, in packets of `payload` bytes.
    fn rate(&self, payload: u32) -> Rate;

    /// True if the sender waits for the time of the next packet in a loop. Only with a real clock: a
    /// simulator's would move by a nanosecond for each look.
    fn spins(&self) -> bool {
        false
    }

    /// Encodes `message`, appended to `into`.
    fn encode(&self, message: RoundMessage<'_>, into: &mut Vec<u8>);

    /// Parses the first buffered message; returns its length, 0 if it is incomplete.
    fn on_control(
        &mut self,
        now: Instant,
        ends: &mut Ends,
        bytes: &[u8],
    ) -> Result<usize, DecodeError>;
}

/// Both halves of a session.
#[derive(Debug)]
pub struct Ends {
    /// Sending half.
    pub sender: RoundSender,
    /// Receiving half.
    pub receiver: RoundReceiver,
    /// Blocks for which `Ready` is to be sent.
    ready: Vec<u32>,
}

impl Ends {
    /// The peer announces a block: see [`RoundReceiver::on_block`].
    pub fn on_block(
        &mut self,
        first: u32,
        layout: Layout,
        every: Option<u64>,
    ) -> Result<(), DecodeError> {
        self.receiver.on_block(first, layout, every)?;
        self.ready.push(first);
        Ok(())
    }

    /// The peer truncated a block.
    pub fn on_cut(&mut self, first: u32) {
        self.receiver.on_cut(first);
        self.ready.retain(|ready| *ready != first);
    }

    /// Appends the next message, if one is due.
    fn compose<S: Style>(&mut self, now: Instant, style: &S, into: &mut Vec<u8>) {
        if let Some(first) = self.ready.pop() {
            style.encode(RoundMessage::Ready(first), into);
        } else if let Some(first) = self.sender.take_cut() {
            style.encode(RoundMessage::Cut(first), into);
        } else if let Some((first, layout)) = self.sender.announce() {
            style.encode(RoundMessage::Block(first, layout), into);
        } else if let Some((first, round, sent)) = self.sender.ask(now) {
            style.encode(RoundMessage::Asked { first, round, sent }, into);
        } else if let Some(report) = self.receiver.report(now) {
            style.encode(RoundMessage::Report(report), into);
        }
    }
}

/// First round of the first block.
#[derive(Clone, Copy, Debug, Default)]
struct Blast {
    began: Option<Instant>,
    bytes: u64,
    /// Rate of the round, once its last packet has left. A round of one packet takes no time, and
    /// has none.
    rate: Option<Rate>,
}

impl Blast {
    fn on_packet(&mut self, now: Instant, bytes: u64, ends: bool) {
        self.bytes += bytes;
        let took = now.since(*self.began.get_or_insert(now));
        self.rate = (ends && !took.is_zero()).then(|| Rate::of(self.bytes, took));
    }
}

/// The [`Machine`] of a session that sends in rounds.
#[derive(Debug)]
pub struct RoundMachine<S> {
    style: S,
    ends: Ends,
    /// Bytes of data in a packet.
    payload: u32,
    schedule: Schedule,
    blast: Blast,
    /// Time before which nothing leaves.
    rests_until: Option<Instant>,
    /// Time of the last look of a sender that waits in a loop.
    looked: Option<Instant>,
    messages: Messages,
}

impl<S: Style> RoundMachine<S> {
    /// A machine with the protocol part `style`.
    pub fn new(style: S) -> Self {
        Self {
            ends: Ends {
                sender: style.sender(),
                receiver: RoundReceiver::default(),
                ready: Vec::new(),
            },
            payload: 1,
            schedule: Schedule::new(Rate::UNLIMITED, 1),
            blast: Blast::default(),
            rests_until: None,
            looked: None,
            messages: Messages::default(),
            style,
        }
    }

    /// Bytes of a datagram before its data.
    fn heads() -> u32 {
        let head = if S::LANE { 0 } else { HEAD };
        u32::try_from(head + S::HEADER).unwrap_or(u32::MAX)
    }

    fn schedule(&self) -> Schedule {
        Schedule::new(self.style.rate(self.payload), self.payload)
    }
}

impl<S: Style> Machine for RoundMachine<S> {
    const HEADER: usize = S::HEADER;
    const LANE: Option<bool> = Some(S::LANE);

    fn open(&mut self, _now: Instant, datagram: u32, rtt: Duration) {
        let room = datagram.saturating_sub(Self::heads()).max(1);
        self.payload = self.style.payload(room);
        self.ends.sender.set_payload(self.payload);
        self.ends.receiver.set_grace(self.style.grace(rtt));
        self.ends.receiver.set_overtaken(self.style.overtaken());
        self.schedule = self.schedule();
    }

    fn on_datagram(
        &mut self,
        _now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        if !S::LANE && datagram.kind != Self::DATA {
            return Err(DecodeError::Malformed("type of a datagram"));
        }
        let number = S::number(datagram.bytes)?;
        let receiver = &mut self.ends.receiver;
        receiver.on_datagram(number, datagram, S::HEADER, place)
    }

    fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, DecodeError> {
        let before = self.ends.sender.fruitless();
        let heard = self.style.on_control(now, &mut self.ends, bytes);
        let fruitless = self.ends.sender.fruitless();
        if fruitless > before {
            let pause = PAUSE * (1 << (fruitless - 1).min(10));
            self.rests_until = Some(now + pause.min(LONGEST));
        }
        heard
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        let (ends, style) = (&mut self.ends, &self.style);
        self.messages
            .poll(room, into, |bytes| ends.compose(now, style, bytes));
    }

    fn permit(&mut self, now: Instant) -> Permit {
        self.looked = None;
        self.rests_until.take_if(|until| *until <= now);
        if self.rests_until.is_some() {
            self.schedule.stop();
            return Permit::Hold(Why::Pacing);
        }
        if self.ends.sender.has_packets() {
            let permit = self.schedule.permit(now, self.payload + Self::heads());
            let waits = permit == Permit::Hold(Why::Pacing);
            self.looked = (waits && self.style.spins()).then_some(now);
            return permit;
        }
        // What comes next has a schedule of its own.
        self.schedule.stop();
        Permit::Hold(if self.ends.sender.is_waiting() {
            Why::Peer
        } else {
            Why::Application
        })
    }

    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        let begun = self.ends.sender.rounds_begun();
        let Some(leaving) = self.ends.sender.next_packet() else {
            return false;
        };
        // A round leaves at one rate.
        if leaving.serial == begun {
            let rate = self.style.rate(self.payload);
            if rate != self.schedule.rate() {
                self.schedule = Schedule::new(rate, self.payload);
            }
        }
        S::head(&leaving, packet.header()).expect("a packet holds its header");
        let bytes = packet.unit(leaving.layout, leaving.n);
        if S::BLASTS && leaving.serial == 0 {
            self.blast.on_packet(now, bytes, leaving.ends);
        }
        self.schedule.charge();
        true
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        // The next look is at once, and later than the last, so that no driver takes it for stuck.
        let look = self.looked.map(|at| at + Duration::from_nanos(1));
        let pace = self.rests_until.or(look).or_else(|| self.schedule.wake());
        let pace = pace.filter(|_| self.ends.sender.has_packets());
        // What is composed next waits for what is on its way.
        let report = self.ends.receiver.due();
        let report = report.filter(|_| self.messages.is_empty());
        let report = report.map(|at| (at, Why::Feedback));
        let pace = pace.map(|at| (at, Why::Pacing));
        earliest([pace, report])
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.ends.sender.push(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.ends.sender.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.ends.sender.cancel_unsent();
    }

    fn is_delivered(&self) -> bool {
        self.ends.sender.is_idle()
    }

    fn blocked_since(&self) -> Option<Instant> {
        self.ends.sender.silent_since()
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.ends.sender.counts().fill_stats(stats);
        stats.first_blast = self.blast.rate;
        stats.pacing_rate = self.style.rate(self.payload);
        stats.datagram_size = self.payload + Self::heads();
        stats.dropped_duplicate = self.ends.receiver.dropped();
    }
}
