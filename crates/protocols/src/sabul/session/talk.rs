//! What is said on the control lane, in which order: options, the end of the greeting, written bytes,
//! feedback, a sign of life; or a farewell and nothing more.
//!
//! Invariant: of what the peer said, less than one message and one delivery is kept.

use std::time::Duration;

use farhaul_core::{control::Control, protocol::CloseReason, protocol::Event, time::Instant};

use super::{ALIVE, Phase, SabulSession};
use crate::sabul::wire::{MAX_WORDS, Message, OPTIONS, Options};

/// The state of the conversation.
#[derive(Debug)]
pub(super) struct Talk {
    open: bool,
    /// Bytes not understood yet.
    kept: Vec<u8>,
    /// Own options left then; the answer times the path.
    asked: Option<Instant>,
    /// The peer's options are here.
    answered: bool,
    /// A client said that it is ready, or a listener heard it.
    ready: bool,
    farewell: Option<(u32, String)>,
    said_at: Instant,
}

impl Talk {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            open: false,
            kept: Vec::new(),
            asked: None,
            answered: false,
            ready: false,
            farewell: None,
            said_at: now,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// Both ends know that both have the options.
    pub(super) const fn greeted(&self) -> bool {
        self.ready
    }

    pub(super) fn say_farewell(&mut self, code: u32, text: &str) {
        self.farewell = Some((code, text.to_owned()));
    }

    /// This side's greeting is over.
    pub(super) const fn is_ready(&self) -> bool {
        self.ready
    }

    pub(super) fn alive_at(&self) -> Option<Instant> {
        self.ready.then(|| self.said_at + ALIVE)
    }
}

impl SabulSession {
    pub(super) fn hear_control(&mut self, now: Instant, control: Control<'_>) {
        match control {
            Control::Opened => {
                self.talk.open = true;
                self.opening.lane = true;
                self.opening.join_at = self.client.then_some(now);
            }
            Control::Closed(why) => {
                self.talk.open = false;
                match self.phase {
                    Phase::Leaving(_) | Phase::Over => self.phase = Phase::Over,
                    Phase::Opening | Phase::Open => {
                        self.fail(now, CloseReason::Lane(why.to_owned()));
                    }
                }
            }
            Control::Bytes(bytes) => {
                self.heard = now;
                self.stats.wire_received += bytes.len() as u64;
                self.understand(now, bytes);
            }
        }
    }

    fn understand(&mut self, now: Instant, bytes: &[u8]) {
        let mut kept = std::mem::take(&mut self.talk.kept);
        kept.extend(bytes);
        let mut used = 0;
        while matches!(self.phase, Phase::Opening | Phase::Open) {
            match self.next(now, &kept[used..]) {
                Ok(0) => break,
                Ok(n) => used += n,
                Err(what) => {
                    let text = format!("on the control connection (TCP): {what}");
                    self.fail(now, CloseReason::Protocol(text));
                }
            }
        }
        kept.drain(..used);
        self.talk.kept = kept;
        self.settle();
    }

    /// Hears the first thing in `bytes`; its length, 0 if it is not all there.
    fn next(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, String> {
        if self.talk.answered {
            let message = Message::decode(bytes).map_err(|e| e.to_string())?;
            return message.map_or(Ok(0), |(message, n)| {
                self.on_message(now, message)
                    .map(|()| n)
                    .map_err(Into::into)
            });
        }
        let Some(options) = bytes.first_chunk::<OPTIONS>() else {
            return Ok(0);
        };
        let theirs = Options::decode(options).map_err(|e| e.to_string())?;
        self.talk.answered = true;
        if let Some(asked) = self.talk.asked {
            self.agree(now, &theirs, now.since(asked));
            self.check_open();
        } else {
            // A listener answers first; how long that takes it sees from what the client then says.
            self.options.packet = self.options.packet.min(theirs.packet);
            self.agree(now, &theirs, Duration::ZERO);
        }
        Ok(OPTIONS)
    }

    fn on_message(&mut self, now: Instant, message: Message<'_>) -> Result<(), &'static str> {
        match message {
            Message::Ready if !self.client && !self.talk.ready => {
                self.talk.ready = true;
                let exchange = self.talk.asked.map_or(Duration::ZERO, |at| now.since(at));
                self.time_path(now, exchange);
                self.check_open();
            }
            Message::Ready => return Err("ready, out of turn"),
            _ if !self.talk.ready => return Err("a message before the greeting was over"),
            Message::Ack(next) => self.sender.on_ack(now, next).map_err(|e| e.0)?,
            Message::Err(losses) => self.sender.on_losses(now, losses).map_err(|e| e.0)?,
            Message::Syn(received) => self.sender.on_signal(now, received),
            Message::Stream(bytes) => {
                self.streams.take(bytes).map_err(|e| e.0)?;
                self.events.push_back(Event::Readable);
            }
            Message::Heard(bytes) => self.streams.on_heard(bytes).map_err(|e| e.0)?,
            Message::Alive => {}
            Message::Close(code, words) => {
                let text = farhaul_core::text::shown(words);
                self.fail(now, CloseReason::Peer { code, text });
            }
        }
        if matches!(message, Message::Ack(_) | Message::Err(_) | Message::Syn(_)) {
            self.stats.feedback_received += 8;
        }
        Ok(())
    }

    pub(super) fn say_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        if !self.talk.open || self.phase == Phase::Over {
            return;
        }
        let before = into.len();
        self.say(now, room, into);
        let said = (into.len() - before) as u64;
        if said > 0 {
            self.talk.said_at = now;
            self.stats.wire_sent += said;
        }
        self.settle();
    }

    fn say(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        let most = into.len() + room;
        if let Some((code, text)) = &self.talk.farewell {
            if into.len() + 12 + MAX_WORDS <= most {
                let end = text.floor_char_boundary(MAX_WORDS);
                Message::Close(*code, &text.as_bytes()[..end]).encode(into);
                self.talk.farewell = None;
            }
            return;
        }
        if matches!(self.phase, Phase::Leaving(_)) {
            return;
        }
        let asks = self.talk.asked.is_none() && (self.client || self.talk.answered);
        if asks && into.len() + OPTIONS <= most {
            self.options.encode(into);
            self.talk.asked = Some(now);
        }
        let ready = self.client && self.talk.answered && self.opening.joined;
        if ready && !self.talk.ready && into.len() + 8 <= most {
            self.talk.ready = true;
            Message::Ready.encode(into);
            self.check_open();
        }
        if !self.talk.ready {
            return;
        }
        self.streams.say(most.saturating_sub(into.len()), into);
        let before = into.len();
        if let Some(receiver) = &mut self.receiver {
            receiver.say(now, most.saturating_sub(before), into);
        }
        self.stats.feedback_sent += (into.len() - before) as u64;
        if self.talk.alive_at().is_some_and(|at| at <= now) && into.len() + 8 <= most {
            Message::Alive.encode(into);
        }
    }
}
