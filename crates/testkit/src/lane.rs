//! Feeds anything to a listener with a control lane. Its session is opened by an honest peer,
//! sends, and then receives bytes of a fuzzer, on the lane and in datagrams.

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    control::{Control, ROOM},
    datagram::TxBuf,
    protocol::Protocol,
    rng::Rng,
    shell::frame::Frame,
    store::Hollow,
    time::Instant,
};

use crate::Driver;

/// Turns at one instant after which a session never becomes idle.
const MAX_TURNS: usize = 2_000;
/// Pieces at most.
const MAX_PIECES: usize = 80;
/// UDP payload of a full datagram.
const DATAGRAM: u16 = 1_472;

/// Opens a session of `protocol` with the peer's `greeting`, then passes it `data`. Pieces end with
/// 0xfe; their first byte selects the lane (even) or a datagram for the rest.
///
/// # Panics
/// If the session does not open, does not become idle, or writes more to its lane than there is space for.
pub fn fuzz_lane_session(protocol: Box<dyn Protocol>, greeting: &[u8], data: &[u8]) {
    let (from, at) = (([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into());
    let mut now = Instant::from_nanos(1 << 40);
    let mut end = Driver::new(protocol, at, Hollow, Rng::new(1));
    let mut out = TxBuf::default();
    open(&mut end, now, from, greeting, &mut out);
    end.session().send(1, 0, 200_000);
    end.session().write(b"some words");
    for piece in data.split(|b| *b == 0xfe).take(MAX_PIECES) {
        now += Duration::from_millis(7);
        drain(&mut end, now, &mut out);
        match piece.split_first() {
            Some((kind, bytes)) if kind & 1 == 0 => end.control(now, Control::Bytes(bytes)),
            Some((_, bytes)) if !bytes.is_empty() => end.feed(now, from, &mut bytes.to_vec()),
            _ => {}
        }
        drain(&mut end, now, &mut out);
    }
}

fn open(
    end: &mut Driver<Hollow>,
    now: Instant,
    from: SocketAddr,
    greeting: &[u8],
    out: &mut TxBuf,
) {
    let join = [&[0xff, 0xff, 0xff, 0xf0][..], &[1; 16]].concat();
    end.admit(now, from, &join);
    assert!(end.session.is_some(), "a token opens a session");
    end.control(now, Control::Opened);
    let mut frame = Vec::new();
    Frame::Hello(DATAGRAM, greeting).encode(&mut frame);
    end.control(now, Control::Bytes(&frame));
    drain(end, now, out);
    frame.clear();
    Frame::Ready.encode(&mut frame);
    end.control(now, Control::Bytes(&frame));
}

fn drain(end: &mut Driver<Hollow>, now: Instant, out: &mut TxBuf) {
    end.expire(now);
    for _ in 0..MAX_TURNS {
        let mut said = Vec::new();
        end.session().poll_control(now, ROOM, &mut said);
        assert!(said.len() <= ROOM, "no more than there is room for");
        if end.drain(now, out).is_empty() && said.is_empty() {
            return end.listen(now);
        }
    }
    panic!("the session does not come to rest");
}
