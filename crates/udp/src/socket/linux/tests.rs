use std::{iter, process::Command, thread, time::Duration};

use farhaul_core::datagram::Ecn;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::*;
use crate::{Outgoing, ReceiveOutcome, SendOutcome, netns};

fn open(bind: &str) -> UdpSocket {
    UdpSocket::bind(&SocketOptions::new(bind.parse().unwrap())).unwrap()
}

fn without_offloads(bind: &str) -> UdpSocket {
    let mut options = SocketOptions::new(bind.parse().unwrap());
    (options.gso, options.gro) = (false, false);
    UdpSocket::bind(&options).unwrap()
}

/// Blocks until the socket is as asked; a test that hangs here has failed.
fn wait(socket: &UdpSocket, flags: PollFlags) {
    let mut fds = [PollFd::new(socket, flags)];
    let limit = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    loop {
        match poll(&mut fds, Some(&limit)) {
            Ok(0) => panic!("nothing happened"),
            Ok(_) => return,
            Err(Errno::INTR) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Datagrams that arrived, in order, with the number of messages and the facts of the last one.
#[derive(Debug)]
struct Arrived {
    datagrams: Vec<Vec<u8>>,
    messages: usize,
    from: SocketAddr,
    to: Option<IpAddr>,
    ecn: Ecn,
}

fn take(socket: &mut UdpSocket, count: usize) -> Arrived {
    let mut inbox = Inbox::new();
    let mut arrived = Arrived {
        datagrams: Vec::new(),
        messages: 0,
        from: socket.local_addr().unwrap(),
        to: None,
        ecn: Ecn::NotEct,
    };
    while arrived.datagrams.len() < count {
        wait(socket, PollFlags::IN);
        assert!(matches!(
            socket.receive(&mut inbox),
            ReceiveOutcome::Some { .. } | ReceiveOutcome::Empty
        ));
        for message in inbox.messages() {
            arrived.messages += 1;
            (arrived.from, arrived.to, arrived.ecn) = (message.from, message.to, message.ecn);
            let datagrams = message.bytes.chunks(message.segment).map(<[u8]>::to_vec);
            arrived.datagrams.extend(datagrams);
        }
    }
    arrived
}

fn batch(to: SocketAddr, segment: usize, bytes: &[u8]) -> Outgoing<'_> {
    Outgoing {
        to,
        from: None,
        ecn: Ecn::NotEct,
        segment,
        bytes,
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..=255).cycle().take(len).collect()
}

/// `socket` at its port, reached over `host`.
fn at(host: &str, socket: &UdpSocket) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), socket.local_addr().unwrap().port())
}

#[test]
fn batches_arrive_whole_with_and_without_offloads() {
    let bytes = content(20 * 1_000 + 7);
    for offloads in [true, false] {
        for (near, far) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0")] {
            let make = if offloads { open } else { without_offloads };
            let (mut near, mut far) = (make(near), make(far));
            let to = far.local_addr().unwrap();
            assert!(matches!(
                near.send(&batch(to, 1_000, &bytes)),
                SendOutcome::Sent
            ));
            let arrived = take(&mut far, 21);
            assert_eq!(arrived.datagrams.len(), 21);
            assert_eq!(arrived.datagrams.concat(), bytes);
            assert_eq!(arrived.from, near.local_addr().unwrap());
            assert_eq!(arrived.messages, if offloads { 1 } else { 21 });
            assert_eq!(near.counters().send_calls, 1);
            assert_eq!(near.counters().datagrams_sent, 21);
            assert_eq!(far.counters().datagrams_received, 21);
            assert_eq!(far.counters().bytes_received, bytes.len() as u64);
        }
    }
}

#[test]
fn more_than_one_call_takes_leaves_in_several() {
    let bytes = content(300 * 100);
    for make in [open, without_offloads] {
        let (mut near, mut far) = (make("127.0.0.1:0"), make("127.0.0.1:0"));
        let to = far.local_addr().unwrap();
        assert!(matches!(
            near.send(&batch(to, 100, &bytes)),
            SendOutcome::Sent
        ));
        assert_eq!(take(&mut far, 300).datagrams.concat(), bytes);
        assert_eq!(near.counters().send_calls, 5);
    }
}

#[test]
fn a_refused_offload_is_survived_and_remembered() {
    let bytes = content(5_000);
    let (mut near, mut far) = (open("127.0.0.1:0"), open("127.0.0.1:0"));
    // The kernel does not segment for a socket that leaves checksums out. It is asked twice, then never.
    set(near.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let to = far.local_addr().unwrap();
    for _ in 0..2 {
        assert!(matches!(
            near.send(&batch(to, 1_000, &bytes)),
            SendOutcome::Sent
        ));
    }
    assert_eq!(
        take(&mut far, 10).datagrams.concat(),
        [&bytes[..]; 2].concat()
    );
    assert!(!near.capabilities().gso);
    assert_eq!(near.capabilities().gso_refusal, Some(libc::EINVAL));
    let counters = near.counters();
    assert_eq!((counters.gso_refused, counters.send_calls), (1, 4));
    assert_eq!(counters.datagrams_sent, 10);
}

#[test]
fn marks_and_addresses_cross_a_dual_stack_socket() {
    let mut far = open("[::]:0");
    for (host, bind) in [("127.0.0.7", "127.0.0.1:0"), ("::1", "[::1]:0")] {
        let mut near = open(bind);
        let to = at(host, &far);
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            let there = near.send(&Outgoing {
                ecn,
                ..batch(to, 3, b"abcdef")
            });
            assert!(matches!(there, SendOutcome::Sent));
            let arrived = take(&mut far, 2);
            assert_eq!(arrived.ecn, ecn);
            assert_eq!(arrived.from, near.local_addr().unwrap());
            assert_eq!(arrived.to, Some(to.ip()));
            let back = far.send(&Outgoing {
                ecn,
                from: arrived.to,
                ..batch(arrived.from, 4, b"ghijklmn")
            });
            assert!(matches!(back, SendOutcome::Sent));
            let arrived = take(&mut near, 2);
            assert_eq!((arrived.ecn, arrived.from), (ecn, to));
            assert_eq!(arrived.datagrams.concat(), b"ghijklmn");
        }
    }
}

#[test]
fn a_wildcard_ipv4_socket_answers_from_the_destination_of_the_request() {
    let (mut far, mut near) = (open("0.0.0.0:0"), open("127.0.0.1:0"));
    let to = at("127.0.0.5", &far);
    near.connect(to).unwrap();
    assert!(matches!(near.send(&batch(to, 9, b"a")), SendOutcome::Sent));
    let arrived = take(&mut far, 1);
    assert_eq!(arrived.to, Some(to.ip()));
    let answer = Outgoing {
        from: arrived.to,
        ..batch(arrived.from, 9, b"b")
    };
    assert!(matches!(far.send(&answer), SendOutcome::Sent));
    assert_eq!(take(&mut near, 1).from, to);
}

#[test]
fn port_unreachable_is_reported_on_a_connected_socket() {
    let mut near = open("127.0.0.1:0");
    let gone = open("127.0.0.1:0").local_addr().unwrap();
    near.connect(gone).unwrap();
    assert!(matches!(
        near.send(&batch(gone, 9, b"a")),
        SendOutcome::Sent
    ));
    wait(&near, PollFlags::IN);
    assert!(matches!(
        near.receive(&mut Inbox::new()),
        ReceiveOutcome::Refused
    ));
    assert!(matches!(
        near.send(&batch(gone, 9, b"a")),
        SendOutcome::Sent
    ));
    wait(&near, PollFlags::IN);
    assert!(matches!(
        near.send(&batch(gone, 9, b"a")),
        SendOutcome::Refused
    ));
    assert_eq!(near.counters().refused, 2);
}

#[test]
fn what_a_full_buffer_dropped_is_counted() {
    let mut options = SocketOptions::new("127.0.0.1:0".parse().unwrap());
    options.receive_buffer = 0;
    let mut far = UdpSocket::bind(&options).unwrap();
    let mut near = without_offloads("127.0.0.1:0");
    let to = far.local_addr().unwrap();
    let bytes = content(1_000);
    let sent = far.capabilities().receive_buffer as u64 / 1_000;
    for _ in 0..sent {
        assert!(matches!(
            near.send(&batch(to, 1_000, &bytes)),
            SendOutcome::Sent
        ));
    }
    let mut inbox = Inbox::new();
    while !matches!(far.receive(&mut inbox), ReceiveOutcome::Empty) {}
    // The kernel reports the error beside the next datagram that does arrive.
    assert!(matches!(near.send(&batch(to, 9, b"a")), SendOutcome::Sent));
    take(&mut far, 1);
    let counters = far.counters();
    assert!(counters.overflowed > 0);
    assert_eq!(counters.datagrams_received + counters.overflowed, sent + 1);
}

#[expect(clippy::disallowed_methods, reason = "held against the kernel's")]
fn clock() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

#[test]
fn the_waiting_time_in_the_socket_is_reported() {
    let mut far = open("127.0.0.1:0");
    let mut near = open("127.0.0.1:0");
    let to = far.local_addr().unwrap();
    let mut inbox = Inbox::new();
    let mut waited = Vec::new();
    // The kernel begins to stamp some time after the first socket wants it; until then a datagram is stamped as it is read.
    for lie in iter::once(0).chain(iter::repeat_n(30_000_000, 20)) {
        assert!(matches!(near.send(&batch(to, 9, b"a")), SendOutcome::Sent));
        wait(&far, PollFlags::IN);
        let lie = Timespec {
            tv_sec: 0,
            tv_nsec: lie,
        };
        assert_eq!(poll(&mut [], Some(&lie)), Ok(0));
        assert!(matches!(
            far.receive(&mut inbox),
            ReceiveOutcome::Some { .. }
        ));
        let now = clock();
        let arrived = inbox.messages().map(|message| message.arrived.unwrap());
        waited.extend(arrived.map(|at| now.duration_since(at).unwrap()));
        if waited.last() >= Some(&Duration::from_millis(29)) {
            break;
        }
    }
    assert!(waited[0] > Duration::ZERO, "{waited:?}");
    assert!(
        waited.last() >= Some(&Duration::from_millis(29)),
        "{waited:?}"
    );
}

#[test]
fn buffers_are_as_large_as_requested_or_as_the_system_allows() {
    let mut options = SocketOptions::new("127.0.0.1:0".parse().unwrap());
    options.receive_buffer = 3_000_000;
    options.send_buffer = 1 << 20;
    let got = UdpSocket::bind(&options).unwrap().capabilities();
    options.receive_buffer = 0;
    options.send_buffer = 0;
    let least = UdpSocket::bind(&options).unwrap().capabilities();
    assert!(got.receive_buffer > least.receive_buffer && got.receive_buffer <= 3_000_001);
    assert!(got.send_buffer > least.send_buffer && got.send_buffer <= 1 << 20);
}

/// Runs `body` on a thread with a network of its own; says so and passes where that is not allowed.
fn in_new_network(body: impl FnOnce() + Send + 'static) {
    let test = thread::spawn(move || match netns::enter_new_network() {
        Ok(()) => body(),
        Err(error) => eprintln!("not tested, needs a network namespace: {error}"),
    });
    test.join().unwrap();
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}

#[test]
fn the_interface_mtu_is_known_and_a_larger_segment_is_no_error() {
    in_new_network(|| {
        ip("link set lo mtu 1500");
        let mut far = open("127.0.0.1:0");
        let to = far.local_addr().unwrap();
        assert_eq!(interface_mtu_to(to).unwrap(), Some(1_500));
        let mut near = open("127.0.0.1:0");
        let bytes = content(1_473);
        assert!(matches!(
            near.send(&batch(to, 1_473, &bytes)),
            SendOutcome::TooLarge
        ));
        assert!(matches!(
            near.send(&batch(to, 1_472, &bytes)),
            SendOutcome::Sent
        ));
        assert_eq!(take(&mut far, 2).datagrams.concat(), bytes);
        // As a batch: offload is not to blame.
        let bytes = content(4_000);
        assert!(matches!(
            near.send(&batch(to, 1_500, &bytes)),
            SendOutcome::TooLarge
        ));
        assert!(near.capabilities().gso);
        let counters = near.counters();
        assert_eq!((counters.too_large, counters.failed), (2, 0));
    });
}

#[test]
fn a_full_socket_blocks_and_becomes_writable() {
    in_new_network(|| {
        ip("link add near type veth peer name far");
        ip("link set far up");
        ip("link set near up");
        ip("addr add 10.9.0.1/24 dev near");
        // Nobody answers for 10.9.0.2: datagrams wait, on the socket's account, until that is clear.
        let refused = netns::set_parameters(&[
            ("net/ipv4/neigh/near/unres_qlen_bytes", "10000000"),
            ("net/ipv4/neigh/near/retrans_time_ms", "50"),
        ]);
        assert!(refused.is_empty(), "{refused:?}");
        let mut options = SocketOptions::new("10.9.0.1:0".parse().unwrap());
        options.send_buffer = 0;
        let mut near = UdpSocket::bind(&options).unwrap();
        let bytes = content(60_000);
        let to = "10.9.0.2:9".parse().unwrap();
        let mut left = 0;
        let blocked = loop {
            match near.send(&batch(to, 1_000, &bytes)) {
                SendOutcome::Sent => left += 1,
                SendOutcome::Blocked { sent } => break sent,
                other => panic!("{other:?}"),
            }
            assert!(left < 1_000);
        };
        assert_eq!(blocked % 1_000, 0);
        assert_eq!(near.counters().blocked, 1);
        wait(&near, PollFlags::OUT);
        assert!(matches!(
            near.send(&batch(to, 1_000, &bytes[blocked..])),
            SendOutcome::Sent
        ));
        assert_eq!(near.counters().bytes_sent, (left + 1) * 60_000);
    });
}

#[test]
fn every_slot_begins_at_a_page_border() {
    let mut inbox = Inbox::new();
    for (offered, slots) in [(8, 8), (64, 64)] {
        let found = inbox.offered_at(offered);
        assert_eq!(found.len(), slots);
        assert!(found.iter().all(|at| at.is_multiple_of(4_096)), "{found:?}");
        assert!(found.windows(2).all(|pair| pair[1] - pair[0] == 65_536));
    }
}
