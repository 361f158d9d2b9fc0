//! Shares one copy among several sessions, its *lanes*, so that it uses several cores. Each session
//! has a thread of its own at both ends. The first does everything that [`crate::client`]
//! describes. Further ones only carry content of large files, and share its journal, its digests
//! and its claim on the network.
//!
//! - [`Lanes`] holds what the sessions of one process share. Pieces that were read go to the
//!   session that has least to send. Loads that arrived go to the first session, which decides what
//!   of them is missing. Both happen once per 512 KiB or 1 MiB, never per packet.
//! - A session that ends leaves what its peer has not confirmed ([`Got`](crate::wire::Message::Got)) to the others.
//! - When the first session ends, all do.

use std::{
    collections::BTreeMap,
    mem,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use farhaul_core::{protocol::Session, stats::Stats};

use crate::{
    brake::Brake,
    error::TransferError,
    pages::Pages,
    pool::Wake,
    ranges::RangeSet,
    receiver::LaneLoad,
    sender::Origin,
    wire::{Exit, MOST_LANES, Place, Token},
};

mod lane;
pub(crate) use lane::Lane;

/// The most that a copy takes by itself.
const MOST_UNASKED: u32 = 8;
/// Bytes of large files from which parallel sessions pay.
pub(crate) const WORTH_LANES: u64 = 4 << 30;

/// Parallel sessions of a copy by default: one for two cores of this machine.
pub fn lanes_by_cores() -> u32 {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let lanes = u32::try_from(cores / 2).unwrap_or(MOST_UNASKED);
    lanes.clamp(1, MOST_UNASKED)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Event that a further parallel session has for the first.
pub(crate) enum LaneEvent {
    /// The session is ready to take pieces.
    Joined(Arc<Link>),
    /// A load of bytes arrived.
    Load(LaneLoad),
    /// A file could not be read again.
    Unreadable(u64, std::io::Error),
    /// The session is over, and these bytes of the object are not known to have arrived.
    Left {
        number: usize,
        unconfirmed: RangeSet,
        /// Reason, unless the copy was over.
        why: Option<String>,
    },
}

/// State that the parallel sessions of one copy share in one process.
pub(crate) struct Lanes {
    /// True if this side has the files.
    pub(crate) sends: bool,
    /// Limits on all sessions together.
    pub(crate) brake: Brake,
    /// Wakes the first session.
    wake: Option<Wake>,
    /// Highest number of further sessions that there may ever be.
    most: usize,
    all: Mutex<Vec<Arc<Link>>>,
    /// Sessions at work, the first among them.
    up: AtomicU32,
    /// Further sessions that have had something on their way lately.
    busy: AtomicU32,
    over: AtomicBool,
    /// Offset in the object of a copy that is sent: files that end there or before are over.
    over_below: AtomicU64,
    events: Mutex<Vec<LaneEvent>>,
}

impl Lanes {
    /// Makes room for `most` further sessions of a copy; `brake` governs the first, and `wake`
    /// wakes it.
    pub(crate) fn new(sends: bool, brake: Brake, wake: Option<Wake>, most: u32) -> Self {
        Self {
            sends,
            brake,
            wake,
            most: usize::try_from(most.min(MOST_LANES)).unwrap_or_default(),
            all: Mutex::default(),
            up: AtomicU32::new(1),
            busy: AtomicU32::new(0),
            over: AtomicBool::new(false),
            over_below: AtomicU64::new(0),
            events: Mutex::default(),
        }
    }

    /// Enters a further session, if there may be another. One that has ended is not replaced.
    pub(crate) fn enter(&self) -> Option<Arc<Link>> {
        let mut all = lock(&self.all);
        if self.is_over() || all.len() >= self.most {
            return None;
        }
        let link = Arc::new(Link::new(all.len()));
        all.push(Arc::clone(&link));
        Some(link)
    }

    /// Number of sessions at work.
    pub(crate) fn up(&self) -> u32 {
        self.up.load(Relaxed)
    }

    /// Number of sessions among which rate and share are divided: the first, and those that use a
    /// part.
    pub(crate) fn sharing(&self) -> u32 {
        self.busy.load(Relaxed).saturating_add(1)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Files below `offset` of the object are over: the receiver asks for none of their bytes again.
    pub(crate) fn set_over(&self, offset: u64) {
        self.over_below.store(offset, Relaxed);
    }

    /// Offset in the object up to which files are over.
    pub(crate) fn over_below(&self) -> u64 {
        self.over_below.load(Relaxed)
    }

    /// Notes that the first session is over.
    fn finish(&self) {
        self.over.store(true, Relaxed);
        for link in &*lock(&self.all) {
            link.wake();
        }
        lock(&self.events).clear();
    }

    pub(crate) fn tell(&self, event: LaneEvent) {
        // Who would take it has gone.
        if self.is_over() {
            return;
        }
        lock(&self.events).push(event);
        self.wake_first();
    }

    /// Wakes the first session, which may have something to hand over.
    pub(crate) fn wake_first(&self) {
        if let Some(wake) = &self.wake {
            wake();
        }
    }

    /// Wakes all sessions, which have something to look at.
    pub(crate) fn wake_all(&self) {
        self.wake_first();
        for link in &*lock(&self.all) {
            link.wake();
        }
    }

    /// Takes the events for the first session.
    pub(crate) fn take_events(&self) -> Vec<LaneEvent> {
        mem::take(&mut *lock(&self.events))
    }

    /// Gives the buffer of a load back to a session.
    pub(crate) fn give_back(&self, number: usize, bytes: Vec<u8>, align: Option<u64>) {
        let link = lock(&self.all).get(number).cloned();
        if let Some(link) = link {
            let mut queues = lock(&link.queues);
            queues.align = align.unwrap_or(queues.align);
            queues.returned.push(bytes);
            drop(queues);
            link.wake();
        }
    }

    /// Counters of all further sessions.
    pub(crate) fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for link in &*lock(&self.all) {
            sum.add(&lock(&link.stats));
        }
        sum
    }

    /// Number of sessions that there were, the first among them.
    pub(crate) fn total(&self) -> u32 {
        let came = lock(&self.all)
            .iter()
            .filter(|l| l.came.load(Relaxed))
            .count();
        u32::try_from(came).unwrap_or(u32::MAX).saturating_add(1)
    }
}

/// The first session's hold on the others: when it is dropped, they end.
pub(crate) struct First(pub(crate) Arc<Lanes>);

impl Drop for First {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// The counters of a session and of the further ones of its copy, and the number of all of them.
pub(crate) fn total(lanes: Option<&Lanes>, session: &dyn Session) -> (Stats, u32) {
    let mut stats = session.stats();
    let Some(lanes) = lanes else {
        return (stats, 1);
    };
    stats.add(&lanes.stats());
    (stats, lanes.total())
}

/// Message about a session that was lost.
pub(crate) fn lost(number: usize, why: &str) -> String {
    format!(
        "lane {} was lost, the copy went on without it: {why}",
        number + 2
    )
}

/// A piece of a large file, for a further session to send.
pub(crate) struct Handed {
    /// Range within the object.
    pub(crate) range: Range<u64>,
    pub(crate) bytes: Pages,
    /// Source from which the piece can be read again.
    pub(crate) origin: Arc<Origin>,
}

/// Link between the first session and one further.
pub(crate) struct Link {
    number: usize,
    wake: OnceLock<Wake>,
    came: AtomicBool,
    /// Bytes handed to it, and those of them that have left once.
    handed: AtomicU64,
    left: AtomicU64,
    queues: Mutex<Queues>,
    stats: Mutex<Stats>,
}

#[derive(Default)]
struct Queues {
    gone: bool,
    /// Pieces to be sent.
    pieces: Vec<Handed>,
    /// Buffers of pieces that have left.
    spare: Vec<Pages>,
    /// Buffers of loads that were written.
    returned: Vec<Vec<u8>>,
    /// Offset at which leaves of the file that was written last begin, below
    /// [`crate::digest::LEAF`].
    align: u64,
}

impl Link {
    fn new(number: usize) -> Self {
        Self {
            number,
            wake: OnceLock::new(),
            came: AtomicBool::new(false),
            handed: AtomicU64::new(0),
            left: AtomicU64::new(0),
            queues: Mutex::default(),
            stats: Mutex::default(),
        }
    }

    pub(crate) const fn number(&self) -> usize {
        self.number
    }

    /// Sets the function that wakes the session.
    pub(crate) fn woken_by(&self, wake: Wake) {
        let _only_once = self.wake.set(wake);
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Bytes that it has yet to send.
    pub(crate) fn backlog(&self) -> u64 {
        self.handed
            .load(Relaxed)
            .saturating_sub(self.left.load(Relaxed))
    }

    /// Hands it a piece, unless it is over, and collects empty buffers.
    pub(crate) fn hand(&self, piece: Handed, spare: &mut Vec<Pages>) -> Result<(), Handed> {
        let mut queues = lock(&self.queues);
        if queues.gone {
            return Err(piece);
        }
        spare.append(&mut queues.spare);
        self.handed
            .fetch_add(piece.range.end - piece.range.start, Relaxed);
        queues.pieces.push(piece);
        drop(queues);
        self.wake();
        Ok(())
    }

    /// Takes the pieces that were handed over; gives `spare` in return.
    pub(crate) fn take_pieces(&self, spare: &mut Vec<Pages>) -> Vec<Handed> {
        let mut queues = lock(&self.queues);
        queues.spare.append(spare);
        mem::take(&mut queues.pieces)
    }

    /// Sets the bytes that are left to send.
    pub(crate) fn set_left(&self, bytes: u64) {
        self.left.store(bytes, Relaxed);
    }

    /// Buffers that came back, and where leaves begin.
    pub(crate) fn take_returned(&self) -> (Vec<Vec<u8>>, u64) {
        let mut queues = lock(&self.queues);
        (mem::take(&mut queues.returned), queues.align)
    }
}

/// The copies of a server that further sessions may join.
#[derive(Default)]
pub(crate) struct Joinable(Mutex<BTreeMap<Token, Open>>);

impl std::fmt::Debug for Joinable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Joinable")
    }
}

/// Copy that sessions may join.
struct Open {
    lanes: Weak<Lanes>,
    /// Peer that the copy belongs to.
    peer: Vec<u8>,
    /// Places that were asked for.
    places: Vec<Place>,
}

impl Joinable {
    /// Opens a copy of `places` that `peer` asked for, and forgets those that are over.
    pub(crate) fn open(&self, lanes: &Arc<Lanes>, peer: &[u8], places: Vec<Place>) -> Token {
        let mut token = Token::default();
        farhaul_io::system_rng().fill(&mut token);
        let mut all = lock(&self.0);
        all.retain(|_, open| open.lanes.strong_count() > 0);
        let open = Open {
            lanes: Arc::downgrade(lanes),
            peer: peer.to_vec(),
            places,
        };
        all.insert(token, open);
        token
    }

    /// The copy of `peer` that `token` names, if it goes on, and what was asked for. Whether the peer may still have
    /// that is for the session that joins to find out.
    pub(crate) fn find(
        &self,
        token: &Token,
        peer: &[u8],
    ) -> Result<(Arc<Lanes>, Vec<Place>), TransferError> {
        let all = lock(&self.0);
        let open = all.get(token).filter(|open| open.peer == peer);
        let found = open.and_then(|open| Some((open.lanes.upgrade()?, open.places.clone())));
        drop(all);
        found.ok_or_else(|| {
            let text = "no copy with your key has this lane";
            TransferError::new(Exit::Auth, text).fix("the copy may be over; otherwise run it again")
        })
    }
}
