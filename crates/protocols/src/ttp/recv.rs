//! The receiving half: which blocks are missing, and what is reported, when. With every fiftieth
//! datagram, but not more often than every 350 ms, the receiver requests all blocks known to be
//! missing, again if it did before, and reports the error rate. Where too much is missing the
//! sender is set back. When the last block comes all that is missing is asked for at once, or the
//! sender is stopped.
//!
//! Invariants: blocks are placed as they come and are not kept; at most [`TABLE`] missing ones are
//! noted; one file at a time.
//!
//! Source: Tsunami v1.1 as read, 2006. Other than there: blocks are placed at once, so that no ring between
//! network and disk can be full.

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError,
    layout::Layout,
    protocol::CloseReason,
    pull::Wanted,
    recv::Arrival,
    shell::Incoming,
    stats::{Stats, Why},
    store::Extent,
    time::Instant,
};

use super::{
    law::Errors,
    protocol::Loss,
    wire::{BlockHeader, Feedback, FeedbackKind, HEADER, Kind, Parameters},
};

/// Missing blocks that are noted.
const TABLE: usize = 65_536;
/// Datagrams between reports ...
const EVERY: u64 = 50;
/// ... but not more often.
const INTERVAL: Duration = Duration::from_millis(350);
/// Missing blocks at which the sender is set back.
const TOO_MANY: usize = 2_048;
/// Between two answers to a last block.
const ALL_AGAIN: Duration = Duration::from_millis(10);

/// File that is being received.
#[derive(Debug)]
struct File {
    layout: Layout,
    /// Blocks of the announcement.
    blocks: u32,
    wanted: Wanted,
    /// Units given up.
    lost: u64,
    /// The sender was set back: units from the first to the second say nothing of those before.
    back: Option<(u64, u64)>,
    errors: Errors,
    datagrams: u64,
    /// Datagrams since the last report.
    came: u64,
    reported: Instant,
    /// Time at which all missing blocks were requested.
    all: Option<Instant>,
    /// Time of the last datagram, or of the announcement.
    heard: Instant,
    due: Due,
}

/// Message of a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    /// Let the file come.
    Go,
    Feedback(Feedback),
}

/// Messages that are due.
#[derive(Debug, Default)]
struct Due {
    go: bool,
    report: bool,
    /// True to ask for all that is missing.
    all: bool,
    /// Blocks without which the receiver stops.
    stop: Option<u32>,
}

/// The receiving half of a session.
#[derive(Debug)]
pub(super) struct Receiver {
    wanted: Parameters,
    loss: Loss,
    timeout: Duration,
    block: u32,
    /// The number of the file's first block is one more.
    base: u32,
    file: Option<File>,
    duplicates: u64,
    failed: Option<CloseReason>,
}

impl Receiver {
    pub(super) fn new(wanted: Parameters, loss: Loss, timeout: Duration) -> Self {
        Self {
            wanted,
            loss,
            timeout,
            block: 1,
            base: 0,
            file: None,
            duplicates: 0,
            failed: None,
        }
    }

    pub(super) const fn open(&mut self, block: u32) {
        self.block = block;
    }

    /// The peer announces a file.
    pub(super) fn on_file(
        &mut self,
        now: Instant,
        layout: Layout,
        blocks: u32,
    ) -> Result<(), DecodeError> {
        if self.file.is_some() {
            return Err(DecodeError::Malformed(
                "announcement of a file, out of turn",
            ));
        }
        self.file = Some(File {
            wanted: Wanted::new(layout.packets(), TABLE),
            layout,
            blocks,
            lost: 0,
            back: None,
            errors: Errors::default(),
            datagrams: 0,
            came: 0,
            reported: now,
            all: None,
            heard: now,
            due: Due {
                go: true,
                ..Due::default()
            },
        });
        Ok(())
    }

    /// The peer ends the file with this block.
    pub(super) fn on_cut(&mut self, last: u32) -> Result<(), DecodeError> {
        let units = u64::from(last.wrapping_sub(self.base));
        let file = self.file.as_mut();
        let file = file.filter(|file| (1..=file.wanted.units()).contains(&units));
        let file = file.ok_or(DecodeError::Malformed("end of a file"))?;
        file.wanted.cut(units);
        Ok(())
    }

    /// Takes a datagram: places its block, and notes the blocks that it shows to be missing.
    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let header = BlockHeader::decode(datagram.bytes)?;
        if datagram.bytes.len() != (HEADER + self.block) as usize {
            return Err(DecodeError::Malformed("length of a block"));
        }
        let number = header.block.wrapping_sub(self.base);
        let window = self.window();
        let Some(file) = self
            .file
            .as_mut()
            .filter(|file| (1..=file.blocks).contains(&number))
        else {
            // One of an earlier file, or of nobody's.
            if number.wrapping_sub(1) > u32::MAX / 2 {
                self.duplicates += 1;
                return Ok(());
            }
            return Err(DecodeError::Malformed("number of a block"));
        };
        file.heard = now;
        file.datagrams += 1;
        file.came += 1;
        let unit = u64::from(number - 1);
        match file.wanted.on_unit(unit) {
            Arrival::New => {
                let data = datagram.extent(HEADER as usize, 0, 0)?;
                file.layout.place(unit, data.at, place);
            }
            Arrival::Again => self.duplicates += 1,
            // It left before the file was cut.
            Arrival::Beyond => return Ok(()),
        }
        let last = header.kind == Kind::Last;
        // What was asked for comes out of turn.
        if header.kind != Kind::Repair {
            file.follow(unit, last, window);
        }
        if last && unit + 1 == file.wanted.units() {
            if self.loss == Loss::Repaired && file.wanted.left() > 0 {
                // The last block is repeated until it is answered; looking for all that is missing takes time.
                if file.all.is_none_or(|at| now.since(at) >= ALL_AGAIN) {
                    file.all = Some(now);
                    file.due.all = true;
                }
            } else {
                file.lost += file.wanted.give_up_below(u64::MAX);
                file.due.stop = Some(u32::try_from(file.lost).unwrap_or(u32::MAX));
            }
        }
        if file.datagrams.is_multiple_of(EVERY) && now.since(file.reported) >= INTERVAL {
            file.due.report = true;
        }
        Ok(())
    }

    /// Count of units before the newest that are still wanted, if not all.
    fn window(&self) -> Option<u64> {
        match self.loss {
            Loss::Repaired => None,
            Loss::Borne(window) => Some(self.units_in(window.mul_f64(0.8))),
        }
    }

    /// Units that leave in `time` at the rate wanted.
    fn units_in(&self, time: Duration) -> u64 {
        let bits = u128::from(self.wanted.rate) * time.as_nanos() / 1_000_000_000;
        u64::try_from(bits / (8 * u128::from(self.block))).unwrap_or(u64::MAX)
    }

    /// Sends with `say` what the peer is to know.
    pub(super) fn poll_output(&mut self, now: Instant, mut say: impl FnMut(Output)) {
        let on_wire = self.units_in(Duration::from_millis(500));
        let Some(file) = &mut self.file else {
            return;
        };
        let due = std::mem::take(&mut file.due);
        if due.go {
            say(Output::Go);
        }
        if let Some(without) = due.stop {
            say(feedback(FeedbackKind::Stop, without, 0));
            self.base = self.base.wrapping_add(file.blocks);
            self.file = None;
            return;
        }
        if !due.all && !due.report {
            return;
        }
        file.wanted.sweep();
        if due.all {
            file.wanted.note_all();
        }
        let requested = file.wanted.asked().len();
        let number = |unit: u64| {
            let unit = u32::try_from(unit).unwrap_or(u32::MAX);
            self.base.wrapping_add(unit).wrapping_add(1)
        };
        if requested < TOO_MANY {
            for unit in file.wanted.asked() {
                say(feedback(FeedbackKind::Retransmit, number(*unit), 0));
            }
        } else if let Some(first) = file.wanted.first_missing() {
            say(feedback(FeedbackKind::Restart, number(first), 0));
            let head = file.wanted.next();
            file.back = Some((head, head.saturating_add(on_wire)));
            file.wanted.rewind(first);
        }
        if due.report {
            let errors = file.errors.on_interval(requested as u64, file.came);
            say(feedback(FeedbackKind::ErrorRate, 0, errors));
            file.came = 0;
            file.reported = now;
        }
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        let file = self.file.as_ref()?;
        Some((file.heard + self.timeout, Why::Liveness))
    }

    pub(super) fn on_timer(&mut self, now: Instant) {
        if self.deadline().is_some_and(|(at, _)| at <= now) {
            let text = format!(
                "for {} s nothing has come of what the peer announced, although the control connection \
                 (TCP) works: does something on the way block UDP?",
                self.timeout.as_secs()
            );
            self.failed = Some(CloseReason::Lane(text));
        }
    }

    pub(super) fn failure(&self) -> Option<CloseReason> {
        self.failed.clone()
    }

    /// All of the file is here, as it has no blocks.
    pub(super) const fn finish(&mut self) {
        if let Some(file) = &mut self.file {
            file.due.stop = Some(0);
        }
    }

    /// True if no file is coming.
    pub(super) const fn is_idle(&self) -> bool {
        self.file.is_none()
    }

    pub(super) const fn fill_stats(&self, stats: &mut Stats) {
        stats.dropped_duplicate = self.duplicates;
    }
}

impl File {
    /// Notes what `unit` shows to be missing, of the last `window` only.
    fn follow(&mut self, unit: u64, last: bool, window: Option<u64>) {
        let on_wire = |(head, clear): (u64, u64)| !last && (head..clear).contains(&unit);
        if self.back.is_some_and(on_wire) {
            return;
        }
        let floor = window.map_or(0, |window| unit.saturating_sub(window));
        self.lost += self.wanted.give_up_below(floor);
        self.wanted.expect(unit);
        if self
            .back
            .is_some_and(|(head, _)| self.wanted.next() >= head)
        {
            self.back = None;
        }
    }
}

const fn feedback(kind: FeedbackKind, block: u32, error_rate: u32) -> Output {
    Output::Feedback(Feedback {
        kind,
        block,
        error_rate,
    })
}
