//! Serves named shares, and nothing else: a [`Server`] answers one session, within what its peer
//! may read and write.
//!
//! - Default deny: a peer must be allowed, the share must exist and permit the direction. A refused peer gets
//!   the same message for each of these reasons.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use farhaul_core::{
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::App;

use crate::{
    agreed::{Agreed, apart},
    brake::Control,
    decide::Rules,
    endpoint::Endpoint,
    error::{Advice, TransferError},
    filter::Filter,
    host::{Host, Simulated},
    plan::Planner,
    quota::{Claim, Quota},
    reach::Reach,
    receiver::{Base, Look, Receiver},
    requested::Requested,
    summary::Handle,
    wire::{
        Direction, Exit, Features, Message, NEWEST, OLDEST, Outbox, Place, RequestOptions,
        path::{self, Tag},
        short,
    },
};

mod admit;
mod disk;
mod lanes;
mod policy;
mod probe;
mod reads;
mod share;
mod shares;
mod sources;
mod tickets;
pub use crate::read::{Changed, TellChange};
pub use crate::wire::Access;
use disk::Measuring;
pub use policy::{Allow, Limits, Policy};
use policy::{Holder, SessionSlot, Slot};
use probe::Probe;
pub use probe::{DiskSpeed, Probed, Probes, Terms};
pub use share::Share;
pub use tickets::{Right, Tickets};

/// A peer that sends nothing for this long may be dead; the same command from the same peer takes over.
const PEER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for which a request waits for a destination that a live peer holds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(6);
/// Destinations remembered after their transfers.
const SEATS: usize = 10_000;
/// Time in which a connected peer may ask, and leave once it was refused.
const ASKS_WITHIN: Duration = Duration::from_secs(10);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(50);

/// The request of a client.
#[derive(Clone, Debug)]
struct Request {
    version: u16,
    direction: Direction,
    tag: Tag,
    /// Places of the request: at least one; of a delivery exactly one.
    places: Vec<Place>,
    options: Box<RequestOptions>,
}

/// A request that cannot be answered yet.
#[derive(Debug)]
struct Waiting {
    request: Request,
    since: Instant,
    /// The answer if nothing changes.
    error: TransferError,
    /// Number of the request at the [`Slot`].
    number: u64,
}

/// Answers one session.
pub struct Server {
    policy: Arc<Policy>,
    endpoint: Endpoint,
    host: Host,
    out: Outbox,
    /// The key of the peer, once it is connected.
    peer: Option<Vec<u8>>,
    /// Version and features that both ends have, once they are connected; an error if they have
    /// nothing in common.
    agreed: Option<Result<Agreed, TransferError>>,
    session_slot: Option<SessionSlot>,
    /// True if the peer is admitted as the holder of a ticket; this use of the ticket was counted.
    by_ticket: bool,
    redeemed: Option<Tag>,
    answered: bool,
    /// True for a further parallel session of another session's copy.
    lane: bool,
    /// Set for a probe.
    probed: Option<Probed>,
    /// Set as long as the session is a probe of the path.
    lent: Option<Probe>,
    /// Set as long as a disk is measured.
    measuring: Option<Measuring>,
    asked: Option<(bool, Vec<Place>)>,
    /// A request that waits for another session to let go.
    waits: Option<Waiting>,
    holds: Option<(Tag, Arc<Holder>)>,
    heard: u64,
    /// Time at which the session ends: there is no request, or it was refused.
    leaves: Option<Instant>,
    now: Instant,
    /// Receiver of the changes of the session.
    tell: Option<TellChange>,
}

impl Server {
    /// A session under `policy`; `wake` is called by worker threads when it should be polled.
    pub fn new(policy: Arc<Policy>, wake: Option<Arc<dyn Fn() + Send + Sync>>) -> Self {
        Self {
            policy,
            endpoint: Endpoint::new(true),
            host: Host {
                wake,
                simulated: None,
            },
            out: Outbox::default(),
            peer: None,
            agreed: None,
            session_slot: None,
            by_ticket: false,
            redeemed: None,
            answered: false,
            lane: false,
            probed: None,
            lent: None,
            measuring: None,
            asked: None,
            waits: None,
            holds: None,
            heard: 0,
            leaves: None,
            now: Instant::EPOCH,
            tell: None,
        }
    }

    /// Reports each change that the peer asks for.
    #[must_use]
    pub fn telling(mut self, tell: TellChange) -> Self {
        self.tell = Some(tell);
        self
    }

    /// Lets `control` slow the session down or hold it; a thread that changes `control` wakes the
    /// session.
    #[must_use]
    pub fn controlled(mut self, control: Arc<Control>) -> Self {
        self.endpoint.brake.control = control;
        self
    }

    /// Makes the server without threads, in virtual time; of tests.
    #[doc(hidden)]
    #[must_use]
    pub fn simulated(mut self, simulated: Simulated) -> Self {
        self.host.simulated = Some(simulated);
        self
    }

    /// The key of the peer, once it is connected.
    pub fn peer(&self) -> Option<&[u8]> {
        self.peer.as_deref()
    }

    /// True if the peer delivers, and the share that it asked for first, once it has.
    pub fn asked(&self) -> Option<(bool, &[u8])> {
        let (put, places) = self.asked.as_ref()?;
        Some((*put, &places.first()?.share[..]))
    }

    /// True for a further parallel session of another session's copy.
    pub fn is_lane(&self) -> bool {
        self.lane
    }

    /// Makes a handle for other threads.
    pub fn handle(&self) -> Handle {
        self.endpoint.handle.clone()
    }

    /// Acts on what arrived. While a request waits, the rest stays with the session, which bounds it.
    fn read(&mut self, session: &mut dyn Session) {
        if self.waits.is_none() {
            if let Err(e) = self.messages(session) {
                self.endpoint.fail(e, session);
            }
            self.endpoint.keep_rate(session);
        }
    }

    fn messages(&mut self, session: &mut dyn Session) -> Result<(), TransferError> {
        while self.waits.is_none()
            && self.lent.is_none()
            && let Some(message) = self.endpoint.next(session)?
        {
            match message {
                Message::Request {
                    version,
                    direction,
                    tag,
                    places,
                    options,
                } if !self.answered => {
                    self.answered = true;
                    self.leaves = None;
                    let put = direction == Direction::Put;
                    self.endpoint.set_put(put);
                    self.asked = Some((put, places.clone()));
                    self.answer(Request {
                        version,
                        direction,
                        tag,
                        places,
                        options,
                    });
                }
                Message::Join { token } if !self.answered && self.has_lanes() => {
                    self.answered = true;
                    self.join(&token);
                }
                Message::WantProbe { millis, fetch } if !self.answered && self.has_probes() => {
                    if !self.endpoint.has_read_all() {
                        let text = "a client that begins a probe before it is allowed";
                        return Err(TransferError::protocol(text));
                    }
                    self.answered = true;
                    self.begin_probe(millis, fetch, session);
                }
                Message::WantDisk { share } if !self.answered && self.has_probes() => {
                    self.answered = true;
                    self.begin_disk(&share);
                }
                Message::WantShares if !self.answered && self.has(Features::SHARES) => {
                    self.answered = true;
                    self.send_shares();
                }
                Message::WantReads if !self.answered && self.has_reads() => {
                    self.answered = true;
                    self.begin_reads();
                }
                Message::WantLanes { lanes, chosen } if self.has_lanes() => {
                    self.open_lanes(lanes, chosen)?;
                }
                Message::Stranger { version } if !self.answered => {
                    self.answered = true;
                    self.refuse(&apart(
                        &(OLDEST..=NEWEST),
                        &(version..=version),
                        "the client",
                    ));
                }
                // A client lists its files before it knows that it was refused.
                _ if self.answered && self.endpoint.role.is_none() => {}
                other => self.read_of(other)?,
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: Request) {
        let held = self.is_held(&request);
        let made = self
            .agree(&request)
            .and_then(|()| self.admit(&request.places, request.direction))
            .and_then(|shares| self.permit(request.options.sharing).map(|()| shares))
            // What a session holds that is dead needs no further place.
            .and_then(|shares| {
                let place = if held { Ok(()) } else { self.check_place() };
                place.map(|()| shares)
            })
            .and_then(|shares| self.begin(&shares, &request))
            .and_then(|one_file| self.redeem(&request).map(|()| one_file));
        match made {
            Ok(one_file) => self.out.push(&Message::Accepted {
                version: request.version,
                one_file,
            }),
            Err(e) if e.code == Exit::Locked && (held || self.is_held(&request)) => {
                let tag = self.own_tag(&request);
                let mut live = self.policy.live();
                let slot = live.entry(tag).or_default();
                slot.asked += 1;
                let number = slot.asked;
                drop(live);
                self.waits = Some(Waiting {
                    request,
                    since: self.now,
                    error: e,
                    number,
                });
            }
            Err(e) => {
                self.let_go();
                self.refuse(&e);
            }
        }
    }

    fn refuse(&mut self, e: &TransferError) {
        self.leaves = Some(self.now + ASKS_WITHIN);
        self.out.push(&Message::Refused {
            code: e.code,
            text: short(&e.text),
            fix: short(&e.fix),
        });
    }

    /// Starts a role; returns whether a single file is sent.
    fn begin(&mut self, shares: &[Share], request: &Request) -> Result<bool, TransferError> {
        let peer = self.peer.as_deref().unwrap_or_default();
        let rate = self.policy.max_rate(peer, shares);
        self.endpoint.brake.rate = rate.unwrap_or(Rate::UNLIMITED);
        match (request.direction, shares, &request.places[..]) {
            (Direction::Put, [share], [place]) => {
                let at = self.delivered_at(share, place, &request.options);
                self.take(share, &at, request)
            }
            (Direction::Put, ..) => Err(TransferError::protocol("a delivery to several places")),
            (Direction::Get, ..) => self.offer(shares, request),
        }
    }

    /// Takes up the role of the receiver at `rel` in `share`.
    fn take(
        &mut self,
        share: &Share,
        rel: &[u8],
        request: &Request,
    ) -> Result<bool, TransferError> {
        let progress = Arc::clone(self.endpoint.handle.progress());
        let (root, reach, options) = (share.root(), share.reach(), &*request.options);
        share.may_answer(options)?;
        self.policy.ordered(options)?;
        let one_file = options.one_file;
        if options.pipe && (!one_file || options.dry) {
            return Err(TransferError::protocol("a pipe has a single file"));
        }
        let (requested, tag) = (Requested::anything(), self.own_tag(request));
        let filter = Filter::from_spec(options.spec.clone())?;
        if one_file {
            filter.check_delete(&options.mirror, &[])?;
        }
        self.endpoint.verify_disk = options.verify_disk;
        let mut rules = Rules {
            sync: self.policy.sync,
            reach,
            strangers: !self.policy.one_person,
            mirror: self.allowed(options.mirror),
            stripe_scope: self.has(Features::STRIPES).then(|| self.scope(reach)),
            ..Rules::of(options)
        };
        if options.dry {
            let look = Look::beneath(root, rel, one_file)?;
            self.is_alone(share, rel, look.rename.is_some(), &rules)?;
            let planner = Planner::new(look, tag, rules, requested, progress, None)?
                .excluding(filter)
                .with_room(share.quota().map_or(u64::MAX, Quota::room));
            self.endpoint.play(planner);
            return Ok(one_file);
        }
        let base = Base::beneath(root, rel, one_file)?;
        if options.pipe && base.rename.is_none() {
            let text = format!("{} is a folder", path::show(rel));
            let fix = "name a file, or say by --name what it is to be called there";
            return Err(TransferError::new(Exit::Usage, text).fix(fix));
        }
        let holder = Arc::new(Holder::of(&base, self.now));
        rules.alone = self.is_alone(share, rel, base.rename.is_some(), &rules)?;
        let receiver = Receiver::new(base, tag, rules, requested, progress, &self.host)
            .map_err(TransferError::of_server)?
            .excluding(filter)
            .within(share.quota().cloned().map(Claim::new));
        let lock = Arc::downgrade(receiver.lock());
        self.endpoint.play(receiver);
        let mut live = self.policy.live();
        let slot = live.entry(tag).or_default();
        (slot.holder, slot.lock) = (Some(Arc::clone(&holder)), lock);
        drop(live);
        self.holds = Some((tag, holder));
        Ok(one_file)
    }

    /// True if the peer may create the single file and no other name; an error if a backup would have
    /// one.
    fn is_alone(
        &self,
        share: &Share,
        rel: &[u8],
        named: bool,
        rules: &Rules,
    ) -> Result<bool, TransferError> {
        let alone = named && self.is_only_grant(share, rel);
        if alone && rules.mirror.backup.is_some() && !self.policy.is_only(rel) {
            let text = format!(
                "a backup of {} would have a name that was not granted",
                path::show(rel)
            );
            return Err(TransferError::new(Exit::Auth, text).fix("omit --backup"));
        }
        Ok(alone)
    }

    /// A peer cannot name another peer's transfer, unless both are one person.
    fn own_tag(&self, request: &Request) -> Tag {
        let places = request.places.iter().flat_map(|p| self.policy.location(p));
        let peer = self.peer.clone().filter(|_| !self.policy.one_person);
        path::tag(&request.tag, peer.into_iter().chain(places))
    }

    /// Scope in which stripes are put together: those of one peer, unless each may replace what the
    /// others send anyway.
    fn scope(&self, reach: Reach) -> Tag {
        let apart = !self.policy.one_person && !reach.is_all();
        path::tag(b"stripes", self.peer.clone().filter(|_| apart))
    }

    /// True if a session of this server holds the requested destination.
    fn is_held(&self, request: &Request) -> bool {
        let tag = self.own_tag(request);
        let live = self.policy.live();
        live.get(&tag).is_some_and(Slot::is_taken)
    }

    /// Tries again to begin what another session held; its peer may have died and reconnected.
    fn wait(&mut self) {
        let Some(waiting) = &self.waits else { return };
        let tag = self.own_tag(&waiting.request);
        let (holder, taken, newest) = match self.policy.live().get(&tag) {
            Some(slot) => {
                let newest = slot.asked == waiting.number;
                (slot.holder.clone(), slot.is_taken(), newest)
            }
            None => (None, false, true),
        };
        if newest && taken {
            let silent = |holder: &&Arc<Holder>| {
                let heard = Instant::from_nanos(holder.heard.load(Relaxed));
                self.now.since(heard) >= PEER_TIMEOUT
            };
            if let Some(holder) = holder.as_ref().filter(silent) {
                holder.superseded.store(true, Relaxed);
                if let Some(wake) = &self.host.wake {
                    wake();
                }
            }
            if self.now.since(waiting.since) < LOCK_TIMEOUT {
                return;
            }
        }
        let Some(waiting) = self.waits.take() else {
            return;
        };
        if newest && !taken {
            self.answer(waiting.request);
        } else {
            let since = holder.map(|holder| self.now.since(holder.began));
            self.refuse(&held_here(waiting.error, since));
        }
    }

    /// Records when the peer sends, and whether it was superseded.
    fn listen(&mut self, session: &mut dyn Session) {
        let Some((_, holder)) = &self.holds else {
            return;
        };
        let heard = session.stats().datagrams_received;
        if heard != self.heard {
            self.heard = heard;
            holder.heard.store(self.now.as_nanos(), Relaxed);
        }
        if holder.superseded.load(Relaxed) {
            let e = TransferError::new(Exit::Locked, "the same command was started again");
            self.endpoint.fail(e, session);
            self.let_go();
        }
    }

    /// Ends a session that only holds its place.
    fn leave(&mut self, session: &mut dyn Session) {
        let e = if self.leaves.is_some_and(|at| at <= self.now) {
            let within = ASKS_WITHIN.as_secs();
            let (text, fix) = if self.answered {
                (
                    format!(
                        "the request was refused, and the client did not close within {within} s"
                    ),
                    Advice::default(),
                )
            } else {
                (
                    format!("no request was received within {within} s of the handshake"),
                    Advice::again(
                        "run the same command again; if it fails again, check the client: it was connected and sent nothing",
                    ),
                )
            };
            TransferError::new(Exit::ConnectionLost, text).fix(fix)
        } else if let Some(e) = self.endpoint.idle() {
            e
        } else {
            return;
        };
        self.endpoint.fail(e, session);
        self.leaves = None;
        self.let_go();
    }

    /// Lets go of the destination at once: the peer may be back before this is dropped.
    fn let_go(&mut self) {
        self.endpoint.role = None;
        self.lent = None;
        self.measuring = None;
        if let Some((tag, _)) = self.holds.take() {
            let mut live = self.policy.live();
            if let Some(slot) = live.get_mut(&tag) {
                slot.holder = None;
            }
            // Numbers must not start over while someone may still wait.
            if live.len() > SEATS {
                live.retain(|_, slot| slot.is_taken());
            }
        }
    }
}

/// A session of this server writes there, for so long if it still does: the process of the server is not to be stopped.
fn held_here(refused: TransferError, since: Option<Duration>) -> TransferError {
    let since = since.map(|since| format!(", which began {} s ago", since.as_secs()));
    let since = since.unwrap_or_default();
    let text = format!("the destination is being written by another copy of this server{since}");
    TransferError::new(refused.code, text).fix(refused.fix)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Store for Server {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        match &mut self.lent {
            Some(probe) => probe.fill(extents, batch),
            None => self.endpoint.fill(extents, batch),
        }
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        let Some(probe) = &mut self.lent else {
            return self.endpoint.place(extents, batch);
        };
        self.endpoint.brake.place(extents);
        probe.place(extents, batch)
    }

    fn sink(&self) -> Sink {
        match &self.lent {
            Some(probe) => self.endpoint.brake.within(probe.sink()),
            None => self.endpoint.sink(),
        }
    }
}

impl App for Server {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        self.endpoint.at(now);
        self.now = now;
        match event {
            Event::Connected { peer_key } => {
                self.leaves = Some(now + ASKS_WITHIN);
                self.peer = Some(peer_key.unwrap_or_default());
                self.agreed = Some(Agreed::with(session.peer_app(), "the client"));
                // From now on: who asks for nothing takes a place, too.
                if let Err(e) = self.take_slot() {
                    self.endpoint.at(now);
                    self.endpoint.fail(e, session);
                }
            }
            Event::Readable => match &mut self.lent {
                Some(probe) => {
                    probe.on_readable(now, session);
                    // Its request may have set a rate.
                    self.endpoint.brake.forget();
                }
                None => self.read(session),
            },
            Event::Delivered => {}
            Event::Closed(reason) if self.probed.is_some() => {
                self.probe_closed(&reason, session);
                self.let_go();
                self.session_slot = None;
            }
            Event::Closed(reason) => {
                self.endpoint.closed(&reason);
                self.conclude();
                self.let_go();
                self.session_slot = None;
            }
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.endpoint.at(now);
        self.now = now;
        if let Some(slot) = &self.session_slot {
            slot.turn(now);
        }
        if session.is_closed() {
            return;
        }
        self.listen(session);
        if self.waits.is_some() {
            self.wait();
            self.read(session);
        }
        self.poll_disk();
        self.out.flush(session);
        self.endpoint.poll(session);
        self.poll_probe(session);
        self.poll_reads(session);
        if self.endpoint.holds() {
            self.read(session);
        }
        if self.lane {
            self.endpoint.close_if_over(session);
        }
        self.leave(session);
    }

    fn next_wake(&self) -> Option<Instant> {
        let waits = self.waits.as_ref().map(|_| self.now + AGAIN);
        let next = waits.or_else(|| self.endpoint.next_wake());
        let idle = self.endpoint.idle_at();
        let probe = self.lent.as_ref().map(Probe::next_wake);
        let disk = self.measuring.as_ref().map(Measuring::until);
        let all = next.into_iter().chain(self.leaves).chain(idle);
        all.chain(probe).chain(disk).min()
    }
}

#[cfg(test)]
mod tests;
