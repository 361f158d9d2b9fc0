//! Plays a role over one session, up to its end: messages in, closing reasons out. Client and server
//! share it.

use std::{any::Any, sync::Arc, time::Duration};

use farhaul_core::{
    congestion::Sharing,
    protocol::{CloseReason, Session},
    stats::{Held, Stats},
    store::{Extent, Sink, StoreError},
    time::Instant,
};

use crate::{
    brake::Brake,
    close_reason::{close_text, error_of},
    error::{Advice, TransferError},
    lanes::{First, Lane, Lanes, total},
    meter::Meter,
    pool::Wake,
    progress::Phase,
    role::{Role, RoleCore, State, has_none, not_requested},
    silence::Silence,
    summary::{Handle, Outcome, Summary, SummaryInput},
    wire::{Exit, Inbox, Message, Sending, Usage},
};

/// Time without progress or messages after which a server ends the session.
pub(crate) const IDLE: Duration = Duration::from_mins(10);
/// Interval of signs of progress of an end that works alone.
const AT_WORK: Duration = Duration::from_mins(1);
/// Interval at which the sender's limiting reason is sampled.
const LOOK_BACK: Duration = Duration::from_secs(1);

/// One end of one session.
pub(crate) struct Endpoint {
    pub(crate) handle: Handle,
    pub(crate) role: Option<Box<dyn Role>>,
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
    meter: Meter,
    /// Resources that the other side used.
    theirs: Option<Usage>,
    /// The other side's statistics of its sending.
    sent: Option<Sending>,
}

impl Endpoint {
    pub(crate) fn new(put: bool) -> Self {
        Self {
            handle: Handle::new(),
            role: None,
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
            meter: Meter::new(),
            theirs: None,
            sent: None,
        }
    }

    /// Plays `role` from here on.
    pub(crate) fn play(&mut self, role: impl Role) {
        self.role = Some(Box::new(role));
    }

    /// The role, if it is an `R`.
    pub(crate) fn role_as<R: Role>(&mut self) -> Option<&mut R> {
        let role: &mut dyn Any = self.role.as_deref_mut()?;
        role.downcast_mut()
    }

    /// Begins what waits for the peer to accept.
    pub(crate) fn accepted(&mut self) -> Result<(), TransferError> {
        let begun = self.role.as_mut().map_or(Ok(()), |role| role.accepted());
        begun.map_err(|e| TransferError::no_thread(&e))
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
        let role = self.role.as_ref();
        self.holds = role.is_some_and(|role| !role.takes_more(session));
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

    /// Passes a message to the role.
    pub(crate) fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        self.touch();
        if let Message::Finished { usage, .. } | Message::Bye { usage, .. } = &message {
            self.theirs = Some(*usage);
        }
        let text = "the peer did not begin with a request";
        let role = self.role.as_mut();
        let role = role.ok_or_else(|| TransferError::protocol(text))?;
        if let Message::Bye { sending, .. } = &message {
            self.sent = Some(*sending);
            let core = role.core();
            if !core.sends && core.is_finished() {
                core.state = State::Over;
                return Ok(());
            }
        }
        role.handle(message)
    }

    /// Keeps to the rate of now.
    pub(crate) fn keep_rate(&mut self, session: &mut dyn Session) {
        let Some(role) = &mut self.role else {
            return;
        };
        if !self.brake.keep(self.now, role.core().sends, session) {
            let sharing = self.brake.sharing;
            let text = format!("this side cannot send by policy {sharing} or below a rate");
            let e = TransferError::new(Exit::Usage, text);
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

    /// Moves the role on.
    pub(crate) fn poll(&mut self, session: &mut dyn Session) {
        self.keep_rate(session);
        if let Some(role) = &mut self.role {
            role.poll(self.now, session);
            if let Some(fault) = role.core().fault.take() {
                self.fail(fault, session);
            }
        }
        self.stats = total(self.lanes(), session).0;
        let works = self.role.as_ref().is_some_and(|role| role.is_waiting());
        self.check_progress(works);
        let due = self.role.is_some() && !self.sends() && !works && !self.is_finished();
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
        if let Some(role) = &mut self.role {
            role.keep_alive();
        }
    }

    /// Time at which [`Self::idle`] will act if there is no progress.
    pub(crate) fn idle_at(&self) -> Option<Instant> {
        self.role.as_ref().map(|_| self.moved + IDLE)
    }

    /// Error for a session that only holds its place, if it does.
    pub(crate) fn idle(&self) -> Option<TransferError> {
        self.idle_at().filter(|at| *at <= self.now).map(|_| {
            let minutes = IDLE.as_secs() / 60;
            let text = format!("the peer answered, but nothing moved for {minutes} minutes");
            let fix = Advice::resume("run the same command again");
            TransferError::new(Exit::ConnectionLost, text).fix(fix)
        })
    }

    pub(crate) fn next_wake(&self) -> Option<Instant> {
        // Nothing is done any more, so nothing is due: the session may take its time to close.
        if self.handle.progress().phase() == Phase::Done {
            return None;
        }
        let refill = self.brake.next(self.now);
        let silence = self.silence.next(self.now);
        let role = self.role.as_ref();
        let next = role.and_then(|role| role.next_wake(self.now));
        next.into_iter().chain(refill).chain(silence).min()
    }

    fn state(&mut self) -> State {
        let role = self.role.as_mut();
        role.map_or(State::Moving, |role| role.state())
    }

    /// Closes the session once both sides know that all is over.
    pub(crate) fn close_if_over(&mut self, session: &mut dyn Session) {
        if self.state() == State::Over {
            session.close(self.now, 0, "done");
            self.end();
        }
    }

    fn is_finished(&mut self) -> bool {
        self.state() >= State::Finished
    }

    /// True if this side has the files.
    pub(crate) fn sends(&mut self) -> bool {
        let role = self.role.as_mut();
        role.is_some_and(|role| role.core().sends)
    }

    /// State shared by the parallel sessions of this copy, of which this is the first.
    pub(crate) fn lanes(&mut self) -> Option<&Lanes> {
        self.role.as_mut()?.core().lanes().map(|lanes| &**lanes)
    }

    /// Makes this session the first of up to `count` parallel ones, if it sends or receives
    /// content.
    pub(crate) fn open_lanes(&mut self, count: u32, wake: Option<Wake>) -> Option<Arc<Lanes>> {
        let role = self
            .role
            .as_mut()
            .filter(|role| role.for_lanes().is_some())?;
        let (all, most) = (self.brake.of_all(), count.saturating_sub(1));
        let lanes = Arc::new(Lanes::new(role.core().sends, all, wake, most));
        role.core().lanes = Some(First(Arc::clone(&lanes)));
        self.brake.lanes = Some(Arc::clone(&lanes));
        Some(lanes)
    }

    /// Makes this session a further one of a copy.
    pub(crate) fn join(&mut self, lane: Lane) {
        self.brake.sharing = lane.lanes().brake.sharing;
        self.brake.lanes = Some(Arc::clone(lane.lanes()));
        self.play(lane);
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
        let over = self.is_finished() || well && self.state() == State::Open;
        if !over && self.error.is_none() {
            self.error = Some(error_of(reason));
        }
        self.end();
    }

    /// Makes the outcome known.
    pub(crate) fn end(&mut self) {
        let nothing = RoleCore::default();
        let sends = self.sends();
        let core = match &mut self.role {
            Some(role) => {
                role.leave(self.error.as_ref());
                &*role.core()
            }
            None => &nothing,
        };
        let lanes = core.lanes().map_or(1, |lanes| lanes.total());
        let facts = SummaryInput {
            put: self.put,
            verify_disk: self.verify_disk,
            core,
            stats: self.stats,
            lanes,
            elapsed: self
                .began
                .map_or(Duration::ZERO, |began| self.now.since(began)),
            progress: self.handle.progress(),
            ours: self.meter.usage(),
            theirs: self.theirs,
            sends,
            sending: if sends {
                Some(Sending::of(&self.stats, lanes))
            } else {
                self.sent
            },
        };
        self.handle.end(|| {
            let error = self.error.clone().or_else(|| core.verdict());
            let summary = Summary::new(&facts, error.as_ref());
            Outcome { summary, error }
        });
        if let Some(role) = &mut self.role {
            role.core().lanes = None;
        }
    }

    pub(crate) fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        let role = self.role.as_mut();
        role.map_or_else(has_none, |role| role.fill(extents, batch))
    }

    pub(crate) fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.brake.place(extents);
        let role = self.role.as_mut();
        role.map_or_else(not_requested, |role| role.place(extents, batch))
    }

    pub(crate) fn sink(&self) -> Sink {
        let role = self.role.as_ref();
        role.map_or(Sink::ENDLESS, |role| self.brake.within(role.sink()))
    }
}
