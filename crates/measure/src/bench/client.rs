//! The client's end of one parallel session: it sends its request, sends or receives data, and
//! combines the two sides' measures.

use std::{sync::mpsc::Sender, time::Duration};

use farhaul_core::{
    protocol::{CloseReason, Event, Session},
    store::{Extent, Store, StoreError},
    time::{Instant, nanos},
    units::Rate,
};
use farhaul_io::{App, Stop};

use super::{
    BROKEN, Lane, News, OTHER_APP, Sample, Spec,
    ends::{Meter, Receiving, Sending, Times, first_after},
    message::{Hello, Inbox, Message, PLAIN, Side, VERSION, send},
    payload,
};

/// One parallel session of a bench's client.
pub struct Client {
    spec: Spec,
    lane: u32,
    news: Sender<(u32, News)>,
    stop: Option<Stop>,
    started: Option<Instant>,
    hello: Option<Instant>,
    meter: Meter,
    inbox: Inbox,
    sending: Option<Sending>,
    receiving: Receiving,
    next_sample: Option<Instant>,
    mine: Option<Side>,
    reported: bool,
    /// True if the server is one of files, which lends the session.
    on_transfer_server: bool,
}

impl Client {
    /// Session number `lane` of `spec`; reports on `news`. When `stop` is set, the sender stops
    /// early, and there is a result.
    pub fn new(spec: Spec, lane: u32, news: Sender<(u32, News)>, stop: Option<Stop>) -> Self {
        payload::prepare();
        Self {
            spec,
            lane,
            news,
            stop,
            started: None,
            hello: None,
            meter: Meter::new(),
            inbox: Inbox::default(),
            sending: None,
            receiving: Receiving::default(),
            next_sample: None,
            mine: None,
            reported: false,
            on_transfer_server: false,
        }
    }

    /// Uses a session that a server of files lends, if `yes`.
    #[must_use]
    pub const fn on_transfer_server(mut self, yes: bool) -> Self {
        self.on_transfer_server = yes;
        self
    }

    /// A closed channel is no reason to stop: the session's end decides.
    fn notify(&self, news: News) {
        let _ = self.news.send((self.lane, news));
    }

    fn greet(&mut self, now: Instant, session: &mut dyn Session) {
        let started = self.started.unwrap_or(now);
        self.hello = Some(now);
        self.notify(News::Connected(now.since(started)));
        let hello = Hello {
            version: self.spec.constant.map_or(PLAIN, |_| VERSION),
            farhaul: env!("CARGO_PKG_VERSION").into(),
            reverse: self.spec.reverse,
            limit: self.spec.limit,
            since_start: nanos(now.since(started)),
            omit: nanos(self.spec.omit),
            interval: nanos(self.spec.interval),
            marks_at_end: !self.spec.live,
            lanes: self.spec.lanes,
            lane: self.lane,
            max_rate: self.spec.max_rate.map(Rate::bps),
            policy: self.spec.sharing.to_string(),
            constant: self.spec.constant.map(Rate::bps),
        };
        send(session, &Message::Hello(hello));
        if self.spec.reverse {
            if self.spec.constant.is_some() {
                self.receiving.count_datagrams();
            }
            let times = Times {
                started,
                omit: self.spec.omit,
                interval: self.spec.interval,
            };
            self.receiving.begin(now, times);
        } else {
            if self.spec.constant.is_none() {
                self.sending = Some(Sending::new(self.spec.limit, started));
            }
            let interval = Some(self.spec.interval).filter(|i| !i.is_zero());
            self.next_sample = interval.map(|i| started + i);
        }
    }

    /// Begins to send at a constant rate.
    fn send_constantly(&mut self, now: Instant, rate: Rate, session: &mut dyn Session) {
        if !session.send_constantly(now, rate) {
            let (code, text) = (BROKEN, "this protocol cannot send at a constant rate");
            self.fail(CloseReason::Local {
                code,
                text: text.into(),
            });
            session.close(now, code, text);
            return;
        }
        let sending = Sending::new(self.spec.limit, self.started.unwrap_or(now));
        self.sending = Some(sending.stamped(true));
    }

    /// Reports what this end is like at the end of an interval.
    fn sample(&mut self, now: Instant, session: &dyn Session) {
        let Some(due) = self.next_sample.filter(|at| now >= *at) else {
            return;
        };
        self.next_sample = Some(first_after(now, due, self.spec.interval));
        let stats = session.stats();
        self.notify(News::Sample(Sample {
            at: now.since(self.started.unwrap_or(now)),
            window: stats.window,
            rtt: stats.rtt_smoothed,
            repaired: stats.repaired,
            lost: stats.packets_lost.saturating_sub(stats.packets_spurious),
            episodes: stats.episodes,
        }));
    }

    fn on_message(&mut self, now: Instant, message: Message, session: &mut dyn Session) {
        match message {
            Message::Ready
                if let Some(rate) = self.spec.constant
                    && !self.spec.reverse
                    && self.sending.is_none() =>
            {
                self.send_constantly(now, rate, session);
            }
            Message::Mark(mark) => self.notify(News::Mark(mark)),
            Message::Done { bytes, datagrams } => self.receiving.all_is(now, bytes, datagrams),
            Message::Outcome(theirs) => self.finish(now, *theirs, session),
            Message::Hello(_) | Message::Stop | Message::Ready => {
                self.give_up(now, "a server that asks as a client does", session);
            }
        }
    }

    fn give_up(&mut self, now: Instant, text: &str, session: &mut dyn Session) {
        self.fail(CloseReason::Protocol(text.into()));
        session.close(now, BROKEN, text);
    }

    fn fail(&mut self, reason: CloseReason) {
        if !self.reported {
            self.reported = true;
            self.notify(News::Failed(reason));
        }
    }

    fn finish(&mut self, now: Instant, theirs: Side, session: &mut dyn Session) {
        let mine = match self.mine.take() {
            Some(mine) => mine,
            None => self.meter.side(session),
        };
        let (sender, receiver) = if self.spec.reverse {
            (theirs, mine)
        } else {
            (mine, theirs)
        };
        let lane = Lane {
            elapsed: self.elapsed(&sender, &receiver),
            sender,
            receiver,
        };
        self.reported = true;
        self.notify(News::Finished(Box::new(lane)));
        session.close(now, 0, "done");
    }

    /// Time from the first act to the arrival of the last new byte. What a server received is timed
    /// from the hello's arrival, which was half an rtt after its departure.
    fn elapsed(&self, sender: &Side, receiver: &Side) -> Duration {
        let (Some(started), Some(hello)) = (self.started, self.hello) else {
            return Duration::ZERO;
        };
        let after = hello.since(started) + Duration::from_nanos(receiver.last_after_hello);
        if self.spec.reverse {
            return after;
        }
        let rtt = sender.rtt.min.unwrap_or(0.0).clamp(0.0, 1e7);
        after + Duration::from_secs_f64(rtt / 2e3)
    }
}

impl Store for Client {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        if let Some(sending) = &mut self.sending {
            sending.fill(extents, batch);
        }
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.receiving.place(extents, batch)
    }
}

impl App for Client {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        match event {
            // A server of benches declares nothing.
            Event::Connected { .. }
                if !self.on_transfer_server && !session.peer_app().is_empty() =>
            {
                let (code, text) = (OTHER_APP, "the server there is none of benches");
                self.fail(CloseReason::Local {
                    code,
                    text: text.into(),
                });
                session.close(now, code, text);
            }
            Event::Connected { .. } => self.greet(now, session),
            Event::Readable => {
                self.inbox.receive(session);
                loop {
                    match self.inbox.take() {
                        Ok(Some(message)) => self.on_message(now, message, session),
                        Ok(None) => break,
                        Err(e) => {
                            self.give_up(now, &e.to_string(), session);
                            break;
                        }
                    }
                }
            }
            Event::Delivered => {}
            Event::Closed(reason) => self.fail(reason),
        }
        self.poll(now, session);
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.started.get_or_insert(now);
        let stopped = self.stop.as_ref().is_some_and(Stop::is_set);
        if stopped && !self.reported {
            match &mut self.sending {
                Some(sending) => sending.cut(now),
                None if self.hello.is_some() && self.spec.reverse => send(session, &Message::Stop),
                None => session.close(now, BROKEN, "interrupted"),
            }
            self.stop = None;
        }
        if self.reported || self.hello.is_none() {
            return;
        }
        self.meter.sample(now, session);
        self.sample(now, session);
        if let Some(sending) = &mut self.sending {
            sending.poll(now, session);
            return;
        }
        if let Some(mark) = self.receiving.poll(now, session) {
            self.notify(News::Mark(mark));
        }
        if self.mine.is_none() && self.receiving.is_complete(now) {
            let side = self.receiving.complete(now, self.meter.side(session));
            send(session, &Message::Outcome(Box::new(side.clone())));
            self.mine = Some(side);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match &self.sending {
            _ if self.reported => None,
            Some(sending) => [sending.next_wake(), self.next_sample]
                .into_iter()
                .flatten()
                .min(),
            None => self.receiving.next_wake(),
        }
    }
}
