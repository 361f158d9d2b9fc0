use std::{
    io::{BufReader, Read as _},
    net::{TcpListener, UdpSocket},
};

use proptest::prelude::*;

use super::*;

fn server() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = socket.local_addr().unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    (socket, at)
}

const PATIENT: Duration = Duration::from_secs(20);

/// Datagrams of many sizes from the near end and back.
fn exchange(tunnel: &Tunnel, server: &UdpSocket) {
    let client = tunnel.socket();
    client.set_read_timeout(Some(PATIENT)).unwrap();
    let mut buffer = vec![0; LONGEST];
    for len in [1, 1_200, 9_000, 60_000] {
        let sent = vec![u8::try_from(len % 251).unwrap(); len];
        client.send(&sent).unwrap();
        let (n, from) = server.recv_from(&mut buffer).unwrap();
        assert!(buffer[..n] == sent[..], "{len}");
        server.send_to(&sent, from).unwrap();
        let n = client.recv(&mut buffer).unwrap();
        assert!(buffer[..n] == sent[..], "{len}");
    }
}

#[test]
fn datagrams_go_both_ways_whole_and_end_with_the_near_end() {
    let (server, at) = server();
    let (near_in, far_out) = io::pipe().unwrap();
    let (far_in, near_out) = io::pipe().unwrap();
    let far = thread::spawn(move || {
        let mut from = BufReader::new(far_in);
        assert!(is_asked_for(&mut from));
        serve(at, Answer::Heard, from, far_out)
    });
    let from = Buffered(BufReader::new(near_in));
    let near = Tunnel::through_pipes(near_out, from, PATIENT).unwrap();
    assert_eq!(near.answer(), Answer::Heard);
    exchange(&near, &server);
    // What was sent before the end arrives.
    near.socket().send(b"goodbye").unwrap();
    drop(near);
    far.join().unwrap().unwrap();
    assert_eq!(server.recv(&mut [0; 9]).unwrap(), 7);
}

#[test]
fn tcp_carries_them_too_and_peers_are_known() {
    let (server, at) = server();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tcp = listener.local_addr().unwrap();
    let (stop, waker) = (Stop::new().unwrap(), crate::Waker::new().unwrap());
    let controls = crate::Controls::new(9, waker);
    accept(
        listener,
        at,
        controls.clone(),
        stop.clone(),
        Arc::new(|_| {}),
        |_| {},
    )
    .unwrap();
    let near = Tunnel::through_tcp(tcp, PATIENT).unwrap();
    assert_eq!(near.answer(), Answer::Unheard);
    exchange(&near, &server);
    near.socket().send(b"who?").unwrap();
    let (_, relay) = server.recv_from(&mut [0; 9]).unwrap();
    let (peer, _) = controls.relays().peer(relay);
    assert!(peer != relay && peer.ip() == tcp.ip(), "{peer}");
    controls.relays().note_udp(peer, clock::now());
    let other = Tunnel::through_tcp(tcp, PATIENT).unwrap();
    assert_eq!(other.answer(), Answer::Heard);
    drop(other);
    // A stranger that sends something else gets no answer.
    let mut stranger = TcpStream::connect(tcp).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut said = String::new();
    stranger.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    stop.set();
}

#[test]
fn it_is_told_once_that_the_listener_does_not_answer() {
    let (server, at) = server();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tcp = listener.local_addr().unwrap();
    let (stop, waker) = (Stop::new().unwrap(), crate::Waker::new().unwrap());
    let (tell, told) = mpsc::channel();
    let controls = crate::Controls::new(9, waker);
    let unanswered: Unanswered = Arc::new(move |peer| tell.send(peer).unwrap());
    accept(
        listener,
        at,
        controls.clone(),
        stop.clone(),
        unanswered,
        |_| {},
    )
    .unwrap();
    // A peer that gets an answer is nothing to report.
    let good = Tunnel::through_tcp(tcp, PATIENT).unwrap();
    exchange(&good, &server);
    drop(good);
    for _ in 0..2 {
        let near = Tunnel::through_tcp(tcp, PATIENT).unwrap();
        near.socket().send(b"hello?").unwrap();
        let (_, relay) = server.recv_from(&mut [0; 9]).unwrap();
        drop(near);
        while controls.relays().peer(relay).1.is_some() {
            thread::yield_now();
        }
    }
    assert_eq!(told.recv().unwrap().ip(), tcp.ip());
    stop.set();
    // The last of its threads is gone.
    assert!(told.recv().is_err());
}

#[test]
fn beyond_its_limit_a_peer_is_refused_at_once() {
    let (_server, at) = server();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tcp = listener.local_addr().unwrap();
    let (stop, waker) = (Stop::new().unwrap(), crate::Waker::new().unwrap());
    let controls = crate::Controls::new(9, waker);
    accept(
        listener,
        at,
        controls,
        stop.clone(),
        Arc::new(|_| {}),
        |_| {},
    )
    .unwrap();
    let held: Vec<_> = (0..100)
        .map(|_| Tunnel::through_tcp(tcp, PATIENT))
        .take_while(Result::is_ok)
        .collect();
    assert!((1..20).contains(&held.len()), "{}", held.len());
    let e = Tunnel::through_tcp(tcp, PATIENT).unwrap_err();
    assert!(e.to_string().contains("as much as it may"), "{e}");
    stop.set();
}

#[test]
fn an_end_that_knows_no_tunnels_is_an_error() {
    let (from, mut to) = io::pipe().unwrap();
    writeln!(to, "bash: warning").unwrap();
    let (_unread, out) = io::pipe().unwrap();
    let from = Buffered(BufReader::new(from));
    assert!(Tunnel::through_pipes(out, from, PATIENT).is_err());
}

#[test]
fn a_silent_far_end_is_not_waited_for() {
    let (from, _to) = io::pipe().unwrap();
    let (_unread, out) = io::pipe().unwrap();
    let from = Buffered(BufReader::new(from));
    let e = Tunnel::through_pipes(out, from, Duration::from_millis(1)).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn half_an_answer_is_not_waited_for() {
    let (from, mut to) = io::pipe().unwrap();
    to.write_all(b"farhaul").unwrap();
    let (_unread, out) = io::pipe().unwrap();
    let from = Buffered(BufReader::new(from));
    let e = Tunnel::through_pipes(out, from, Duration::from_millis(9)).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_socket_that_does_not_listen_is_refused() {
    let (stop, waker) = (Stop::new().unwrap(), crate::Waker::new().unwrap());
    let (_server, at) = server();
    let listens = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let connected = TcpStream::connect(listens.local_addr().unwrap()).unwrap();
    let socket = TcpListener::from(std::os::fd::OwnedFd::from(connected));
    let controls = crate::Controls::new(9, waker);
    assert!(accept(socket, at, controls, stop, Arc::new(|_| {}), |_| {}).is_err());
}

#[test]
fn answers_are_read_as_they_are_written() {
    for (answer, _) in Answer::ALL {
        assert_eq!(Answer::parse(answer.line().trim_end()), Some(answer));
    }
    assert_eq!(Answer::parse("farhaul-tunnel/2 heard"), None);
    assert_eq!(Answer::parse(BEGIN), None);
}

#[test]
fn frames_are_read_as_they_are_written() {
    let datagrams: Vec<_> = (0..60_000_u32).map(|n| n.to_be_bytes()[3]).collect();
    for (segment, len) in [
        (1, 1),
        (1, 60_000),
        (7, 15),
        (1_400, 60_000),
        (60_000, 60_000),
        (65_000, 9),
    ] {
        let mut stream = Vec::new();
        frame::write(&mut stream, segment, &datagrams[..len]).unwrap();
        let (mut rest, mut all, mut bytes) = (&stream[..], Vec::new(), vec![0; LONGEST]);
        while let Some(frame) = frame::read(&mut rest, &mut bytes).unwrap() {
            assert_eq!(frame.segment, segment.min(frame.len));
            all.extend_from_slice(&bytes[..frame.len]);
        }
        assert!(all == datagrams[..len], "{segment} {len}");
    }
}

#[test]
fn what_is_no_frame_ends_the_stream() {
    for head in [[0, 0, 0, 1], [0, 1, 0, 0], [0, 2, 0, 1], [0, 1, 0, 65]] {
        let stream = [&head[..], &[0; 100]].concat();
        let e = frame::read(&mut &stream[..], &mut vec![0; LONGEST]).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidData, "{head:?}");
    }
    let cut = [0, 1, 0, 2, 7];
    assert!(frame::read(&mut &cut[..], &mut vec![0; LONGEST]).is_err());
    assert_eq!(frame::read(&mut io::empty(), &mut []).unwrap(), None);
}

proptest! {
    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (mut stream, mut into) = (&bytes[..], vec![0; LONGEST]);
        while let Ok(Some(found)) = frame::read(&mut stream, &mut into) {
            prop_assert!((1..=found.len).contains(&found.segment));
        }
        prop_assert!(line(&mut &bytes[..]).is_ok_and(|line| line.len() <= 64) || !bytes.is_ascii());
        is_asked_for(&mut &bytes[..]);
    }
}
