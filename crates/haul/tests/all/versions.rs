//! Tests that the best common version is used, and that a false list of versions is noticed.
//! Versions beside this crate's are made up and mean the same.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{cell::RefCell, rc::Rc, time::Duration};

use crate::pair::{config, ms};
use farhaul_core::{codec::Writer, protocol::CloseReason};
use farhaul_haul::{
    Haul, HaulConfig,
    wire::{
        VERSION, VERSION_3,
        long::{self, Head, Kind},
    },
};
use farhaul_testkit::{Fate, Pair, Side};

const LIMIT: Duration = Duration::from_secs(20);
const NEWER: u32 = VERSION + 6;
const NEWEST: u32 = VERSION + 7;

/// Two ends that support these, the preferred first.
fn supporting(plain: bool, client: &'static [u32], server: &'static [u32]) -> Pair {
    let with = |seed| HaulConfig {
        plain,
        ..config(seed)
    };
    let (mut a, mut b) = (
        Haul::client(with(1)).unwrap(),
        Haul::server(with(2)).unwrap(),
    );
    a.pretend(client);
    b.pretend(server);
    crate::pair::of(a, b, ms(5), 1_500)
}

/// The versions of the client's long datagrams.
fn watched(pair: &mut Pair) -> Rc<RefCell<Vec<u32>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&seen);
    pair.set_script(move |d| {
        if d.from == Side::Client && d.bytes[0] & long::LONG != 0 {
            let version = u32::from_be_bytes(d.bytes[1..5].try_into().unwrap());
            noted.borrow_mut().push(version);
        }
        Fate::Deliver
    });
    seen
}

/// A list of versions for the client.
fn list(pair: &Pair, versions: &[u32]) -> Vec<u8> {
    let list: Vec<u8> = versions.iter().flat_map(|v| v.to_be_bytes()).collect();
    let head = Head {
        version: 0,
        to: u32::try_from(pair.client.id().unwrap()).unwrap(),
        from: 0,
    };
    let mut bytes = vec![0; long::HEAD + list.len()];
    let kind = Kind::Versions { list: &list };
    long::encode(&mut Writer::new(&mut bytes), head, &kind).unwrap();
    bytes
}

#[test]
fn the_best_common_version_is_used() {
    for plain in [false, true] {
        for (client, server, used) in [
            (
                &[NEWEST, NEWER, VERSION][..],
                &[NEWEST, NEWER, VERSION][..],
                NEWEST,
            ),
            (&[NEWEST, VERSION], &[NEWER, VERSION], VERSION),
            (&[NEWEST, NEWER, VERSION], &[NEWER, VERSION], NEWER),
            (&[VERSION], &[NEWEST, VERSION], VERSION),
            (&[VERSION, VERSION_3], &[VERSION_3], VERSION_3),
            (&[VERSION_3], &[VERSION, VERSION_3], VERSION_3),
        ] {
            let mut pair = supporting(plain, client, server);
            let seen = watched(&mut pair);
            pair.until(LIMIT, |p| p.client.connected() && p.server.connected());
            pair.client.session().send(1, 0, 100_000);
            pair.until(LIMIT, |p| p.client.delivered());
            let seen = seen.take();
            assert_eq!((seen[0], *seen.last().unwrap()), (client[0], used));
        }
    }
}

#[test]
fn without_a_common_version_all_are_named() {
    let mut pair = supporting(false, &[NEWEST, NEWER], &[VERSION]);
    pair.until(LIMIT, |p| p.client.is_closed());
    let Some(CloseReason::Version(text)) = pair.client.closed() else {
        panic!("{:?}", pair.client.events);
    };
    assert!(
        text.contains("0x6668000b, 0x6668000a, the peer 0x66680004"),
        "{text}"
    );
}

#[test]
fn a_false_list_does_not_lead_to_a_worse_version() {
    for plain in [false, true] {
        let both = &[NEWER, VERSION];
        let mut pair = supporting(plain, both, both);
        // The sender of the list keeps the server from answering.
        pair.set_script(|_| Fate::Drop);
        pair.settle(Side::Client);
        let false_list = list(&pair, &[VERSION]);
        let seen = watched(&mut pair);
        pair.intrude(Side::Client, Side::Server.address(), false_list);
        pair.until(LIMIT, |p| p.client.is_closed());
        assert_eq!(seen.borrow().last(), Some(&VERSION), "it followed the list");
        let Some(CloseReason::Protocol(text)) = pair.client.closed() else {
            panic!("{:?}", pair.client.events);
        };
        assert!(text.contains("version was tampered with"), "{text}");
        assert!(!pair.client.connected());
    }
}

#[test]
fn a_list_is_followed_once_and_before_an_answer_only() {
    let mut pair = supporting(false, &[NEWEST, NEWER, VERSION], &[NEWER, VERSION]);
    let seen = watched(&mut pair);
    pair.settle(Side::Client);
    for told in [&[NEWER][..], &[VERSION], &[NEWEST], &[VERSION + 90]] {
        let told = list(&pair, told);
        pair.intrude(Side::Client, Side::Server.address(), told);
    }
    pair.until(LIMIT, |p| p.client.connected());
    assert_eq!(seen.borrow().last(), Some(&NEWER));
    let late = list(&pair, &[VERSION]);
    pair.intrude(Side::Client, Side::Server.address(), late);
    pair.client.session().send(1, 0, 10_000);
    pair.until(LIMIT, |p| p.client.delivered());
}
