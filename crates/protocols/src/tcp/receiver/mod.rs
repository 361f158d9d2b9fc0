//! A TCP receiver. It notes what arrived, decides when to acknowledge, and announces how much it
//! takes, as its profile does. The session places payload on arrival; here are only numbers.

mod acks;
mod host;
mod reader;
mod window;

use farhaul_core::{datagram::Ecn, loss::Ranges, stats::Why, time::Instant};

pub(super) use acks::Answer;

use self::{acks::Acks, host::Host, window::Window};
use super::Profile;

/// Separate runs out of order that are kept account of; a segment that would make one more is not
/// taken.
const MAX_RUNS: usize = 1 << 16;
/// Age of a timestamp against the newest beyond which its segment is taken for one of the sequence
/// numbers' last round (RFC 7323 §5), µs. Reordering alone does not reach that age.
const STALE: u32 = 500_000;

/// A segment as the receiver sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// First sequence number.
    pub(super) seq: u64,
    /// Bytes.
    pub(super) len: u32,
    /// The sender's timestamp.
    pub(super) stamp: Option<u32>,
    /// Time since the segment left here that this one answers, µs.
    pub(super) rtt_us: Option<u32>,
    /// Mark with which the segment arrived.
    pub(super) ecn: Ecn,
    /// True if the sender reduced its window for a mark.
    pub(super) reduced: bool,
}

impl Arrival {
    const fn end(&self) -> u64 {
        self.seq + self.len as u64
    }
}

/// Action on a segment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// New: it is to be placed.
    Take,
    /// Known already.
    Known,
    /// The payload is not to be taken, as if it had been lost.
    Refuse,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiver {
    profile: Profile,
    /// Everything below arrived.
    pub(super) next: u64,
    /// Ranges that arrived above `next`.
    ahead: Ranges,
    /// Newest timestamp of a segment that began at or below the number acknowledged last.
    stamp: Option<u32>,
    acks: Acks,
    pub(super) window: Window,
    host: Host,
    /// True if a mark is to be echoed until the sender has reacted.
    echo: bool,
    sack: bool,
    /// Segments that arrived more than once.
    pub(super) duplicates: u64,
}

impl Receiver {
    pub(super) fn new(profile: Profile) -> Self {
        Self {
            next: 0,
            ahead: Ranges::default(),
            stamp: None,
            acks: Acks::new(&profile),
            window: Window::new(&profile, 1_200),
            host: Host::new(&profile),
            echo: false,
            sack: true,
            duplicates: 0,
            profile,
        }
    }

    /// The handshake is done.
    pub(super) fn start(&mut self, datagram: u32, sack: bool) {
        self.window = Window::new(&self.profile, u64::from(datagram));
        self.sack = sack;
        self.acks
            .start(self.window.edge(0) / u64::from(datagram.max(1)));
    }

    /// Judges a segment before its payload is placed.
    pub(super) fn judge(&self, arrival: &Arrival) -> Verdict {
        let old = |stamp: u32, newest: u32| {
            let behind = newest.wrapping_sub(stamp);
            behind.cast_signed() > 0 && behind > STALE
        };
        let stale = arrival
            .stamp
            .zip(self.stamp)
            .is_some_and(|(a, b)| old(a, b));
        if stale || arrival.end() > self.window.announced() {
            return Verdict::Refuse;
        }
        if arrival.end() <= self.next || self.ahead.covers(arrival.seq..arrival.end()) {
            return Verdict::Known;
        }
        let crowded = arrival.seq > self.next && self.ahead.len() >= MAX_RUNS;
        if crowded
            || self
                .host
                .is_full(arrival, self.window.announced() - self.next)
        {
            Verdict::Refuse
        } else {
            Verdict::Take
        }
    }

    /// A segment arrived at the host; its TCP sees it now or when the host wakes.
    pub(super) fn arrive(&mut self, now: Instant, arrival: Arrival) {
        if let Some(arrival) = self.host.pass(now, arrival) {
            self.process(now, &arrival);
        }
    }

    /// All that arrived together has been handed over.
    pub(super) fn batch_ends(&mut self) {
        self.acks.batch_ends(self.profile.stretch);
        self.answer();
    }

    /// Notes that the application took bytes of the ordered stream, and `unread` are left.
    pub(super) fn on_read(&mut self, unread: u64) {
        if self.window.on_read(self.next, unread) {
            self.acks.at_once();
            self.answer();
        }
    }

    /// The peer wants to know where it stands.
    pub(super) fn asked(&mut self) {
        self.acks.at_once();
        self.answer();
    }

    /// Remembers the timestamp to be echoed (RFC 7323 §4.3).
    pub(super) fn on_stamp(&mut self, seq: u64, stamp: Option<u32>) {
        let newer = |stamp: u32, than: u32| stamp.wrapping_sub(than).cast_signed() >= 0;
        if let Some(stamp) = stamp
            && seq <= self.acks.last()
            && self.stamp.is_none_or(|s| newer(stamp, s))
        {
            self.stamp = Some(stamp);
        }
    }

    fn process(&mut self, now: Instant, arrival: &Arrival) {
        self.marks(arrival);
        self.on_stamp(arrival.seq, arrival.stamp);
        let span = arrival.seq..arrival.end();
        if span.end <= self.next || self.ahead.covers(span.clone()) {
            self.duplicates += 1;
            self.acks.duplicate(span);
        } else if span.start <= self.next {
            let before = self.next;
            let filled = !self.ahead.is_empty();
            self.next = span.end;
            if let Some(run) = self.ahead.containing(self.next) {
                self.next = run.end;
            }
            self.ahead.trim(self.next);
            self.in_order(now, arrival, self.next - before, filled);
        } else {
            self.ahead.insert(span.clone());
            self.acks.out_of_order(span.start);
        }
        self.answer();
    }

    fn in_order(&mut self, now: Instant, arrival: &Arrival, bytes: u64, filled: bool) {
        let grown = self
            .window
            .on_data(now, self.next, bytes, arrival.rtt_us, !filled);
        if grown {
            self.acks.grant_quick();
        }
        if filled {
            self.acks.at_once();
        } else {
            self.acks.in_order(now);
        }
    }

    /// RFC 3168 §6.1.3.
    fn marks(&mut self, arrival: &Arrival) {
        if arrival.reduced {
            self.echo = false;
        }
        if arrival.ecn == Ecn::Ce && !self.echo {
            self.echo = true;
            self.acks.at_once();
        }
    }

    /// Writes down the acknowledgement that is due, if one is.
    fn answer(&mut self) {
        if self.acks.is_due(self.profile.stretch) {
            let answer = self.current(true);
            self.acks.push(answer);
        }
    }

    /// Content of an acknowledgement now; with `news` of what arrived out of order.
    fn current(&mut self, news: bool) -> Answer {
        let edge = self.window.edge(self.next);
        let mut answer = Answer {
            ack: self.next,
            edge,
            stamp: self.stamp,
            echo: self.echo,
            ..Answer::default()
        };
        if news && self.sack {
            self.acks
                .blocks(&self.ahead, self.stamp.is_some(), &mut answer);
        }
        answer
    }

    /// Acknowledgement that a data segment carries.
    pub(super) fn piggyback(&mut self) -> Answer {
        let answer = self.current(false);
        self.acks.carried(&answer);
        answer
    }

    /// The next acknowledgement to send on its own.
    #[inline]
    pub(super) fn take_answer(&mut self, now: Instant) -> Option<Answer> {
        if self.acks.expired(now) {
            let answer = self.current(true);
            self.acks.push(answer);
        }
        self.acks.take(|_| true)
    }

    /// The next of as many blocks as `answer`: it looks like it on the wire.
    pub(super) fn take_like(&mut self, answer: &Answer) -> Option<Answer> {
        self.acks.take(|next| next.count == answer.count)
    }

    /// Acts on deadlines that passed.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        let mut any = false;
        while let Some(arrival) = self.host.work(now) {
            any = true;
            self.process(now, &arrival);
        }
        if any {
            self.batch_ends();
        }
        while self.window.reads(now) {
            if self.window.opens(self.next) {
                self.acks.at_once();
                self.answer();
            }
        }
    }

    /// Time to call [`Self::on_timeout`] or [`Self::take_answer`].
    pub(super) fn next_timeout(&self) -> Option<(Instant, Why)> {
        let due = self.acks.due().into_iter();
        let due = due.chain(self.host.due()).chain(self.window.due());
        due.min().map(|at| (at, Why::Feedback))
    }
}
