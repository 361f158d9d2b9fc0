//! The sending half. Queued data become a file, which is announced. When the peer lets the file
//! come, its blocks leave a gap apart, requested ones first, the last one again and again until the
//! peer sends stop. Then comes the next file, which begins as slowly as the first.
//!
//! Invariants: no more than [`MAX_ASKED`] requests wait; nothing is believed of blocks that were never sent.
//!
//! Source: Tsunami v1.1 as read, 2006. Other than there: a sender sleeps instead of spinning, and
//! the slots of 250 us leave together. A stop is obeyed at once and not in its turn. The numbers of
//! blocks go on from file to file, so that none is taken for one of another file.

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError,
    layout::{Layout, MAX_RUNS},
    protocol::CloseReason,
    pull::{Step, Supply, Wanted},
    send::{Debt, Outbox, Permit},
    shell::Packet,
    stats::{Stats, Why},
    time::Instant,
    units::Rate,
};

use super::{
    law::{Gap, NO_FEEDBACK},
    message::{put_cut, put_file},
    protocol::LEAST_RATE,
    wire::{BlockHeader, Feedback, FeedbackKind, HEADER, Kind, Parameters},
};

/// Most requests that wait.
const MAX_ASKED: usize = 16_384;
/// A sender that was kept from running makes up for no more.
const LAG: Duration = Duration::from_millis(10);
/// Slots and time without feedback after which things are believed to be bad.
const SILENT: (u32, Duration) = (2_048, Duration::from_millis(500));
/// Wait after the last block, in multiples of the sender's longest wait so far.
const LAST_WAIT: u32 = 10;

/// Feedback that takes effect in its turn.
#[derive(Clone, Copy, Debug)]
enum Deferred {
    /// A unit to be next.
    From(u64),
    Errors(u32),
}

/// File that is being sent.
#[derive(Debug)]
struct File {
    layout: Layout,
    /// Less than those of the layout once it was cut.
    bytes: u64,
    supply: Supply<Deferred>,
    /// True if the peer lets the file come.
    goes: bool,
    gap: Gap,
    debt: Debt,
    /// Slots since the last feedback.
    slots: u32,
    /// Time of the last feedback, or of the announcement.
    heard: Instant,
    /// The last time that silence was counted as errors.
    silent: Instant,
}

/// The sending half of a session.
#[derive(Debug)]
pub(super) struct Sender {
    /// Parameters that the peer wants.
    wanted: Parameters,
    max_rate: Rate,
    timeout: Duration,
    block: u32,
    out: Outbox,
    file: Option<File>,
    /// The number of the file's first block is one more.
    base: u32,
    cut: bool,
    failed: Option<CloseReason>,
    stats: Stats,
}

impl Sender {
    pub(super) fn new(max_rate: Rate, timeout: Duration) -> Self {
        Self {
            wanted: Parameters::default(),
            max_rate,
            timeout,
            block: 1,
            out: Outbox::default(),
            file: None,
            base: 0,
            cut: false,
            failed: None,
            stats: Stats::default(),
        }
    }

    /// Sets the parameters that the peer wants.
    pub(super) const fn set_wanted(&mut self, wanted: Parameters) {
        self.wanted = wanted;
    }

    pub(super) fn open(&mut self, block: u32) {
        self.block = block;
        let rate = self.wanted.rate;
        if rate < LEAST_RATE.saturating_mul(block) {
            let text = format!("it wants {rate} bit/s, too little for reports in time");
            self.failed = Some(CloseReason::Protocol(text));
        }
    }

    pub(super) fn push(&mut self, object: u32, offset: u64, len: u64) {
        self.out.push(object, offset, len);
    }

    /// Bytes of the file that were never sent and need not be.
    fn behind(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| {
            let sent = file.supply.reached().max(1) * u64::from(self.block);
            file.bytes.saturating_sub(sent)
        })
    }

    pub(super) fn unsent(&self) -> u64 {
        self.out.unsent() + self.behind()
    }

    /// Forgets data never sent; a file that was announced ends there.
    pub(super) fn cancel_unsent(&mut self) {
        self.out.cancel_unsent();
        let behind = self.behind();
        if let Some(file) = &mut self.file
            && behind > 0
        {
            file.bytes -= behind;
            file.supply.cut();
            self.cut = true;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.file.is_none() && self.out.is_empty()
    }

    /// Appends what the peer is to know.
    pub(super) fn poll_output(&mut self, now: Instant, into: &mut Vec<u8>) {
        if let Some(file) = self.file.as_ref().filter(|_| self.cut) {
            put_cut(into, self.base.wrapping_add(word(file.supply.units())));
            self.cut = false;
        }
        if let Some(layout) = self.begin(now) {
            let block = layout.payload();
            put_file(into, layout, block);
        }
    }

    /// Makes a file of the queued data, if there is none.
    pub(super) fn begin(&mut self, now: Instant) -> Option<&Layout> {
        if self.file.is_some() || self.out.is_empty() {
            return None;
        }
        let file = self.next_file(now);
        Some(&self.file.insert(file).layout)
    }

    /// All that is queued, as far as a file can hold it.
    fn next_file(&mut self, now: Instant) -> File {
        let most = Wanted::MAX_UNITS * u64::from(self.block);
        let layout = Layout::gather(&mut self.out, self.block, most, MAX_RUNS);
        File {
            bytes: layout.len(),
            supply: Supply::new(layout.packets(), MAX_ASKED),
            layout,
            goes: false,
            gap: Gap::new(self.block, self.wanted.rate, self.max_rate),
            debt: Debt::new(LAG),
            slots: 0,
            heard: now,
            silent: now,
        }
    }

    /// The peer lets the file come.
    pub(super) fn on_go(&mut self, now: Instant) -> Result<(), DecodeError> {
        let file = self.file.as_mut().filter(|file| !file.goes);
        let file = file.ok_or(DecodeError::Malformed("permission, out of turn"))?;
        file.goes = true;
        file.heard = now;
        file.silent = now;
        Ok(())
    }

    pub(super) fn on_feedback(
        &mut self,
        now: Instant,
        feedback: Feedback,
    ) -> Result<(), DecodeError> {
        let Some(file) = self.file.as_mut().filter(|file| file.goes) else {
            return Err(DecodeError::Malformed("feedback without a file"));
        };
        file.heard = now;
        file.slots = 0;
        let unit = u64::from(feedback.block.wrapping_sub(self.base).wrapping_sub(1));
        let sent = unit < file.supply.reached();
        match feedback.kind {
            FeedbackKind::Retransmit | FeedbackKind::Restart if !sent => {
                return Err(DecodeError::Malformed("request for a block never sent"));
            }
            // A request that finds no room is made again.
            FeedbackKind::Retransmit => {
                self.stats.packets_lost += 1;
                file.supply.ask(unit);
            }
            // As the original has it, the block itself is not sent. What finds no room comes again.
            FeedbackKind::Restart => {
                file.supply.push_message(Deferred::From(unit + 1));
            }
            FeedbackKind::ErrorRate => {
                let errors = Deferred::Errors(feedback.error_rate);
                file.supply.push_message(errors);
            }
            FeedbackKind::Stop => return self.on_stop(feedback.block),
        }
        Ok(())
    }

    /// The peer has the file, but for blocks that it does without.
    fn on_stop(&mut self, without: u32) -> Result<(), DecodeError> {
        let supply = self.file.as_ref().map(|file| &file.supply);
        if supply.is_some_and(|supply| supply.reached() < supply.units()) {
            return Err(DecodeError::Malformed(
                "stop before the last block was sent",
            ));
        }
        if let Some(file) = self.file.take() {
            let lost = u64::from(without) * u64::from(self.block);
            self.stats.data_acked += file.bytes.saturating_sub(lost);
            self.base = self.base.wrapping_add(word(file.layout.packets()));
            self.cut = false;
        }
        Ok(())
    }

    pub(super) fn permit(&self, now: Instant) -> Permit {
        match &self.file {
            Some(file) if !file.goes => Permit::Hold(Why::Peer),
            Some(file) if file.debt.is_due(now) => Permit::Send { bytes: u64::MAX },
            Some(_) => Permit::Hold(Why::Pacing),
            None => Permit::Hold(Why::Application),
        }
    }

    /// Writes what the slots have that are due: one block, if there is one among it.
    pub(super) fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        let Some((header, layout, unit)) = self.next_block(now) else {
            return false;
        };
        header
            .encode(packet.header())
            .expect("a packet holds its header");
        packet.unit(layout, unit);
        packet.pad();
        true
    }

    /// The block of the slots that are due, if there is one among them, and the unit of the file that is in it.
    pub(super) fn next_block(&mut self, now: Instant) -> Option<(BlockHeader, &Layout, u64)> {
        let file = self.file.as_mut().filter(|file| file.goes)?;
        while file.debt.is_due(now) {
            file.slot(now, &self.wanted, &mut self.stats);
            let sent = file.supply.reached();
            let (unit, kind) = match file.supply.step() {
                Step::Message(Deferred::From(unit)) => {
                    file.supply.rewind(unit);
                    continue;
                }
                Step::Message(Deferred::Errors(errors)) => {
                    let bad = file.gap.on_errors(errors, &self.wanted);
                    self.stats.episodes += u64::from(bad);
                    continue;
                }
                Step::Repair(unit) => (unit, Kind::Repair),
                Step::Next(unit) => (unit, Kind::Original),
                Step::Last(unit) => {
                    file.debt.wait(file.debt.most() * LAST_WAIT);
                    (unit, Kind::Last)
                }
            };
            let block = self.base.wrapping_add(word(unit + 1));
            let len = u64::from(file.layout.packet_len(unit));
            if unit < sent {
                self.stats.repaired += len;
                self.stats.retransmits += 1;
            } else {
                self.stats.data_sent += len;
            }
            return Some((BlockHeader { block, kind }, &file.layout, unit));
        }
        None
    }

    /// Time since which blocks leave and no feedback on them comes.
    pub(super) fn blocked_since(&self) -> Option<Instant> {
        let file = self.file.as_ref().filter(|file| file.goes);
        file.map(|file| file.heard)
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        let file = self.file.as_ref()?;
        Some(if file.goes {
            (file.debt.wake(file.gap.get()), Why::Pacing)
        } else {
            (file.heard + self.timeout, Why::Liveness)
        })
    }

    pub(super) fn on_timer(&mut self, now: Instant) {
        let waits = self.file.as_ref().filter(|file| !file.goes);
        if waits.is_some_and(|file| now >= file.heard + self.timeout) {
            let text = format!(
                "for {} s the peer has not let come what was announced to it",
                self.timeout.as_secs()
            );
            self.failed = Some(CloseReason::Lane(text));
        }
    }

    pub(super) fn failure(&self) -> Option<CloseReason> {
        self.failed.clone()
    }

    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        let own = &self.stats;
        stats.data_sent = own.data_sent;
        stats.data_acked = own.data_acked;
        stats.repaired = own.repaired;
        stats.retransmits = own.retransmits;
        stats.packets_lost = own.packets_lost;
        stats.episodes = own.episodes;
        stats.timeouts = own.timeouts;
        stats.datagram_size = self.block + HEADER;
        stats.window = u64::MAX;
        stats.pacing_rate = self.file.as_ref().map_or(Rate::UNLIMITED, |file| {
            Rate::of(stats.datagram_size.into(), file.gap.get())
        });
    }
}

impl File {
    /// A slot is used; silence counts as errors.
    fn slot(&mut self, now: Instant, wanted: &Parameters, stats: &mut Stats) {
        self.debt.slot(now, self.gap.get());
        self.slots = self.slots.saturating_add(1);
        let (slots, pause) = SILENT;
        if self.slots > slots && now >= self.heard.max(self.silent) + pause {
            self.gap.on_errors(NO_FEEDBACK, wanted);
            self.slots = 0;
            self.silent = now;
            stats.timeouts += 1;
        }
    }
}

/// Units of a file are few enough.
fn word(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
