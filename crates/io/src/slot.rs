//! A [`Slot`] is all that a shard keeps for one session: the session, its app and what belongs to
//! them.
//!
//! Invariant: a panic in a session or its app is the fault of that entry alone. The panic is caught
//! where the entry was called, the entry is no longer called except to notify its app, and its
//! shard continues.

use std::{
    any::Any,
    net::{IpAddr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind},
};

use farhaul_core::{
    app::App,
    control::Control,
    datagram::{Received, Transmit, TxBuf},
    protocol::{CloseReason, Event, Session, Turn},
    rng::Rng,
    stats::Stats,
    time::Instant,
};

use crate::{lanes::Lanes, waker::Waker};

/// Close reason sent to the peer of a session that panicked.
const INTERNAL: u32 = 1;
/// Runs `work`; a panic in it is returned as text.
pub(crate) fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| words(&*payload))
}

fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// Standing of a session with its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Half-open, address not validated (RFC 9000 section 8.1); not counted in any per-source limit. The protocol bounds
    /// these.
    Unvalidated,
    /// The handshake is not finished.
    HalfOpen,
    /// Counts against the limit of sessions (`max_sessions`).
    Admitted,
    /// The session is beyond the limit of sessions, and is closed with that reason.
    TurnedAway,
}

/// One session with its app.
pub(crate) struct Slot<A> {
    pub(crate) id: u64,
    pub(crate) session: Box<dyn Session>,
    pub(crate) app: A,
    pub(crate) rng: Rng,
    /// The local address to which the peer writes, where the socket has several.
    pub(crate) local: Option<IpAddr>,
    /// Source of its first datagram; the peer itself, for a client.
    pub(crate) from: SocketAddr,
    /// Source of the session: `from`, or the peer whose datagrams a relay at `from` carries.
    pub(crate) source: IpAddr,
    /// The tunnel whose relay is at `from`.
    pub(crate) tunnel: Option<u64>,
    pub(crate) standing: Standing,
    /// Waker of the app, until the session moves to a thread of its own.
    pub(crate) waker: Option<Waker>,
    /// True if the session moves to a thread of its own. Its app may wait for a disk, so the app
    /// gets no event before that.
    pub(crate) moves: bool,
    /// First event of the app on that thread.
    held: Option<Event>,
    /// True if something has been received.
    pub(crate) received: bool,
    /// Reason of the session's end, once the session has reported it.
    pub(crate) reason: Option<CloseReason>,
    /// Control lane of the session.
    pub(crate) lane: Option<usize>,
    /// Address of the peer, if the protocol's packets carry no session id.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) queued: bool,
    /// Deadline that brought the session into the queue.
    pub(crate) fired: Option<Instant>,
    /// Message of the session's panic.
    fault: Option<String>,
}

impl<A: App> Slot<A> {
    pub(crate) fn new(
        (id, session): (u64, Box<dyn Session>),
        from: SocketAddr,
        app: A,
        rng: Rng,
    ) -> Self {
        Self {
            id,
            from,
            source: from.ip(),
            tunnel: None,
            standing: Standing::HalfOpen,
            waker: None,
            moves: false,
            held: None,
            session,
            app,
            rng,
            local: None,
            received: false,
            reason: None,
            lane: None,
            peer: None,
            queued: false,
            fired: None,
            fault: None,
        }
    }

    /// Runs `work` on the entry; `None` if it panicked, now or before.
    pub(crate) fn guard<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> Option<R> {
        if self.fault.is_some() {
            return None;
        }
        match caught(|| work(self)) {
            Ok(result) => Some(result),
            Err(text) => {
                self.fault = Some(text);
                None
            }
        }
    }

    /// Polls the session once for a close after a panic, since the fault may be its app's.
    pub(crate) fn poll_close(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let fault = self.fault.take()?;
        let transmit = self.guard(|entry| {
            entry.session.close(now, INTERNAL, "internal error");
            let (session, mut turn) = entry.turn(now);
            session.poll_transmit(&mut turn, out)
        });
        self.fault = Some(fault);
        transmit.flatten()
    }

    /// True if the session panicked.
    pub(crate) const fn is_faulty(&self) -> bool {
        self.fault.is_some()
    }

    /// The session's counters, if it can still be called.
    pub(crate) fn stats(&mut self) -> Stats {
        self.guard(|entry| entry.session.stats())
            .unwrap_or_default()
    }

    /// The session with its turn and app, borrowed apart.
    pub(crate) fn turn(&mut self, now: Instant) -> (&mut dyn Session, Turn<'_>) {
        let turn = Turn {
            now,
            rng: &mut self.rng,
            store: &mut self.app,
        };
        (&mut *self.session, turn)
    }

    pub(crate) fn receive(&mut self, now: Instant, batch: Received<'_>) {
        self.received = true;
        self.guard(|entry| {
            let (session, mut turn) = entry.turn(now);
            session.handle_datagrams(&mut turn, batch);
        });
    }

    /// The deadline passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        let Some(deadline) = self.deadline() else {
            return;
        };
        self.fired = Some(deadline);
        self.guard(|entry| {
            let due = entry.session.poll_timeout().map(|(at, _)| at);
            if due.is_some_and(|at| at <= now) {
                let (session, mut turn) = entry.turn(now);
                session.handle_timeout(&mut turn);
            }
        });
    }

    pub(crate) fn close(&mut self, now: Instant, code: u32, text: &str) {
        self.guard(|entry| entry.session.close(now, code, text));
    }

    pub(crate) fn control(&mut self, now: Instant, control: Control<'_>) {
        self.guard(|entry| {
            let (session, mut turn) = entry.turn(now);
            session.handle_control(&mut turn, control);
        });
    }

    /// Hands the session's events to the app; true if there were any. `admit` chooses the app when the
    /// session connects.
    pub(crate) fn deliver_events(
        &mut self,
        now: Instant,
        mut admit: impl FnMut(&mut Self),
    ) -> bool {
        self.guard(|entry| {
            let mut delivered = false;
            if !entry.moves
                && let Some(first) = entry.held.take()
            {
                entry.app.on_event(now, first, &mut *entry.session);
                delivered = true;
            }
            while !entry.moves
                && let Some(event) = entry.session.poll_event()
            {
                match &event {
                    Event::Connected { .. } => admit(entry),
                    Event::Closed(reason) => entry.reason = Some(reason.clone()),
                    _ => {}
                }
                if entry.moves {
                    entry.held = Some(event);
                    break;
                }
                entry.app.on_event(now, event, &mut *entry.session);
                delivered = true;
            }
            delivered
        })
        .unwrap_or_default()
    }

    /// Keeps the session in its slot; its app never gets [`Event::Connected`].
    pub(crate) fn stays(&mut self) {
        (self.moves, self.held) = (false, None);
    }

    /// Lets the app decide what is next.
    pub(crate) fn poll(&mut self, now: Instant) {
        if !self.moves {
            self.guard(|entry| entry.app.poll(now, &mut *entry.session));
        }
    }

    /// True if nothing more is to be done for the session.
    pub(crate) fn is_over(&mut self) -> bool {
        self.guard(|entry| entry.session.is_closed())
            .unwrap_or(true)
    }

    /// Makes sure that the app has been notified of the end of the session.
    pub(crate) fn conclude(&mut self, now: Instant, otherwise: CloseReason) -> CloseReason {
        self.stays();
        self.deliver_events(now, |_| {});
        let fault = self.fault.take();
        if fault.is_none()
            && let Some(reason) = &self.reason
        {
            return reason.clone();
        }
        let reason = match &fault {
            Some(text) => CloseReason::Internal(text.clone()),
            None => otherwise,
        };
        let event = Event::Closed(reason.clone());
        self.guard(|entry| entry.app.on_event(now, event, &mut *entry.session));
        self.fault = self.fault.take().or(fault);
        reason
    }

    /// Passes bytes received on its lane to the session.
    pub(crate) fn listen(&mut self, now: Instant, index: usize, lanes: &mut Lanes) {
        let (bytes, over) = lanes.take_received(index);
        if !bytes.is_empty() {
            self.control(now, Control::Bytes(&bytes));
        }
        lanes.give_back(index, bytes);
        if let Some(why) = over {
            self.hang_up(now, index, &why, lanes);
        }
    }

    pub(crate) fn hang_up(&mut self, now: Instant, index: usize, why: &str, lanes: &mut Lanes) {
        self.lane = None;
        lanes.close(index);
        self.control(now, Control::Closed(why));
    }

    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        let deadline = self.guard(|entry| {
            let session = entry.session.poll_timeout().map(|(at, _)| at);
            session.into_iter().chain(entry.app.next_wake()).min()
        });
        deadline.flatten()
    }
}
