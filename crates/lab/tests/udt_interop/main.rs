//! Tests our UDT with the real one, libudt 4.11: streams, messages and files in both directions, as
//! client, as listener and as equals, over IPv4 and IPv6. Paths are clean, or a relay loses,
//! reorders, repeats and goes dark. The tests need `libudt-dev` and `g++`; without them they say so
//! and check nothing.

#![allow(clippy::unwrap_used, reason = "a test")]

mod endings;
mod files;
mod meeting;
mod messages;
mod peer;
mod port;
mod run;
mod stream;
mod streams;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use farhaul_protocols::udt::Behaviour;

const MANNERS: [Behaviour; 2] = [Behaviour::Libudt, Behaviour::Fixed];
const HOSTS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];
/// Data in a packet of a stream over IPv4, by default.
const PAYLOAD: u64 = 1_456;
/// Most runs at a time: they wait for timers most of the time.
const AT_ONCE: usize = 8;

/// The byte at `at` of every stream, as the peer's program makes it.
#[expect(clippy::cast_possible_truncation, reason = "the low byte is meant")]
const fn content(at: u64) -> u8 {
    at.wrapping_mul(131).wrapping_add(at / 251) as u8
}

/// Runs each case, several at a time.
fn together<T: Sync>(cases: &[T], run: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(case);
                }
            });
        }
    });
}
