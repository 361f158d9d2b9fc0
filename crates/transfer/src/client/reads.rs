//! Reads ranges of files from a server, and changes entries there, many at a time. Any thread asks
//! and takes answers, by [`Reads`]; the session has a thread of its own, on which a [`Reader`] runs.
//!
//! - Content goes into a buffer of the length that was asked for, and counts once its digest is
//!   that of what the server read. The thread that takes the answer computes the digest.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use farhaul_core::{
    protocol::{Event, Session},
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_io::{App, Stop};

use super::{
    PeerCheck,
    question::{Found, Listed, Question, listed, place},
};
use crate::{
    agreed::Agreed,
    bounds::{GAPS, charge_of},
    close_reason::error_of,
    error::TransferError,
    ranges::RangeSet,
    read::REQUESTS,
    wire::{Entry, Exit, Features, FileVersion, Hash, Inbox, LAST_ID, Message, Outbox, path},
};

/// Bytes that may be on their way: two round trips of 100 ms at 10 Gbit/s.
const WINDOW: u64 = 256 << 20;
/// Memory that the entries of one folder may cost, bytes.
const NAMES: usize = 4 << 30;
/// Time for which the server may be silent while it has requests.
const ANSWERS_WITHIN: Duration = Duration::from_mins(2);

/// Requests of one session and their answers; a handle that all threads share.
#[derive(Clone, Default)]
pub struct Reads(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: BTreeMap<u32, Question>,
    /// Requests that nobody waits for any more.
    released: Vec<u32>,
    done: VecDeque<(u32, Result<Raw, TransferError>)>,
    last: u32,
    open: bool,
    closing: bool,
    ended: Option<TransferError>,
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// An answer as it arrived.
enum Raw {
    Entries(Vec<Listed>),
    Content(Vec<u8>, End),
    Changed,
}

/// End of content, as the server reports it.
#[derive(Clone, Copy)]
struct End {
    len: u64,
    hash: Hash,
    version: FileVersion,
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reads").field(&self.lock().last).finish()
    }
}

impl Reads {
    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something, and has the session look.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        let wake = state.wake.clone();
        drop(state);
        if let Some(wake) = wake {
            wake();
        }
        changed
    }

    /// Sets the function that wakes the session.
    pub fn wake_by(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.lock().wake = Some(wake);
    }

    /// Asks; the number of the answer.
    ///
    /// # Errors
    /// If the session has ended, or more than [`MOST_READ`](super::MOST_READ) is to be read at once.
    pub fn ask(&self, question: Question) -> Result<u32, TransferError> {
        question.check()?;
        self.change(|state| {
            if let Some(e) = &state.ended {
                return Err(e.clone());
            }
            if state.last == LAST_ID {
                let text = "this session has had as many requests as it can have";
                return Err(TransferError::new(Exit::ConnectionLost, text).fix("open another"));
            }
            state.last += 1;
            let id = state.last;
            state.queue.insert(id, question);
            Ok(id)
        })
    }

    /// Releases a request, as nobody waits for its answer any more.
    pub fn release(&self, id: u32) {
        self.change(|state| {
            if state.queue.remove(&id).is_none() && state.ended.is_none() {
                state.released.push(id);
            }
        });
    }

    /// Ends the session.
    pub fn close(&self) {
        self.change(|state| state.closing = true);
    }

    /// True if the session is open, waiting at most so long for that.
    ///
    /// # Errors
    /// Why it has ended.
    pub fn opened(&self, within: Duration) -> Result<bool, TransferError> {
        let state = self.wait_while(within, |state| !state.open && state.ended.is_none());
        match &state.ended {
            Some(e) if !state.open => Err(e.clone()),
            _ => Ok(state.open),
        }
    }

    /// Error with which the session has ended, if it has.
    pub fn ended(&self) -> Option<TransferError> {
        self.lock().ended.clone()
    }

    fn wait_while(
        &self,
        within: Duration,
        condition: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'_, State> {
        let waited = self
            .0
            .changed
            .wait_timeout_while(self.lock(), within, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The next answers, up to `most`, waiting at most so long for the first.
    pub fn answers(
        &self,
        within: Duration,
        most: usize,
    ) -> Vec<(u32, Result<Found, TransferError>)> {
        let mut state = self.wait_while(within, |state| {
            state.done.is_empty() && state.ended.is_none()
        });
        let count = state.done.len().min(most);
        let raw: Vec<_> = state.done.drain(..count).collect();
        drop(state);
        let checked = raw.into_iter().map(|(id, answer)| match answer {
            Ok(Raw::Entries(entries)) => (id, Ok(Found::Entries(entries))),
            Ok(Raw::Changed) => (id, Ok(Found::Changed)),
            Ok(Raw::Content(bytes, end)) => (id, check(bytes, &end)),
            Err(e) => (id, Err(e)),
        });
        checked.collect()
    }

    /// Notes that the session is over: open requests have no answer.
    ///
    /// Callable where there never was one.
    pub fn end(&self, error: TransferError) {
        self.end_with(std::iter::empty(), error);
    }

    /// Ends the session, also for requests that were sent. A requester who hears that one is lost
    /// sees that the session has ended.
    fn end_with(&self, sent: impl Iterator<Item = u32>, error: TransferError) {
        let mut state = self.lock();
        let queued = std::mem::take(&mut state.queue).into_keys();
        for id in sent.chain(queued) {
            state.done.push_back((id, Err(error.clone())));
        }
        state.ended.get_or_insert(error);
        drop(state);
        self.0.changed.notify_all();
    }
}

fn check(bytes: Vec<u8>, end: &End) -> Result<Found, TransferError> {
    if *blake3::hash(&bytes).as_bytes() == end.hash {
        let version = u64::from_be_bytes(end.version);
        return Ok(Found::Content(bytes, version));
    }
    let text = "what arrived is not what the server read: the file was changed meanwhile, or a memory is faulty";
    Err(TransferError::new(Exit::SourceChanged, text).fix("read it again"))
}

/// A request that was sent.
enum Sent {
    Entries {
        all: Vec<Listed>,
        bytes: usize,
        one: bool,
    },
    Content(Box<Incoming>),
    Change,
}

/// Content on its way.
struct Incoming {
    wanted: u64,
    bytes: Vec<u8>,
    arrived: RangeSet,
    end: Option<End>,
}

/// Runs the session of [`Reads`].
pub struct Reader {
    reads: Reads,
    check: Option<PeerCheck>,
    stop: Option<Stop>,
    inbox: Inbox,
    out: Outbox,
    sent: BTreeMap<u32, Sent>,
    /// Numbers below were sent.
    next: u32,
    /// Bytes of content that are asked for and not here.
    outstanding: u64,
    complete: Vec<u32>,
    agreed: Option<Agreed>,
    open: bool,
    /// Time at which the server last said or sent anything that was asked for.
    heard: Instant,
    /// True if content has arrived since the last look.
    placed: bool,
    failed: Option<TransferError>,
}

impl Reader {
    /// Makes a reader for the requests of `reads`, to a server whose key `check` accepts.
    pub fn new(reads: &Reads, check: Option<PeerCheck>, stop: Option<Stop>) -> Self {
        Self {
            reads: reads.clone(),
            check,
            stop,
            inbox: Inbox::default(),
            out: Outbox::default(),
            sent: BTreeMap::new(),
            next: 1,
            outstanding: 0,
            complete: Vec::new(),
            agreed: None,
            open: false,
            heard: Instant::EPOCH,
            placed: false,
            failed: None,
        }
    }

    fn begin(&mut self, key: Option<&[u8]>, session: &dyn Session) -> Result<(), TransferError> {
        if let Some(check) = &self.check {
            check(key)?;
        }
        let agreed = Agreed::with(session.peer_app(), "the server")?;
        agreed.needs(
            Features::READS,
            "files there can only be copied",
            "the server",
        )?;
        self.agreed = Some(agreed);
        self.out.push(&Message::WantReads);
        Ok(())
    }

    fn fail(&mut self, now: Instant, e: TransferError, session: &mut dyn Session) {
        let code = u32::from(e.code.number());
        session.close(now, code, &e.text);
        self.failed.get_or_insert(e);
    }

    fn hear(&mut self, now: Instant, session: &mut dyn Session) -> Result<(), TransferError> {
        session.read(self.inbox.tail());
        let nonsense = |e| TransferError::protocol(format!("the server sent nonsense: {e}"));
        while let Some(message) = self.inbox.next().map_err(nonsense)? {
            self.heard = now;
            self.take(message)?;
        }
        Ok(())
    }

    fn take(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Reads if !self.open => {
                self.open = true;
                self.reads.lock().open = true;
                self.reads.0.changed.notify_all();
                Ok(())
            }
            Message::Refused { code, text, fix } if !self.open => {
                Err(TransferError::refused(code, &text, &fix))
            }
            Message::Found { id, more, entries } if self.open => self.found(id, more, entries),
            Message::ReadEnd {
                id,
                len,
                hash,
                version,
            } if self.open => self.read_end(id, End { len, hash, version }),
            Message::Changed { id, more } if self.open => self.changed(id, more),
            Message::Unanswered { id, code, text } if self.open => {
                self.known(id)?;
                // One that was released, or is answered, is over.
                if self.drop_request(id) {
                    let e = TransferError::new(code.of_server(), path::show(&text));
                    self.done(id, Err(e));
                }
                Ok(())
            }
            _ => Err(TransferError::protocol(
                "the server answered something else",
            )),
        }
    }

    /// An error if a request of this number was never sent.
    fn known(&self, id: u32) -> Result<(), TransferError> {
        if id < self.next {
            return Ok(());
        }
        Err(TransferError::protocol("an answer to what was not asked"))
    }

    fn found(&mut self, id: u32, more: bool, entries: Vec<Entry>) -> Result<(), TransferError> {
        self.known(id)?;
        let wrong = || TransferError::protocol("names that were not asked for");
        let Some(sent) = self.sent.get_mut(&id) else {
            return Ok(());
        };
        let Sent::Entries { all, bytes, one } = sent else {
            return Err(wrong());
        };
        for entry in entries {
            let named = !entry.path.is_empty() && !entry.path.contains(&b'/');
            if !named && !*one {
                return Err(wrong());
            }
            *bytes += charge_of(entry.path.len() + entry.target.len());
            all.push(listed(entry)?);
        }
        if *bytes > NAMES || *one && (more || all.len() != 1) {
            return Err(wrong());
        }
        if !more {
            let all = std::mem::take(all);
            self.sent.remove(&id);
            self.done(id, Ok(Raw::Entries(all)));
        }
        Ok(())
    }

    fn read_end(&mut self, id: u32, end: End) -> Result<(), TransferError> {
        self.known(id)?;
        let wrong = || TransferError::protocol("the end of another read");
        let Some(sent) = self.sent.get_mut(&id) else {
            return Ok(());
        };
        let Sent::Content(incoming) = sent else {
            return Err(wrong());
        };
        if end.len > incoming.wanted || incoming.end.is_some() {
            return Err(wrong());
        }
        incoming.end = Some(end);
        if incoming.is_whole() {
            self.complete.push(id);
        }
        Ok(())
    }

    fn changed(&mut self, id: u32, more: bool) -> Result<(), TransferError> {
        self.known(id)?;
        match self.sent.get(&id) {
            Some(Sent::Change) if !more => {
                self.sent.remove(&id);
                self.done(id, Ok(Raw::Changed));
                Ok(())
            }
            Some(Sent::Change) | None => Ok(()),
            Some(_) => Err(TransferError::protocol("a change that was not asked for")),
        }
    }

    fn done(&self, id: u32, answer: Result<Raw, TransferError>) {
        self.reads.lock().done.push_back((id, answer));
        self.reads.0.changed.notify_all();
    }

    /// Ends the request; false if it was over before.
    fn drop_request(&mut self, id: u32) -> bool {
        let sent = self.sent.remove(&id);
        if let Some(Sent::Content(incoming)) = &sent {
            self.outstanding -= incoming.wanted;
        }
        sent.is_some()
    }

    /// Hands over answers that are whole.
    fn conclude(&mut self) -> Result<(), TransferError> {
        for id in std::mem::take(&mut self.complete) {
            let Some(Sent::Content(incoming)) = self.sent.remove(&id) else {
                continue;
            };
            self.outstanding -= incoming.wanted;
            let Incoming {
                mut bytes,
                arrived,
                end,
                ..
            } = *incoming;
            let Some(end) = end.filter(|end| arrived.total() == end.len) else {
                return Err(TransferError::protocol("more content than the read has"));
            };
            bytes.truncate(usize::try_from(end.len).unwrap_or(usize::MAX));
            self.out.push(&Message::Release { id });
            self.done(id, Ok(Raw::Content(bytes, end)));
        }
        Ok(())
    }

    /// Sends what was asked since, as far as the window allows.
    fn send(&mut self, now: Instant) {
        let mut state = self.reads.lock();
        let released = std::mem::take(&mut state.released);
        let mut asked = Vec::new();
        let mut outstanding = self.outstanding;
        while self.sent.len() + asked.len() < REQUESTS
            && outstanding < WINDOW
            && let Some((id, question)) = state.queue.pop_first()
        {
            if let Question::Read(_, _, len) = &question {
                outstanding += len;
            }
            asked.push((id, question));
        }
        drop(state);
        for id in released {
            if self.sent.contains_key(&id) {
                self.out.push(&Message::Release { id });
                self.drop_request(id);
            }
        }
        if self.sent.is_empty() {
            self.heard = now;
        }
        for (id, question) in asked {
            self.put(id, question);
        }
    }

    fn put(&mut self, id: u32, question: Question) {
        self.next = id + 1;
        let entries = |one| Sent::Entries {
            all: Vec::new(),
            bytes: 0,
            one,
        };
        let (message, sent) = match question {
            Question::List(at) => {
                let place = place(at);
                (Message::List { id, place }, entries(false))
            }
            Question::Stat(at) => {
                let place = place(at);
                (Message::Stat { id, place }, entries(true))
            }
            Question::Read(at, offset, len) => {
                let place = place(at);
                self.outstanding += len;
                let incoming = Incoming {
                    wanted: len,
                    bytes: vec![0; usize::try_from(len).unwrap_or_default()],
                    arrived: RangeSet::default(),
                    end: None,
                };
                let message = Message::Read {
                    id,
                    place,
                    offset,
                    len,
                };
                (message, Sent::Content(Box::new(incoming)))
            }
            Question::Change(at, change) => {
                let what = "nothing there can be removed, moved, copied or made";
                let agreed = self
                    .agreed
                    .map(|agreed| agreed.needs(Features::CHANGES, what, "the server"));
                if let Some(Err(e)) = agreed {
                    return self.done(id, Err(e));
                }
                let place = place(at);
                (Message::Change { id, place, change }, Sent::Change)
            }
        };
        self.out.push(&message);
        self.sent.insert(id, sent);
    }

    /// Reason that there was no session, or that it ended before it was open.
    pub fn failure(self) -> Option<TransferError> {
        self.failed
    }

    fn over(&mut self, error: TransferError) {
        if !self.open {
            self.failed = Some(error);
            return;
        }
        let sent = std::mem::take(&mut self.sent).into_keys();
        self.reads.end_with(sent, error);
    }

    fn move_on(&mut self, now: Instant, session: &mut dyn Session) -> Result<(), TransferError> {
        if self.stop.as_ref().is_some_and(Stop::is_set) {
            self.stop = None;
            return Err(TransferError::new(Exit::INTERRUPTED, "interrupted"));
        }
        if self.reads.lock().closing {
            let text = "the session was closed";
            self.failed = Some(TransferError::new(Exit::ConnectionLost, text).fix("ask again"));
            session.close(now, 0, "done");
            return Ok(());
        }
        if std::mem::take(&mut self.placed) {
            self.heard = now;
        }
        self.conclude()?;
        if self.open {
            self.send(now);
        }
        self.out.flush(session);
        if !self.sent.is_empty() && now.since(self.heard) >= ANSWERS_WITHIN {
            let text = "the server has requests, and has not answered for two minutes";
            return Err(TransferError::new(Exit::ConnectionLost, text).fix("try again"));
        }
        Ok(())
    }
}

impl Incoming {
    fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.arrived.total() >= end.len)
    }
}

impl Store for Reader {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError("nothing was offered".into()))
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        let unasked = || StoreError("content that was not requested".into());
        for extent in extents {
            let Some(Sent::Content(incoming)) = self.sent.get_mut(&extent.object) else {
                if extent.object < self.next {
                    // Of a read that is over.
                    continue;
                }
                return Err(unasked());
            };
            let from = batch.get(extent.range()).ok_or_else(unasked)?;
            let at = usize::try_from(extent.offset).map_err(|_| unasked())?;
            let end = at.checked_add(from.len()).ok_or_else(unasked)?;
            let into = incoming.bytes.get_mut(at..end).ok_or_else(unasked)?;
            into.copy_from_slice(from);
            self.placed = true;
            incoming.arrived.insert(extent.offset..extent.end());
            if incoming.arrived.len() > GAPS {
                return Err(StoreError("content in too many pieces".into()));
            }
            if incoming.is_whole() {
                self.complete.push(extent.object);
            }
        }
        Ok(())
    }
}

impl App for Reader {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        let result = match event {
            Event::Connected { peer_key } => {
                self.heard = now;
                self.begin(peer_key.as_deref(), session)
            }
            Event::Readable => self.hear(now, session),
            Event::Delivered => Ok(()),
            Event::Closed(reason) => {
                let error = self
                    .failed
                    .take()
                    .unwrap_or_else(|| error_of(&reason).of_query());
                return self.over(error);
            }
        };
        if let Err(e) = result {
            self.fail(now, e, session);
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if session.is_closed() {
            return;
        }
        if let Err(e) = self.move_on(now, session) {
            self.fail(now, e, session);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        (!self.sent.is_empty()).then(|| self.heard + ANSWERS_WITHIN)
    }
}
