use std::{net::UdpSocket as StdSocket, time::Duration};

use farhaul_link::DropCause;

use super::*;

/// Longest wait for a datagram that must come.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A relay in front of a fresh server.
fn relay(forward: PathConfig, back: PathConfig) -> (Relay, StdSocket) {
    let server = socket();
    let config = RelayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        to: server.local_addr().unwrap(),
        forward,
        back,
        seed: 7,
        memory: 64 << 20,
    };
    (Relay::start(&config).unwrap(), server)
}

fn socket() -> StdSocket {
    let socket = StdSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

#[test]
fn several_clients_talk_to_the_server_and_get_their_own_answers() {
    let (relay, server) = relay(PathConfig::default(), PathConfig::default());
    let clients = [socket(), socket(), socket()];
    for (client, i) in clients.iter().zip(0_u8..) {
        client.send_to(&[i], relay.local_addr()).unwrap();
        let mut byte = [9];
        let (_, from) = server.recv_from(&mut byte).unwrap();
        assert_eq!(byte, [i]);
        server.send_to(&[i + 100], from).unwrap();
    }
    for (client, i) in clients.iter().zip(0_u8..) {
        let mut byte = [9];
        let (_, from) = client.recv_from(&mut byte).unwrap();
        assert_eq!((byte, from), ([i + 100], relay.local_addr()));
    }
    let report = relay.finish().unwrap();
    assert_eq!(report.near_to_far.delivered_packets, 3);
    assert_eq!(report.far_to_near.delivered_bytes, 3 * 29);
    assert_eq!(report.health.own_drops, 0);
}

#[test]
fn loss_copies_and_delay_are_as_configured() {
    let forward = PathConfig {
        loss: farhaul_link::Loss::Trace(farhaul_link::LossTrace::parse(".x").unwrap()),
        duplicate: 1.0,
        delay: Duration::from_millis(20),
        ..PathConfig::default()
    };
    let (relay, server) = relay(forward, PathConfig::default());
    let client = socket();
    let clock = Clock::start();
    for i in 0..10_u8 {
        client.send_to(&[i; 100], relay.local_addr()).unwrap();
    }
    let mut got = Vec::new();
    for _ in 0..10 {
        let mut bytes = [0; 200];
        let (len, _) = server.recv_from(&mut bytes).unwrap();
        assert_eq!(len, 100);
        got.push(bytes[0]);
    }
    // Never earlier than the delay; how much later is the machine's affair.
    assert!(clock.now() - Instant::EPOCH >= Duration::from_millis(20));
    got.sort_unstable();
    assert_eq!(got, [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]);
    let report = relay.finish().unwrap();
    assert_eq!(report.near_to_far.dropped(DropCause::Trace), 5);
    assert_eq!(report.near_to_far.duplicated, 5);
}

#[test]
fn damage_is_one_flipped_bit() {
    let forward = PathConfig {
        corrupt: 1.0,
        ..PathConfig::default()
    };
    let (relay, server) = relay(forward, PathConfig::default());
    socket().send_to(&[0; 500], relay.local_addr()).unwrap();
    let mut bytes = [0; 500];
    server.recv_from(&mut bytes).unwrap();
    let flipped: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(flipped, 1);
}
