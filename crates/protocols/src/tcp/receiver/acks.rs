//! Decides when to acknowledge, and with what: every few segments or after a while (RFC 1122
//! §4.2.3.2, RFC 5681 §4.2), at once for segments out of order. SACK blocks go newest first (RFC
//! 2018 §4), duplicates before them (RFC 2883).

use std::{collections::VecDeque, ops::Range, time::Duration};

use farhaul_core::{loss::Ranges, time::Instant};

use crate::tcp::{Profile, wire::MAX_SACKS};

/// Acknowledgements that wait to be sent; more are merged, as each says what the last did.
const MAX_WAITING: usize = 64;
/// A pause between segments up to which data counts as steady (Linux).
const STEADY: Duration = Duration::from_millis(20);

/// An acknowledgement to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Everything below arrived.
    pub(crate) ack: u64,
    /// One past the highest sequence number taken.
    pub(crate) edge: u64,
    /// The timestamp to echo.
    pub(crate) stamp: Option<u32>,
    /// True if a mark is echoed.
    pub(crate) echo: bool,
    /// Ranges that arrived besides.
    pub(crate) sacks: [Range<u64>; MAX_SACKS],
    pub(crate) count: usize,
}

impl Answer {
    fn push(&mut self, block: Range<u64>, most: usize) {
        if self.count < most && !self.sacks[..self.count].contains(&block) {
            self.sacks[self.count] = block;
            self.count += 1;
        }
    }
}

/// The policy's state.
#[derive(Debug)]
pub(crate) struct Acks {
    every: u32,
    delay: (Duration, Duration),
    /// Segments not acknowledged.
    pending: u32,
    immediate: bool,
    due: Option<Instant>,
    /// Segments that are acknowledged each at once.
    quick: u32,
    most_quick: u32,
    /// Time for which the next acknowledgement is held back, adapted.
    hold: Duration,
    last_arrival: Option<Instant>,
    /// Number acknowledged last.
    last: u64,
    /// First numbers of the runs that grew last, newest first.
    recent: [u64; MAX_SACKS],
    duplicate: Option<Range<u64>>,
    waiting: VecDeque<Answer>,
}

impl Acks {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self {
            every: profile.ack_every,
            delay: (profile.delay_min, profile.delay_max),
            pending: 0,
            immediate: false,
            due: None,
            quick: profile.quick,
            most_quick: profile.quick,
            hold: profile.delay_min,
            last_arrival: None,
            last: 0,
            recent: [0; MAX_SACKS],
            duplicate: None,
            waiting: VecDeque::new(),
        }
    }

    /// The window takes `segments` at first.
    pub(crate) fn start(&mut self, segments: u64) {
        let half = u32::try_from(segments / 2).unwrap_or(u32::MAX);
        self.quick = self.most_quick.min(half.max(2));
        self.most_quick = self.quick.min(self.most_quick);
    }

    /// Number acknowledged last.
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// One more segment is acknowledged at once.
    pub(crate) const fn grant_quick(&mut self) {
        self.quick = self.quick.saturating_add(1);
    }

    pub(crate) const fn at_once(&mut self) {
        self.immediate = true;
    }

    pub(crate) fn duplicate(&mut self, span: Range<u64>) {
        self.duplicate = Some(span);
        self.immediate = true;
    }

    pub(crate) fn out_of_order(&mut self, start: u64) {
        self.recent.rotate_right(1);
        self.recent[0] = start;
        self.immediate = true;
    }

    /// A segment arrived in order.
    pub(crate) fn in_order(&mut self, now: Instant) {
        self.pending += 1;
        self.adapt(now);
        if self.quick > 0 {
            self.quick -= 1;
            self.immediate = true;
        } else if self.due.is_none() {
            self.due = Some(now + self.hold);
        }
    }

    /// Holds back for about as long as the next segment takes to come (Linux).
    fn adapt(&mut self, now: Instant) {
        let (least, most) = self.delay;
        let gap = self.last_arrival.map(|at| now.since(at));
        self.last_arrival = Some(now);
        match gap {
            Some(gap) if gap <= STEADY => self.hold = self.hold / 2 + STEADY,
            Some(gap) if gap < self.hold => self.hold = self.hold / 2 + gap,
            Some(gap) if gap > Duration::from_secs(1) => self.quick = self.most_quick,
            _ => {}
        }
        self.hold = self.hold.clamp(least, most);
    }

    /// All that came together is in.
    pub(crate) const fn batch_ends(&mut self, stretch: bool) {
        if stretch && self.pending >= self.every {
            self.immediate = true;
        }
    }

    /// True if an acknowledgement is to be written down now; when `stretch`ing only at the end of a
    /// batch.
    pub(crate) const fn is_due(&self, stretch: bool) -> bool {
        self.immediate || !stretch && self.pending >= self.every
    }

    /// True if the time for an acknowledgement has come.
    pub(crate) fn expired(&self, now: Instant) -> bool {
        self.pending > 0 && self.due.is_some_and(|at| at <= now)
    }

    /// Time of the next acknowledgement: at once when something waits, as after the application has
    /// read.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.waiting.is_empty() {
            self.due
        } else {
            Some(Instant::EPOCH)
        }
    }

    /// Fills in the blocks: a duplicate, then the runs that grew last.
    pub(crate) fn blocks(&mut self, ahead: &Ranges, stamped: bool, answer: &mut Answer) {
        // Timestamps leave room for three (RFC 2018 §3).
        let most = if stamped { MAX_SACKS - 1 } else { MAX_SACKS };
        if let Some(span) = self.duplicate.take() {
            answer.push(span.clone(), most);
            if let Some(run) = ahead.containing(span.start) {
                answer.push(run, most);
            }
        }
        if ahead.is_empty() {
            return;
        }
        for start in self.recent {
            if let Some(run) = ahead.containing(start) {
                answer.push(run, most);
            }
        }
    }

    /// Writes an acknowledgement down.
    pub(crate) fn push(&mut self, answer: Answer) {
        self.settle(&answer);
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(answer);
    }

    /// `answer` rides on a data segment; what blocks report is still to be sent.
    pub(crate) fn carried(&mut self, answer: &Answer) {
        if self.waiting.is_empty() && self.duplicate.is_none() {
            self.settle(answer);
        }
    }

    const fn settle(&mut self, answer: &Answer) {
        self.last = answer.ack;
        self.pending = 0;
        self.immediate = false;
        self.due = None;
    }

    /// The next to send, if it is one of `like`.
    pub(crate) fn take(&mut self, like: impl Fn(&Answer) -> bool) -> Option<Answer> {
        self.waiting.pop_front_if(|answer| like(answer))
    }
}
