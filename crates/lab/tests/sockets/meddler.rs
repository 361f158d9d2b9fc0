//! Sends what somebody between two ends, or somewhere else, might send them. A relay passes every
//! datagram on and puts others beside it, by its number; a stranger's socket sends copies of them
//! too.
//!
//! Invariant: datagrams passed on are unchanged. Only its order may change, by one place.

use std::{
    collections::VecDeque,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use farhaul_core::rng::Rng;

/// Datagrams put beside genuine ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// A copy with one bit flipped.
    Damaged,
    /// The first part of a copy.
    Cut,
    /// One sent earlier.
    Repeated,
    /// Random bytes.
    Invented,
    /// A genuine one after the one that follows it.
    Late,
    /// Any of these from another socket.
    Strange,
}

/// Number of each kind, indexed by [`Put`].
pub(crate) type Counts = [u64; 6];

/// Datagrams after which it all begins again.
const PERIOD: u64 = 16;
/// Distance back to repeated datagrams.
const MEMORY: usize = 40;

pub(crate) struct Meddler {
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    sockets: [Arc<UdpSocket>; 2],
    threads: [JoinHandle<Counts>; 2],
}

impl Meddler {
    pub(crate) fn start(server: SocketAddr, seed: u64) -> Self {
        let sockets = [socket(), socket()];
        let at = sockets[0].local_addr().expect("it is bound");
        let stop = Arc::new(AtomicBool::new(false));
        let client = Arc::new(OnceLock::new());
        let known = Arc::new(OnceLock::from(server));
        let way = |from: usize| {
            let mut way = Way {
                from: Arc::clone(&sockets[from]),
                to: Arc::clone(&sockets[1 - from]),
                stranger: socket(),
                sender: Arc::clone(if from == 0 { &client } else { &known }),
                receiver: Arc::clone(if from == 0 { &known } else { &client }),
                stop: Arc::clone(&stop),
                rng: Rng::new(seed + from as u64),
                past: VecDeque::new(),
                held: None,
                counts: Counts::default(),
            };
            thread::spawn(move || {
                way.run();
                way.counts
            })
        };
        let threads = [way(0), way(1)];
        Self {
            at,
            stop,
            sockets,
            threads,
        }
    }

    /// Address that the client sends to.
    pub(crate) const fn at(&self) -> SocketAddr {
        self.at
    }

    /// Counts of the datagrams put beside those to the server and to the client.
    pub(crate) fn stop(self) -> [Counts; 2] {
        self.stop.store(true, Ordering::Release);
        let waker = socket();
        for own in &self.sockets {
            let to = own.local_addr().expect("it is bound");
            waker.send_to(&[], to).expect("loopback takes it");
        }
        let counts = |thread: JoinHandle<Counts>| thread.join().expect("it does not panic");
        self.threads.map(counts)
    }
}

fn socket() -> Arc<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let wanted = socket2::SockRef::from(&socket).set_recv_buffer_size(16 << 20);
    wanted.expect("the kernel takes what it allows of it");
    Arc::new(socket)
}

/// One direction.
struct Way {
    from: Arc<UdpSocket>,
    to: Arc<UdpSocket>,
    stranger: Arc<UdpSocket>,
    /// Address of the sender in this direction; the client is known once it has sent.
    sender: Arc<OnceLock<SocketAddr>>,
    receiver: Arc<OnceLock<SocketAddr>>,
    stop: Arc<AtomicBool>,
    rng: Rng,
    past: VecDeque<Vec<u8>>,
    held: Option<Vec<u8>>,
    counts: Counts,
}

impl Way {
    fn run(&mut self) {
        let mut buffer = vec![0; 1 << 16];
        for number in 0.. {
            let (len, from) = self.from.recv_from(&mut buffer).expect("loopback works");
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            if from == *self.sender.get_or_init(|| from) {
                self.pass(number, &buffer[..len]);
            }
        }
    }

    fn pass(&mut self, number: u64, datagram: &[u8]) {
        let step = number % PERIOD;
        if step == 9 && self.held.is_none() {
            self.counts[Put::Late as usize] += 1;
            self.held = Some(datagram.to_vec());
        } else {
            self.send(datagram);
            if let Some(held) = self.held.take() {
                self.send(&held);
            }
        }
        let kind = match step {
            1 | 11 => Put::Damaged,
            3 | 12 => Put::Cut,
            5 | 13 => Put::Repeated,
            7 | 14 => Put::Invented,
            _ => Put::Late,
        };
        if kind != Put::Late
            && let Some(bytes) = self.made(kind, datagram)
        {
            self.put(kind, step > 8, &bytes);
        }
        self.past.push_back(datagram.to_vec());
        if self.past.len() > MEMORY {
            self.past.pop_front();
        }
    }

    fn made(&mut self, kind: Put, datagram: &[u8]) -> Option<Vec<u8>> {
        let below = |rng: &mut Rng, n: usize| usize::try_from(rng.below(n as u64)).unwrap_or(0);
        let rng = &mut self.rng;
        match kind {
            Put::Damaged => {
                let mut bytes = datagram.to_vec();
                let at = below(rng, bytes.len());
                bytes[at] ^= 1 << rng.below(8);
                Some(bytes)
            }
            Put::Cut => Some(datagram[..below(rng, datagram.len())].to_vec()),
            Put::Repeated => self.past.front().cloned(),
            Put::Invented => {
                let len = 1 + below(rng, 2_000);
                Some((0..len).map(|_| rng.next_u64().to_be_bytes()[0]).collect())
            }
            Put::Late | Put::Strange => None,
        }
    }

    fn put(&mut self, kind: Put, strange: bool, bytes: &[u8]) {
        if strange {
            self.counts[Put::Strange as usize] += 1;
            if let Some(to) = self.receiver.get() {
                self.stranger.send_to(bytes, to).expect("loopback takes it");
            }
        } else {
            self.counts[kind as usize] += 1;
            self.send(bytes);
        }
    }

    fn send(&self, bytes: &[u8]) {
        if let Some(to) = self.receiver.get() {
            self.to.send_to(bytes, to).expect("loopback takes it");
        }
    }
}
