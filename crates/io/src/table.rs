//! Table of the sessions that use a socket, with their apps. Sessions are found by id, ordered by
//! deadline, and served in the order in which they became ready.
//!
//! Invariants: a slot is in `ready` at most once, exactly when its entry says `queued`. A queued
//! entry has no deadline, because it is about to be served anyway.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
};

use farhaul_core::{app::App, control::Control, time::Instant};

use crate::{deadlines::Deadlines, lanes::Lanes, news::News, slot::Slot};

/// All sessions of a shard.
pub(crate) struct SessionTable<A> {
    slots: Vec<Option<Slot<A>>>,
    free: Vec<usize>,
    ids: HashMap<u64, usize>,
    peers: HashMap<SocketAddr, usize>,
    /// Control lanes, where the protocol has them.
    pub(crate) lanes: Option<Box<Lanes>>,
    deadlines: Deadlines,
    ready: VecDeque<usize>,
}

impl<A: App> SessionTable<A> {
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

    /// Enters a session and queues it; `None` if its id is taken.
    pub(crate) fn add(&mut self, entry: Slot<A>) -> Option<usize> {
        if self.ids.contains_key(&entry.id) {
            return None;
        }
        debug_assert!(!entry.queued, "an entry elsewhere");
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.ids.insert(entry.id, slot);
        if let Some(peer) = entry.peer {
            self.peers.insert(peer, slot);
        }
        self.slots[slot] = Some(entry);
        self.queue(slot);
        Some(slot)
    }

    pub(crate) fn by_id(&self, id: u64) -> Option<usize> {
        self.ids.get(&id).copied()
    }

    pub(crate) fn by_peer(&self, peer: SocketAddr) -> Option<usize> {
        self.peers.get(&peer).copied()
    }

    pub(crate) fn get(&mut self, slot: usize) -> Option<&mut Slot<A>> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Frees a slot.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Slot<A>> {
        let mut entry = self.slots.get_mut(slot)?.take()?;
        entry.queued = false;
        self.ids.remove(&entry.id);
        if let Some(peer) = entry.peer.filter(|p| self.peers.get(p) == Some(&slot)) {
            self.peers.remove(&peer);
        }
        if let (Some(index), Some(lanes)) = (entry.lane, &mut self.lanes) {
            lanes.close(index);
        }
        self.deadlines.set(slot, None);
        self.ready.retain(|s| *s != slot);
        self.free.push(slot);
        Some(entry)
    }

    /// Frees a slot if its entry is as `wanted`.
    pub(crate) fn remove_if(
        &mut self,
        slot: usize,
        wanted: impl FnOnce(&mut Slot<A>) -> bool,
    ) -> Option<Slot<A>> {
        let wanted = self.slots.get_mut(slot)?.as_mut().is_some_and(wanted);
        wanted.then(|| self.remove(slot)).flatten()
    }

    /// Frees a slot that is in use, if there is one.
    pub(crate) fn remove_any(&mut self) -> Option<Slot<A>> {
        let slot = self.slots.iter().position(Option::is_some)?;
        self.remove(slot)
    }

    /// Queues an entry to be served.
    pub(crate) fn queue(&mut self, slot: usize) {
        if let Some(Some(entry)) = self.slots.get_mut(slot)
            && !entry.queued
        {
            entry.queued = true;
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
        for entry in self.slots.iter_mut().flatten() {
            entry.close(now, code, text);
        }
        self.queue_all();
    }

    /// Notifies every session that this host sends from another address now.
    pub(crate) fn path_changed(&mut self, now: Instant) {
        for entry in self.slots.iter_mut().flatten() {
            entry.guard(|entry| entry.session.path_changed(now));
        }
        self.queue_all();
    }

    /// The session in `slot` gets the lane `index`, which is open.
    pub(crate) fn join(&mut self, now: Instant, slot: usize, index: usize) {
        if let (Some(lanes), Some(Some(entry))) = (&mut self.lanes, self.slots.get_mut(slot)) {
            lanes.entry(index, slot);
            entry.lane = Some(index);
            entry.control(now, Control::Opened);
        }
    }

    /// Polls the lanes; true if there are events.
    pub(crate) fn poll_lanes(&mut self, now: Instant) -> bool {
        self.lanes.as_mut().is_some_and(|lanes| lanes.poll(now))
    }

    /// Passes events of lanes to their sessions, and queues them; not yet if there are `datagrams` that may
    /// have arrived before.
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
            let Some(Some(entry)) = self.slots.get_mut(slot) else {
                continue;
            };
            match news {
                News::Opened(_) => entry.control(now, Control::Opened),
                News::Heard(_) => entry.listen(now, index, &mut lanes),
                News::Over(_, why) => entry.hang_up(now, index, &why, &mut lanes),
                News::Writable(_) | News::Nothing => {}
            }
            self.queue(slot);
        }
        self.lanes = Some(lanes);
    }

    /// Lets the session write to its lane.
    pub(crate) fn pump(&mut self, slot: usize, now: Instant) {
        if let Some(lanes) = &mut self.lanes
            && let Some(Some(entry)) = self.slots.get_mut(slot)
            && let Some(index) = entry.lane
        {
            lanes.fill(index, |room, into| {
                entry.guard(|entry| entry.session.poll_control(now, room, into));
            });
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The entry that has waited longest; it is no longer queued.
    pub(crate) fn next_ready(&mut self) -> Option<usize> {
        let slot = self.ready.pop_front()?;
        if let Some(Some(entry)) = self.slots.get_mut(slot) {
            entry.queued = false;
        }
        Some(slot)
    }

    /// Notifies every session whose deadline has passed, and queues it.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.due(now) {
            self.deadlines.set(slot, None);
            let Some(Some(entry)) = self.slots.get_mut(slot) else {
                continue;
            };
            entry.expire(now);
            self.queue(slot);
        }
    }

    /// Arms the deadline of an entry that was served at `now`, whether or not it is queued again: a
    /// session that always has something to send has deadlines too. False if its deadline passed,
    /// was served and did not move; it is put off so that the shard does not spin.
    pub(crate) fn arm(&mut self, slot: usize, now: Instant) -> bool {
        let Some(Some(entry)) = self.slots.get_mut(slot) else {
            return true;
        };
        let deadline = entry.deadline();
        let stuck = deadline.is_some_and(|at| at <= now && entry.fired == Some(at));
        entry.fired = None;
        let deadline = if stuck { Some(now + PUT_OFF) } else { deadline };
        self.deadlines.set(slot, deadline);
        !stuck
    }

    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first()
    }
}

/// Time by which a deadline that did not move is put off.
const PUT_OFF: std::time::Duration = std::time::Duration::from_millis(1);
