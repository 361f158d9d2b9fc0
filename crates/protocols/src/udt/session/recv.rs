//! Applies an arriving datagram. A datagram is dropped if it does not come from the peer's exact
//! address or is not for this socket. It is dropped, too, if it cannot be decoded, or comes after
//! the end. A datagram that no honest peer sends ends the session.

use farhaul_core::{
    codec::DecodeError,
    protocol::CloseReason,
    session::AppSide,
    shell::{Refusal, SessionState},
    text,
    time::Instant,
};

use super::{MAX_TEXT, UdtConnection};
use crate::udt::{
    opening::Opening,
    wire::{Control, DataHeader, HEADER, Handshake, Request},
};

/// Answers to acknowledgements that wait to be sent.
const MAX_ACK2: usize = 64;

/// Refusal of what no honest peer sends.
fn violation(error: DecodeError) -> Refusal {
    Refusal::End(CloseReason::Protocol(error.to_string()))
}

impl UdtConnection {
    /// The other equal sends already: the connection is made.
    pub(super) fn meet_early(&mut self, now: Instant, app: &mut AppSide) {
        if let Some(agreed) = self.opening.as_ref().and_then(Opening::on_packet) {
            self.open(now, agreed, None, app);
        }
        if let Some(link) = &mut self.link {
            link.hold = None;
        }
    }

    pub(super) fn on_handshake(
        &mut self,
        now: Instant,
        app: &mut AppSide,
        theirs: &Handshake,
    ) -> Result<(), Refusal> {
        let Some(opening) = &mut self.opening else {
            return self.on_late_handshake(theirs);
        };
        let refused = |text| Refusal::End(CloseReason::Protocol(text));
        if let Some(agreed) = opening.on_handshake(now, theirs).map_err(refused)? {
            self.open(now, agreed, None, app);
            // The listener's session may be waiting to know that its packets are taken.
            self.keep_alive = true;
        }
        Ok(())
    }

    /// Answers once more, as the peer asks again: the answer was lost.
    fn on_late_handshake(&mut self, theirs: &Handshake) -> Result<(), Refusal> {
        let link = self.link.as_ref().ok_or(Refusal::Drop)?;
        let request = match (self.ours.request, theirs.request) {
            (Request::RESPONSE, Request::CONNECT | Request::RESPONSE) => Request::RESPONSE,
            (Request::RENDEZVOUS, Request::RENDEZVOUS | Request::RESPONSE) => Request::CONFIRM,
            _ => return Ok(()),
        };
        if theirs.id != link.peer {
            return Err(Refusal::Drop);
        }
        self.answer = Some(Handshake {
            request,
            ..self.ours
        });
        Ok(())
    }

    pub(super) fn on_data(
        &mut self,
        now: Instant,
        state: &mut SessionState,
        header: &DataHeader,
        payload: &[u8],
        at: usize,
    ) -> Result<(), Refusal> {
        let len = HEADER + payload.len();
        let link = self.link.as_mut().filter(|link| len <= link.most);
        let link = link.ok_or(Refusal::Drop)?;
        self.arrived += 1;
        let window = link.inflow.room(link.receiver.prefix()).max(2);
        if !state.reserve(payload.len() as u64) {
            return Ok(());
        }
        let Some(number) = link.receiver.on_data(now, header.seq, len, window) else {
            state.app.stats.dropped_duplicate += 1;
            return Ok(());
        };
        let taken = link.inflow.take(number, header, payload, at + HEADER);
        let taken = taken.map_err(violation)?;
        state.app.stats.data_received += taken.data;
        state.extents.extend(taken.extent);
        if taken.readable {
            state.app.readable();
        }
        Ok(())
    }

    pub(super) fn on_control(
        &mut self,
        now: Instant,
        app: &mut AppSide,
        control: Control<'_>,
    ) -> Result<(), Refusal> {
        let link = self.link.as_mut().ok_or(Refusal::Drop)?;
        link.hold = None;
        match control {
            Control::Ack {
                number,
                next,
                state,
            } => {
                if state.is_some() {
                    if self.ack2.len() == MAX_ACK2 {
                        self.ack2.pop_front();
                    }
                    self.ack2.push_back(number);
                }
                let taken = self.sender.on_ack(now, next, state.as_ref());
                taken.map_err(violation)
            }
            Control::Nak(losses) => self.sender.on_nak(now, losses).map_err(violation),
            Control::Ack2 { number } => {
                if let Some(sample) = link.receiver.on_ack2(now, number) {
                    self.sender.on_rtt(now, sample);
                }
                Ok(())
            }
            Control::Drop {
                message,
                first,
                last,
            } => {
                let window = link.inflow.room(link.receiver.prefix()).max(2);
                if let Some(range) = link.receiver.on_drop(first, last, window)
                    && link.inflow.give_up(range, message)
                {
                    app.readable();
                }
                Ok(())
            }
            Control::Shutdown(body) => Err(Refusal::End(shutdown(body))),
            Control::PeerError { code } => {
                let text = format!("its application failed (UDT error {code})");
                Err(Refusal::End(CloseReason::Peer { code, text }))
            }
            Control::KeepAlive | Control::Ignored(_) | Control::Handshake(_) => Ok(()),
        }
    }
}

/// Reason why the peer ends the connection.
fn shutdown(body: &[u8]) -> CloseReason {
    let (code, words) = match body.split_first_chunk() {
        Some((code, words)) => (u32::from_be_bytes(*code), words),
        None => (0, body),
    };
    let end = words.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
    let text = text::shown(&words[..end.min(MAX_TEXT)]);
    CloseReason::Peer { code, text }
}
