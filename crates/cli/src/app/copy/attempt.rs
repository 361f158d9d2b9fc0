//! Makes one attempt at a copy: one session, by UDP or through a tunnel, to its end.

use std::{
    sync::{Arc, PoisonError, atomic::AtomicU8},
    time::Duration,
};

use farhaul_core::{congestion::Sharing, protocol::CloseReason, time::Instant};
use farhaul_haul::{Haul, HaulConfig, Identity, PeerPolicy, PublicKey};
use farhaul_io::{Stop, Waker, client, clock};
use farhaul_transfer::{Control, Exit, Outcome, Progress, TransferError, client::Options};

use super::{
    Run,
    events::Events,
    lanes::Threads,
    refused::FarEnd,
    stoppable::{Rates, Stoppable},
    trust::{Seen, check_key},
};
use crate::{
    connect::{Attempt, internal},
    paths::Remembered,
    reach::{Unreached, unopened},
    ssh::TUNNEL_LAW,
};

impl Attempt<'_> {
    /// The share to claim. In a tunnel there is nobody from whom more than a fair share could be
    /// taken.
    const fn sharing(&self, wanted: Sharing) -> Sharing {
        match (self, wanted) {
            (Self::Through(_), Sharing::High) => Sharing::Fair,
            _ => wanted,
        }
    }
}

/// Display of an attempt, and its events, until they are dropped.
type Watched = (Option<Box<dyn Send>>, Option<Events>);

/// Ending of an attempt.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) reason: CloseReason,
    /// True if there was no session; another address may work.
    pub(super) unreached: bool,
    /// The server's key, if it must be accepted first.
    pub(super) unknown: Option<PublicKey>,
}

impl Run {
    /// One attempt.
    pub(super) fn once(
        &self,
        way: &Attempt<'_>,
        identity: &Identity,
        peers: PeerPolicy,
        stop: &Stop,
    ) -> Result<Ended, TransferError> {
        let server = self.request.job.server().to_string();
        let to = way.to();
        let pinned = peers != PeerPolicy::Any || self.request.trust_any;
        let seen = Seen::default();
        let waker = Waker::new().map_err(|e| TransferError::no_session(&e))?;
        let mut config = self.config(way, identity, peers);
        let threads = Threads::default();
        let (wake, cancel) = (waker.clone(), Arc::new(AtomicU8::new(0)));
        let control = Arc::<Control>::default();
        let app = self.app(&Options {
            cancel: Arc::clone(&cancel),
            wake: Some(Arc::new(move || wake.wake())),
            server: server.clone(),
            control: Some(Arc::clone(&control)),
            check: Some(check_key(Arc::clone(&seen), pinned)),
            sharing: way.sharing(self.request.options.sharing),
            // What one stream carries is no faster in several sessions.
            open: matches!(way, Attempt::At(_)).then(|| threads.opener(to, &config, &seen)),
            ..self.request.options.clone()
        })?;
        let (remembered, unread) = self.remembered(way);
        // Further parallel sessions would each resume from all of it.
        config.memory = remembered.as_ref().map(Remembered::memory);
        let handle = app.handle();
        let haul = Haul::client(config).map_err(|e| internal(&e))?;
        let mut how = client::Options::new(to);
        how.stop = Some(stop.clone());
        how.socket = way.socket().map_err(|e| TransferError::no_session(&e))?;
        let watched = self.watched(handle.progress())?;
        let by_time = self
            .request
            .max_rate
            .clone()
            .filter(|r| r.always().is_none());
        let app = Stoppable {
            app,
            stop: stop.clone(),
            cancel,
            until: self.until(),
            rates: by_time.map(|rates| Rates::new(rates, control)),
        };
        let ended = client::run(&how, Box::new(haul), app, &waker);
        threads.join();
        drop(watched);
        let ended = ended.map_err(|e| unopened(&e))?;
        let gone = || TransferError::new(Exit::Internal, "the session ended without saying how");
        let mut outcome = handle.outcome().ok_or_else(gone)?;
        let unreached = Unreached::of(&ended.reason, ended.refused, ended.host.unsent);
        let far_end = FarEnd {
            server: &server,
            to,
            carrier: self.carrier.get(),
            known_by: self.known_by(),
            own: identity.public(),
        };
        far_end.explain(&mut outcome, &ended.reason, unreached);
        let unsaved = remembered.and_then(|path| path.save().err());
        outcome
            .summary
            .warnings
            .extend(unread.into_iter().chain(unsaved));
        outcome.summary.warnings.extend(ended.host.refusal());
        self.amend(&mut outcome);
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Ended {
            outcome,
            reason: ended.reason,
            unreached: unreached.is_some(),
            unknown: seen.filter(|_| !pinned),
        })
    }

    /// Shows the console the progress until the result is dropped.
    fn watched(&self, progress: &Arc<Progress>) -> Result<Watched, TransferError> {
        if let Some(most) = self.request.options.max_rate {
            progress.set_max_rate(most);
        }
        let shown = self.console.watch(progress);
        let begin = || Events::start(Arc::clone(progress), Arc::clone(&self.console));
        let events = self.console.wants_events().then(begin).transpose();
        Ok((shown, events.map_err(|e| TransferError::no_thread(&e))?))
    }

    /// Memory of the path, and the reason if there is none.
    fn remembered(&self, way: &Attempt<'_>) -> (Option<Remembered>, Option<String>) {
        match way {
            Attempt::At(to) if self.planned.is_none() => {
                Remembered::open(&self.request.path_memory, *to)
            }
            _ => (None, None),
        }
    }

    fn config(&self, way: &Attempt<'_>, identity: &Identity, peers: PeerPolicy) -> HaulConfig {
        let mut config = HaulConfig::new(*identity.seed());
        config.peers = peers;
        config.app = farhaul_transfer::offer();
        config.max_rate = self.request.options.max_rate;
        config.idle = self.request.idle.unwrap_or(config.idle);
        let sharing = way.sharing(self.request.options.sharing);
        config.law = format!("haul:policy={sharing}");
        match way {
            Attempt::At(_) => config.answer = self.request.ways.udp_timeout,
            Attempt::Through(_) if sharing == Sharing::Fair => {
                config.tunnel_law = Some(TUNNEL_LAW.into());
            }
            Attempt::Through(_) => {}
        }
        config
    }

    /// Time since the first attempt began.
    pub(super) fn elapsed(&self) -> Duration {
        let now = clock::now();
        now.since(self.began.get().unwrap_or(now))
    }

    /// The end of the time that the copy may take, which begins with its first attempt.
    fn until(&self) -> Option<Instant> {
        let began = self.began.get().unwrap_or_else(clock::now);
        self.began.set(Some(began));
        self.request.max_time.map(|lasts| began + lasts)
    }
}
