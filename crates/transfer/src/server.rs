//! What may a peer read and write here? Named shares, nothing else; a [`Server`] answers one session.
//!
//! - Default deny: a peer must be allowed, the share must exist and permit the direction. A refused peer gets
//!   the same message for each of these reasons.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use farhaul_core::{
    congestion::Sharing,
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::App;

use crate::{
    ask::{Ask, Place},
    asked::Asked,
    error::{Code, TransferError},
    filter::Filter,
    half::{Half, Side},
    host::{Host, Simulated},
    ledger::{Outbox, short},
    message::{Direction, Message, VERSION},
    path::{self, Tag},
    plan::Planner,
    receiver::{Base, Lock, Look, Receiver, Rules},
    scan::Selection,
    summary::Handle,
};

mod share;
mod sources;
pub use share::{Access, Share};
use sources::sources;

/// Who may ask at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allow {
    /// No peer.
    #[default]
    None,
    /// Any peer, requested explicitly.
    Any,
    /// Peers with one of these public keys.
    Keys(Vec<Vec<u8>>),
}

impl Allow {
    fn permits(&self, key: Option<&[u8]>) -> bool {
        match self {
            Self::None => false,
            Self::Any => true,
            Self::Keys(keys) => key.is_some_and(|key| keys.iter().any(|k| k == key)),
        }
    }
}

/// What is served, shared by all sessions.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    shares: Vec<Share>,
    allow: Allow,
    sync: bool,
    sharing: Sharing,
    /// All peers are one and the same person, whatever their keys.
    one_person: bool,
    /// Deliveries under way.
    live: Arc<Mutex<BTreeMap<Tag, Slot>>>,
}

impl Policy {
    /// `shares` for the peers in `allow`; received files reach the disk before they count if `sync`.
    pub fn new(shares: Vec<Share>, allow: Allow, sync: bool) -> Self {
        Self {
            shares,
            allow,
            sync,
            sharing: Sharing::Fair,
            one_person: false,
            live: Arc::default(),
        }
    }

    /// The same; peers may claim as much of shared links, and no more.
    #[must_use]
    pub fn up_to(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// The same; all peers are one and the same person, whose keys are new each time: what one of them
    /// began, another continues.
    #[must_use]
    pub const fn of_one_person(mut self) -> Self {
        self.one_person = true;
        self
    }

    /// The shares.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    fn share(&self, name: &[u8]) -> Option<&Share> {
        self.shares.iter().find(|s| s.name().as_bytes() == name)
    }

    /// The peers.
    pub const fn allow(&self) -> &Allow {
        &self.allow
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<Tag, Slot>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A destination: the session that holds it, and the latest request for it. Only the latest may have it next:
/// earlier ones are earlier runs of the same command.
#[derive(Debug, Default)]
struct Slot {
    holder: Option<Arc<Holder>>,
    /// Lives until the last worker of the last holder is done.
    lock: Weak<Lock>,
    asked: u64,
}

impl Slot {
    /// A session holds it, or its workers still do.
    fn is_taken(&self) -> bool {
        self.holder.is_some() || self.lock.strong_count() > 0
    }
}

/// A session that holds a destination.
#[derive(Debug, Default)]
struct Holder {
    /// When its peer last sent anything, ns.
    heard: AtomicU64,
    /// The same command was started again after it had stopped sending.
    superseded: AtomicBool,
}

/// A peer that sends nothing for this long may be dead; the same command from the same peer takes over.
const PEER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a request waits for a destination that a live peer holds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(6);
/// Destinations remembered after their transfers.
const SEATS: usize = 10_000;
/// How long a connected peer may take to ask, and to leave once it was refused.
const ASKS_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(50);

/// The request of a client.
#[derive(Clone, Debug)]
struct Request {
    direction: Direction,
    tag: Tag,
    /// At least one; of a delivery exactly one.
    places: Vec<Place>,
    ask: Box<Ask>,
}

/// A request that cannot be answered yet.
#[derive(Debug)]
struct Waiting {
    request: Request,
    since: Instant,
    /// The answer if nothing changes.
    error: TransferError,
    /// Its number at the [`Slot`].
    number: u64,
}

/// Answers one session.
pub struct Server {
    policy: Arc<Policy>,
    side: Side,
    host: Host,
    out: Outbox,
    allowed: bool,
    peer: Vec<u8>,
    answered: bool,
    /// A request that waits for another session to let go.
    waits: Option<Waiting>,
    /// How the session is to send, if that must be set.
    govern: Option<(Rate, Sharing)>,
    holds: Option<(Tag, Arc<Holder>)>,
    heard: u64,
    /// The session ends then: there is no request, or it was refused.
    leaves: Option<Instant>,
    now: Instant,
}

impl Server {
    /// A session under `policy`; `wake` is called by worker threads when it should be polled.
    pub fn new(policy: Arc<Policy>, wake: Option<Arc<dyn Fn() + Send + Sync>>) -> Self {
        Self {
            policy,
            side: Side::new(true),
            host: Host {
                wake,
                simulated: None,
            },
            out: Outbox::default(),
            allowed: false,
            peer: Vec::new(),
            answered: false,
            waits: None,
            govern: None,
            holds: None,
            heard: 0,
            leaves: None,
            now: Instant::EPOCH,
        }
    }

    /// The same without threads, in virtual time; of tests.
    #[doc(hidden)]
    #[must_use]
    pub fn simulated(mut self, simulated: Simulated) -> Self {
        self.host.simulated = Some(simulated);
        self
    }

    /// For other threads.
    pub fn handle(&self) -> Handle {
        self.side.handle.clone()
    }

    /// Acts on what arrived. While a request waits, the rest stays with the session, which bounds it.
    fn read(&mut self, session: &mut dyn Session) {
        if self.waits.is_none() {
            if let Err(e) = self.messages(session) {
                self.side.fail(e, session);
            }
            if let Some((rate, sharing)) = self.govern.take()
                && !session.govern(rate, sharing)
            {
                let text = format!("the server cannot send by policy {sharing} or below a rate");
                let e = TransferError::new(Code::Usage, text);
                self.side
                    .fail(e.fix("omit --policy and --max-rate"), session);
            }
        }
    }

    fn messages(&mut self, session: &mut dyn Session) -> Result<(), TransferError> {
        while self.waits.is_none()
            && let Some(message) = self.side.next(session)?
        {
            match message {
                Message::Request {
                    direction,
                    tag,
                    places,
                    ask,
                } if !self.answered => {
                    self.answered = true;
                    self.leaves = None;
                    self.side.set_put(direction == Direction::Put);
                    self.answer(Request {
                        direction,
                        tag,
                        places,
                        ask,
                    });
                }
                Message::Stranger { version } if !self.answered => {
                    self.answered = true;
                    let text = format!(
                        "the server has version {VERSION} of the transfer protocol, you {version}"
                    );
                    let e = TransferError::new(Code::Version, text);
                    self.refuse(&e.fix("install the same version on both sides"));
                }
                // A client lists its files before it knows that it was refused.
                _ if self.answered && self.side.half.is_none() => {}
                other => self.side.handle(other)?,
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: Request) {
        let held = self.is_held(&request);
        let made = self
            .admit(&request)
            .and_then(|shares| self.permit(&request).map(|()| shares))
            .and_then(|shares| self.begin(&shares, &request));
        match made {
            Ok(one_file) => self.out.push(&Message::Accepted {
                version: VERSION,
                one_file,
            }),
            Err(e) if e.code == Code::Locked && (held || self.is_held(&request)) => {
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
            Err(e) => self.refuse(&e),
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

    /// The shares of all places, if this peer may use each of them so.
    fn admit(&self, request: &Request) -> Result<Vec<Share>, TransferError> {
        let admitted = |place: &Place| {
            let share = self.policy.share(&place.share);
            let share = share.filter(|s| self.allowed && s.permits(request.direction));
            share.cloned().ok_or_else(|| {
                let name = path::show(&place.share);
                let text = format!("share '{name}' is unknown or not allowed");
                let fix =
                    "check the name, the direction and your key with the server's administrator";
                TransferError::new(Code::Auth, text).fix(fix)
            })
        };
        request.places.iter().map(admitted).collect()
    }

    /// Whether the policy requested by the peer is allowed.
    fn permit(&self, request: &Request) -> Result<(), TransferError> {
        let (asked, most) = (request.ask.sharing, self.policy.sharing);
        if asked as u8 > most as u8 {
            let text = format!("policy {asked} is not allowed by this server, {most} is");
            let fix = "omit --policy, or start the server with --max-policy high";
            return Err(TransferError::new(Code::Auth, text).fix(fix));
        }
        Ok(())
    }

    /// Starts a role; returns whether a single file is sent.
    fn begin(&mut self, shares: &[Share], request: &Request) -> Result<bool, TransferError> {
        match (request.direction, shares, &request.places[..]) {
            (Direction::Put, [share], [place]) => self.take(share, &place.path, request),
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
        let progress = Arc::clone(self.side.handle.progress());
        let (root, reach, ask) = (share.root(), share.reach(), &*request.ask);
        share.may_answer(ask)?;
        let one_file = ask.one_file;
        let filter = Filter::from_spec(ask.spec.clone())?;
        self.side.verify_disk = ask.verify_disk;
        if ask.dry {
            let look = Look::beneath(root, rel, one_file)?;
            let asked = Asked::anything();
            let planner = Planner::new(look, (ask.clone(), filter), asked, progress, None)?;
            self.side.half = Some(Half::Plans(Box::new(planner)));
        } else {
            let base = Base::beneath(root, rel, one_file)?;
            let rules = Rules {
                sync: self.policy.sync,
                existing: ask.existing,
                checksum: ask.checksum,
                verify_disk: ask.verify_disk,
                reach,
                strangers: !self.policy.one_person,
                mirror: ask.mirror,
            };
            let tag = self.own_tag(request);
            let receiver =
                Receiver::new(base, tag, rules, Asked::anything(), progress, &self.host)?
                    .excluding(filter);
            let lock = Arc::downgrade(receiver.lock());
            self.side.half = Some(Half::Receives(Box::new(receiver)));
            let holder = Arc::new(Holder::default());
            holder.heard.store(self.now.as_nanos(), Relaxed);
            let mut live = self.policy.live();
            let slot = live.entry(tag).or_default();
            (slot.holder, slot.lock) = (Some(Arc::clone(&holder)), lock);
            drop(live);
            self.holds = Some((tag, holder));
        }
        Ok(one_file)
    }

    /// Takes up the role of the sender.
    fn offer(&mut self, shares: &[Share], request: &Request) -> Result<bool, TransferError> {
        let progress = Arc::clone(self.side.handle.progress());
        let ask = &*request.ask;
        let (sources, problems) = sources(shares, &request.places)?;
        let one_file = request.places.len() == 1 && sources.iter().all(|s| s.is_file);
        if ask.max_rate.is_some() || ask.sharing != Sharing::Fair {
            self.govern = Some((ask.max_rate.unwrap_or(Rate::UNLIMITED), ask.sharing));
        }
        let selection = Selection {
            filter: Filter::from_spec(ask.spec.clone())?,
            list: None,
            tell: ask.dry,
            preserve: ask.mirror.preserve,
            guarded: self.policy.one_person,
            keep: ask.mirror.delete.is_some(),
        };
        let half = if ask.dry {
            Half::lists(sources, &problems, selection, progress, None, &self.host)
        } else {
            Half::sends(sources, &problems, selection, progress, &self.host)
        };
        self.side.half = Some(half.map_err(|e| {
            TransferError::new(Code::Busy, format!("the server cannot start a thread: {e}"))
        })?);
        Ok(one_file)
    }

    /// A peer cannot name another peer's transfer, unless both are one person.
    fn own_tag(&self, request: &Request) -> Tag {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&request.tag);
        let places = request.places.iter().flat_map(|p| [&p.share, &p.path]);
        let peer = (!self.policy.one_person).then_some(&self.peer);
        for part in peer.into_iter().chain(places) {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let mut own = Tag::default();
        own.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        own
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
            self.refuse(&waiting.error);
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
            let e = TransferError::new(Code::Locked, "the same command was started again");
            self.side.fail(e, session);
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
                    "",
                )
            } else {
                (
                    format!("no request was received within {within} s of the handshake"),
                    "run the same command again; if it fails again, check the client: it was connected and sent nothing",
                )
            };
            TransferError::new(Code::ConnectionLost, text).fix(fix)
        } else if let Some(e) = self.side.idle() {
            e
        } else {
            return;
        };
        self.side.fail(e, session);
        self.leaves = None;
        self.let_go();
    }

    /// Lets go of the destination at once: the peer may be back before this is dropped.
    fn let_go(&mut self) {
        self.side.half = None;
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

impl Drop for Server {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Store for Server {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.side.fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.side.place(extents, batch)
    }

    fn sink(&self) -> Sink {
        self.side.sink()
    }
}

impl App for Server {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        self.side.at(now);
        self.now = now;
        match event {
            Event::Connected { peer_key } => {
                self.leaves = Some(now + ASKS_WITHIN);
                self.allowed = self.policy.allow.permits(peer_key.as_deref());
                self.peer = peer_key.unwrap_or_default();
            }
            Event::Readable => {
                self.read(session);
            }
            Event::Delivered => {}
            Event::Closed(reason) => {
                self.side.closed(&reason);
                self.let_go();
            }
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.side.at(now);
        self.now = now;
        if session.is_closed() {
            return;
        }
        self.listen(session);
        if self.waits.is_some() {
            self.wait();
            self.read(session);
        }
        self.out.flush(session);
        self.side.poll(session);
        if self.side.holds() {
            self.read(session);
        }
        self.leave(session);
    }

    fn next_wake(&self) -> Option<Instant> {
        let waits = self.waits.as_ref().map(|_| self.now + AGAIN);
        let next = waits.or_else(|| self.side.next_wake());
        let idle = self.side.idle_at();
        next.into_iter().chain(self.leaves).chain(idle).min()
    }
}

#[cfg(test)]
mod tests;
