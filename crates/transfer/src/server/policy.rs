//! Access of peers and its limits. A [`Policy`] is fixed. Another may succeed it while sessions
//! under the first go on; both know the sessions under way.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use farhaul_core::{congestion::Sharing, time::Instant, units::Rate};

use super::{
    Right, Share, Tickets,
    probe::{Probes, Terms, Turn},
    tickets,
};
use crate::{
    error::{Advice, TransferError},
    lanes::Joinable,
    read::Busy,
    receiver::{Base, Lock},
    wire::{
        Direction, Exit, Ordered, Place, RequestOptions,
        path::{self, Tag},
    },
};

/// A session that has not turned for longer has no client any more: those that live are heard or closed within 30 s.
const LOST_AFTER: Duration = Duration::from_secs(45);

/// Peers that are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allow {
    /// No peer is allowed.
    #[default]
    None,
    /// Any peer, requested explicitly.
    Any,
    /// Peers with one of these public keys.
    Keys(Vec<Vec<u8>>),
}

impl Allow {
    pub(super) fn permits(&self, key: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::Any => true,
            Self::Keys(keys) => keys.iter().any(|k| k == key),
        }
    }
}

/// Limits on one peer's use of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Highest rate in either direction.
    pub max_rate: Option<Rate>,
    /// Sessions at a time.
    pub max_sessions: Option<usize>,
}

/// Shares and limits of a server, shared by all sessions.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    shares: Vec<Share>,
    /// Peers that may use every share, besides the peers of each.
    allow: Allow,
    limits: BTreeMap<Vec<u8>, Limits>,
    /// Sessions at a time of a key without a limit of its own.
    max_per_key: Option<usize>,
    max_rate: Option<Rate>,
    tickets: Option<Arc<dyn Tickets>>,
    probes: Option<Probes>,
    /// Path of a share that alone takes deliveries, and below it, with these options if they are
    /// known.
    delivered_to: Option<(Vec<u8>, Option<Ordered>)>,
    pub(super) sync: bool,
    pub(super) sharing: Sharing,
    /// True if all peers are one and the same person, whatever their keys.
    pub(super) one_person: bool,
    /// Number of policies before this one.
    generation: u64,
    under_way: Arc<UnderWay>,
}

/// Sessions and deliveries under way under a policy and those before it.
#[derive(Debug, Default)]
struct UnderWay {
    /// Deliveries.
    live: Mutex<BTreeMap<Tag, Slot>>,
    /// Transfers of each peer.
    session_slots: Mutex<BTreeMap<Vec<u8>, Vec<Arc<AtomicU64>>>>,
    /// Copies that further sessions may join.
    joinable: Joinable,
    /// A probe is under way; a second one would measure the first.
    probing: Arc<AtomicBool>,
    /// Generation of the policy which holds now.
    generation: AtomicU64,
}

impl Policy {
    /// `shares`, each for the peers in `allow` and its own; received files reach the disk before they count if
    /// `sync`.
    pub fn new(shares: Vec<Share>, allow: Allow, sync: bool) -> Self {
        Self {
            shares,
            allow,
            sync,
            ..Self::default()
        }
    }

    /// Lets peers claim as much of shared links, and no more.
    #[must_use]
    pub fn up_to(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// Limits the rate: no peer is sent to, or received from, faster.
    #[must_use]
    pub const fn never_above(mut self, rate: Option<Rate>) -> Self {
        self.max_rate = rate;
        self
    }

    /// Adds tickets for the shares that take them.
    #[must_use]
    pub fn with_tickets(mut self, tickets: Arc<dyn Tickets>) -> Self {
        self.tickets = Some(tickets);
        self
    }

    /// Restricts peers to deliveries to this path of a share and below it. Where another host has `ordered` the copy, they may
    /// do so with its options only.
    #[must_use]
    pub fn deliveries_to(mut self, path: Vec<u8>, ordered: Option<Ordered>) -> Self {
        self.delivered_to = Some((path, ordered));
        self
    }

    /// True if this place may be used in this direction, by any peer.
    pub(super) fn reaches(&self, place: &Place, direction: Direction) -> bool {
        let Some((path, _)) = &self.delivered_to else {
            return true;
        };
        direction == Direction::Put && tickets::is_below(path, &place.path)
    }

    /// True if peers may deliver to `path` and to nothing beside it.
    pub(super) fn is_only(&self, path: &[u8]) -> bool {
        let only = self.delivered_to.as_ref();
        only.is_some_and(|(only, _)| tickets::is_below(path, only))
    }

    /// An error if the copy was ordered otherwise.
    pub(super) fn ordered(&self, options: &RequestOptions) -> Result<(), TransferError> {
        match &self.delivered_to {
            Some((_, Some(ordered))) if *ordered != options.ordered() => {
                let text = "the sending host asks for another copy than the one that was ordered";
                let fix = "install the same version of farhaul on all three hosts; if they have it, do not trust the sending one";
                Err(TransferError::new(Exit::Auth, text).fix(fix))
            }
            _ => Ok(()),
        }
    }

    /// Lets peers probe the path.
    #[must_use]
    pub fn with_probes(mut self, probes: Probes) -> Self {
        self.probes = Some(probes);
        self
    }

    /// Limits the peer with this key.
    #[must_use]
    pub fn limit(mut self, key: Vec<u8>, limits: Limits) -> Self {
        self.limits.insert(key, limits);
        self
    }

    /// Limits the sessions of a key at a time, unless a limit of its own says otherwise.
    #[must_use]
    pub const fn each_at_most(mut self, sessions: usize) -> Self {
        self.max_per_key = Some(sessions);
        self
    }

    /// Makes all peers one and the same person, whose keys are new each time: what one of them
    /// began, another continues.
    #[must_use]
    pub const fn of_one_person(mut self) -> Self {
        self.one_person = true;
        self
    }

    /// Makes the same policy in place of `earlier`: sessions under way there still hold their
    /// destinations and count.
    #[must_use]
    pub fn succeeding(mut self, earlier: &Self) -> Self {
        self.under_way = Arc::clone(&earlier.under_way);
        self.generation = self.under_way.generation.fetch_add(1, SeqCst) + 1;
        for share in &mut self.shares {
            let name = share.name().to_owned();
            let of_name = earlier.shares.iter().filter(|s| s.name() == name);
            share.succeed(of_name.chain(&earlier.shares));
        }
        self
    }

    /// Retires the policy: it holds for no further request of a session under way.
    pub fn retire(&self) {
        self.under_way.generation.fetch_add(1, SeqCst);
    }

    /// True if no other has taken its place, and it was not retired.
    pub(super) fn is_current(&self) -> bool {
        self.under_way.generation.load(SeqCst) == self.generation
    }

    /// The shares.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// True if there is a share for the peer with this key: it may connect.
    pub fn lets_in(&self, key: &[u8]) -> bool {
        self.allow.permits(key)
            || self.shares.iter().any(|s| s.allow().permits(key))
            || self.tickets.as_ref().is_some_and(|t| t.knows(key))
    }

    /// True if no peer may use any share.
    pub fn is_closed(&self) -> bool {
        self.unused().count() == self.shares.len()
    }

    /// Names of shares that no peer may use.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        let nobody = |s: &&Share| {
            self.allow == Allow::None && *s.allow() == Allow::None && !s.takes_tickets()
        };
        self.shares.iter().filter(nobody).map(Share::name)
    }

    /// The share of this place as the peer may use it, if it may, and whether by a ticket. Who comes with a ticket may do
    /// what that says, also where its key alone would be allowed more.
    pub(super) fn share(
        &self,
        place: &Place,
        peer: &[u8],
    ) -> Result<Option<(Share, bool)>, TransferError> {
        let right = self.right(peer)?;
        let Some(share) = self.named(&place.share) else {
            return Ok(None);
        };
        let Some(right) = right else {
            let open = self.opens(share, peer);
            return Ok(open.then(|| (share.clone(), false)));
        };
        if !right.covers(&place.share, &place.path) {
            return Ok(None);
        }
        if !share.takes_tickets() {
            let text = format!("share '{}' takes no tickets", share.name());
            let fix = "ask the server's administrator to add \"ticket\" to its allow";
            return Err(TransferError::new(Exit::Auth, text).fix(fix));
        }
        let share = share.narrowed(right.access, right.max_rate);
        Ok(share.map(|share| (share, true)))
    }

    /// The right of the ticket with this key, if a ticket has it; why it is over, if it is.
    fn right(&self, peer: &[u8]) -> Result<Option<Right>, TransferError> {
        let Some(tickets) = &self.tickets else {
            return Ok(None);
        };
        match tickets.right(peer) {
            // Tickets that cannot be read shut out every peer that may have one, not the peers that
            // are named.
            Err(e) if e.code == Exit::Internal && self.names(peer) => Ok(None),
            right => right,
        }
    }

    fn names(&self, peer: &[u8]) -> bool {
        let lists = [&self.allow].into_iter();
        let mut lists = lists.chain(self.shares.iter().map(Share::allow));
        lists.any(|allow| matches!(allow, Allow::Keys(_)) && allow.permits(peer))
    }

    /// Identifies a place on this server, whichever folder above it is shared. A place that does
    /// not exist yet is below another one than when it does.
    pub(super) fn location(&self, place: &Place) -> [Vec<u8>; 2] {
        let Some(folder) = self.named(&place.share).and_then(Share::folder) else {
            return [place.share.clone(), place.path.clone()];
        };
        let mut whole = [folder, &place.path].concat();
        while whole.last() == Some(&b'/') {
            whole.pop();
        }
        [place.share.clone(), whole]
    }

    /// Keeper of the tickets.
    pub(super) fn tickets(&self) -> Option<&dyn Tickets> {
        self.tickets.as_deref()
    }

    /// The least of what the peer and `shares` may be sent at.
    pub(super) fn max_rate(&self, peer: &[u8], shares: &[Share]) -> Option<Rate> {
        let of_peer = self.limits.get(peer).and_then(|l| l.max_rate);
        let of_shares = shares.iter().filter_map(Share::max_rate);
        self.max_rate
            .into_iter()
            .chain(of_peer)
            .chain(of_shares)
            .min()
    }

    /// Sessions that the peer may have at a time.
    fn most_sessions(&self, peer: &[u8]) -> usize {
        let own = self.limits.get(peer).and_then(|l| l.max_sessions);
        own.or(self.max_per_key).unwrap_or(usize::MAX)
    }

    /// Fails if a slot is beyond those that its peer may have, and none of them is free by now.
    pub(super) fn check_place(
        &self,
        slot: &SessionSlot,
        now: Instant,
    ) -> Result<(), TransferError> {
        let most = self.most_sessions(&slot.peer);
        let session_slots = self.under_way.session_slots();
        let all = session_slots.get(&slot.peer);
        if slot.is_beyond && all.is_some_and(|all| taken(all, most, now) > most) {
            return Err(no_place(most));
        }
        Ok(())
    }

    /// Takes a place among the peer's sessions; one may be beyond its limit.
    pub(super) fn session_slot(
        &self,
        peer: &[u8],
        now: Instant,
    ) -> Result<SessionSlot, TransferError> {
        let most = self.most_sessions(peer);
        let mut session_slots = self.under_way.session_slots();
        let all = session_slots.entry(peer.to_vec()).or_default();
        let taken = taken(all, most, now);
        if taken > most {
            return Err(no_place(most));
        }
        let turned = Arc::new(AtomicU64::new(now.as_nanos()));
        all.push(Arc::clone(&turned));
        Ok(SessionSlot {
            under_way: Arc::clone(&self.under_way),
            peer: peer.to_vec(),
            is_beyond: taken >= most,
            turned,
        })
    }

    /// A probe of the path for this peer that lasts `wanted`, if that is allowed now, and by what terms.
    pub(super) fn probe(
        &self,
        peer: &[u8],
        wanted: Duration,
    ) -> Result<(Turn, Probes, Terms), TransferError> {
        let refused = |text: &str, fix: &str| TransferError::new(Exit::Auth, text).fix(fix);
        let Some(probes) = &self.probes else {
            return Err(refused(
                "this server allows no probes",
                "start it with --max-probe and a time",
            ));
        };
        self.right(peer)?;
        let of_shares = self.open_shares(peer);
        let of_shares = of_shares.map(|s| s.max_rate().unwrap_or(Rate::UNLIMITED));
        let Some(of_shares) = of_shares.max() else {
            return Err(refused(
                "a ticket is no right to probe the path",
                "ask the server's administrator to allow your own key",
            ));
        };
        let turn = Turn::take(&self.under_way.probing).ok_or_else(|| {
            TransferError::new(Exit::Busy, "another probe of this server is under way")
                .fix(Advice::again("run the same command again in a minute"))
        })?;
        let rate = self.max_rate(peer, &[]).unwrap_or(Rate::UNLIMITED);
        let terms = Terms {
            time: wanted.min(probes.most),
            rate: rate.min(of_shares),
            sharing: self.sharing,
        };
        Ok((turn, probes.clone(), terms))
    }

    #[cfg(test)]
    pub(crate) const fn probes(&self) -> Option<&Probes> {
        self.probes.as_ref()
    }

    /// The share of this name.
    fn named(&self, name: &[u8]) -> Option<&Share> {
        self.shares.iter().find(|s| s.name().as_bytes() == name)
    }

    /// True if the peer may use the share by its key.
    fn opens(&self, share: &Share, peer: &[u8]) -> bool {
        self.allow.permits(peer) || share.allow().permits(peer)
    }

    /// The share of this name, if the peer may use it by its key.
    pub(super) fn open_share(&self, name: &[u8], peer: &[u8]) -> Option<&Share> {
        self.named(name).filter(|share| self.opens(share, peer))
    }

    /// The shares that the peer may use by its key.
    pub(super) fn open_shares(&self, peer: &[u8]) -> impl Iterator<Item = &Share> {
        self.shares.iter().filter(|share| self.opens(share, peer))
    }

    /// Tells whether a copy under way delivers to a path of this machine.
    pub(super) fn busy(&self) -> Busy {
        let under_way = Arc::clone(&self.under_way);
        Arc::new(move |path, is_folder| {
            let live = under_way.live();
            let mut holders = live.values().filter_map(|slot| slot.holder.as_ref());
            holders.any(|holder| holder.is_around(path, is_folder))
        })
    }

    pub(super) fn joinable(&self) -> &Joinable {
        &self.under_way.joinable
    }

    pub(super) fn live(&self) -> MutexGuard<'_, BTreeMap<Tag, Slot>> {
        self.under_way.live()
    }
}

impl UnderWay {
    fn live(&self) -> MutexGuard<'_, BTreeMap<Tag, Slot>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session_slots(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Vec<Arc<AtomicU64>>>> {
        self.session_slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places that a peer's sessions take, which turned then. Those that a file system holds up after their client has gone take
/// none, as many as there are places.
fn taken(all: &[Arc<AtomicU64>], most: usize, now: Instant) -> usize {
    let lost = all.iter().filter(|turned| {
        let turned = Instant::from_nanos(turned.load(Relaxed));
        now.since(turned) > LOST_AFTER
    });
    all.len() - lost.count().min(most)
}

fn no_place(most: usize) -> TransferError {
    let text = format!("the server has {most} sessions with your key, and may have no more");
    let fix = Advice::again("run the same command again when one of them has ended");
    TransferError::new(Exit::Busy, text).fix(fix)
}

/// One of the sessions of a peer, until it is dropped.
#[derive(Debug)]
pub(super) struct SessionSlot {
    under_way: Arc<UnderWay>,
    peer: Vec<u8>,
    /// True if the peer had as many as it may when this was taken.
    is_beyond: bool,
    /// Time at which the session last turned, ns.
    turned: Arc<AtomicU64>,
}

impl SessionSlot {
    /// Notes that the session turns.
    pub(super) fn turn(&self, now: Instant) {
        self.turned.store(now.as_nanos(), Relaxed);
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut session_slots = self.under_way.session_slots();
        if let Some(all) = session_slots.get_mut(&self.peer) {
            all.retain(|turned| !Arc::ptr_eq(turned, &self.turned));
            if all.is_empty() {
                session_slots.remove(&self.peer);
            }
        }
    }
}

/// A destination: the session that holds it, and the latest request for it. Only the latest may have it next:
/// earlier ones are earlier runs of the same command.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) holder: Option<Arc<Holder>>,
    /// Lives until the last worker of the last holder is done.
    pub(super) lock: Weak<Lock>,
    pub(super) asked: u64,
}

impl Slot {
    /// True if a session holds it, or its workers still do.
    pub(super) fn is_taken(&self) -> bool {
        self.holder.is_some() || self.lock.strong_count() > 0
    }
}

/// A session that holds a destination.
#[derive(Debug, Default)]
pub(super) struct Holder {
    /// Time at which the holder took the destination.
    pub(super) began: Instant,
    /// Time at which its peer last sent anything, ns.
    pub(super) heard: AtomicU64,
    /// Path on this machine of the file that it delivers, or of the folder.
    pub(super) at: Vec<u8>,
    /// True if it delivers into a folder.
    pub(super) is_folder: bool,
    /// True once the same command was started again after it had stopped sending.
    pub(super) superseded: AtomicBool,
}

impl Holder {
    /// A session that delivers to `base` from now on.
    pub(super) fn of(base: &Base, now: Instant) -> Self {
        // Without /proc nobody knows the place, and peers can change none.
        let folder = base.dir.path().ok();
        let name = base.rename.as_deref().unwrap_or_default();
        Self {
            began: now,
            heard: AtomicU64::new(now.as_nanos()),
            at: folder.map_or_else(Vec::new, |folder| path::join(&folder, name)),
            is_folder: base.rename.is_none(),
            ..Self::default()
        }
    }

    /// True if it delivers to `path` or below it; for a folder also if the folder is where it delivers.
    fn is_around(&self, path: &[u8], is_folder: bool) -> bool {
        let has = |outer: &[u8], inner: &[u8]| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || outer == b"/")
        };
        !self.at.is_empty()
            && (has(path, &self.at) || self.is_folder && is_folder && has(&self.at, path))
    }
}
