//! Puts one UDP port on a bad network without any privileges. A relay listens where the client
//! sends to and passes datagrams on to the server, through the same paths as the router, and back.
//! Every client gets a socket of its own towards the server.
//!
//! Datagrams that arrive coalesced stay together as runs, as in the router. Packets count with the
//! headers they would have on the wire. At most [`MAX_CLIENTS`] clients are served; the one that has
//! been idle longest is evicted.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use farhaul_core::{rng::Rng, time::Instant};
use farhaul_link::{Ecn, Path, PathConfig, Verdict};
use farhaul_udp::{Inbox, Outgoing, ReceiveOutcome, SendOutcome, SocketOptions, UdpSocket};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
};

use crate::{
    clock::{Clock, timespec, wake_precisely},
    health::Histogram,
    held::{Held, Run},
    process::Signals,
    report::WanReport,
    router::{Outcome, Totals},
    runs::Runs,
    slab::{Slab, Slot},
};

/// Most clients at once.
pub const MAX_CLIENTS: usize = 64;
/// Runs sent in one direction before sockets are read again.
const SENDS_PER_TURN: u32 = 16;

/// A relay and the network it pretends to be.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Address that clients send to.
    pub listen: SocketAddr,
    /// The server.
    pub to: SocketAddr,
    /// Path from the clients to the server.
    pub forward: PathConfig,
    /// Path from the server to the clients.
    pub back: PathConfig,
    /// Seed of all randomness.
    pub seed: u64,
    /// Most bytes of datagrams held at once.
    pub memory: u64,
}

/// A running relay; stops when dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<Outcome>>>,
    seed: u64,
}

impl Relay {
    /// Binds and starts to relay. The paths must be valid.
    pub fn start(config: &RelayConfig) -> io::Result<Self> {
        let listener = UdpSocket::bind(&SocketOptions::new(config.listen))?;
        let address = listener.local_addr()?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stop = Arc::new(AtomicBool::new(false));
        let rng = Rng::new(config.seed);
        let mut relay = Loop {
            listener,
            clients: Vec::new(),
            to: config.to,
            ways: [
                Way::new(&config.forward, &rng.fork("near to far")),
                Way::new(&config.back, &rng.fork("far to near")),
            ],
            slab: Slab::new(config.memory),
            trains: Vec::new(),
            late: Histogram::new(),
            clock: Clock::start(),
            began: false,
            stop: Arc::clone(&stop),
            wake: Arc::clone(&wake),
        };
        let thread = thread::Builder::new()
            .name("wan-relay".into())
            .spawn(move || {
                relay.clock = Clock::start();
                relay.run().map(|()| relay.finish())
            })?;
        Ok(Self {
            address,
            stop,
            wake,
            thread: Some(thread),
            seed: config.seed,
        })
    }

    /// Address on which the relay listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Relays until this process receives a stop signal, then reports.
    pub fn until_signal(self) -> io::Result<WanReport> {
        Signals::catch()?.wait()?;
        self.finish()
    }

    /// Stops and reports; datagrams on their way are lost.
    pub fn finish(mut self) -> io::Result<WanReport> {
        let ended = self.join();
        let outcome = ended.unwrap_or_else(|| Err(io::Error::other("already stopped")))?;
        let network = format!("relay at {}", self.address);
        Ok(WanReport::new(&outcome, network, self.seed, "udp", 0))
    }

    fn join(&mut self) -> Option<io::Result<Outcome>> {
        let thread = self.thread.take()?;
        self.stop.store(true, Ordering::Release);
        // The counter cannot overflow: this is the only write it ever gets.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        let panicked = |_| Err(io::Error::other("the relay panicked; its message is above"));
        Some(thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

/// One direction.
#[derive(Debug)]
struct Way {
    path: Path,
    held: Held,
    rng: Rng,
    totals: Totals,
}

impl Way {
    fn new(config: &PathConfig, rng: &Rng) -> Self {
        Self {
            path: Path::new(config, rng),
            held: Held::default(),
            rng: rng.fork("damage"),
            totals: Totals::default(),
        }
    }
}

/// A client and its socket towards the server.
#[derive(Debug)]
struct Client {
    address: SocketAddr,
    /// Local address that the client wrote to, from which it is answered.
    written_to: Option<IpAddr>,
    socket: UdpSocket,
    last_received: Instant,
    /// Changes with every new client in this slot, so that late answers are dropped.
    generation: u32,
}

/// Datagrams that arrived together.
#[derive(Clone, Copy, Debug)]
struct Train {
    client: usize,
    generation: u32,
    segment: usize,
    ecn: Ecn,
}

struct Loop {
    listener: UdpSocket,
    clients: Vec<Client>,
    to: SocketAddr,
    ways: [Way; 2],
    slab: Slab,
    /// Trains by slot.
    trains: Vec<Train>,
    late: Histogram,
    clock: Clock,
    /// True if a datagram was received: the clock of the paths starts then.
    began: bool,
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
}

impl Loop {
    fn run(&mut self) -> io::Result<()> {
        wake_precisely();
        let mut inbox = Inbox::new();
        while !self.stop.load(Ordering::Acquire) {
            for ready in self.wait()? {
                match ready {
                    None => self.receive_from_clients(&mut inbox)?,
                    Some(client) => self.receive_from_server(client, &mut inbox),
                }
            }
            for way in 0..2 {
                self.send_due(way);
            }
        }
        Ok(())
    }

    /// Sleeps until there is something to read or to send; answers which sockets can be read, `None`
    /// for the listener.
    fn wait(&self) -> io::Result<Vec<Option<usize>>> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        let sockets = self.clients.iter().map(|client| &client.socket);
        fds.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let due = self.ways.iter().filter_map(|way| way.held.next_due()).min();
        let timeout = due.map(|due| timespec(due - self.clock.now()));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let readable = fds.iter().skip(1).enumerate();
        Ok(readable
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(index, _)| index.checked_sub(1))
            .collect())
    }

    fn receive_from_clients(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        if !matches!(self.listener.receive(inbox), ReceiveOutcome::Some { .. }) {
            return Ok(());
        }
        if !std::mem::replace(&mut self.began, true) {
            self.clock = Clock::start();
        }
        let now = self.clock.now();
        for message in inbox.messages() {
            let client = self.client(message.from, message.to, now)?;
            let train = Train {
                client,
                generation: self.clients[client].generation,
                segment: message.segment,
                ecn: message.ecn,
            };
            self.route(0, now, train, message.bytes);
        }
        Ok(())
    }

    fn receive_from_server(&mut self, client: usize, inbox: &mut Inbox) {
        let receiver = &mut self.clients[client];
        if !matches!(receiver.socket.receive(inbox), ReceiveOutcome::Some { .. }) {
            return;
        }
        let now = self.clock.now();
        let generation = receiver.generation;
        for message in inbox.messages() {
            let train = Train {
                client,
                generation,
                segment: message.segment,
                ecn: message.ecn,
            };
            self.route(1, now, train, message.bytes);
        }
    }

    /// The place of the client at `address`, which is new or known.
    fn client(
        &mut self,
        address: SocketAddr,
        written_to: Option<IpAddr>,
        now: Instant,
    ) -> io::Result<usize> {
        if let Some(place) = self.clients.iter().position(|c| c.address == address) {
            self.clients[place].last_received = now;
            return Ok(place);
        }
        let any: IpAddr = if self.to.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let mut socket = UdpSocket::bind(&SocketOptions::new(SocketAddr::new(any, 0)))?;
        socket.connect(self.to)?;
        let mut client = Client {
            address,
            written_to,
            socket,
            last_received: now,
            generation: 0,
        };
        if self.clients.len() < MAX_CLIENTS {
            self.clients.push(client);
            return Ok(self.clients.len() - 1);
        }
        let silent = self.clients.iter().enumerate();
        let place = silent
            .min_by_key(|(_, c)| c.last_received)
            .map_or(0, |(i, _)| i);
        client.generation = self.clients[place].generation.wrapping_add(1);
        self.clients[place] = client;
        Ok(place)
    }

    /// Decides about every datagram of a train.
    fn route(&mut self, way: usize, now: Instant, train: Train, bytes: &[u8]) {
        let Way {
            path,
            held,
            rng,
            totals,
        } = &mut self.ways[way];
        totals.reads += 1;
        let count = bytes.len().div_ceil(train.segment);
        let Some(slot) = self.slab.store(bytes) else {
            totals.own_drops += count as u64;
            return;
        };
        remember(&mut self.trains, slot, train);
        let headers = if self.to.is_ipv4() { 28 } else { 48 };
        let mut runs = Runs::new(slot, held, &mut self.slab);
        for (index, datagram) in (0..).zip(bytes.chunks(train.segment)) {
            let wire_len = u32::try_from(datagram.len() + headers).unwrap_or(u32::MAX);
            let (at, again, ecn, corrupt) = match path.offer(now, wire_len, train.ecn) {
                Verdict::Pass { at, ecn, corrupt } => (at, None, ecn, corrupt),
                Verdict::Twice {
                    at,
                    again,
                    ecn,
                    corrupt,
                } => (at, Some(again), ecn, corrupt),
                Verdict::Drop(_) => continue,
            };
            if corrupt && !datagram.is_empty() {
                let bit = rng.below(8 * datagram.len() as u64);
                let byte = usize::try_from(bit / 8).unwrap_or_default();
                runs.packet_mut()[usize::from(index) * train.segment + byte] ^= 1 << (bit % 8);
            }
            let marked = ecn == Ecn::Ce;
            runs.add(index, at, marked);
            if let Some(due) = again {
                runs.add_copy(index, due, marked);
            }
        }
        runs.finish();
    }

    fn send_due(&mut self, way: usize) {
        for _ in 0..SENDS_PER_TURN {
            let now = self.clock.now();
            let Some(run) = self.ways[way].held.pop_due(now) else {
                return;
            };
            self.deliver(way, run, now);
            self.slab.release(run.slot);
        }
    }

    fn deliver(&mut self, way: usize, run: Run, now: Instant) {
        let train = self.trains[run.slot as usize];
        let bytes = self.slab.packet(run.slot);
        let start = train.segment * usize::from(run.first);
        let end = start + train.segment * usize::from(run.count);
        let client = &mut self.clients[train.client];
        if client.generation != train.generation {
            return;
        }
        let (to, from) = match way {
            0 => (self.to, None),
            _ => (client.address, client.written_to),
        };
        let batch = Outgoing {
            to,
            from,
            ecn: if run.marked { Ecn::Ce } else { train.ecn },
            segment: train.segment,
            bytes: &bytes[start..end.min(bytes.len())],
        };
        let outcome = match way {
            0 => client.socket.send(&batch),
            _ => self.listener.send(&batch),
        };
        let totals = &mut self.ways[way].totals;
        let datagrams = u64::from(run.count);
        totals.writes += 1;
        if let SendOutcome::Sent = outcome {
            let headers = if to.is_ipv4() { 28 } else { 48 };
            totals.delivered += datagrams;
            totals.delivered_bytes += batch.bytes.len() as u64 + headers * datagrams;
            self.late.record(now - run.due, datagrams);
        } else if !matches!(outcome, SendOutcome::Refused) {
            // A server that is not there is no fault of ours; a full socket is.
            totals.own_drops += datagrams;
        }
    }

    fn finish(&mut self) -> Outcome {
        let paths = [0, 1].map(|i| self.ways[i].path.clone());
        let totals = [0, 1].map(|i| self.ways[i].totals);
        Outcome::new(paths, totals, &self.late, &self.slab, self.clock)
    }
}

fn remember(trains: &mut Vec<Train>, slot: Slot, train: Train) {
    let place = slot as usize;
    if trains.len() <= place {
        trains.resize(place + 1, train);
    }
    trains[place] = train;
}

#[cfg(test)]
mod tests;
