//! Plays the role that this side has once the request is settled, up to its end. Client and server
//! share it: messages in, a sending or receiving half, closing reasons out.

use std::{io, sync::Arc, time::Duration};

use farhaul_core::{
    congestion::Sharing,
    protocol::{CloseReason, Session},
    stats::{Held, Stats},
    store::{self, Extent, StoreError},
    time::Instant,
};

use crate::{
    brake::Brake,
    error::{Advice, TransferError},
    host::Host,
    lanes::{First, Lane, Lanes, total},
    meter::Meter,
    pipe::{PipeReceiver, PipeSender},
    plan::{Lister, Planner, Sink},
    pool::{LOOK_AGAIN, Wake},
    progress::{Phase, Progress},
    read::Reads,
    receiver::Receiver,
    scan::{Problem, Selection, Source},
    sender::Sender,
    silence::Silence,
    summary::{Handle, Outcome, Summary, SummaryInput},
    wire::{Code, Inbox, Message, Sending, Usage},
};

/// Time without progress or messages after which a server ends the session.
pub(crate) const IDLE: Duration = Duration::from_mins(10);
/// Interval of signs of progress of an end that works alone.
const AT_WORK: Duration = Duration::from_mins(1);
/// Interval at which the sender's limiting reason is sampled.
const LOOK_BACK: Duration = Duration::from_secs(1);

/// Role of this side.
pub(crate) enum Half {
    Sends(Box<Sender>),
    Receives(Box<Receiver>),
    Lists(Box<Lister>),
    Plans(Box<Planner>),
    /// One of several sessions of a copy, and not the first.
    Lane(Box<Lane>),
    /// Sends what comes through a pipe.
    SendsPipe(Box<PipeSender>),
    /// Writes to a pipe.
    ReceivesPipe(Box<PipeReceiver>),
    /// Answers reads of ranges.
    Reads(Box<Reads>),
}

impl Half {
    /// Sends `sources`; missing ones are reported at the end.
    pub(crate) fn sends(
        sources: Vec<Source>,
        missing: &[Problem],
        selection: Selection,
        progress: Arc<Progress>,
        host: &Host,
    ) -> io::Result<Self> {
        let mut sender = Sender::new(sources, selection, progress, host)?;
        for problem in missing {
            sender.note(problem);
        }
        Ok(Self::Sends(Box::new(sender)))
    }

    /// Makes a half that only lists the sources, for a plan.
    pub(crate) fn lists(
        sources: Vec<Source>,
        missing: &[Problem],
        selection: Selection,
        progress: Arc<Progress>,
        sink: Option<Sink>,
        host: &Host,
    ) -> io::Result<Self> {
        let mut lister = Lister::new(sources, selection, progress, sink, host)?;
        for problem in missing {
            lister.note(problem);
        }
        Ok(Self::Lists(Box::new(lister)))
    }
}

/// One side of one transfer.
pub(crate) struct Side {
    pub(crate) handle: Handle,
    pub(crate) half: Option<Half>,
    /// True if the receiver reads again from its disk what it has written.
    pub(crate) verify_disk: bool,
    put: bool,
    inbox: Inbox,
    /// True if messages wait for room for answers.
    holds: bool,
    /// Time of the last progress or message, and the counters that show it.
    moved: Instant,
    counts: (u64, u64),
    silence: Silence,
    /// Time at which the last sign of progress was sent.
    worked: Instant,
    began: Option<Instant>,
    now: Instant,
    stats: Stats,
    held: Held,
    looked: Instant,
    error: Option<TransferError>,
    pub(crate) brake: Brake,
    /// The hold on further parallel sessions of this copy, if there may be some.
    first: Option<First>,
    meter: Meter,
    /// Resources that the other side used.
    theirs: Option<Usage>,
    /// The other side's statistics of its sending.
    sent: Option<Sending>,
}

impl Side {
    pub(crate) fn new(put: bool) -> Self {
        Self {
            handle: Handle::new(),
            half: None,
            verify_disk: false,
            put,
            inbox: Inbox::default(),
            holds: false,
            moved: Instant::EPOCH,
            counts: (0, 0),
            silence: Silence::default(),
            worked: Instant::EPOCH,
            began: None,
            now: Instant::EPOCH,
            stats: Stats::default(),
            held: Held::default(),
            looked: Instant::EPOCH,
            error: None,
            brake: Brake::new(Sharing::Fair),
            first: None,
            meter: Meter::new(),
            theirs: None,
            sent: None,
        }
    }

    pub(crate) fn set_put(&mut self, put: bool) {
        self.put = put;
    }

    /// Sets the time.
    pub(crate) fn at(&mut self, now: Instant) {
        if self.began.is_none() {
            (self.began, self.moved, self.worked) = (Some(now), now, now);
        }
        self.now = now;
    }

    /// The next message, unless answers to those before wait to leave. More is fetched from the session
    /// only when what was fetched is used up: meanwhile it gives the peer no credit for more.
    pub(crate) fn next(
        &mut self,
        session: &mut dyn Session,
    ) -> Result<Option<Message>, TransferError> {
        self.holds = match &self.half {
            Some(Half::Receives(receiver)) => !receiver.takes_more(session),
            Some(Half::Plans(planner)) => !planner.takes_more(session),
            Some(Half::ReceivesPipe(pipe)) => !pipe.takes_more(session),
            Some(Half::Reads(reads)) => !reads.takes_more(session),
            Some(Half::Sends(_) | Half::Lists(_) | Half::SendsPipe(_) | Half::Lane(_)) | None => {
                false
            }
        };
        if self.holds {
            return Ok(None);
        }
        let nonsense = |e| TransferError::protocol(format!("the peer sent nonsense: {e}"));
        if let Some(message) = self.inbox.next().map_err(nonsense)? {
            return Ok(Some(message));
        }
        let before = self.inbox.len();
        session.read(self.inbox.tail());
        if self.inbox.len() == before {
            return Ok(None);
        }
        self.inbox.next().map_err(nonsense)
    }

    /// True if nothing of what arrived waits to be understood.
    pub(crate) const fn has_read_all(&self) -> bool {
        self.inbox.len() == 0
    }

    /// True if messages were left until there is room for answers.
    pub(crate) const fn holds(&self) -> bool {
        self.holds
    }

    /// A message for the half.
    pub(crate) fn handle(
        &mut self,
        message: Message,
        session: &mut dyn Session,
    ) -> Result<(), TransferError> {
        self.touch();
        if let Message::Finished { usage, .. } | Message::Bye { usage, .. } = &message {
            self.theirs = Some(*usage);
        }
        if let Message::Bye { sending, .. } = &message {
            self.sent = Some(*sending);
        }
        match &mut self.half {
            Some(Half::Lists(lister)) => lister.handle(message),
            Some(Half::Plans(planner)) => planner.handle(message),
            Some(Half::Sends(sender)) => sender.handle(message),
            Some(Half::Receives(receiver)) => receiver.handle(message),
            Some(Half::Lane(lane)) => lane.handle(message),
            Some(Half::SendsPipe(pipe)) => pipe.handle(message, session),
            Some(Half::ReceivesPipe(pipe)) => pipe.handle(message),
            Some(Half::Reads(reads)) => reads.handle(&message),
            None => Err(TransferError::protocol(
                "the peer did not begin with a request",
            )),
        }
    }

    /// Keeps to the rate of now.
    pub(crate) fn keep_rate(&mut self, session: &mut dyn Session) {
        let sends = match &self.half {
            Some(Half::Sends(_) | Half::Lists(_) | Half::SendsPipe(_) | Half::Reads(_)) => true,
            Some(Half::Receives(_) | Half::ReceivesPipe(_)) => false,
            Some(Half::Lane(lane)) => lane.sends(),
            Some(Half::Plans(_)) | None => return,
        };
        if !self.brake.keep(self.now, sends, session) {
            let sharing = self.brake.sharing;
            let text = format!("this side cannot send by policy {sharing} or below a rate");
            let e = TransferError::new(Code::Usage, text);
            self.fail(e.fix("omit --policy and --max-rate"), session);
        }
        if self.brake.control.is_held() {
            // The session stands still because it was held.
            self.moved = self.now;
        }
    }

    /// Notes progress, as the peer reports it.
    pub(crate) const fn touch(&mut self) {
        self.moved = self.now;
    }

    /// Moves the half on.
    pub(crate) fn poll(&mut self, session: &mut dyn Session) {
        self.keep_rate(session);
        match &mut self.half {
            Some(Half::Sends(sender)) => sender.poll(session),
            Some(Half::Receives(receiver)) => receiver.poll(self.now, session),
            Some(Half::Lists(lister)) => lister.poll(session),
            Some(Half::Plans(planner)) => planner.poll(session),
            Some(Half::Lane(lane)) => lane.poll(self.now, session),
            Some(Half::SendsPipe(pipe)) => pipe.poll(self.now, session),
            Some(Half::ReceivesPipe(pipe)) => pipe.poll(self.now, session),
            Some(Half::Reads(reads)) => reads.poll(session),
            None => {}
        }
        let fault = match &mut self.half {
            Some(Half::Sends(sender)) => sender.take_fault(),
            Some(Half::Receives(receiver)) => receiver.take_fault(),
            Some(Half::Lists(lister)) => lister.take_fault(),
            Some(Half::Lane(lane)) => lane.take_fault(),
            Some(Half::SendsPipe(pipe)) => pipe.take_fault(),
            Some(Half::ReceivesPipe(pipe)) => pipe.take_fault(),
            Some(Half::Reads(reads)) => reads.take_fault(),
            Some(Half::Plans(_)) | None => None,
        };
        if let Some(fault) = fault {
            self.fail(fault, session);
        }
        self.stats = total(self.lanes(), session).0;
        let works = self.works();
        self.check_progress(works);
        let due = !self.sends() && self.half.is_some() && !works && !self.is_finished();
        let silent = self.silence.look(self.now, &self.stats, due);
        let silences = self.silence.total();
        self.handle.progress().set_silent(silent, silences);
        if self.sends() && self.now.since(self.looked) >= LOOK_BACK {
            self.looked = self.now;
            let since = std::mem::replace(&mut self.held, self.stats.held);
            let lately = self.held.totals().zip(since.totals());
            let lately = lately.map(|((why, now), (_, before))| (why, now.saturating_sub(before)));
            let most = lately.max_by_key(|(_, d)| *d);
            let most = most.filter(|(_, d)| *d > LOOK_BACK / 10 && silent.is_none());
            self.handle.progress().set_hold(most.map(|(why, _)| why));
        }
    }

    /// True if workers have jobs outstanding.
    fn works(&self) -> bool {
        match &self.half {
            Some(Half::Sends(sender)) => sender.is_waiting(),
            Some(Half::Receives(receiver)) => receiver.is_waiting(),
            Some(Half::Lists(lister)) => lister.is_waiting(),
            Some(Half::Plans(planner)) => planner.is_waiting(),
            // The session ends with its copy, whose first session watches that all of them get on.
            Some(Half::Lane(_)) => true,
            Some(Half::SendsPipe(pipe)) => pipe.is_waiting(),
            Some(Half::ReceivesPipe(pipe)) => pipe.is_waiting(),
            Some(Half::Reads(reads)) => reads.is_waiting(),
            None => false,
        }
    }

    /// Notes progress: content, and work of this side, which is reported to the other.
    fn check_progress(&mut self, works: bool) {
        let counts = (self.stats.data_acked, self.stats.data_received);
        let reported = !works || self.now.since(self.worked) < AT_WORK;
        if counts != self.counts || works && !reported {
            self.counts = counts;
            self.moved = self.now;
        }
        if reported {
            return;
        }
        self.worked = self.now;
        match &mut self.half {
            Some(Half::Sends(sender)) => sender.send_keep_alive(),
            Some(Half::Receives(receiver)) => receiver.send_keep_alive(),
            Some(Half::SendsPipe(pipe)) => pipe.send_keep_alive(),
            Some(Half::ReceivesPipe(pipe)) => pipe.send_keep_alive(),
            _ => {}
        }
    }

    /// Time at which [`Self::idle`] will act if there is no progress.
    pub(crate) fn idle_at(&self) -> Option<Instant> {
        self.half.as_ref().map(|_| self.moved + IDLE)
    }

    /// Error for a session that only holds its place, if it does.
    pub(crate) fn idle(&self) -> Option<TransferError> {
        self.idle_at().filter(|at| *at <= self.now).map(|_| {
            let minutes = IDLE.as_secs() / 60;
            let text = format!("the peer answered, but nothing moved for {minutes} minutes");
            let fix = Advice::resume("run the same command again");
            TransferError::new(Code::ConnectionLost, text).fix(fix)
        })
    }

    pub(crate) fn next_wake(&self) -> Option<Instant> {
        // Nothing is done any more, so nothing is due: the session may take its time to close.
        if self.handle.progress().phase() == Phase::Done {
            return None;
        }
        let refill = self.brake.next(self.now);
        let next = match &self.half {
            Some(Half::Sends(sender)) => sender.next_wake(self.now),
            Some(Half::Receives(receiver)) => receiver.next_wake(self.now),
            Some(Half::Lists(lister)) => lister.is_waiting().then(|| self.now + LOOK_AGAIN),
            Some(Half::Plans(planner)) => planner.is_waiting().then_some(self.now),
            Some(Half::Lane(lane)) => lane.next_wake(),
            Some(Half::SendsPipe(pipe)) => pipe.next_wake(self.now),
            Some(Half::ReceivesPipe(pipe)) => pipe.next_wake(self.now),
            Some(Half::Reads(reads)) => reads.next_wake(self.now),
            None => None,
        };
        let silence = self.silence.next(self.now);
        next.into_iter().chain(refill).chain(silence).min()
    }

    /// True once both sides know that all is over.
    pub(crate) fn is_over(&self) -> bool {
        match &self.half {
            Some(Half::Sends(sender)) => sender.finished,
            Some(Half::Receives(receiver)) => receiver.is_over(),
            Some(Half::Lists(lister)) => lister.finished,
            Some(Half::Plans(planner)) => planner.is_over(),
            Some(Half::Lane(lane)) => lane.lanes().is_over(),
            Some(Half::SendsPipe(pipe)) => pipe.finished,
            Some(Half::ReceivesPipe(pipe)) => pipe.is_over(),
            // Its client ends it.
            Some(Half::Reads(_)) | None => false,
        }
    }

    /// True for a further parallel session whose copy is over.
    pub(crate) fn is_over_lane(&self) -> bool {
        matches!(self.half, Some(Half::Lane(_))) && self.is_over()
    }

    /// True once the files are complete, whether or not the peer has been notified.
    fn is_finished(&self) -> bool {
        match &self.half {
            Some(Half::Sends(sender)) => sender.finished,
            Some(Half::Receives(receiver)) => receiver.is_finished(),
            Some(Half::Lists(lister)) => lister.finished,
            Some(Half::Plans(planner)) => planner.is_finished(),
            Some(Half::Lane(lane)) => lane.lanes().is_over(),
            Some(Half::SendsPipe(pipe)) => pipe.finished,
            Some(Half::ReceivesPipe(pipe)) => pipe.is_finished(),
            Some(Half::Reads(_)) | None => false,
        }
    }

    fn sends(&self) -> bool {
        match &self.half {
            Some(Half::Sends(_) | Half::Lists(_) | Half::SendsPipe(_) | Half::Reads(_)) => true,
            Some(Half::Lane(lane)) => lane.sends(),
            Some(Half::Receives(_) | Half::Plans(_) | Half::ReceivesPipe(_)) | None => false,
        }
    }

    /// Notes something that this side should know.
    pub(crate) fn note(&mut self, text: String) {
        match &mut self.half {
            Some(Half::Sends(sender)) => sender.ledger.add(Code::Ok, text),
            Some(Half::Receives(receiver)) => receiver.ledger.add(Code::Ok, text),
            _ => {}
        }
    }

    /// State shared by the parallel sessions of this copy, of which this is the first.
    pub(crate) fn lanes(&self) -> Option<&Lanes> {
        self.first.as_ref().map(|first| &*first.0)
    }

    /// Makes this session the first of up to `count` parallel ones, if it sends or receives
    /// content.
    pub(crate) fn open_lanes(&mut self, count: u32, wake: Option<Wake>) -> Option<Arc<Lanes>> {
        let sends = match &self.half {
            Some(Half::Sends(_)) => true,
            Some(Half::Receives(_)) => false,
            _ => return None,
        };
        let all = self.brake.of_all();
        let lanes = Arc::new(Lanes::new(sends, all, wake, count.saturating_sub(1)));
        match &mut self.half {
            Some(Half::Sends(sender)) => {
                sender.lanes = Some(Arc::clone(&lanes));
            }
            Some(Half::Receives(receiver)) => {
                receiver.lanes = Some(Arc::clone(&lanes));
            }
            _ => {}
        }
        self.brake.lanes = Some(Arc::clone(&lanes));
        self.first = Some(First(Arc::clone(&lanes)));
        Some(lanes)
    }

    /// Makes this session a further one of a copy.
    pub(crate) fn join(&mut self, lane: Lane) {
        self.brake.sharing = lane.lanes().brake.sharing;
        self.brake.lanes = Some(Arc::clone(lane.lanes()));
        self.half = Some(Half::Lane(Box::new(lane)));
    }

    /// Ends the session with an error.
    pub(crate) fn fail(&mut self, error: TransferError, session: &mut dyn Session) {
        session.close(
            self.now,
            u32::from(error.code.number()),
            &close_text(&error),
        );
        self.error.get_or_insert(error);
        self.end();
    }

    /// Ends the role, as the session is over.
    pub(crate) fn closed(&mut self, reason: &CloseReason) {
        // The other end may know first that the copy is over.
        let well = matches!(
            reason,
            CloseReason::Peer { code: 0, .. } | CloseReason::Local { code: 0, .. }
        );
        let over = well && matches!(self.half, Some(Half::Lane(_) | Half::Reads(_)));
        if !over && !self.is_finished() && self.error.is_none() {
            self.error = Some(error_of(reason));
        }
        self.end();
    }

    /// Makes the outcome known.
    pub(crate) fn end(&mut self) {
        if let Some(Half::Lane(lane)) = &mut self.half {
            lane.leave(self.error.as_ref());
        }
        let lanes = self.lanes().map_or(1, Lanes::total);
        let (tally, ledger, root) = match &self.half {
            Some(Half::Sends(s)) => (s.tally, Some(&s.ledger), s.last_root),
            Some(Half::Receives(r)) => (r.tally, Some(&r.ledger), r.last_root),
            Some(Half::Lists(l)) => (l.tally, Some(&l.ledger), None),
            Some(Half::Plans(p)) => (p.tally, Some(&p.ledger), None),
            Some(Half::SendsPipe(p)) => (p.tally, Some(&p.ledger), p.last_root),
            Some(Half::ReceivesPipe(d)) => (d.tally, Some(&d.ledger), d.last_root),
            Some(Half::Reads(r)) => (r.tally, None, None),
            Some(Half::Lane(_)) | None => Default::default(),
        };
        let single = tally.files_ok + tally.files_skipped == 1;
        let facts = SummaryInput {
            put: self.put,
            verify_disk: self.verify_disk,
            tally,
            stats: self.stats,
            lanes,
            elapsed: self
                .began
                .map_or(Duration::ZERO, |began| self.now.since(began)),
            progress: self.handle.progress(),
            ledger,
            root: root.filter(|_| single),
            ours: self.meter.usage(),
            theirs: self.theirs,
            sends: self.sends(),
            sending: if self.sends() {
                Some(Sending::of(&self.stats, lanes))
            } else {
                self.sent
            },
        };
        let verdict = || ledger.and_then(|l| l.verdict(&tally));
        let error = self.error.clone().or_else(verdict);
        let mut summary = Summary::new(&facts, error.as_ref());
        summary.partition = match &self.half {
            Some(Half::Sends(sender)) => {
                summary.stripes.clone_from(&sender.stripes);
                sender.partition.clone()
            }
            Some(Half::Lists(lister)) => lister.partition.clone(),
            _ => None,
        };
        self.handle.end(|| Outcome { summary, error });
        self.first = None;
    }

    pub(crate) fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        match &mut self.half {
            Some(Half::Sends(sender)) => sender.fill(extents, batch),
            Some(Half::Lane(lane)) => lane.fill(extents, batch),
            Some(Half::SendsPipe(pipe)) => pipe.fill(extents, batch),
            Some(Half::Reads(reads)) => reads.fill(extents, batch),
            _ => Err(StoreError(
                "internal: content requested of the receiving side".into(),
            )),
        }
    }

    pub(crate) fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.brake.place(extents);
        match &mut self.half {
            Some(Half::Receives(receiver)) => receiver.place(extents, batch),
            Some(Half::Lane(lane)) => lane.place(extents, batch),
            Some(Half::ReceivesPipe(pipe)) => pipe.place(extents, batch),
            _ => Err(StoreError(
                "the peer sent content that was not requested".into(),
            )),
        }
    }

    pub(crate) fn sink(&self) -> store::Sink {
        match &self.half {
            Some(Half::Receives(receiver)) => self.brake.within(receiver.sink()),
            Some(Half::Lane(lane)) => self.brake.within(lane.sink()),
            _ => store::Sink::ENDLESS,
        }
    }
}

/// Separator of cause and remedy in a close reason.
const ADVICE: &str = "; what to do: ";

/// The close reason for an error that ends the session.
fn close_text(error: &TransferError) -> String {
    if error.fix.is_empty() {
        return error.text.clone();
    }
    [&error.text, ADVICE, &error.fix].concat()
}

/// Reason of a close that a server of benches gave, which takes messages of copies for broken ones of its own. It
/// declares nothing.
pub(crate) fn of_benches(reason: CloseReason, declares: bool) -> CloseReason {
    const BROKEN: u32 = 1;
    match reason {
        CloseReason::Peer { code: BROKEN, .. } if !declares => {
            let text = "it may be a `farhaul bench serve`, which takes no part in copies";
            let fix =
                "start `farhaul serve` there on another port, or measure with `farhaul bench HOST`";
            CloseReason::Peer {
                code: Code::Version.number().into(),
                text: [text, ADVICE, fix].concat(),
            }
        }
        reason => reason,
    }
}

/// Reason of a close as a client knows it.
pub(crate) fn closed_by_server(reason: &CloseReason) -> CloseReason {
    let mut reason = reason.clone();
    if let CloseReason::Peer { code, .. } = &mut reason
        && let Some(theirs) = u8::try_from(*code).ok().and_then(Code::from_number)
    {
        *code = theirs.of_server().number().into();
    }
    reason
}

/// Error that the end of a session means for a transfer that was not finished.
pub(crate) fn error_of(reason: &CloseReason) -> TransferError {
    let resume = || Advice::resume("run the same command again");
    match reason {
        CloseReason::Peer { code, text } => {
            let code = u8::try_from(*code)
                .ok()
                .and_then(Code::from_number)
                .filter(|c| *c != Code::Ok);
            let code = code.unwrap_or(Code::ConnectionLost);
            let (text, theirs) = text.rsplit_once(ADVICE).unwrap_or((text, ""));
            let text = format!("the peer ended the transfer: {text}");
            let fix = match code {
                Code::NoSpace => {
                    Advice::resume("free space there, then run the same command again")
                }
                Code::Busy if !text.contains("sessions") => resume(),
                Code::Busy if text.contains("from your address") => Advice::again(
                    "run the same command again when one of them has ended; `farhaul serve --max-per-source` there sets their maximum number",
                ),
                Code::Busy => Advice::resume("run the same command again later").also(
                    "; `farhaul serve --max-sessions` there sets the maximum number of sessions",
                ),
                _ if !theirs.is_empty() => Advice::of_peer(theirs.to_owned()),
                _ if code.retryable() || code == Code::Limit => resume(),
                _ => Advice::default(),
            };
            TransferError::new(code, text).fix(fix)
        }
        CloseReason::Local { code, text } => {
            let code = u8::try_from(*code)
                .ok()
                .and_then(Code::from_number)
                .filter(|c| *c != Code::Ok);
            TransferError::new(code.unwrap_or(Code::ConnectionLost), text.clone()).fix(resume())
        }
        CloseReason::NoAnswer => TransferError::new(Code::UdpBlocked, "no answer from the peer")
            .fix("check that `farhaul serve` runs there and that its UDP port is open"),
        CloseReason::Unfinished => TransferError::new(
            Code::Busy,
            "the peer answered, but the handshake was not finished",
        )
        .fix(Advice::again(
            "it is overloaded, or loss is high: run the same command again later",
        )),
        CloseReason::Version(text) => {
            TransferError::new(Code::Version, format!("no common version: {text}"))
                .fix("install the same version on both sides")
        }
        CloseReason::Auth(text) | CloseReason::Denied(text) => {
            TransferError::new(Code::Auth, format!("not authenticated: {text}"))
        }
        CloseReason::Protocol(text) => TransferError::new(
            Code::Protocol,
            format!("the peer violated the protocol: {text}"),
        ),
        CloseReason::Store(text) => TransferError::new(Code::Protocol, text.clone()),
        CloseReason::Starved(text) => TransferError::new(Code::ConnectionLost, text.clone()).fix(
            Advice::resume("check the disk there, then run the same command again"),
        ),
        CloseReason::Internal(text) => {
            TransferError::new(Code::Internal, format!("a fault of this program: {text}"))
                .fix(Advice::resume("report it; run the same command again"))
        }
        _ => TransferError::new(Code::ConnectionLost, "the connection was lost").fix(resume()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_peer_advises_is_handed_on() {
        let reported = |error: &TransferError| {
            let code = u32::from(error.code.number());
            let text = close_text(error);
            error_of(&CloseReason::Peer { code, text })
        };
        let error = TransferError::new(Code::DestError, "the disk is gone; look").fix("mount it");
        let heard = reported(&error);
        assert_eq!((heard.code, &heard.fix[..]), (Code::DestError, "mount it"));
        assert!(heard.text.ends_with("the disk is gone; look"), "{heard}");
        let silent = reported(&TransferError::new(Code::DestError, "gone"));
        assert!(silent.text.ends_with("gone") && silent.fix.is_empty());
        let lost = reported(&TransferError::new(Code::ConnectionLost, "gone"));
        assert!(lost.fix.contains("run the same command again"));
    }

    #[test]
    fn a_receiver_without_room_is_tried_again_later() {
        let e = error_of(&CloseReason::Starved("no room".into()));
        assert!(e.code.retryable(), "{e}");
        assert!(e.fix.contains("disk there") && e.fix.contains("run the same command again"));
    }

    #[test]
    fn a_panic_here_is_our_fault_and_not_the_networks() {
        let e = error_of(&CloseReason::Internal("index out of bounds".into()));
        assert_eq!(e.code, Code::Internal);
        assert!(e.text.contains("index out of bounds"), "{e}");
        assert_eq!(error_of(&CloseReason::TimedOut).code, Code::ConnectionLost);
    }
}
