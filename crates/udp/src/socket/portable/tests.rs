use std::time::Duration;

use super::*;

fn open(bind: &str) -> UdpSocket {
    UdpSocket::bind(&SocketOptions::new(bind.parse().unwrap())).unwrap()
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

/// The datagrams that arrive until there are `count`, with source, destination and mark of the last.
fn take(socket: &mut UdpSocket, count: usize) -> (Vec<Vec<u8>>, SocketAddr, Option<IpAddr>, Ecn) {
    let (mut datagrams, mut inbox) = (Vec::new(), Inbox::new());
    let mut last = (socket.local_addr().unwrap(), None, Ecn::NotEct);
    let blocking = socket.socket.try_clone().unwrap();
    blocking
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    while datagrams.len() < count {
        // Waits for one to be there; the flag belongs to the description, which both share.
        blocking.set_nonblocking(false).unwrap();
        blocking
            .peek(&mut [std::mem::MaybeUninit::uninit()])
            .unwrap();
        blocking.set_nonblocking(true).unwrap();
        assert!(matches!(
            socket.receive(&mut inbox),
            ReceiveOutcome::Some { .. }
        ));
        for message in inbox.messages() {
            datagrams.extend(message.bytes.chunks(message.segment).map(<[u8]>::to_vec));
            last = (message.from, message.to, message.ecn);
        }
    }
    (datagrams, last.0, last.1, last.2)
}

#[test]
fn batches_arrive_whole_with_and_without_offloads() {
    let bytes: Vec<u8> = (0..=255).cycle().take(300 * 100 + 7).collect();
    for offloads in [true, false] {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let mut options = SocketOptions::new(host.parse().unwrap());
            options.gso = offloads;
            let (mut near, mut far) = (UdpSocket::bind(&options).unwrap(), open(host));
            let to = far.local_addr().unwrap();
            assert!(matches!(
                near.send(&batch(to, 100, &bytes)),
                SendOutcome::Sent
            ));
            let (datagrams, from, ..) = take(&mut far, 301);
            assert_eq!(datagrams.concat(), bytes);
            assert_eq!(from, near.local_addr().unwrap());
            assert_eq!(near.counters().datagrams_sent, 301);
            assert_eq!(far.counters().datagrams_received, 301);
            assert_eq!(near.counters().send_calls < 301, near.capabilities().gso);
        }
    }
}

#[test]
fn marks_and_addresses_cross_a_dual_stack_socket() {
    let (mut near, mut far) = (open("127.0.0.1:0"), open("[::]:0"));
    let port = far.local_addr().unwrap().port();
    let mut marked = batch(SocketAddr::new([127, 0, 0, 1].into(), port), 3, b"one");
    marked.ecn = Ecn::Ce;
    assert!(matches!(near.send(&marked), SendOutcome::Sent));
    let (_, from, to, ecn) = take(&mut far, 1);
    assert_eq!(from, near.local_addr().unwrap());
    assert_eq!(to, Some([127, 0, 0, 1].into()));
    assert_eq!(ecn, Ecn::Ce);
    let mut answer = batch(from, 3, b"two");
    answer.from = to;
    assert!(matches!(far.send(&answer), SendOutcome::Sent));
    assert_eq!(take(&mut near, 1).0, [b"two"]);
}

#[test]
fn a_tied_socket_hears_its_peer_alone_and_moves_to_another_port() {
    let (mut near, mut peer, mut other) = (
        open("127.0.0.1:0"),
        open("127.0.0.1:0"),
        open("127.0.0.1:0"),
    );
    let before = near.local_addr().unwrap();
    near.connect(peer.local_addr().unwrap()).unwrap();
    assert!(matches!(
        other.send(&batch(before, 5, b"other")),
        SendOutcome::Sent
    ));
    assert!(matches!(
        peer.send(&batch(before, 4, b"peer")),
        SendOutcome::Sent
    ));
    assert_eq!(take(&mut near, 1).0, [b"peer"]);
    near.reconnect(peer.local_addr().unwrap()).unwrap();
    assert_ne!(near.local_addr().unwrap().port(), before.port());
    assert_eq!(near.peer(), Some(peer.local_addr().unwrap()));
    assert_eq!(near.counters().datagrams_received, 1);
}

#[test]
fn a_datagram_that_no_interface_takes_is_lost_and_said_so() {
    let (mut near, far) = (open("127.0.0.1:0"), open("127.0.0.1:0"));
    let bytes = vec![0; 1 << 16];
    let outcome = near.send(&batch(far.local_addr().unwrap(), bytes.len(), &bytes));
    assert!(matches!(outcome, SendOutcome::TooLarge), "{outcome:?}");
    assert_eq!(near.counters().too_large, 1);
}
