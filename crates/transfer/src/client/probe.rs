//! How does a client probe the path to a server of files? It asks for the session, and runs an application of its own on it
//! once it was lent.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use farhaul_core::{
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::{App, Stop};

use crate::{
    error::{Code, TransferError},
    half::error_of,
    inbox::Inbox,
    message::Message,
    version::{Agreed, Features, Offer},
};

/// How long the answer may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// What a server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// How long the probe may be; if that is less than was wanted, it was not begun.
    pub time: Duration,
    /// Its highest rate, if there is one.
    pub rate: Option<Rate>,
}

/// Where it is written whether, and how, a session was lent.
pub type Answer = Arc<Mutex<Option<Result<Lent, TransferError>>>>;

/// An application on a session that a server lends.
pub struct Probe {
    app: Box<dyn App>,
    wanted: Duration,
    fetch: bool,
    answer: Answer,
    stop: Option<Stop>,
    inbox: Inbox,
    peer_key: Option<Vec<u8>>,
    /// The answer is there by then.
    until: Option<Instant>,
    runs: bool,
}

impl Probe {
    /// Runs `app` for `wanted`, and the server sends if it is to `fetch`; `answer` is written before that.
    pub fn new(
        app: Box<dyn App>,
        (wanted, fetch): (Duration, bool),
        answer: &Answer,
        stop: Option<Stop>,
    ) -> Self {
        Self {
            app,
            wanted,
            fetch,
            answer: Arc::clone(answer),
            stop,
            inbox: Inbox::default(),
            peer_key: None,
            until: None,
            runs: false,
        }
    }

    /// Only the first counts.
    fn write(&self, answer: Result<Lent, TransferError>) {
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
        if let Err(e) = agreed.and_then(|a| a.needs(Features::PROBES, "no probe", "the server")) {
            return self.give_up(now, e, session);
        }
        let mut bytes = Vec::new();
        let message = Message::WantProbe {
            millis: u64::try_from(self.wanted.as_millis()).unwrap_or(u64::MAX),
            fetch: self.fetch,
        };
        message.encode(&mut Vec::new(), &mut bytes);
        session.write(&bytes);
        self.until = Some(now + ANSWERS_WITHIN);
    }

    fn hear(&mut self, now: Instant, session: &mut dyn Session) {
        session.read(self.inbox.tail());
        match self.inbox.next() {
            Ok(None) => {}
            Ok(Some(Message::Probe { millis, bps })) if self.inbox.len() == 0 => {
                let lent = Lent {
                    time: Duration::from_millis(millis),
                    rate: (bps > 0).then(|| Rate::from_bps(bps)),
                };
                self.write(Ok(lent));
                if lent.time < self.wanted {
                    return session.close(now, 0, "a shorter probe is allowed");
                }
                (self.runs, self.until) = (true, None);
                let peer_key = self.peer_key.take();
                self.app
                    .on_event(now, Event::Connected { peer_key }, session);
            }
            Ok(Some(Message::Refused { code, text, fix })) => {
                let [text, fix] = [&text, &fix].map(|t| crate::path::show(t).clone());
                self.write(Err(TransferError::new(code, text).fix(fix)));
                session.close(now, 0, "refused");
            }
            Ok(Some(_)) => {
                let e = TransferError::protocol("the server answered something else");
                self.give_up(now, e, session);
            }
            Err(e) => {
                let e = TransferError::protocol(format!("the server sent nonsense: {e}"));
                self.give_up(now, e, session);
            }
        }
    }
}

impl Store for Probe {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.app.fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        if !self.runs {
            return Err(StoreError("content that was not requested".into()));
        }
        self.app.place(extents, batch)
    }

    fn sink(&self) -> Sink {
        self.app.sink()
    }
}

impl App for Probe {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Closed(reason) => {
                self.write(Err(error_of(&reason)));
                self.app.on_event(now, Event::Closed(reason), session);
            }
            event if self.runs => self.app.on_event(now, event, session),
            Event::Connected { peer_key } => {
                self.peer_key = peer_key;
                self.ask(now, session);
            }
            Event::Readable => self.hear(now, session),
            Event::Delivered => {}
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.runs {
            return self.app.poll(now, session);
        }
        if session.is_closed() {
            return;
        }
        if self.stop.as_ref().is_some_and(Stop::is_set) {
            self.stop = None;
            let e = TransferError::new(Code::Interrupted, "interrupted");
            self.give_up(now, e, session);
        } else if self.until.is_some_and(|until| until <= now) {
            self.until = None;
            let seconds = ANSWERS_WITHIN.as_secs();
            let text = format!("the server did not answer within {seconds} s");
            self.give_up(now, TransferError::new(Code::ConnectionLost, text), session);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        if self.runs {
            self.app.next_wake()
        } else {
            self.until
        }
    }
}

/// Whether a server whose application declares `declared` offers probes; an error says what it has instead.
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
    Err(TransferError::new(Code::Version, text).fix(fix))
}
