//! Which role does this side play once the request is settled, and how does its end look? What client
//! and server have in common: messages in, a sending or receiving half, closing reasons out.

use std::{io, sync::Arc, time::Duration};

use farhaul_core::{
    protocol::{CloseReason, Session},
    stats::{Held, Stats},
    store::{Extent, StoreError},
    time::Instant,
};

use crate::{
    ask::{Meter, Sending, Usage},
    error::{Code, TransferError},
    inbox::Inbox,
    message::Message,
    plan::{Lister, Planner, Sink},
    pool::Wake,
    progress::Progress,
    receiver::Receiver,
    scan::{Problem, Selection, Source},
    sender::Sender,
    summary::{Facts, Handle, Outcome, Summary},
};

/// How soon workers are looked after when nobody wakes the session.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How often it is asked what held the sender.
const LOOK_BACK: Duration = Duration::from_secs(1);

/// The role.
pub(crate) enum Half {
    Sends(Box<Sender>),
    Receives(Box<Receiver>),
    Lists(Box<Lister>),
    Plans(Box<Planner>),
}

impl Half {
    /// Sends `sources`; what is to be said of those that are missing is said at the end.
    pub(crate) fn sends(
        sources: Vec<Source>,
        missing: &[Problem],
        selection: Selection,
        progress: Arc<Progress>,
        wake: Option<&Wake>,
    ) -> io::Result<Self> {
        let mut sender = Sender::new(sources, selection, progress, wake)?;
        for problem in missing {
            sender.note(problem);
        }
        Ok(Self::Sends(Box::new(sender)))
    }

    /// Only lists them, likewise.
    pub(crate) fn lists(
        sources: Vec<Source>,
        missing: &[Problem],
        selection: Selection,
        progress: Arc<Progress>,
        sink: Option<Sink>,
    ) -> io::Result<Self> {
        let mut lister = Lister::new(sources, selection, progress, sink)?;
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
    put: bool,
    inbox: Inbox,
    began: Option<Instant>,
    now: Instant,
    stats: Stats,
    held: Held,
    looked: Instant,
    error: Option<TransferError>,
    meter: Meter,
    /// What the other side used.
    theirs: Option<Usage>,
    /// What the other side says of its sending.
    sent: Option<Sending>,
}

impl Side {
    pub(crate) fn new(put: bool) -> Self {
        Self {
            handle: Handle::new(),
            half: None,
            put,
            inbox: Inbox::default(),
            began: None,
            now: Instant::EPOCH,
            stats: Stats::default(),
            held: Held::default(),
            looked: Instant::EPOCH,
            error: None,
            meter: Meter::new(),
            theirs: None,
            sent: None,
        }
    }

    pub(crate) fn set_put(&mut self, put: bool) {
        self.put = put;
    }

    /// Time passes.
    pub(crate) fn at(&mut self, now: Instant) {
        self.began.get_or_insert(now);
        self.now = now;
    }

    /// Fetches what arrived on the stream.
    pub(crate) fn read(&mut self, session: &mut dyn Session) {
        session.read(self.inbox.tail());
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, TransferError> {
        self.inbox
            .next()
            .map_err(|e| TransferError::protocol(format!("the peer sent nonsense: {e}")))
    }

    /// A message for the half.
    pub(crate) fn handle(&mut self, message: Message) -> Result<(), TransferError> {
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
            None => Err(TransferError::protocol(
                "the peer did not begin with a request",
            )),
        }
    }

    /// Moves the half on.
    pub(crate) fn poll(&mut self, session: &mut dyn Session) {
        match &mut self.half {
            Some(Half::Sends(sender)) => sender.poll(session),
            Some(Half::Receives(receiver)) => receiver.poll(self.now, session),
            Some(Half::Lists(lister)) => lister.poll(session),
            Some(Half::Plans(planner)) => planner.poll(session),
            None => {}
        }
        self.stats = session.stats();
        if self.sends() && self.now.since(self.looked) >= LOOK_BACK {
            self.looked = self.now;
            let since = std::mem::replace(&mut self.held, self.stats.held);
            let lately = self.held.totals().zip(since.totals());
            let lately = lately.map(|((why, now), (_, before))| (why, now.saturating_sub(before)));
            let most = lately.max_by_key(|(_, d)| *d);
            let most = most.filter(|(_, d)| *d > LOOK_BACK / 10);
            self.handle.progress().set_hold(most.map(|(why, _)| why));
        }
    }

    pub(crate) fn next_wake(&self) -> Option<Instant> {
        match &self.half {
            Some(Half::Sends(sender)) => sender.is_waiting().then(|| self.now + LOOK_AGAIN),
            Some(Half::Receives(receiver)) if receiver.is_waiting() => Some(self.now + LOOK_AGAIN),
            Some(Half::Receives(receiver)) => receiver.next_wake(),
            Some(Half::Lists(lister)) => lister.is_waiting().then(|| self.now + LOOK_AGAIN),
            Some(Half::Plans(_)) | None => None,
        }
    }

    /// True once both sides know that all is over.
    pub(crate) fn is_over(&self) -> bool {
        match &self.half {
            Some(Half::Sends(sender)) => sender.finished,
            Some(Half::Receives(receiver)) => receiver.is_over(),
            Some(Half::Lists(lister)) => lister.finished,
            Some(Half::Plans(planner)) => planner.is_over(),
            None => false,
        }
    }

    /// True once the files are as they should be, whether or not the peer has heard.
    fn is_finished(&self) -> bool {
        match &self.half {
            Some(Half::Sends(sender)) => sender.finished,
            Some(Half::Receives(receiver)) => receiver.is_finished(),
            Some(Half::Lists(lister)) => lister.finished,
            Some(Half::Plans(planner)) => planner.is_finished(),
            None => false,
        }
    }

    fn sends(&self) -> bool {
        matches!(self.half, Some(Half::Sends(_) | Half::Lists(_)))
    }

    /// Ends the session with an error.
    pub(crate) fn fail(&mut self, error: TransferError, session: &mut dyn Session) {
        session.close(self.now, u32::from(error.code.number()), &error.text);
        self.error.get_or_insert(error);
        self.end();
    }

    /// The session is over.
    pub(crate) fn closed(&mut self, reason: &CloseReason) {
        if !self.is_finished() && self.error.is_none() {
            self.error = Some(error_of(reason));
        }
        self.end();
    }

    /// Makes the outcome known.
    pub(crate) fn end(&mut self) {
        let (tally, ledger, root) = match &self.half {
            Some(Half::Sends(s)) => (s.tally, Some(&s.ledger), s.last_root),
            Some(Half::Receives(r)) => (r.tally, Some(&r.ledger), r.last_root),
            Some(Half::Lists(l)) => (l.tally, Some(&l.ledger), None),
            Some(Half::Plans(p)) => (p.tally, Some(&p.ledger), None),
            None => Default::default(),
        };
        let single = tally.files_ok + tally.files_skipped == 1;
        let facts = Facts {
            put: self.put,
            tally,
            stats: self.stats,
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
                Some(Sending::of(&self.stats))
            } else {
                self.sent
            },
        };
        let verdict = || ledger.and_then(|l| l.verdict(&tally));
        let error = self.error.clone().or_else(verdict);
        self.handle.end(|| Outcome {
            summary: Summary::new(&facts, error.as_ref()),
            error,
        });
    }

    pub(crate) fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        match &mut self.half {
            Some(Half::Sends(sender)) => sender.fill(extents, batch),
            _ => Err(StoreError(
                "internal: content asked of the receiving side".into(),
            )),
        }
    }

    pub(crate) fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        match &mut self.half {
            Some(Half::Receives(receiver)) => receiver.place(extents, batch),
            _ => Err(StoreError(
                "the peer sent content that was not asked for".into(),
            )),
        }
    }
}

/// What the end of a session means for a transfer that was not finished.
pub(crate) fn error_of(reason: &CloseReason) -> TransferError {
    let resume = "run the same command again: it continues where it stopped";
    match reason {
        CloseReason::Peer { code, text } => {
            let code = u8::try_from(*code)
                .ok()
                .and_then(Code::from_number)
                .filter(|c| *c != Code::Ok);
            let code = code.unwrap_or(Code::ConnectionLost);
            let text = format!("the peer ended the transfer: {text}");
            let fix = match code {
                Code::NoSpace => {
                    "make room there, then run the same command again: it continues where it stopped"
                }
                Code::Busy => {
                    "run the same command again later: it continues where it stopped; `farhaul serve --max-sessions` there says how many may come at a time"
                }
                _ if code.retryable() || code == Code::Limit => resume,
                _ => "",
            };
            TransferError::new(code, text).fix(fix)
        }
        CloseReason::Local { code, text } => {
            let code = u8::try_from(*code)
                .ok()
                .and_then(Code::from_number)
                .filter(|c| *c != Code::Ok);
            TransferError::new(code.unwrap_or(Code::ConnectionLost), text.clone()).fix(resume)
        }
        CloseReason::NoAnswer => TransferError::new(Code::UdpBlocked, "no answer from the peer")
            .fix("check that `farhaul serve` runs there and that its UDP port is open"),
        CloseReason::Version(text) => {
            TransferError::new(Code::Version, format!("no common version: {text}"))
                .fix("install the same version on both sides")
        }
        CloseReason::Auth(text) => {
            TransferError::new(Code::Auth, format!("not authenticated: {text}"))
        }
        CloseReason::Protocol(text) => TransferError::new(
            Code::Protocol,
            format!("the peer violated the protocol: {text}"),
        ),
        CloseReason::Store(text) => TransferError::new(Code::Protocol, text.clone()),
        _ => TransferError::new(Code::ConnectionLost, "the connection was lost").fix(resume),
    }
}
