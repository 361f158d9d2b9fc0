//! Runs the turns of a shard. In a turn the shard receives datagrams, in place; notifies sessions
//! whose deadline has passed; and serves the ready ones, a few batches each, in turn. Then it
//! sleeps until the socket or the first deadline calls. There is one clock read per turn and per
//! batch sent.
//!
//! Invariants: no allocation, lock or virtual call per datagram. Receiving and sending are both
//! bounded, so neither starves the other. A batch that the socket did not take is kept, and nothing
//! else is sent until it has left. The thread sleeps whenever no session has anything to send.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use farhaul_core::{
    app::App,
    datagram::{Received, Transmit, TxBuf},
    protocol::CloseReason,
    rng::Rng,
    time::Instant,
};
use farhaul_udp::{Inbox, Incoming, Outgoing, ReceiveOutcome, SendOutcome, UdpSocket};

use rustix::{fd::AsFd, io::Errno};

use crate::{
    ShardError, clock, cpu,
    host::{HostStats, Unsent},
    poller::{self, Awaited, Punctual},
    roam::Roam,
    slot::Slot,
    table::SessionTable,
    waker::{Stop, Waker},
    watchdog::Pulse,
};

/// Receive calls in one turn: up to 4 MiB with GRO.
const RECEIVES: usize = 8;
/// The most bytes of one receive call.
const RECEIVE: u64 = 512 << 10;
/// Interval at which a full app is given something all the same, so that a peer is not taken for
/// dead.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Batches sent in one turn: about 1 MiB.
const SENDS: usize = 16;
/// Batches one session sends before the next one's turn comes.
const SHARE: usize = 4;
/// Bytes received in one turn that mean bulk data: more will follow, and the next poll can wait.
const BULK: usize = 32 << 10;
/// Time that a shard rests. A sleep costs as much as receiving a whole train, so one poll per train
/// would double the cost of receiving. The socket's buffer is far larger than what arrives in this
/// time.
const REST: Duration = Duration::from_micros(250);
/// Time to wait with a batch that was not sent although the socket was reported writable.
const RETRY: Duration = Duration::from_micros(100);

/// Longest wait of a batch that the kernel does not take; then the batch is lost, and its session
/// goes on or ends.
const STUCK: Duration = Duration::from_secs(1);
/// Batches refused by the kernel, and none taken, after which it is not tried again.
const REFUSED_SENDS: u64 = 3;
/// Batches in a row to another address after which a connected socket is connected to that one.
const FOLLOW: u32 = 8;

/// Destination of a message.
pub(crate) enum Admission {
    /// The session in this slot.
    Slot(usize),
    /// The answer is in the reply buffer.
    Reply,
    /// Nowhere.
    Drop,
}

/// Decides where messages go: a client has one session, a listener asks the protocol.
pub(crate) trait Router<A> {
    fn admit(
        &mut self,
        table: &mut SessionTable<A>,
        now: Instant,
        message: &Incoming<'_>,
        reply: &mut Vec<u8>,
    ) -> Admission;

    /// The slot of the only session that the socket is for.
    fn only(&self) -> Option<usize> {
        None
    }

    /// The session in `slot` has taken what arrived for it; it may be gone after this.
    fn on_handled(&mut self, _table: &mut SessionTable<A>, _slot: usize) {}

    /// The handshake of `entry` is finished; its app has not been notified yet.
    fn connected(&mut self, entry: &mut Slot<A>);

    /// A session is over and its last datagrams have left.
    fn left(&mut self, entry: Slot<A>, reason: CloseReason);
}

/// A batch that the socket did not take.
#[derive(Clone, Copy)]
struct Parked {
    transmit: Transmit,
    from: Option<std::net::IpAddr>,
    /// Bytes of the batch that did leave.
    sent: usize,
    /// Time at which the batch was sent first, or a part of it left last.
    since: Instant,
    /// Time to wait for instead, as the socket was writable, yet refused.
    until: Option<Instant>,
}

impl Parked {
    /// All of a batch, from the address `local` if it is of the same family.
    fn new(now: Instant, transmit: Transmit, local: Option<std::net::IpAddr>) -> Self {
        Self {
            since: now,
            transmit,
            from: local.filter(|ip| ip.is_ipv4() == transmit.to.is_ipv4()),
            sent: 0,
            until: None,
        }
    }
}

/// State of a batch: done with or not.
enum Progress {
    Done,
    Parked,
}

/// A socket with its sessions.
pub(crate) struct Shard<A> {
    socket: UdpSocket,
    _punctual: Punctual,
    inbox: Inbox,
    out: TxBuf,
    reply: Vec<u8>,
    parked: Option<Parked>,
    pub(crate) table: SessionTable<A>,
    waker: Option<Waker>,
    /// Stop, watched until it is seen.
    stop: Option<Stop>,
    host: HostStats,
    pulse: Arc<Pulse>,
    /// Roaming state of a client whose source address is the kernel's choice.
    roam: Option<Roam>,
    /// Batches in a row to another address than the socket's peer.
    elsewhere: u32,
    now: Instant,
    /// True if the socket may be readable.
    readable: bool,
    /// Time before which the socket is not polled, as the app has no space, unless the app is
    /// woken.
    full_until: Option<Instant>,
    /// Time before which the socket is not polled, as bulk data arrives.
    rest_until: Option<Instant>,
    awake_since: Instant,
    cpu_before: Duration,
}

impl<A: App> Shard<A> {
    /// A shard for the calling thread.
    pub(crate) fn new(
        socket: UdpSocket,
        waker: Option<Waker>,
        stop: Option<Stop>,
        pulse: Arc<Pulse>,
    ) -> Self {
        let now = clock::now();
        Self {
            host: HostStats::new(socket.capabilities(), socket.counters()),
            socket,
            pulse,
            roam: None,
            elsewhere: 0,
            _punctual: Punctual::new(),
            inbox: Inbox::new(),
            out: TxBuf::default(),
            reply: Vec::with_capacity(2_048),
            parked: None,
            table: SessionTable::new(),
            waker,
            stop,
            now,
            readable: true,
            full_until: None,
            rest_until: None,
            awake_since: now,
            cpu_before: cpu::thread_time(),
        }
    }

    /// Makes the socket, which is connected to `to`, follow this host from now on where its
    /// addresses change.
    pub(crate) const fn roams(&mut self, to: SocketAddr) {
        self.roam = Some(Roam::new(self.now, to));
    }

    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// "Port unreachable" answers seen.
    pub(crate) const fn refused(&self) -> u64 {
        self.socket.counters().refused
    }

    /// The account up to now.
    pub(crate) fn host(&self) -> HostStats {
        let counters = self.socket.counters();
        let starved = counters.no_memory > 0 && counters.datagrams_sent == 0;
        let starved = starved.then(|| Unsent::Refused(Errno::NOBUFS.raw_os_error()));
        HostStats {
            unsent: self.host.unsent.or(starved),
            socket: counters,
            capabilities: self.socket.capabilities(),
            busy: self.host.busy + clock::now().since(self.awake_since),
            cpu: cpu::thread_time().saturating_sub(self.cpu_before),
            ..self.host
        }
    }

    /// One turn; the caller evaluates its result and then calls [`Self::sleep`].
    pub(crate) fn turn<D: Router<A>>(&mut self, router: &mut D) -> Result<(), ShardError> {
        self.host.turns += 1;
        self.pulse.turn();
        self.now = clock::now();
        if self.waker.as_ref().is_some_and(Waker::take) {
            self.table.queue_all();
        }
        // Datagrams that arrived before bytes of a lane are received after those were read.
        self.readable |= self.table.poll_lanes(self.now);
        if self.readable {
            self.receive(router)?;
        }
        self.now = clock::now();
        let full = self.full_until.is_some();
        self.table.attend(self.now, self.readable && !full);
        self.table.expire(self.now);
        self.look_for_new_source();
        self.unpark();
        self.serve(router);
        Ok(())
    }

    /// Goes on from another address, if this host has lost the one that it sent from.
    fn look_for_new_source(&mut self) {
        if let Some(roam) = &mut self.roam
            && roam.due() <= self.now
            && roam.look(self.now, &mut self.socket)
        {
            self.host.moves += 1;
            self.table.path_changed(self.now);
        }
    }

    /// Messages that there is room for.
    fn room<D: Router<A>>(&mut self, router: &D) -> usize {
        let Some(entry) = router.only().and_then(|slot| self.table.get(slot)) else {
            return usize::MAX;
        };
        let room = entry
            .guard(|entry| entry.app.sink().free)
            .unwrap_or(u64::MAX);
        usize::try_from(room / RECEIVE).unwrap_or(usize::MAX)
    }

    /// True if there is room for a message.
    pub(crate) fn fits<D: Router<A>>(&mut self, router: &D) -> bool {
        self.room(router) > 0
    }

    /// Most times that the socket may be read now. Where the socket is one session's, datagrams
    /// without room wait in the socket; but at intervals the peer is checked.
    fn receives<D: Router<A>>(&mut self, router: &D) -> usize {
        let fit = self.room(router).min(RECEIVES);
        if fit > 0 {
            self.full_until = None;
            return fit;
        }
        let look = *self.full_until.get_or_insert(self.now + CHECK_INTERVAL);
        if look > self.now {
            return 0;
        }
        self.full_until = Some(self.now + CHECK_INTERVAL);
        1
    }

    /// Receives the messages that are there, up to a bound.
    fn receive<D: Router<A>>(&mut self, router: &mut D) -> Result<(), ShardError> {
        let mut received = 0;
        for _ in 0..self.receives(router) {
            match self.socket.receive(&mut self.inbox) {
                ReceiveOutcome::Some { more } => {
                    // Placing earlier data may have taken long: what is stamped too early looks
                    // like a path that is shorter than it is.
                    self.now = clock::now();
                    let stamp = clock::stamp();
                    let delivered = self.deliver(router, stamp);
                    // A message may be of another than the peer, and is nothing then.
                    if let Some(roam) = self.roam.as_mut().filter(|_| delivered > 0) {
                        roam.on_heard(self.now);
                    }
                    received += delivered;
                    if !more {
                        self.readable = false;
                        break;
                    }
                }
                ReceiveOutcome::Refused => {}
                ReceiveOutcome::Empty => {
                    self.readable = false;
                    break;
                }
                ReceiveOutcome::Failed(error) if is_transient(&error) => {
                    // What an earlier datagram met on its way, for people.
                    self.host.unsent = Some(self.unsent(&error));
                }
                ReceiveOutcome::Failed(error) => {
                    return Err(ShardError::System("cannot receive", error));
                }
            }
        }
        self.rest_until = (received >= BULK).then(|| self.now + REST);
        Ok(())
    }

    /// Gives each message to its session; `stamp` is now on the kernel's clock. Returns how many bytes
    /// there were.
    fn deliver<D: Router<A>>(&mut self, router: &mut D, stamp: SystemTime) -> usize {
        let mut received = 0;
        for mut message in self.inbox.messages() {
            received += message.bytes.len();
            let arrived = message.arrived.map(|at| clock::waited(stamp, at));
            let mut at = Desk {
                table: &mut self.table,
                socket: &mut self.socket,
                reply: &mut self.reply,
                now: self.now,
            };
            at.give(router, &mut message, arrived.unwrap_or_default());
        }
        received
    }

    /// Passes on a message received on another socket.
    pub(crate) fn give<D: Router<A>>(&mut self, router: &mut D, message: &mut Incoming<'_>) {
        let mut at = Desk {
            table: &mut self.table,
            socket: &mut self.socket,
            reply: &mut self.reply,
            now: self.now,
        };
        at.give(router, message, Duration::ZERO);
    }

    /// Serves ready sessions until none is left, the socket is full, or it is time to receive again.
    fn serve<D: Router<A>>(&mut self, router: &mut D) {
        let mut sends = SENDS;
        while sends > 0 && self.parked.is_none() {
            let Some(slot) = self.table.next_ready() else {
                return;
            };
            let Some(entry) = self.table.get(slot) else {
                continue;
            };
            entry.deliver_events(self.now, |entry| router.connected(entry));
            router.on_handled(&mut self.table, slot);
            let Some(entry) = self.table.get(slot) else {
                continue;
            };
            entry.poll(self.now);
            let share = SHARE.min(sends);
            let used = self.transmit(slot, share);
            sends -= used;
            self.table.pump(slot, self.now);
            let Some(entry) = self.table.get(slot) else {
                continue;
            };
            let delivered = entry.deliver_events(self.now, |entry| router.connected(entry));
            let (over, faulty) = (entry.is_over(), entry.is_faulty());
            let moved = self.table.arm(slot, self.now);
            if faulty {
                self.send_close(slot);
                self.dismiss(slot, router);
            } else if delivered || used == share || self.parked.is_some() {
                self.table.queue(slot);
            } else if over {
                self.dismiss(slot, router);
            } else if !moved {
                self.host.stuck_deadlines += 1;
            }
        }
    }

    /// Sends up to `share` batches of the entry; returns how many there were.
    fn transmit(&mut self, slot: usize, share: usize) -> usize {
        for used in 0..share {
            let Some(entry) = self.table.get(slot) else {
                return used;
            };
            // One that was heard on an address that is gone has to send from another.
            let local = entry.local.filter(|_| self.roam.is_none());
            let (now, out) = (self.now, &mut self.out);
            let transmit = entry.guard(|entry| {
                let (session, mut turn) = entry.turn(now);
                session.poll_transmit(&mut turn, out)
            });
            let Some(transmit) = transmit.flatten() else {
                return used;
            };
            let batch = Parked::new(now, transmit, local);
            self.host.batches_sent += 1;
            let progress = self.send(batch);
            self.now = clock::now();
            if matches!(progress, Progress::Parked) {
                return used + 1;
            }
        }
        share
    }

    /// Sends the close of a session that panicked, unless a batch is pending.
    fn send_close(&mut self, slot: usize) {
        if self.parked.is_none()
            && let Some(entry) = self.table.get(slot)
            && let Some(transmit) = entry.poll_close(self.now, &mut self.out)
        {
            let local = entry.local.filter(|_| self.roam.is_none());
            self.send(Parked::new(self.now, transmit, local));
        }
    }

    /// A connected socket follows its peer once the session sends to another address for good.
    fn follow(&mut self, to: SocketAddr) {
        if self.socket.peer().is_none_or(|peer| peer == to) {
            self.elsewhere = 0;
            return;
        }
        self.elsewhere += 1;
        if self.elsewhere == FOLLOW {
            self.elsewhere = 0;
            // Refused, each batch goes on carrying its address.
            let _refused = self.socket.connect(to);
        }
    }

    /// Sends the batch in the buffer, or the rest of it.
    fn send(&mut self, batch: Parked) -> Progress {
        self.follow(batch.transmit.to);
        let outgoing = Outgoing {
            to: batch.transmit.to,
            from: batch.from,
            ecn: batch.transmit.ecn,
            segment: self.out.segment(),
            bytes: &self.out.bytes()[batch.sent..],
        };
        match self.socket.send(&outgoing) {
            SendOutcome::Blocked { sent } => {
                let since = if sent > 0 { self.now } else { batch.since };
                self.parked = Some(Parked {
                    sent: batch.sent + sent,
                    since,
                    ..batch
                });
                Progress::Parked
            }
            SendOutcome::Failed(error) => {
                // No route, or filtered: to the session it is a loss like any other.
                self.host.unsent = Some(self.unsent(&error));
                if let Some(roam) = &mut self.roam {
                    roam.on_refused();
                }
                Progress::Done
            }
            SendOutcome::TooLarge => {
                self.host.unsent = Some(self.unsent(&Errno::MSGSIZE.into()));
                Progress::Done
            }
            SendOutcome::Sent | SendOutcome::Refused => Progress::Done,
        }
    }

    /// Meaning of an error for the batch sent last, or for one before.
    fn unsent(&self, error: &io::Error) -> Unsent {
        match error.raw_os_error() {
            Some(errno) if errno == Errno::MSGSIZE.raw_os_error() => Unsent::TooLong {
                bytes: self.out.segment(),
                mtu: self.socket.interface_mtu(),
            },
            errno => Unsent::Refused(errno.unwrap_or_default()),
        }
    }

    /// True if none of the datagrams tried could leave this host, and none will: for a firewall
    /// here, or a link that is too short for a first datagram.
    pub(crate) fn is_shut_in(&self) -> bool {
        let counters = self.socket.counters();
        match self.host.unsent {
            Some(Unsent::TooLong {
                bytes,
                mtu: Some(mtu),
            }) => {
                let v4 = self.socket.peer().is_none_or(|peer| peer.is_ipv4());
                let headers = if v4 { 28 } else { 48 };
                bytes + headers > usize::try_from(mtu).unwrap_or(usize::MAX)
            }
            Some(Unsent::Refused(_)) => {
                counters.datagrams_sent == 0 && counters.failed >= REFUSED_SENDS
            }
            _ => false,
        }
    }

    /// Tries again to send the parked batch.
    fn unpark(&mut self) {
        let Some(batch) = self.parked.take() else {
            return;
        };
        if batch.until.is_some_and(|at| at > self.now) {
            self.parked = Some(batch);
            return;
        }
        self.send(batch);
        // A device that takes nothing must not keep sessions from their deadlines.
        self.parked = self.parked.filter(|p| p.since + STUCK > self.now);
        if let Some(again) = &mut self.parked
            && again.sent == batch.sent
        {
            again.until = Some(self.now + RETRY);
        }
    }

    fn dismiss<D: Router<A>>(&mut self, slot: usize, router: &mut D) {
        if let Some(mut entry) = self.table.remove(slot) {
            let silent = CloseReason::Protocol("the session ended without a reason".into());
            let reason = entry.conclude(self.now, silent);
            router.left(entry, reason);
        }
    }

    /// Gives up on every session that is left.
    pub(crate) fn abandon<D: Router<A>>(&mut self, router: &mut D, reason: &CloseReason) {
        while let Some(mut entry) = self.table.remove_any() {
            let reason = entry.conclude(self.now, reason.clone());
            router.left(entry, reason);
        }
    }

    /// Sleeps until something is to be done, at most until `until`; not at all if there is now.
    pub(crate) fn sleep(&mut self, until: Option<Instant>) -> Result<(), ShardError> {
        let full = self.full_until.is_some_and(|at| at > self.now);
        if (self.readable && !full) || (self.table.is_ready() && self.parked.is_none()) {
            // The socket is polled again in the next turn, without waiting.
            self.readable = true;
            return Ok(());
        }
        self.wait(until)
            .map_err(|e| ShardError::System("cannot wait for the socket", e))
    }

    fn wait(&mut self, until: Option<Instant>) -> io::Result<()> {
        let retry = self.parked.and_then(|p| p.until);
        let stuck = self.parked.map(|p| p.since + STUCK);
        let asleep_since = clock::now();
        let rest = self.rest_until.max(self.full_until);
        let rest = rest.filter(|at| *at > asleep_since);
        let lanes = self.table.lanes.as_ref().and_then(|lanes| lanes.deadline());
        let roam = self.roam.as_ref().map(Roam::due);
        let deadline = [
            self.table.first_deadline(),
            retry,
            stuck,
            rest,
            until,
            lanes,
            roam,
        ];
        let deadline = deadline.into_iter().flatten().min();
        let awaited = Awaited {
            socket: &self.socket,
            readable: rest.is_none(),
            writable: self.parked.is_some() && retry.is_none(),
            lanes: self.table.lanes.as_deref().map(AsFd::as_fd),
            waker: self.waker.as_ref(),
            stop: self.stop.as_ref(),
        };
        self.pulse.sleeps(true);
        let ready = poller::wait(&awaited, asleep_since, deadline);
        self.pulse.sleeps(false);
        let ready = ready?;
        let now = clock::now();
        self.host.sleeps += 1;
        self.host.busy += asleep_since.since(self.awake_since);
        let slept = now.since(asleep_since);
        if self.parked.is_some() {
            self.host.blocked += slept;
        } else {
            self.host.asleep += slept;
        }
        self.awake_since = now;
        // A full app that was woken may have room again.
        let full = self.full_until.is_some();
        self.readable = ready.readable || full || rest.is_some_and(|at| at <= now);
        if ready.woken
            && let Some(waker) = &self.waker
        {
            waker.empty();
        }
        if ready.stopped {
            // It stays readable for ever; once seen it must not wake the shard again.
            self.stop = None;
            self.table.queue_all();
        }
        Ok(())
    }
}

/// Parts needed to give a message to its session.
struct Desk<'a, A> {
    table: &'a mut SessionTable<A>,
    socket: &'a mut UdpSocket,
    reply: &'a mut Vec<u8>,
    now: Instant,
}

impl<A: App> Desk<'_, A> {
    fn give<D: Router<A>>(&mut self, router: &mut D, message: &mut Incoming<'_>, waited: Duration) {
        match router.admit(self.table, self.now, message, self.reply) {
            Admission::Slot(slot) => {
                if let Some(entry) = self.table.get(slot) {
                    entry.local = message.to;
                    let batch = Received {
                        from: message.from,
                        ecn: message.ecn,
                        segment: message.segment,
                        waited,
                        bytes: &mut *message.bytes,
                        granted: None,
                    };
                    entry.receive(self.now, batch);
                    self.table.queue(slot);
                }
            }
            Admission::Reply => {
                let answer = Outgoing {
                    to: message.from,
                    from: message.to,
                    ecn: farhaul_core::datagram::Ecn::NotEct,
                    segment: self.reply.len().max(1),
                    bytes: self.reply,
                };
                // The client repeats its request; the socket counts what was not sent.
                let _lost = self.socket.send(&answer);
            }
            Admission::Drop => {}
        }
    }
}

/// True for errors of an earlier datagram, reported by ICMP, which can be forged: all but what a
/// program's own fault would be.
fn is_transient(error: &io::Error) -> bool {
    let fatal = [Errno::BADF, Errno::NOTSOCK, Errno::FAULT, Errno::INVAL];
    Errno::from_io_error(error).is_some_and(|errno| !fatal.contains(&errno))
}

/// Draws of the operating system.
pub fn system_rng() -> Rng {
    Rng::system(fill)
}

fn fill(bytes: &mut [u8]) {
    // Without them nothing that is to be secret can be drawn. Kernels since 3.17 have them.
    getrandom::fill(bytes)
        .unwrap_or_else(|error| panic!("no random numbers from the kernel: {error}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icmp_errors_are_no_reason_to_stop() {
        // What Linux makes of ICMP and ICMPv6 errors (icmp_err_convert, icmpv6_err_convert).
        for errno in [
            Errno::NETUNREACH,
            Errno::HOSTUNREACH,
            Errno::NOPROTOOPT,
            Errno::CONNREFUSED,
            Errno::MSGSIZE,
            Errno::OPNOTSUPP,
            Errno::HOSTDOWN,
            Errno::NONET,
            Errno::PROTO,
            Errno::ACCESS,
        ] {
            assert!(is_transient(&errno.into()), "{errno:?}");
        }
        for errno in [Errno::BADF, Errno::NOTSOCK] {
            assert!(!is_transient(&errno.into()), "{errno:?}");
        }
    }
}
