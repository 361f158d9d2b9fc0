//! One connection: the opening, the two halves and the payload's meaning, joined. A connection is
//! UDT's part of a [`Carrier`](farhaul_core::shell::Carrier)'s session. `recv` takes what arrives,
//! `send` writes what leaves; this file holds the state, the clock and the application's side.

mod recv;
mod send;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use farhaul_core::{
    closing::{Cause, Closing},
    codec::{NoRoom, Writer},
    congestion::CongestionController,
    life::Life,
    protocol::{CloseReason, Turn},
    send::Permit,
    session::{AppSide, earliest},
    shell::{Connection, Packet, Refusal, SessionState},
    stats::{Stats, Why},
    store::ObjectId,
    time::Instant,
};

use super::{
    Behaviour, Framing, UdtConfig,
    inflow::{Inflow, RECORD},
    liveness::{Liveness, Silence},
    opening::{Agreed, Opening},
    recv::{MAX_NAK, Receiver},
    send::{SYN, Sender},
    seq,
    wire::{Control, HEADER, Handshake, OVERHEAD, Packet as Wire, Request, decode},
};

/// Time for which a listener's session keeps its own data back while nothing came from the client.
/// The client of libudt loses what arrives before it has entered the new socket into its table.
const HOLD: Duration = Duration::from_millis(20);
/// Bytes of a shutdown's text.
const MAX_TEXT: usize = 400;

/// State of a connection once it is made.
#[derive(Debug)]
struct Link {
    /// Socket id of the peer.
    peer: u32,
    /// UDP payload of a full datagram.
    datagram: usize,
    /// The most that is taken.
    most: usize,
    receiver: Receiver,
    inflow: Inflow,
    /// Time until which own data waits for the peer at most.
    hold: Option<Instant>,
}

/// UDT's part of a session.
pub(super) struct UdtConnection {
    config: Arc<UdtConfig>,
    started: Instant,
    ours: Handshake,
    opening: Option<Opening>,
    link: Option<Link>,
    sender: Sender,
    liveness: Liveness,
    /// Data packets of the batch that arrives.
    arrived: u64,
    /// Small packets that are due.
    answer: Option<Handshake>,
    ack2: VecDeque<u32>,
    keep_alive: bool,
}

impl UdtConnection {
    /// Asks with `ours`: a client, or one of two equals.
    pub(super) fn asking(
        config: Arc<UdtConfig>,
        law: Box<dyn CongestionController>,
        now: Instant,
        ours: Handshake,
    ) -> Self {
        let limit = match ours.request {
            Request::RENDEZVOUS => config.answer * 10,
            _ => config.answer,
        };
        Self {
            sender: Sender::new(&config, law, now),
            liveness: Liveness::new(config.behaviour, now),
            config,
            started: now,
            ours,
            opening: Some(Opening::new(now, ours, limit)),
            link: None,
            arrived: 0,
            answer: None,
            ack2: VecDeque::new(),
            keep_alive: false,
        }
    }

    /// A listener's end of the agreement; it repeats its answers.
    pub(super) fn answering(mut self, now: Instant, agreed: Agreed, app: &mut AppSide) -> Self {
        self.answer = Some(self.ours);
        self.open(now, agreed, Some(now + HOLD), app);
        self
    }

    /// The connection is made.
    fn open(&mut self, now: Instant, agreed: Agreed, hold: Option<Instant>, app: &mut AppSide) {
        let took = self.opening.take().and_then(|opening| opening.rtt);
        let took = took.map(|t| t.max(Duration::from_micros(100)));
        // An equal that does not know yet what was agreed sends packets of the size that it knew first.
        let most = if self.config.rendezvous {
            self.ours.mss
        } else {
            agreed.mss
        };
        let most = (most - OVERHEAD) as usize;
        self.ours.mss = agreed.mss;
        let datagram = agreed.mss - OVERHEAD;
        let first = seq::initial(agreed.isn);
        let slots = self.ours.window.into();
        self.link = Some(Link {
            peer: agreed.peer,
            datagram: datagram as usize,
            most,
            receiver: Receiver::new(&self.config, now, agreed.isn, datagram as usize),
            inflow: Inflow::new(self.config.framing, first, most - HEADER, slots),
            hold,
        });
        let numbers = (self.ours.isn, datagram, agreed.window);
        self.sender.start(now, numbers, took);
        self.liveness.on_heard(now);
        app.connected(None);
    }

    fn on_link_timers(&mut self, now: Instant) -> Result<(), CloseReason> {
        self.sender.send_again(now);
        self.sender.flight.governor.on_timer(now);
        match self.liveness.check(now, &self.sender.rtt) {
            Some(Silence::Dead) => return Err(CloseReason::TimedOut),
            Some(Silence::Expired(_)) if self.sender.is_idle() => self.keep_alive = true,
            Some(Silence::Expired(n)) => {
                self.sender.expire(now, n);
                // The fixed sender has its own repeats; this only asks for a sign of life.
                self.keep_alive = !self.sender.flight.has_lost();
            }
            None => {}
        }
        Ok(())
    }
}

impl Connection for UdtConnection {
    fn control(&self) -> usize {
        HEADER + MAX_NAK
    }

    fn shape(&self) -> (usize, usize) {
        let record = match self.config.framing {
            Framing::Records => RECORD,
            Framing::Stream | Framing::Messages { .. } => 0,
        };
        let datagram = self.link.as_ref().map_or(0, |link| link.datagram);
        (datagram, HEADER + record)
    }

    fn on_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        state: &mut SessionState,
        datagram: &[u8],
        at: usize,
    ) -> Result<(), Refusal> {
        let now = turn.now;
        match decode(datagram)? {
            Wire::Data(header, payload) if header.to == self.ours.id => {
                self.meet_early(now, &mut state.app);
                self.on_data(now, state, &header, payload, at)?;
            }
            Wire::Control(to, Control::Handshake(theirs)) if to == self.ours.id || to == 0 => {
                self.on_handshake(now, &mut state.app, &theirs)?;
            }
            Wire::Control(to, control) if to == self.ours.id => {
                if control == Control::KeepAlive {
                    self.meet_early(now, &mut state.app);
                }
                if matches!(control, Control::Ack { .. } | Control::Nak(_)) {
                    state.app.stats.feedback_received += datagram.len() as u64;
                }
                self.on_control(now, &mut state.app, control)?;
            }
            _ => return Err(Refusal::Drop),
        }
        self.liveness.on_heard(now);
        Ok(())
    }

    fn batch_received(&mut self, now: Instant) {
        let arrived = std::mem::take(&mut self.arrived);
        if let Some(link) = &mut self.link {
            link.receiver.on_batch(now, arrived, &self.sender.rtt);
        }
    }

    fn poll_control(
        &mut self,
        now: Instant,
        state: &mut SessionState,
        w: &mut Writer<'_>,
    ) -> Result<bool, NoRoom> {
        let mut list = [0; MAX_NAK];
        let asked = self.opening.as_mut().and_then(|opening| opening.ask(now));
        let asked = asked.map(|(to, ask)| (to, Control::Handshake(ask)));
        let Some((to, control)) = asked.or_else(|| self.next_control(now, &mut list)) else {
            return Ok(false);
        };
        control.encode(to, w)?;
        if matches!(control, Control::Ack { .. } | Control::Nak(_)) {
            state.app.stats.feedback_sent += w.len() as u64;
        }
        self.liveness.on_sent(now);
        Ok(true)
    }

    fn close(&mut self, now: Instant, life: &mut Life<Closing>, reason: &CloseReason) {
        let closing = Closing::of(reason).filter(|_| self.link.is_some());
        let rtt = self.sender.rtt.smoothed().min(Duration::from_millis(500));
        life.close(now, closing, rtt + SYN);
        if self.config.behaviour == Behaviour::Libudt {
            life.answer_close(now);
        }
    }

    fn write_close(
        &mut self,
        _: Instant,
        close: &Closing,
        w: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let code = match close.cause {
            Cause::Application => close.code,
            _ => u32::MAX,
        };
        // It means nothing to libudt.
        let mut body = code.to_be_bytes().to_vec();
        if code != 0 {
            let end = close.text.floor_char_boundary(MAX_TEXT);
            body.extend(&close.text.as_bytes()[..end]);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        let to = self.link.as_ref().map_or(0, |link| link.peer);
        Control::Shutdown(&body).encode(to, w)
    }

    fn permit(&mut self, now: Instant) -> Permit {
        let Some(link) = self
            .link
            .as_mut()
            .filter(|l| l.hold.is_none_or(|at| at <= now))
        else {
            return Permit::Hold(Why::Handshake);
        };
        link.hold = None;
        self.sender.permit(now)
    }

    fn extends_batch(&self, sent: u64, allowed: u64) -> bool {
        sent < allowed || self.sender.is_pair_due()
    }

    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        let Some((number, piece)) = self.sender.next_packet(now, packet.room()) else {
            return false;
        };
        self.fill(now, number, piece, packet)
            .expect("a piece fits its packet");
        self.sender.sent(now, number, piece, packet.wire());
        true
    }

    fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.sender.batch_sent(now, bytes);
        self.liveness.on_sent(now);
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        if let Some(opening) = &self.opening {
            return Some((opening.due.min(opening.ends), Why::Handshake));
        }
        let (link, rtt) = (self.link.as_ref()?, &self.sender.rtt);
        let named = |at: Option<Instant>, why| at.map(|at| (at, why));
        earliest([
            Some((self.liveness.deadline(rtt), Why::Liveness)),
            named(link.receiver.deadline(rtt), Why::Feedback),
            named(self.sender.again_at(), Why::Repair),
            self.sender.flight.deadline(),
            named(link.hold, Why::Handshake),
        ])
    }

    fn on_timer(&mut self, now: Instant) -> Result<(), CloseReason> {
        match &self.opening {
            Some(opening) if now < opening.ends => Ok(()),
            Some(opening) if opening.answered => Err(CloseReason::Unfinished),
            Some(_) => Err(CloseReason::NoAnswer),
            None => self.on_link_timers(now),
        }
    }

    fn failure(&self) -> Option<CloseReason> {
        let failure = self.sender.flight.governor.failure();
        failure.map(CloseReason::Internal)
    }

    fn send(&mut self, now: Instant, object: ObjectId, offset: u64, len: u64) {
        self.sender.out.send(now, object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.sender.out.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.out.cancel_unsent();
    }

    fn write(&mut self, now: Instant, bytes: &[u8]) {
        self.sender.out.write(now, bytes);
    }

    fn unwritten(&self) -> usize {
        self.sender.out.unwritten()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        if let Some(link) = &mut self.link {
            link.inflow.read(into);
            let room = link.inflow.room(link.receiver.prefix());
            link.receiver.on_room(room);
        }
    }

    fn is_delivered(&self) -> bool {
        self.sender.delivered_all()
    }

    /// True, as in libudt, which does not look at such answers. Two equals are hardly started at
    /// one instant, and a server that is started a moment later is found.
    fn ignores_port_unreachable(&self) -> bool {
        self.opening.is_some()
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.sender.flight.fill_stats(stats);
        stats.rtt_min = self.sender.rtt.min_ever();
        stats.rtt_smoothed = stats.rtt_min.map(|_| self.sender.rtt.smoothed());
    }
}
