//! One run: ends of ours against a peer, who listens, what is between.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Mutex,
    thread,
    time::Duration,
};

use farhaul_core::protocol::Protocol;
use farhaul_emu::relay::{Relay, RelayConfig};
use farhaul_io::{App, Stop, Waker, client, server};
use farhaul_link::{Loss, PathConfig, Reorder};
use farhaul_protocols::udt::{Behaviour, Framing, Udt, UdtConfig};

use super::peer::Peer;

/// Side that takes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listens {
    We,
    They,
}

pub(crate) const BOTH: [Listens; 2] = [Listens::We, Listens::They];

/// A setting in which both ends meet.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) host: IpAddr,
    pub(crate) config: UdtConfig,
    pub(crate) listens: Listens,
    /// Path between the ends, in both directions; `None`: nothing.
    pub(crate) path: Option<PathConfig>,
    /// Options of the peer's program.
    pub(crate) options: Vec<String>,
    /// Connections, all on one port.
    pub(crate) connections: usize,
}

impl Setting {
    pub(crate) fn new(
        host: IpAddr,
        behaviour: Behaviour,
        framing: Framing,
        listens: Listens,
    ) -> Self {
        Self {
            host,
            config: UdtConfig {
                behaviour,
                framing,
                ..UdtConfig::default()
            },
            listens,
            path: None,
            options: Vec::new(),
            connections: 1,
        }
    }

    /// Puts this path between the ends.
    pub(crate) fn over(mut self, path: PathConfig) -> Self {
        self.path = Some(path);
        self
    }

    fn relay(&self, to: SocketAddr) -> Option<Relay> {
        let path = self.path.clone()?;
        let config = RelayConfig {
            listen: SocketAddr::new(to.ip(), 0),
            to,
            forward: path.clone(),
            back: path,
            seed: 3,
            memory: 64 << 20,
        };
        Some(Relay::start(&config).unwrap())
    }

    fn peer(&self, how: &str, port: u16, action: &[String]) -> Peer {
        let mut options = self.options.clone();
        options.extend(["-n".into(), self.connections.to_string()]);
        Peer::start(&options, (how, self.host, port), action)
    }
}

/// Loss in both directions, with 1 % late by 2 ms and 1 % twice.
pub(crate) fn trouble(loss: f64) -> PathConfig {
    PathConfig {
        loss: Loss::Random(loss),
        delay: Duration::from_millis(5),
        duplicate: 0.01,
        reorder: Some(Reorder {
            share: 0.01,
            by: Duration::from_millis(2),
        }),
        ..PathConfig::default()
    }
}

/// Words for the peer's program.
pub(crate) fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// Lets ends of ours, made by `make`, meet the peer. `watch` sees the peer while they do, and returns
/// when they have ended; what the peer printed since is returned.
pub(crate) fn run<A: App + 'static, T>(
    setting: &Setting,
    action: &[String],
    make: impl FnMut() -> A + Send + 'static,
    watch: impl FnOnce(&mut Peer) -> T,
) -> (T, (bool, String)) {
    match setting.listens {
        Listens::We => we_listen(setting, action, make, watch),
        Listens::They => they_listen(setting, action, make, watch),
    }
}

fn we_listen<A: App + 'static, T>(
    setting: &Setting,
    action: &[String],
    make: impl FnMut() -> A + Send + 'static,
    watch: impl FnOnce(&mut Peer) -> T,
) -> (T, (bool, String)) {
    let udt: Box<dyn Protocol> = Box::new(Udt::server(setting.config.clone()).unwrap());
    let make = Mutex::new(make);
    let listener = server::Listener::bind(SocketAddr::new(setting.host, 0), udt, move |_, _| {
        let mut make = make.lock().unwrap();
        Box::new(make())
    })
    .unwrap();
    let at = listener.local_addr().unwrap();
    let relay = setting.relay(at);
    let at = relay.as_ref().map_or(at, Relay::local_addr);
    let stop = Stop::new().unwrap();
    let stopped = stop.clone();
    let thread = thread::spawn(move || listener.run(&stopped).unwrap());
    let mut peer = setting.peer("connect", at.port(), action);
    let watched = watch(&mut peer);
    let said = peer.end();
    stop.set();
    thread.join().unwrap();
    (watched, said)
}

fn they_listen<A: App + 'static, T>(
    setting: &Setting,
    action: &[String],
    mut make: impl FnMut() -> A + Send + 'static,
    watch: impl FnOnce(&mut Peer) -> T,
) -> (T, (bool, String)) {
    let mut peer = setting.peer("listen", 0, action);
    let at = SocketAddr::new(setting.host, peer.port());
    let relay = setting.relay(at);
    let to = relay.as_ref().map_or(at, Relay::local_addr);
    let ends: Vec<_> = (0..setting.connections)
        .map(|_| {
            let (app, config) = (make(), setting.config.clone());
            thread::spawn(move || connect(&client::Options::new(to), config, app))
        })
        .collect();
    // What only the apps hold is theirs to drop.
    drop(make);
    let watched = watch(&mut peer);
    let said = peer.end();
    for end in ends {
        end.join().unwrap();
    }
    (watched, said)
}

/// Runs one connection of ours until it is over.
pub(crate) fn connect<A: App>(options: &client::Options, config: UdtConfig, app: A) {
    let udt: Box<dyn Protocol> = Box::new(Udt::client(config).unwrap());
    let waker = Waker::new().unwrap();
    client::run(options, udt, app, &waker).unwrap();
}
