//! Plays a further parallel session of a copy, which only carries content of large files.

use std::{
    mem,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use farhaul_core::{
    protocol::Session,
    store::{Extent, Sink, StoreError},
    time::Instant,
};

use super::{LaneEvent, Lanes, Link, lock};
use crate::{
    error::TransferError,
    ranges::RangeSet,
    receiver::Receives,
    role::{Role, RoleCore, State, has_none, not_requested},
    sender::Sends,
    wire::{Exit, Message},
};

enum Work {
    Sends(Sends),
    Receives(Receives),
}

/// One end of a further parallel session.
pub(crate) struct Lane {
    core: RoleCore,
    lanes: Arc<Lanes>,
    link: Arc<Link>,
    work: Work,
    came: bool,
    left: bool,
    usage: Use,
}

/// State of a session that uses its part of rate and share, or does not.
#[derive(Default)]
struct Use {
    busy: bool,
    /// Time at which the session last had something on its way.
    at: Option<Instant>,
    /// Content received by then.
    received: u64,
}

/// Time for which a session keeps its part without anything on its way.
const PAUSE: Duration = Duration::from_millis(500);

impl Lane {
    /// Enters a further session of a copy, if the copy may have another.
    pub(crate) fn enter(lanes: Arc<Lanes>) -> Result<Self, TransferError> {
        let link = lanes.enter().ok_or_else(|| {
            let text = "this copy has all its lanes, or had them";
            TransferError::new(Exit::Busy, text).fix("the copy goes on without this one")
        })?;
        Ok(Self::new(lanes, link))
    }

    /// The end of `link`.
    pub(crate) fn new(lanes: Arc<Lanes>, link: Arc<Link>) -> Self {
        let work = if lanes.sends {
            Work::Sends(Sends::default())
        } else {
            Work::Receives(Receives::default())
        };
        Self {
            core: RoleCore {
                sends: lanes.sends,
                ..RoleCore::default()
            },
            lanes,
            link,
            work,
            came: false,
            left: false,
            usage: Use::default(),
        }
    }

    pub(crate) const fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    pub(crate) const fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Notes that both ends know this session as one of the copy.
    pub(crate) fn come(&mut self) {
        if !mem::replace(&mut self.came, true) {
            self.link.came.store(true, Relaxed);
            self.lanes.up.fetch_add(1, Relaxed);
            self.lanes.tell(LaneEvent::Joined(Arc::clone(&self.link)));
        }
    }

    fn set_busy(&mut self, busy: bool) {
        if mem::replace(&mut self.usage.busy, busy) == busy {
            return;
        }
        if busy {
            self.lanes.busy.fetch_add(1, Relaxed);
        } else {
            self.lanes.busy.fetch_sub(1, Relaxed);
        }
        self.lanes.wake_first();
    }
}

impl Role for Lane {
    fn core(&mut self) -> &mut RoleCore {
        &mut self.core
    }

    /// The copy is over when its first session is.
    fn state(&mut self) -> State {
        if self.lanes.is_over() {
            State::Over
        } else {
            State::Open
        }
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        match (message, &mut self.work) {
            (Message::Got { ranges }, Work::Sends(sends)) => sends.confirm(&ranges),
            (Message::Joined, _) if !self.came => {
                self.come();
                Ok(())
            }
            _ => Err(TransferError::protocol(
                "the peer sent a message that no lane takes",
            )),
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        match &mut self.work {
            Work::Sends(sends) => sends.poll(&self.link, &self.lanes, session),
            Work::Receives(receives) => {
                receives.poll(now, &self.link, &self.lanes, &mut self.core.out);
            }
        }
        if !self.core.has_room(session) {
            let text = "the peer has not read an answer for a long time";
            self.core
                .fail(TransferError::new(Exit::ConnectionLost, text));
        }
        self.core.out.flush(session);
        let stats = session.stats();
        let moves = match &self.work {
            Work::Sends(_) => self.link.backlog() > 0 || stats.in_flight > 0,
            Work::Receives(_) => stats.data_received != self.usage.received,
        };
        if moves {
            self.usage.at = Some(now);
            self.usage.received = stats.data_received;
        }
        let lately = self.usage.at.is_some_and(|at| now.since(at) < PAUSE);
        self.set_busy(lately && !self.left);
        *lock(&self.link.stats) = stats;
    }

    /// The session ends with its copy, whose first session watches that all of them get on.
    fn is_waiting(&self) -> bool {
        true
    }

    fn next_wake(&self, _now: Instant) -> Option<Instant> {
        let due = match &self.work {
            Work::Sends(_) => None,
            Work::Receives(receives) => receives.next_wake(),
        };
        let pause = self.usage.at.filter(|_| self.usage.busy);
        pause.map(|at| at + PAUSE).into_iter().chain(due).min()
    }

    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        match &mut self.work {
            Work::Sends(sends) => sends.fill(extents, batch, &self.lanes),
            Work::Receives(_) => has_none(),
        }
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        match &mut self.work {
            Work::Sends(_) => not_requested(),
            Work::Receives(receives) => receives.place(extents, batch, &self.link, &self.lanes),
        }
    }

    fn sink(&self) -> Sink {
        match &self.work {
            Work::Sends(_) => Sink::ENDLESS,
            Work::Receives(receives) => receives.sink(),
        }
    }

    /// Bytes that are not known to have arrived go back.
    fn leave(&mut self, why: Option<&TransferError>) {
        if mem::replace(&mut self.left, true) {
            return;
        }
        self.set_busy(false);
        let mut queues = lock(&self.link.queues);
        queues.gone = true;
        let pieces = mem::take(&mut queues.pieces);
        drop(queues);
        let mut unconfirmed = match &mut self.work {
            Work::Sends(sends) => sends.take_unconfirmed(),
            Work::Receives(_) => RangeSet::default(),
        };
        for piece in pieces {
            unconfirmed.insert(piece.range);
        }
        if self.came {
            self.lanes.up.fetch_sub(1, Relaxed);
        }
        self.lanes.tell(LaneEvent::Left {
            number: self.link.number,
            unconfirmed,
            why: why.map(|e| e.text.clone()),
        });
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let why = TransferError::new(Exit::Internal, "it was dropped");
        self.leave(Some(&why));
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::congestion::Sharing;
    use farhaul_testkit::FakeSession;

    use super::*;
    use crate::brake::Brake;

    #[test]
    fn a_lane_without_content_takes_no_part_of_rate_and_share() {
        for sends in [true, false] {
            let brake = Brake::new(Sharing::Fair);
            let lanes = Arc::new(Lanes::new(sends, brake, None, 2));
            let link = lanes.enter().expect("one of two");
            let mut lane = Lane::new(Arc::clone(&lanes), link);
            lane.come();
            let mut session = FakeSession::default();
            let start = Instant::EPOCH;
            lane.poll(start, &mut session);
            assert_eq!((lanes.up(), lanes.sharing()), (2, 1));
            session.stats.in_flight = 9;
            session.stats.data_received = 9;
            lane.poll(start, &mut session);
            assert_eq!(lanes.sharing(), 2);
            session.stats.in_flight = 0;
            lane.poll(start + PAUSE / 2, &mut session);
            assert_eq!(lanes.sharing(), 2, "a pause is not the end");
            let due = lane.next_wake(start).expect("it looks again");
            lane.poll(due.max(start + PAUSE), &mut session);
            assert_eq!(lanes.sharing(), 1);
            session.stats.in_flight = 9;
            session.stats.data_received = 10;
            lane.poll(start + PAUSE * 9, &mut session);
            lane.leave(None);
            assert_eq!((lanes.up(), lanes.sharing()), (1, 1));
        }
    }
}
