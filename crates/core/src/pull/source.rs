//! Sends for a pull protocol. The source offers queued data as a file of units. It sends requested
//! units at the requested rate, lowest number first, once per request: so repairs go before new
//! units. A unit that is requested again while it is queued is sent once.
//!
//! Invariants: requests beyond the file are rejected; at most [`MAX_ASKED`] separate ranges are queued.

use std::{ops::Range, time::Duration};

use super::offer::Offer;
use crate::{
    codec::DecodeError,
    layout::{Layout, MAX_RUNS},
    loss::Ranges,
    protocol::CloseReason,
    send::{Commanded, Outbox, Permit},
    session::earliest,
    shell::Packet,
    stats::{Stats, Why},
    store::ObjectId,
    time::Instant,
    units::Rate,
};

/// Separate ranges queued; what does not fit has to be requested again.
const MAX_ASKED: usize = 65_536;
/// An offer is answered in this time.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Most bytes of a file, so that an endless sender's is recognised.
const MAX_FILE: u64 = 1 << 48;

#[derive(Debug)]
struct File {
    offer: Offer,
    announced: bool,
    /// Units that are to arrive: all, unless it was cut.
    end: u64,
    /// Asked for, counted from the first.
    asked: Ranges,
    /// One past the highest that left.
    reached: u64,
}

impl File {
    /// Bytes of its first `units`.
    fn bytes(&self, units: u64) -> u64 {
        let payload = u64::from(self.offer.layout.payload());
        units.saturating_mul(payload).min(self.offer.layout.len())
    }
}

/// Sender of a pull protocol; one file at a time.
#[derive(Debug)]
pub struct Source {
    /// The rate at which units leave.
    commanded: Commanded,
    /// Bytes that the rate counts beside a unit's.
    around: u32,
    /// Bytes of the batch that is being written, so counted.
    batch: u64,
    /// Time since which an offer waits for its answer.
    offered: Option<Instant>,
    failed: Option<CloseReason>,
    /// Time since which units leave and no report of any comes.
    silent: Option<Instant>,
    out: Outbox,
    payload: u32,
    file: Option<File>,
    /// Number of the next file's first unit.
    next: u64,
    cut: bool,
    stats: Stats,
}

impl Source {
    /// An idle sender, limited to `most`; the rate counts a unit's bytes and `around` bytes of headers.
    pub fn new(most: Rate, around: u32) -> Self {
        Self {
            commanded: Commanded::new(most),
            around,
            batch: 0,
            offered: None,
            failed: None,
            silent: None,
            out: Outbox::default(),
            payload: 1,
            file: None,
            next: 0,
            cut: false,
            stats: Stats::default(),
        }
    }

    /// Sets the payload of units of future files.
    pub const fn set_payload(&mut self, payload: u32) {
        self.payload = payload;
    }

    /// Queues bytes.
    pub fn push(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.out.push(object, offset, len);
    }

    /// Bytes queued and never sent.
    pub fn unsent(&self) -> u64 {
        let file = self.file.as_ref();
        let behind = file.map_or(0, |f| f.bytes(f.end) - f.bytes(f.reached));
        self.out.unsent().saturating_add(behind)
    }

    /// Discards data never sent; a partly sent file is truncated.
    pub fn cancel_unsent(&mut self) {
        self.out.cancel_unsent();
        self.file.take_if(|file| !file.announced);
        if let Some(file) = self.file.as_mut().filter(|file| file.reached < file.end) {
            file.end = file.reached;
            file.asked.remove(file.end..u64::MAX);
            self.cut = true;
        }
    }

    /// True if nothing is queued or in flight.
    pub fn is_idle(&self) -> bool {
        self.file.is_none() && self.out.is_empty()
    }

    /// The next offer to send, if one is due.
    pub fn announce(&mut self, now: Instant) -> Option<&Offer> {
        if self.file.is_none() && !self.out.is_empty() {
            let layout = Layout::gather(&mut self.out, self.payload, MAX_FILE, MAX_RUNS);
            self.file = Some(File {
                end: layout.packets(),
                offer: Offer {
                    first: self.next,
                    layout,
                },
                announced: false,
                asked: Ranges::default(),
                reached: 0,
            });
        }
        let file = self.file.as_mut().filter(|file| !file.announced)?;
        file.announced = true;
        self.offered = Some(now);
        Some(&file.offer)
    }

    /// Takes the end of a truncated file, which the receiver has to be sent.
    pub fn take_cut(&mut self) -> Option<u64> {
        let file = self.file.as_ref().filter(|_| self.cut)?;
        self.cut = false;
        Some(file.offer.first + file.end)
    }

    fn announced(&mut self) -> Result<&mut File, DecodeError> {
        let file = self.file.as_mut().filter(|file| file.announced);
        file.ok_or(DecodeError::Malformed("a message on no file"))
    }

    /// The receiver accepts the offer of the file at `first` by requesting all its units.
    pub fn ask_all(&mut self, first: u64) -> Result<(), DecodeError> {
        let offered = self.offered.take();
        offered.ok_or(DecodeError::Malformed("an answer that nobody asked for"))?;
        let file = self.announced()?;
        if file.offer.first != first {
            return Err(DecodeError::Malformed("number of a file"));
        }
        file.asked.insert(0..file.end);
        Ok(())
    }

    /// Handles a request for the units of `range`.
    pub fn ask(&mut self, range: &Range<u64>) -> Result<(), DecodeError> {
        let file = self.announced()?;
        if range.start < file.offer.first || range.end > file.offer.end() {
            return Err(DecodeError::Malformed(
                "request for what is not in the file",
            ));
        }
        // Who asks may not know yet that it was cut.
        let start = range.start - file.offer.first;
        let end = (range.end - file.offer.first).min(file.end);
        if start < end && file.asked.len() < MAX_ASKED {
            let new = file.asked.insert(start..end);
            let again = file.reached.clamp(start, end) - start;
            self.stats.packets_lost += again.min(new);
        }
        (self.offered, self.silent) = (None, None);
        Ok(())
    }

    /// Maximum sending rate.
    pub const fn most(&self) -> Rate {
        self.commanded.most()
    }

    /// Sets the rate that the receiver requests, capped at [`Self::most`]; returns the result.
    pub fn command(&mut self, rate: Rate) -> Rate {
        self.silent = None;
        self.commanded.set(rate);
        self.commanded.rate()
    }

    /// Time since which units have been sent without any response from the receiver.
    pub const fn silent_since(&self) -> Option<Instant> {
        self.silent
    }

    fn has_units(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| !file.asked.is_empty())
    }

    /// Permit to send units now.
    pub fn permit(&self, now: Instant) -> Permit {
        if self.has_units() {
            self.commanded.permit(now)
        } else if self.is_idle() {
            Permit::Hold(Why::Application)
        } else {
            Permit::Hold(Why::Peer)
        }
    }

    /// Time at which sending may resume, or an unanswered offer times out.
    pub fn deadline(&self) -> Option<(Instant, Why)> {
        let wake = self.commanded.wake().filter(|_| self.has_units());
        let answer = self.offered.map(|at| (at + ANSWER_TIMEOUT, Why::Liveness));
        let wake = wake.map(|at| (at, Why::Pacing));
        earliest([wake, answer])
    }

    /// The deadline expired.
    pub fn on_timer(&mut self, now: Instant) {
        if self.offered.is_some_and(|at| now >= at + ANSWER_TIMEOUT) {
            let text = format!(
                "for {} s the peer has not answered what was offered to it",
                ANSWER_TIMEOUT.as_secs()
            );
            self.failed = Some(CloseReason::Lane(text));
        }
    }

    /// Reason to close the session: an offer was not answered in time.
    pub fn failure(&self) -> Option<CloseReason> {
        self.failed.clone()
    }

    /// The units written since the last call were sent.
    pub fn batch_sent(&mut self, now: Instant) {
        self.commanded.charge(now, std::mem::take(&mut self.batch));
    }

    /// Writes the next unit: its number (8 bytes), then its bytes. False if there is none.
    ///
    /// # Panics
    /// If the machine's header is shorter than a number.
    pub fn write(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        let Some(file) = self.file.as_mut() else {
            return false;
        };
        let Some(n) = file.asked.pop_first() else {
            return false;
        };
        let number = file.offer.first + n;
        let header = packet.header();
        header.u64(number).expect("a packet holds its header");
        let len = packet.unit(&file.offer.layout, n);
        if n < file.reached {
            self.stats.retransmits += 1;
            self.stats.repaired += len;
        } else {
            file.reached = n + 1;
            self.stats.data_sent += len;
        }
        self.batch += len + u64::from(self.around);
        self.silent.get_or_insert(now);
        true
    }

    /// The receiver has all of the file that begins at `first`.
    pub fn on_done(&mut self, first: u64) -> Result<(), DecodeError> {
        let file = self.announced()?;
        if file.offer.first != first || file.reached < file.end {
            return Err(DecodeError::Malformed("the end of a file that is not over"));
        }
        let (bytes, end) = (file.bytes(file.end), file.offer.end());
        self.stats.data_acked += bytes;
        self.next = end;
        self.cut = false;
        (self.file, self.offered, self.silent) = (None, None, None);
        Ok(())
    }

    /// Adds the source's counters.
    pub fn fill_stats(&self, stats: &mut Stats) {
        stats.pacing_rate = self.commanded.rate();
        stats.window = u64::MAX;
        stats.data_sent = self.stats.data_sent;
        stats.data_acked = self.stats.data_acked;
        stats.repaired = self.stats.repaired;
        stats.retransmits = self.stats.retransmits;
        stats.packets_lost = self.stats.packets_lost;
    }
}
