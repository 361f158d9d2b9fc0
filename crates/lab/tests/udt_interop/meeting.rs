//! Equals that meet: both ends connect, neither listens, either begins.

use std::{
    net::{IpAddr, SocketAddr},
    sync::mpsc,
    thread,
};

use farhaul_io::client;
use farhaul_protocols::udt::{Behaviour, Framing, UdtConfig};

use super::{
    HOSTS, MANNERS,
    peer::{Peer, program},
    port::free_port,
    run::{connect, words},
    stream::{Role, Seen, Stream},
    together,
};

const BYTES: u64 = 700_000;

fn meet(host: IpAddr, behaviour: Behaviour, we_begin: bool, role: Role) {
    let (ours, theirs) = (free_port(), free_port());
    let (events, received) = mpsc::channel();
    let mut options = client::Options::new(SocketAddr::new(host, theirs));
    options.bind = Some(SocketAddr::new(host, ours));
    let config = UdtConfig {
        behaviour,
        framing: Framing::Stream,
        rendezvous: true,
        ..UdtConfig::default()
    };
    let we = move || {
        let app = Stream::new(role, BYTES, events);
        thread::spawn(move || connect(&options, config, app))
    };
    let they = || {
        let action = if role == Role::Takes { "send" } else { "recv" };
        let action = words([action, &BYTES.to_string()]);
        let mut peer = Peer::start(
            &words(["-l", &theirs.to_string()]),
            ("meet", host, ours),
            &action,
        );
        assert_eq!(peer.port(), theirs);
        peer
    };
    let (we, mut peer) = if we_begin {
        let we = we();
        (we, they())
    } else {
        let peer = they();
        (we(), peer)
    };
    let what = format!("{host} {behaviour:?} we_begin={we_begin} {role:?}");
    match received
        .iter()
        .find(|events| matches!(events, Seen::Over(..)))
    {
        Some(Seen::Over(BYTES, _)) => {}
        other => panic!("{what}: {other:?}"),
    }
    let (well, said) = peer.end();
    assert!(well, "{what}: the peer complains: {said}");
    we.join().unwrap();
}

#[test]
fn equals_meet_whoever_begins() {
    if program().is_none() {
        return;
    }
    let mut cases = Vec::new();
    for host in HOSTS {
        for behaviour in MANNERS {
            for we_begin in [true, false] {
                for role in [Role::Writes, Role::Takes] {
                    cases.push((host, behaviour, we_begin, role));
                }
            }
        }
    }
    together(&cases, |&(host, behaviour, we_begin, role)| {
        meet(host, behaviour, we_begin, role);
    });
}
