//! Openings, side by side and against nonsense.

use super::*;
use crate::udt::wire::{SocketType, VERSION};

fn ours(request: Request) -> Handshake {
    Handshake {
        version: VERSION,
        socket: SocketType::STREAM,
        isn: 77,
        mss: 9_000,
        window: 1_000,
        request,
        id: 5,
        cookie: 0,
        address: [0; 4],
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

#[test]
fn a_client_asks_shows_its_cookie_and_takes_the_smaller_packets() {
    let mut opening = Opening::new(at(0), ours(Request::CONNECT), Duration::from_secs(3));
    let (to, ask) = opening.ask(at(0)).unwrap();
    assert_eq!((to, ask.request, ask.cookie), (0, Request::CONNECT, 0));
    assert!(opening.ask(at(249)).is_none() && opening.ask(at(250)).is_some());
    let answer = Handshake { cookie: 99, ..ask };
    assert_eq!(opening.on_handshake(at(260), &answer), Ok(None));
    let (to, show) = opening.ask(at(260)).unwrap();
    assert_eq!((to, show.request, show.cookie), (0, Request::RESPONSE, 99));
    let last = Handshake {
        id: 8,
        mss: 1_500,
        window: 25_600,
        ..show
    };
    let agreed = Agreed {
        peer: 8,
        isn: 77,
        mss: 1_500,
        window: 25_600,
    };
    assert_eq!(opening.on_handshake(at(270), &last), Ok(Some(agreed)));
    assert_eq!(opening.rtt, Some(Duration::from_millis(10)));
}

#[test]
fn an_unanswered_cookie_is_fetched_anew_and_another_number_refused() {
    let mut opening = Opening::new(at(0), ours(Request::CONNECT), Duration::from_secs(3));
    let ask = opening.ask(at(0)).unwrap().1;
    assert_eq!(
        opening.on_handshake(at(1), &Handshake { cookie: 9, ..ask }),
        Ok(None)
    );
    assert_eq!(opening.ask(at(1)).unwrap().1.request, Request::RESPONSE);
    assert_eq!(opening.ask(at(251)).unwrap().1.request, Request::RESPONSE);
    assert_eq!(opening.ask(at(501)).unwrap().1.request, Request::CONNECT);
    assert_eq!(
        opening.on_handshake(at(502), &Handshake { cookie: 10, ..ask }),
        Ok(None)
    );
    let show = opening.ask(at(502)).unwrap().1;
    assert_eq!(show.cookie, 10);
    let other = Handshake { isn: 78, ..show };
    assert!(opening.on_handshake(at(503), &other).is_err());
}

#[test]
fn two_equals_meet_whoever_is_first() {
    let (a, b) = (
        ours(Request::RENDEZVOUS),
        Handshake {
            id: 6,
            isn: 3,
            mss: 1_500,
            ..ours(Request::RENDEZVOUS)
        },
    );
    let limit = Duration::from_secs(30);
    let (mut one, mut two) = (Opening::new(at(0), a, limit), Opening::new(at(0), b, limit));
    let (_, lost) = one.ask(at(0)).unwrap();
    assert_eq!(lost.request, Request::RENDEZVOUS);
    let (_, first) = two.ask(at(100)).unwrap();
    assert_eq!(one.on_handshake(at(110), &first), Ok(None));
    let (to, answer) = one.ask(at(110)).unwrap();
    assert_eq!(
        (to, answer.request, answer.mss),
        (6, Request::RESPONSE, 1_500)
    );
    assert_eq!(two.on_handshake(at(120), &answer), Ok(None));
    let (_, back) = two.ask(at(120)).unwrap();
    assert!(matches!(one.on_handshake(at(130), &back), Ok(Some(a)) if a.isn == 3));
    assert!(two.on_packet().is_some_and(|a| a.isn == 77 && a.peer == 5));
    let confirm = Handshake {
        request: Request::CONFIRM,
        ..answer
    };
    assert!(matches!(two.on_handshake(at(140), &confirm), Ok(Some(_))));
}

#[test]
fn a_refusal_and_nonsense() {
    let mut opening = Opening::new(at(0), ours(Request::CONNECT), Duration::from_secs(3));
    let ask = opening.ask(at(0)).unwrap().1;
    let refused = Handshake {
        request: Request::REJECTED,
        ..ask
    };
    assert!(opening.clone().on_handshake(at(1), &refused).is_err());
    assert_eq!(
        opening.on_handshake(at(1), &Handshake { cookie: 9, ..ask }),
        Ok(None)
    );
    let show = opening.ask(at(1)).unwrap().1;
    for bad in [
        Handshake { mss: 60, ..show },
        Handshake { window: 0, ..show },
        Handshake { id: 0, ..show },
        Handshake {
            id: 1 << 31,
            ..show
        },
    ] {
        assert_eq!(opening.on_handshake(at(2), &bad), Ok(None));
    }
}
