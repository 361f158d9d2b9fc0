//! Who sits on this socket? Sessions with their apps, found by id, ordered by deadline, and served
//! in the order in which they became ready.
//!
//! Invariants: a slot is in `ready` at most once, exactly when its seat says `queued`; a queued seat
//! has no deadline, because it is about to be served anyway.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
};

use farhaul_core::{
    datagram::Received,
    protocol::{CloseReason, Event, Session, Turn},
    rng::Rng,
    time::Instant,
};

use crate::{app::App, deadlines::Deadlines};

/// One session with its app.
pub(crate) struct Seat<A> {
    id: u64,
    pub(crate) session: Box<dyn Session>,
    pub(crate) app: A,
    pub(crate) rng: Rng,
    /// The local address to which the peer writes, where the socket has several.
    pub(crate) local: Option<IpAddr>,
    /// Something has been received.
    pub(crate) heard: bool,
    /// Why it ended, once it has said so.
    pub(crate) reason: Option<CloseReason>,
    queued: bool,
    /// The deadline that brought it into the queue.
    fired: Option<Instant>,
}

impl<A: App> Seat<A> {
    pub(crate) fn new(id: u64, session: Box<dyn Session>, app: A, rng: Rng) -> Self {
        Self {
            id,
            session,
            app,
            rng,
            local: None,
            heard: false,
            reason: None,
            queued: false,
            fired: None,
        }
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
        self.heard = true;
        let (session, mut turn) = self.turn(now);
        session.handle_datagrams(&mut turn, batch);
    }

    /// Hands the session's events to the app; true if there were any.
    pub(crate) fn tell(&mut self, now: Instant) -> bool {
        let mut told = false;
        while let Some(event) = self.session.poll_event() {
            if let Event::Closed(reason) = &event {
                self.reason = Some(reason.clone());
            }
            self.app.on_event(now, event, &mut *self.session);
            told = true;
        }
        told
    }

    /// Makes sure that the app has been told why the session is over.
    pub(crate) fn conclude(&mut self, now: Instant, otherwise: CloseReason) -> CloseReason {
        self.tell(now);
        if let Some(reason) = &self.reason {
            return reason.clone();
        }
        let event = Event::Closed(otherwise.clone());
        self.app.on_event(now, event, &mut *self.session);
        otherwise
    }

    fn deadline(&self) -> Option<Instant> {
        let session = self.session.poll_timeout().map(|(at, _)| at);
        session.into_iter().chain(self.app.next_wake()).min()
    }
}

/// All seats of a shard.
pub(crate) struct Seats<A> {
    slots: Vec<Option<Seat<A>>>,
    free: Vec<usize>,
    ids: HashMap<u64, usize>,
    deadlines: Deadlines,
    ready: VecDeque<usize>,
}

impl<A: App> Seats<A> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ids: HashMap::new(),
            deadlines: Deadlines::default(),
            ready: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Seats a session and queues it; `None` if its id is taken.
    pub(crate) fn add(&mut self, seat: Seat<A>) -> Option<usize> {
        if self.ids.contains_key(&seat.id) {
            return None;
        }
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.ids.insert(seat.id, slot);
        self.slots[slot] = Some(seat);
        self.queue(slot);
        Some(slot)
    }

    pub(crate) fn by_id(&self, id: u64) -> Option<usize> {
        self.ids.get(&id).copied()
    }

    pub(crate) fn get(&mut self, slot: usize) -> Option<&mut Seat<A>> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Frees a slot.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Seat<A>> {
        let seat = self.slots.get_mut(slot)?.take()?;
        self.ids.remove(&seat.id);
        self.deadlines.set(slot, None);
        self.ready.retain(|s| *s != slot);
        self.free.push(slot);
        Some(seat)
    }

    /// Frees a slot if its seat is as `wanted`.
    pub(crate) fn remove_if(
        &mut self,
        slot: usize,
        wanted: impl FnOnce(&Seat<A>) -> bool,
    ) -> Option<Seat<A>> {
        let wanted = self.slots.get(slot)?.as_ref().is_some_and(wanted);
        wanted.then(|| self.remove(slot)).flatten()
    }

    /// Frees a slot that is in use, if there is one.
    pub(crate) fn remove_any(&mut self) -> Option<Seat<A>> {
        let slot = self.slots.iter().position(Option::is_some)?;
        self.remove(slot)
    }

    /// Queues a seat to be served.
    pub(crate) fn queue(&mut self, slot: usize) {
        if let Some(Some(seat)) = self.slots.get_mut(slot)
            && !seat.queued
        {
            seat.queued = true;
            self.deadlines.set(slot, None);
            self.ready.push_back(slot);
        }
    }

    pub(crate) fn queue_all(&mut self) {
        for slot in 0..self.slots.len() {
            self.queue(slot);
        }
    }

    /// Closes every session with code 0.
    pub(crate) fn close_all(&mut self, now: Instant, text: &str) {
        for seat in self.slots.iter_mut().flatten() {
            seat.session.close(now, 0, text);
        }
        self.queue_all();
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The seat that has waited longest; it is no longer queued.
    pub(crate) fn next_ready(&mut self) -> Option<usize> {
        let slot = self.ready.pop_front()?;
        if let Some(Some(seat)) = self.slots.get_mut(slot) {
            seat.queued = false;
        }
        Some(slot)
    }

    /// Tells every session whose deadline has passed, and queues it.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.due(now) {
            self.deadlines.set(slot, None);
            let Some(Some(seat)) = self.slots.get_mut(slot) else {
                continue;
            };
            let due = seat.session.poll_timeout().map(|(at, _)| at);
            seat.fired = seat.deadline();
            if due.is_some_and(|at| at <= now) {
                let (session, mut turn) = seat.turn(now);
                session.handle_timeout(&mut turn);
            }
            self.queue(slot);
        }
    }

    /// Arms the deadline of a seat that has nothing more to do at `now`. False if its deadline
    /// passed, was served and did not move; it is put off so that the shard does not spin.
    pub(crate) fn arm(&mut self, slot: usize, now: Instant) -> bool {
        let Some(Some(seat)) = self.slots.get_mut(slot) else {
            return true;
        };
        let deadline = seat.deadline();
        let stuck = deadline.is_some_and(|at| at <= now && seat.fired == Some(at));
        seat.fired = None;
        let deadline = if stuck { Some(now + PUT_OFF) } else { deadline };
        self.deadlines.set(slot, deadline);
        !stuck
    }

    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first()
    }
}

/// How long a deadline that did not move is put off.
const PUT_OFF: std::time::Duration = std::time::Duration::from_millis(1);
