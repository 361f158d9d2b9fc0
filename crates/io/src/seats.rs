//! Who sits on this socket? Sessions with their apps, found by id, ordered by deadline, and served
//! in the order in which they became ready.
//!
//! Invariants: a slot is in `ready` at most once, exactly when its seat says `queued`; a queued seat
//! has no deadline, because it is about to be served anyway.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
};

use farhaul_core::{app::App, control::Control, time::Instant};

use crate::{
    deadlines::Deadlines,
    lanes::{Lanes, News},
    seat::Seat,
};

/// All seats of a shard.
pub(crate) struct Seats<A> {
    slots: Vec<Option<Seat<A>>>,
    free: Vec<usize>,
    ids: HashMap<u64, usize>,
    peers: HashMap<SocketAddr, usize>,
    /// Control lanes, where the protocol has them.
    pub(crate) lanes: Option<Box<Lanes>>,
    deadlines: Deadlines,
    ready: VecDeque<usize>,
}

impl<A: App> Seats<A> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ids: HashMap::new(),
            peers: HashMap::new(),
            lanes: None,
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
        debug_assert!(!seat.queued, "a seat elsewhere");
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.ids.insert(seat.id, slot);
        if let Some(peer) = seat.peer {
            self.peers.insert(peer, slot);
        }
        self.slots[slot] = Some(seat);
        self.queue(slot);
        Some(slot)
    }

    pub(crate) fn by_id(&self, id: u64) -> Option<usize> {
        self.ids.get(&id).copied()
    }

    pub(crate) fn by_peer(&self, peer: SocketAddr) -> Option<usize> {
        self.peers.get(&peer).copied()
    }

    pub(crate) fn get(&mut self, slot: usize) -> Option<&mut Seat<A>> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Frees a slot.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Seat<A>> {
        let mut seat = self.slots.get_mut(slot)?.take()?;
        seat.queued = false;
        self.ids.remove(&seat.id);
        if let Some(peer) = seat.peer.filter(|p| self.peers.get(p) == Some(&slot)) {
            self.peers.remove(&peer);
        }
        if let (Some(index), Some(lanes)) = (seat.lane, &mut self.lanes) {
            lanes.close(index);
        }
        self.deadlines.set(slot, None);
        self.ready.retain(|s| *s != slot);
        self.free.push(slot);
        Some(seat)
    }

    /// Frees a slot if its seat is as `wanted`.
    pub(crate) fn remove_if(
        &mut self,
        slot: usize,
        wanted: impl FnOnce(&mut Seat<A>) -> bool,
    ) -> Option<Seat<A>> {
        let wanted = self.slots.get_mut(slot)?.as_mut().is_some_and(wanted);
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
            self.ready.push_back(slot);
        }
    }

    pub(crate) fn queue_all(&mut self) {
        for slot in 0..self.slots.len() {
            self.queue(slot);
        }
    }

    /// Closes every session.
    pub(crate) fn close_all(&mut self, now: Instant, code: u32, text: &str) {
        for seat in self.slots.iter_mut().flatten() {
            seat.close(now, code, text);
        }
        self.queue_all();
    }

    /// The session in `slot` gets the lane `index`, which is open.
    pub(crate) fn join(&mut self, now: Instant, slot: usize, index: usize) {
        if let (Some(lanes), Some(Some(seat))) = (&mut self.lanes, self.slots.get_mut(slot)) {
            lanes.seat(index, slot);
            seat.lane = Some(index);
            seat.control(now, Control::Opened);
        }
    }

    /// Looks at the lanes; whether there is something to tell.
    pub(crate) fn look_at_lanes(&mut self, now: Instant) -> bool {
        self.lanes.as_mut().is_some_and(|lanes| lanes.poll(now))
    }

    /// Tells sessions what happened on their lanes, and queues them; not yet if there are `datagrams`
    /// that may have come before it.
    pub(crate) fn attend(&mut self, now: Instant, datagrams: bool) {
        if self
            .lanes
            .as_ref()
            .is_none_or(|l| datagrams && !l.is_late(now))
        {
            return;
        }
        let Some(mut lanes) = self.lanes.take() else {
            return;
        };
        while let Some((index, news)) = lanes.next_news() {
            let slot = match &news {
                News::Nothing => continue,
                News::Opened(slot)
                | News::Heard(slot)
                | News::Writable(slot)
                | News::Over(slot, _) => *slot,
            };
            let Some(Some(seat)) = self.slots.get_mut(slot) else {
                continue;
            };
            match news {
                News::Opened(_) => seat.control(now, Control::Opened),
                News::Heard(_) => seat.listen(now, index, &mut lanes),
                News::Over(_, why) => seat.hang_up(now, index, &why, &mut lanes),
                News::Writable(_) | News::Nothing => {}
            }
            self.queue(slot);
        }
        self.lanes = Some(lanes);
    }

    /// Lets the session say on its lane what it has to.
    pub(crate) fn pump(&mut self, slot: usize, now: Instant) {
        if let Some(lanes) = &mut self.lanes
            && let Some(Some(seat)) = self.slots.get_mut(slot)
            && let Some(index) = seat.lane
        {
            lanes.fill(index, |room, into| {
                seat.guard(|seat| seat.session.poll_control(now, room, into));
            });
        }
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
            seat.expire(now);
            self.queue(slot);
        }
    }

    /// Arms the deadline of a seat that was served at `now`, whether or not it is queued again: who
    /// always has something to send has deadlines too. False if its deadline passed, was served and did
    /// not move; it is put off so that the shard does not spin.
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
