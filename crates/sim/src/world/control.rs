//! Moves control lanes on in a run: segments over the network, bytes into sessions, timers.

use farhaul_core::control::{Control, preamble};

use super::World;
use crate::{lane::Kind, queue::What, scenario::Error, trace::Mark};

/// Reason for a session when the peer has closed the control lane.
const ENDED: &str = "the peer closed the control connection";

impl World<'_> {
    /// A segment of the control lane of `from` arrived in the train `index`.
    pub(super) fn control(&mut self, index: u32, from: u32, number: u64) -> Result<(), Error> {
        self.network.recycle(index);
        if let Some(lane) = &mut self.lanes[from as usize] {
            lane.arrived(self.now, number);
        }
        self.arm_lane(from);
        let to = from ^ 1;
        self.network.note(self.now, Mark::Control, to, 0);
        self.read_lane(to);
        self.drain(to)
    }

    /// The end `to` receives the bytes of its peer's lane.
    pub(super) fn read_lane(&mut self, to: u32) {
        let now = self.now;
        while let Some(lane) = &mut self.lanes[(to ^ 1) as usize] {
            let end = &mut self.ends[to as usize];
            // Behind the opening and the token a listener's lane waits for its session.
            if lane.open && !end.has_session() && end.greeted() {
                return;
            }
            let Some((kind, bytes)) = lane.take() else {
                return;
            };
            match kind {
                Kind::Bytes if end.has_session() => end.control(now, Control::Bytes(&bytes)),
                Kind::Bytes => end.greet(&bytes),
                Kind::End => end.control(now, Control::Closed(ENDED)),
                Kind::Opening => self.opened(to),
            }
        }
    }

    /// The opening of the peer is there: the server answers it, the client's lane is open.
    fn opened(&mut self, to: u32) {
        let client = to & 1 == 0;
        let end = &mut self.ends[to as usize];
        let token = end.session().and_then(|session| session.control_token());
        if let Some(lane) = &mut self.lanes[to as usize] {
            match token.filter(|_| client) {
                Some(token) => lane.write(self.now, &preamble(token)),
                None => lane.write_mark(self.now, Kind::Opening),
            }
        }
        if client {
            end.control(self.now, Control::Opened);
        }
        self.flush(to);
    }

    /// Takes bytes for the control lane from the session of `e`.
    pub(super) fn pump(&mut self, e: u32) {
        let (now, at) = (self.now, e as usize);
        // The peer's opening was received: for a client the answer, for a server the request.
        let open = self.lanes[at ^ 1].as_ref().is_some_and(|lane| lane.open);
        let Some(lane) = self.lanes[at].as_mut().filter(|_| open) else {
            return;
        };
        let Some(session) = self.ends[at].session() else {
            return;
        };
        while lane.room() > 0 {
            self.reply.clear();
            session.poll_control(now, lane.room(), &mut self.reply);
            if self.reply.is_empty() {
                break;
            }
            lane.write(now, &self.reply);
        }
        if session.is_closed() && !lane.ended {
            lane.write_mark(now, Kind::End);
        }
        self.flush(e);
    }

    /// Sends what leaves on the control lane of `e` now.
    pub(super) fn flush(&mut self, e: u32) {
        if let Some(lane) = &mut self.lanes[e as usize] {
            while let Some((number, len)) = lane.next(self.now) {
                self.network.control(self.now, e, number, len);
            }
        }
        self.arm_lane(e);
    }

    pub(super) fn resend(&mut self, e: u32) {
        if let Some(lane) = &mut self.lanes[e as usize]
            && lane.armed == Some(self.now)
        {
            lane.armed = None;
            self.flush(e);
        }
    }

    fn arm_lane(&mut self, e: u32) {
        let Some(lane) = &mut self.lanes[e as usize] else {
            return;
        };
        if let Some(due) = lane.due()
            && lane.armed.is_none_or(|armed| due < armed)
        {
            lane.armed = Some(due);
            self.network.queue.push(due, What::Control(e));
        }
    }
}
