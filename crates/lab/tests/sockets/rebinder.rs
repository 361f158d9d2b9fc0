//! Acts as a network address translator that forgets. From one datagram to the next the client
//! comes from another port, and datagrams to the old one are lost.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Forwards datagrams of one client from a port that changes every `every` datagrams.
pub(crate) struct Rebinder {
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Rebinder {
    pub(crate) fn start(server: SocketAddr, every: u64) -> Self {
        let client = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound"));
        let (at, stop) = (
            client.local_addr().expect("it is bound"),
            Arc::new(AtomicBool::new(false)),
        );
        let over = Arc::clone(&stop);
        let thread = thread::spawn(move || forward(&client, server, every, &over));
        Self { at, stop, thread }
    }

    pub(crate) const fn at(&self) -> SocketAddr {
        self.at
    }

    /// Count of changes of the port.
    pub(crate) fn stop(self) -> u64 {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

/// Poll interval in which ends are noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn forward(client: &Arc<UdpSocket>, server: SocketAddr, every: u64, over: &AtomicBool) -> u64 {
    client
        .set_read_timeout(Some(POLL_INTERVAL))
        .expect("a socket takes it");
    let generation = Arc::new(AtomicU64::new(0));
    let (mut port, mut count) = (None, 0);
    let mut bytes = vec![0; 65_536];
    while !over.load(Relaxed) {
        let Ok((len, from)) = client.recv_from(&mut bytes) else {
            continue;
        };
        if count % every == 0 {
            generation.fetch_add(1, Relaxed);
            port = Some(back(client, (server, from), &generation));
        }
        count += 1;
        if let Some(port) = &port {
            let _full = port.send(&bytes[..len]);
        }
    }
    generation.fetch_add(1, Relaxed) - 1
}

/// A new port, whose answers go to the client until the next one is there.
fn back(
    client: &Arc<UdpSocket>,
    (server, to): (SocketAddr, SocketAddr),
    generation: &Arc<AtomicU64>,
) -> UdpSocket {
    let port = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    port.connect(server).expect("loopback is there");
    port.set_read_timeout(Some(POLL_INTERVAL))
        .expect("a socket takes it");
    let (inner, client) = (
        port.try_clone().expect("a descriptor is to be had"),
        Arc::clone(client),
    );
    let (generation, own) = (Arc::clone(generation), generation.load(Relaxed));
    thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while generation.load(Relaxed) == own {
            if let Ok(len) = inner.recv(&mut bytes) {
                let _full = client.send_to(&bytes[..len], to);
            }
        }
    });
    port
}
