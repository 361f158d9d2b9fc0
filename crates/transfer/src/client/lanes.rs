//! Opens further parallel sessions of a client. The client asks for them on the first session; each
//! begins with the token that it was given.

use std::sync::Arc;

use farhaul_core::{
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::App;

use super::Client;
use crate::{
    close_reason::closed_by_server,
    endpoint::Endpoint,
    error::TransferError,
    lanes::{self, Link, WORTH_LANES, lanes_by_cores},
    progress::Phase,
    wire::{Exit, Features, MOST_LANES, Message, Outbox, Token},
};

impl Client {
    /// Asks for further parallel sessions, if they were requested or pay.
    pub(super) fn ask_for_lanes(&mut self) {
        let can = self
            .agreed
            .is_some_and(|agreed| agreed.features.has(Features::LANES));
        if self.wanted.is_some() || !self.accepted || self.options.open.is_none() {
            return;
        }
        let Some(role) = &mut self.endpoint.role else {
            return;
        };
        let Some(for_lanes) = role.for_lanes() else {
            return;
        };
        let (lanes, chosen) = match self.options.lanes {
            Some(lanes) => (lanes.clamp(1, MOST_LANES), true),
            None if for_lanes >= WORTH_LANES => (lanes_by_cores(), false),
            None => return,
        };
        self.wanted = Some(lanes);
        if lanes > 1 && !can && chosen {
            let text = "one lane carries this copy: the server's version has no lanes";
            role.core().log.add(Exit::Ok, text.into());
        } else if lanes > 1 && can {
            self.out.push(&Message::WantLanes { lanes, chosen });
        }
    }

    /// Opens those that the server takes.
    pub(super) fn open_lanes(&mut self, token: &Token, lanes: u32) -> Result<(), TransferError> {
        let fits = self.wanted.is_some_and(|wanted| lanes <= wanted);
        if !fits || self.endpoint.lanes().is_some() {
            let text = "the server answered a request for lanes that was not made";
            return Err(TransferError::protocol(text));
        }
        if self.endpoint.sends() {
            // So far its session alone has kept to it.
            let rate = self.options.max_rate.unwrap_or(Rate::UNLIMITED);
            self.endpoint.brake.rate = rate;
        }
        let wake = self.options.wake.clone();
        let shared = self.endpoint.open_lanes(lanes, wake);
        let (Some(shared), Some(open)) = (shared, &self.options.open) else {
            return Ok(());
        };
        while let Some(link) = shared.enter() {
            open(Lane::new(
                *token,
                lanes::Lane::new(Arc::clone(&shared), link),
            ));
        }
        Ok(())
    }
}

/// A further member of a copy, for a parallel session of its own.
pub struct Lane(Joiner);

struct Joiner {
    endpoint: Endpoint,
    link: Arc<Link>,
    token: Token,
    joined: bool,
}

impl Lane {
    fn new(token: Token, lane: lanes::Lane) -> Self {
        let (mut endpoint, link) = (Endpoint::new(false), Arc::clone(lane.link()));
        endpoint.join(lane);
        Self(Joiner {
            endpoint,
            link,
            token,
            joined: false,
        })
    }

    /// Sets the function that wakes its session; called by other threads.
    pub fn woken_by(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.0.link.woken_by(wake);
    }
}

impl Joiner {
    fn messages(&mut self, session: &mut dyn Session) -> Result<(), TransferError> {
        while let Some(message) = self.endpoint.next(session)? {
            self.joined |= matches!(message, Message::Joined);
            match message {
                Message::Refused { code, text, .. } if !self.joined => {
                    return Err(TransferError::refused(code, &text, b""));
                }
                other => self.endpoint.handle(other)?,
            }
        }
        Ok(())
    }

    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        self.endpoint.at(now);
        match event {
            Event::Connected { .. } => {
                let mut out = Outbox::default();
                out.push(&Message::Join { token: self.token });
                out.flush(session);
            }
            Event::Readable => {
                if let Err(e) = self.messages(session) {
                    self.endpoint.fail(e, session);
                }
            }
            Event::Delivered => {}
            Event::Closed(reason) => self.endpoint.closed(&closed_by_server(&reason)),
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.endpoint.at(now);
        if session.is_closed() || self.endpoint.handle.progress().phase() == Phase::Done {
            return;
        }
        if self.joined {
            self.endpoint.poll(session);
        }
        self.endpoint.close_if_over(session);
    }
}

is_an_app!(Lane);
