//! Acts as a proxy that has one port for all its clients. Their sessions come from one address, and
//! answers go to all of them.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Poll interval in which ends are noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Forwards datagrams of its clients from one port.
pub(crate) struct Proxy {
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: [JoinHandle<()>; 2],
}

impl Proxy {
    pub(crate) fn start(server: SocketAddr) -> Self {
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
            socket
                .set_read_timeout(Some(POLL_INTERVAL))
                .expect("a socket takes it");
            Arc::new(socket)
        };
        let (near, far) = (socket(), socket());
        far.connect(server).expect("loopback is there");
        let at = near.local_addr().expect("it is bound");
        let stop = Arc::new(AtomicBool::new(false));
        let clients = Arc::new(Mutex::new(BTreeSet::new()));
        let there = {
            let (near, far) = (Arc::clone(&near), Arc::clone(&far));
            let (stop, clients) = (Arc::clone(&stop), Arc::clone(&clients));
            thread::spawn(move || {
                let mut bytes = vec![0; 65_536];
                while !stop.load(Relaxed) {
                    if let Ok((len, from)) = near.recv_from(&mut bytes) {
                        let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
                        clients.insert(from);
                        let _full = far.send(&bytes[..len]);
                    }
                }
            })
        };
        let over = Arc::clone(&stop);
        let back = thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while !over.load(Relaxed) {
                if let Ok(len) = far.recv(&mut bytes) {
                    for to in &*clients.lock().unwrap_or_else(PoisonError::into_inner) {
                        let _full = near.send_to(&bytes[..len], to);
                    }
                }
            }
        });
        Self {
            at,
            stop,
            threads: [there, back],
        }
    }

    pub(crate) const fn at(&self) -> SocketAddr {
        self.at
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("it does not panic");
        }
    }
}
