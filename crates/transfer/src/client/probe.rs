//! Probes the path to a server of files. The client asks for the session, and runs an application
//! of its own on the session once it was lent.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use farhaul_core::{
    protocol::{Event, Session},
    store::{Extent, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::{App, Stop};

use crate::{
    agreed::Agreed,
    close_reason::{closed_by_server, error_of},
    error::TransferError,
    server::DiskSpeed,
    wire::{Exit, Features, Inbox, Message, Offer, Shared},
};

/// Time that the answer may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Time within which a disk is measured: longer than a server waits for it.
const MEASURES_WITHIN: Duration = Duration::from_secs(90);

/// Limits that a server puts on a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// Longest duration of the probe; if it is less than requested, the probe was not begun.
    pub time: Duration,
    /// Highest rate of the probe, if there is one.
    pub rate: Option<Rate>,
}

/// Answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The session is lent.
    Lent(Lent),
    /// Speed of the share's disk.
    Disk(DiskSpeed),
    /// Shares that the server has for us.
    Shares {
        /// The server's public key, if it has one.
        server_key: Option<Vec<u8>>,
        /// Shares of the server.
        shares: Vec<Shared>,
    },
}

/// Place where the answer is written.
pub type Answer = Arc<Mutex<Option<Result<Answered, TransferError>>>>;

/// Request to a server.
enum Wanted {
    /// Session of the server, for this application.
    Session {
        app: Box<dyn App>,
        time: Duration,
        fetch: bool,
    },
    /// The speed of the disk of this share.
    Disk(Vec<u8>),
    /// The shares that there are.
    Shares,
}

/// Asks a server for a session, how fast the disk of a share is, or which shares there are.
pub struct Probe {
    wanted: Wanted,
    answer: Answer,
    stop: Option<Stop>,
    inbox: Inbox,
    peer_key: Option<Vec<u8>>,
    /// Time by which the answer has to be there.
    until: Option<Instant>,
    runs: bool,
}

impl Probe {
    /// Runs `app` for `time`, and the server sends if it is to `fetch`; `answer` is written before that.
    pub fn new(
        app: Box<dyn App>,
        (time, fetch): (Duration, bool),
        answer: &Answer,
        stop: Option<Stop>,
    ) -> Self {
        Self::of(Wanted::Session { app, time, fetch }, answer, stop)
    }

    /// Asks for the speed of the disk of `share`.
    pub fn disk(share: &str, answer: &Answer, stop: Option<Stop>) -> Self {
        Self::of(Wanted::Disk(share.into()), answer, stop)
    }

    /// Asks which shares there are; a server without the feature `shares` is an error.
    pub fn shares(answer: &Answer, stop: Option<Stop>) -> Self {
        Self::of(Wanted::Shares, answer, stop)
    }

    fn of(wanted: Wanted, answer: &Answer, stop: Option<Stop>) -> Self {
        Self {
            wanted,
            answer: Arc::clone(answer),
            stop,
            inbox: Inbox::default(),
            peer_key: None,
            until: None,
            runs: false,
        }
    }

    /// Writes the answer; only the first counts.
    fn write(&self, answer: Result<Answered, TransferError>) {
        let mut written = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        written.get_or_insert(answer);
    }

    fn give_up(&mut self, now: Instant, e: TransferError, session: &mut dyn Session) {
        let code = u32::from(e.code.number());
        session.close(now, code, &e.text);
        self.write(Err(e));
    }

    fn ask(&mut self, now: Instant, session: &mut dyn Session) {
        let agreed = Agreed::with(session.peer_app(), "the server");
        let (feature, without) = match &self.wanted {
            Wanted::Shares => (Features::SHARES, "it does not say which shares it has"),
            Wanted::Session { .. } | Wanted::Disk(_) => (Features::PROBES, "no probe"),
        };
        if let Err(e) = agreed.and_then(|a| a.needs(feature, without, "the server")) {
            return self.give_up(now, e, session);
        }
        let mut bytes = Vec::new();
        let (message, within) = match &self.wanted {
            Wanted::Session { time, fetch, .. } => {
                let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                let fetch = *fetch;
                (Message::WantProbe { millis, fetch }, ANSWERS_WITHIN)
            }
            Wanted::Disk(share) => {
                let share = share.clone();
                (Message::WantDisk { share }, MEASURES_WITHIN)
            }
            Wanted::Shares => (Message::WantShares, ANSWERS_WITHIN),
        };
        message.encode(&mut Vec::new(), &mut bytes);
        session.write(&bytes);
        self.until = Some(now + within);
    }

    fn hear(&mut self, now: Instant, session: &mut dyn Session) {
        session.read(self.inbox.tail());
        let whole = |inbox: &Inbox| inbox.len() == 0;
        match (self.inbox.next(), &mut self.wanted) {
            (Ok(None), _) => {}
            (
                Ok(Some(Message::Probe { millis, bps })),
                Wanted::Session {
                    app, time: wanted, ..
                },
            ) if whole(&self.inbox) => {
                let time = Duration::from_millis(millis);
                let rate = (bps > 0).then(|| Rate::from_bps(bps));
                if time < *wanted {
                    session.close(now, 0, "a shorter probe is allowed");
                } else {
                    (self.runs, self.until) = (true, None);
                    let peer_key = self.peer_key.take();
                    app.on_event(now, Event::Connected { peer_key }, session);
                }
                self.write(Ok(Answered::Lent(Lent { time, rate })));
            }
            (
                Ok(Some(Message::Disk {
                    bytes,
                    write_bps,
                    read_bps,
                })),
                Wanted::Disk(_),
            ) => {
                let [write, read] = [write_bps, read_bps].map(Rate::from_bps);
                self.write(Ok(Answered::Disk(DiskSpeed { bytes, write, read })));
                session.close(now, 0, "done");
            }
            (Ok(Some(Message::Shares(shares))), Wanted::Shares) => {
                let server_key = self.peer_key.take();
                self.write(Ok(Answered::Shares { server_key, shares }));
                session.close(now, 0, "done");
            }
            (Ok(Some(Message::Refused { code, text, fix })), _) => {
                self.write(Err(TransferError::refused(code, &text, &fix)));
                session.close(now, 0, "refused");
            }
            (Ok(Some(_)), _) => {
                let e = TransferError::protocol("the server answered something else");
                self.give_up(now, e, session);
            }
            (Err(e), _) => {
                let e = TransferError::protocol(format!("the server sent nonsense: {e}"));
                self.give_up(now, e, session);
            }
        }
    }
}

impl Probe {
    /// The application, once the session was lent.
    fn app(&mut self) -> Option<&mut Box<dyn App>> {
        match &mut self.wanted {
            Wanted::Session { app, .. } if self.runs => Some(app),
            _ => None,
        }
    }
}

impl Store for Probe {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        match self.app() {
            Some(app) => app.fill(extents, batch),
            None => Err(StoreError("nothing was offered".into())),
        }
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        match self.app() {
            Some(app) => app.place(extents, batch),
            None => Err(StoreError("content that was not requested".into())),
        }
    }
}

impl App for Probe {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        if let Event::Closed(reason) = &event {
            self.write(Err(error_of(&closed_by_server(reason)).of_query()));
        }
        if let Some(app) = self.app() {
            return app.on_event(now, event, session);
        }
        match event {
            Event::Connected { peer_key } => {
                self.peer_key = peer_key;
                self.ask(now, session);
            }
            Event::Readable => self.hear(now, session),
            Event::Delivered | Event::Closed(_) => {}
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if let Some(app) = self.app() {
            return app.poll(now, session);
        }
        if session.is_closed() {
            return;
        }
        if self.stop.as_ref().is_some_and(Stop::is_set) {
            self.stop = None;
            let e = TransferError::new(Exit::INTERRUPTED, "interrupted");
            self.give_up(now, e, session);
        } else if self.until.is_some_and(|until| until <= now) {
            self.until = None;
            let e = TransferError::new(Exit::ConnectionLost, "the server did not answer in time");
            self.give_up(now, e, session);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match &self.wanted {
            Wanted::Session { app, .. } if self.runs => app.next_wake(),
            _ => self.until,
        }
    }
}

/// True if a server whose application declares `declared` offers probes; an error reports what it
/// has instead.
pub fn offers_probes(declared: &[u8]) -> Result<(), TransferError> {
    let agreed = Agreed::with(declared, "the server")?;
    if agreed.features.has(Features::PROBES) {
        return Ok(());
    }
    let has = Offer::describe(declared);
    let text = format!("the server offers no probes ({has})");
    let fix = format!(
        "install farhaul {} or newer there",
        env!("CARGO_PKG_VERSION")
    );
    Err(TransferError::new(Exit::Version, text).fix(fix))
}
