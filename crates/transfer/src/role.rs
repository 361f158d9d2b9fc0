//! Defines a [`Role`], one side of a transfer in one session: a role takes messages, moves content
//! and knows when all is over. [`RoleCore`] has the state that roles share. An
//! [`Endpoint`](crate::endpoint::Endpoint) plays one role, and does not know which.

use std::{any::Any, io, sync::Arc};

use farhaul_core::{
    protocol::Session,
    store::{Extent, ObjectId, Sink, StoreError},
    time::Instant,
};

use crate::{
    bounds::UNWRITTEN,
    error::TransferError,
    failure_log::FailureLog,
    lanes::{First, Lanes, total},
    meter::Meter,
    progress::{Phase, Progress},
    scan::{Partition, Problem},
    stripe::Striped,
    wire::{Exit, Hash, Message, NOT_LISTED, Outbox, Tally, path, short},
};

/// Progress of a role to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// Files are missing: an end of the session is an error.
    #[default]
    Moving,
    /// Nothing is missing, and more may come: the peer may end the session.
    Open,
    /// The files are complete, whether or not the peer knows.
    Finished,
    /// Both sides know that all is over.
    Over,
}

/// One side of a transfer.
pub(crate) trait Role: Any + Send {
    fn core(&mut self) -> &mut RoleCore;

    /// Takes a message of the peer.
    fn handle(&mut self, message: Message) -> Result<(), TransferError>;

    /// Moves everything on.
    fn poll(&mut self, now: Instant, session: &mut dyn Session);

    /// True while this side has work of its own, though nothing arrives and nothing leaves.
    fn is_waiting(&self) -> bool;

    /// Time of the next poll if nothing arrives before.
    fn next_wake(&self, now: Instant) -> Option<Instant>;

    fn state(&mut self) -> State {
        self.core().state
    }

    /// True if another message may be taken. A sender answers none directly, so it always reads.
    fn takes_more(&self, _session: &dyn Session) -> bool {
        true
    }

    /// Begins what waits for the peer to accept.
    fn accepted(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sends a sign of progress, though nothing changed.
    fn keep_alive(&mut self) {}

    /// Bytes of the files listed that further parallel sessions can carry, if there may be such sessions.
    fn for_lanes(&self) -> Option<u64> {
        None
    }

    /// Leaves the session, by `why` unless the copy is over.
    fn leave(&mut self, _why: Option<&TransferError>) {}

    /// Fills a batch.
    fn fill(&mut self, _extents: &[Extent], _batch: &mut [u8]) -> Result<(), StoreError> {
        has_none()
    }

    /// Places a batch.
    fn place(&mut self, _extents: &[Extent], _batch: &[u8]) -> Result<(), StoreError> {
        not_requested()
    }

    /// Room for content.
    fn sink(&self) -> Sink {
        Sink::ENDLESS
    }
}

/// Fails to fill a batch of a side that has no content.
pub(crate) fn has_none() -> Result<(), StoreError> {
    let text = "internal: content requested of the receiving side";
    Err(StoreError(text.into()))
}

/// Fails to place a batch that was not requested.
pub(crate) fn not_requested() -> Result<(), StoreError> {
    let text = "the peer sent content that was not requested";
    Err(StoreError(text.into()))
}

/// Fills each extent of a batch by `some`, which fills the front of what is left of one, from an
/// offset of an object on, and returns how much that is, if it knows the object.
pub(crate) fn fill_each(
    extents: &[Extent],
    batch: &mut [u8],
    mut some: impl FnMut(ObjectId, u64, &mut [u8]) -> Option<usize>,
) -> Result<(), StoreError> {
    for extent in extents {
        let wrong = || StoreError("internal: batch too short, or of no known object".into());
        let mut own = batch.get_mut(extent.range()).ok_or_else(wrong)?;
        let mut at = extent.offset;
        while !own.is_empty() {
            let n = some(extent.object, at, own).ok_or_else(wrong)?;
            own = &mut own[n..];
            at += n as u64;
        }
    }
    Ok(())
}

/// State that roles have in common.
#[derive(Default)]
pub(crate) struct RoleCore {
    /// True if this side has the files.
    pub(crate) sends: bool,
    pub(crate) out: Outbox,
    pub(crate) log: FailureLog,
    pub(crate) tally: Tally,
    pub(crate) progress: Arc<Progress>,
    pub(crate) meter: Meter,
    pub(crate) state: State,
    /// Error that ends the transfer.
    pub(crate) fault: Option<TransferError>,
    /// Root of the last file.
    pub(crate) last_root: Option<Hash>,
    /// The hold on further parallel sessions, once there may be some.
    pub(crate) lanes: Option<First>,
    /// Partition of a shard, once everything was listed.
    pub(crate) partition: Option<Partition>,
    /// Results of its stripes.
    pub(crate) stripes: Vec<Striped>,
}

impl RoleCore {
    /// Core of a side that has the files.
    pub(crate) fn of_sender(progress: Arc<Progress>, meter: Meter) -> Self {
        Self {
            sends: true,
            ..Self::of_receiver(progress, meter)
        }
    }

    /// Core of a side that gets the files.
    pub(crate) fn of_receiver(progress: Arc<Progress>, meter: Meter) -> Self {
        Self {
            progress,
            meter,
            ..Self::default()
        }
    }

    /// True while more may be sent.
    pub(crate) fn has_room(&self, session: &dyn Session) -> bool {
        session.unwritten() + self.out.len() < UNWRITTEN
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.state >= State::Finished
    }

    /// Ends the transfer with `error`, unless it ends with an earlier one.
    pub(crate) fn fail(&mut self, error: TransferError) {
        self.fault.get_or_insert(error);
    }

    /// State shared by the parallel sessions of this copy, of which this is the first.
    pub(crate) fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.lanes.as_ref().map(|first| &first.0)
    }

    /// Root of the file, if it is the only one.
    pub(crate) fn root(&self) -> Option<Hash> {
        let single = self.tally.files_ok + self.tally.files_skipped == 1;
        self.last_root.filter(|_| single)
    }

    /// Error that the failures of files make.
    pub(crate) fn verdict(&self) -> Option<TransferError> {
        self.log.verdict(&self.tally)
    }

    /// Takes the counts of the receiver.
    pub(crate) fn note_tally(&mut self, tally: &Tally) {
        self.tally = *tally;
        self.progress.set(tally);
    }

    /// Reports the counts to the sender, and that entries below `resolved` are over.
    pub(crate) fn report(&mut self, resolved: u64) {
        let tally = self.tally;
        self.out.push(&Message::Report { resolved, tally });
    }

    /// Reports to the sender what is wrong with `file`, or a warning.
    pub(crate) fn trouble(&mut self, file: u64, code: Exit, text: String) {
        self.out.push(&Message::Trouble {
            file,
            code,
            text: short(&text),
        });
        self.log.add(code, text);
    }

    /// Notes a warning that both sides should know.
    pub(crate) fn warn(&mut self, text: String) {
        self.trouble(NOT_LISTED, Exit::Ok, text);
    }

    /// Notes what the receiver says about a file; false if that is nothing but that the existing
    /// file stays.
    pub(crate) fn take_trouble(&mut self, code: Exit, text: &[u8]) -> bool {
        let told = code != Exit::Ok || !text.is_empty();
        if told {
            self.log.add(code.of_server(), path::show(text));
        }
        told
    }

    /// Reports to the receiver an entry that is not listed.
    pub(crate) fn note(&mut self, problem: &Problem) {
        self.out.push(&Message::Failed {
            file: NOT_LISTED,
            code: problem.code,
            again: false,
            text: short(&problem.text),
        });
        self.log.add(problem.code, problem.text.clone());
    }

    /// Ends the list of so many entries.
    pub(crate) fn end_list(&mut self, entries: u64) {
        self.out.push(&Message::End { entries });
        self.progress.set_phase(Phase::Finishing);
    }

    /// Reports the end to the sender.
    pub(crate) fn finish(&mut self) {
        self.state = State::Finished;
        self.out.push(&Message::Finished {
            tally: self.tally,
            usage: self.meter.usage(),
        });
    }

    /// Takes leave of the receiver, once it has finished.
    pub(crate) fn part(&mut self, session: &dyn Session) {
        if self.state == State::Finished {
            self.state = State::Over;
            let (stats, lanes) = total(self.lanes().map(|lanes| &**lanes), session);
            self.out.push(&self.meter.bye(&stats, lanes));
        }
    }
}
