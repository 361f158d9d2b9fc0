//! A port for what must know its own before it starts, or comes back to it.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    process,
    sync::Mutex,
};

/// Numbers outside the range that the system hands out by itself, and not those that servers have by default.
const FIRST: u32 = 20_000;
const PAIRS: u32 = 6_000;

/// Marks of the ports of this process: sockets with a name, which all processes of this network
/// see, and which are gone with this one.
static MARKS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A free port, with a free one behind it, given once: to no other test, of this process or another.
pub(crate) fn free_port() -> u16 {
    let pairs = (0..PAIRS).map(|i| FIRST + process::id().wrapping_add(i) % PAIRS * 2);
    for port in pairs.map(|port| u16::try_from(port).expect("below 32,000")) {
        let name = SocketAddr::from_abstract_name(format!("farhaul-test-port-{port}"));
        let Ok(mark) = UnixListener::bind_addr(&name.expect("it is short")) else {
            continue;
        };
        MARKS.lock().expect("nothing fails in here").push(mark);
        if !is_bound(port) && !is_bound(port + 1) {
            return port;
        }
    }
    panic!("no port is free");
}

/// True if any socket has it. A UDP port is not tried: a child that is just being made would have
/// that socket, too. It would keep the port in use until the child is another program. No test
/// makes children while another of its threads listens by TCP.
fn is_bound(port: u16) -> bool {
    if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_err() {
        return true;
    }
    let local = format!(":{port:04X}");
    ["udp", "udp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        let mut sockets = table.lines().skip(1);
        sockets.any(|line| {
            let address = line.split_whitespace().nth(1);
            address.is_some_and(|address| address.ends_with(&local))
        })
    })
}
