//! The far end of tunnels through TCP: accepts connections, each of which has two threads and a socket to the
//! listener.

use std::{
    io::{self, BufReader},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket as StdSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags};

use super::{
    Answer, BATCH, Passed, carry_noting, is_asked_for, on_this_machine, polled, refuse, relay_to,
    spawn, timespec,
};
use crate::{Controls, Stop, clock, service};

/// Longest time in which a peer may leave sent bytes unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// Pause after an error that does not go away by itself, such as too many open files.
const RETRY: Duration = Duration::from_millis(200);

/// Called the first time that the listener answered nothing of what came through the tunnel of this
/// peer. That happens where UDP does not get through the loopback device.
pub type Unanswered = Arc<dyn Fn(SocketAddr) + Send + Sync>;

/// Carries datagrams of TCP connections to the listener at `to`, which `controls` are of, until `stop` is set. Does not
/// block. `report` gets a line for each fault of the thread that accepts.
pub fn accept(
    connections: TcpListener,
    to: SocketAddr,
    controls: Controls,
    stop: Stop,
    unanswered: Unanswered,
    report: fn(&str),
) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if !rustix::net::sockopt::socket_acceptconn(&connections)? {
        let text = "the socket does not listen";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    connections.set_nonblocking(true)?;
    let to = on_this_machine(to);
    let told = AtomicBool::new(false);
    let first = move |peer| {
        if !told.swap(true, Relaxed) {
            unanswered(peer);
        }
    };
    let first: Unanswered = Arc::new(first);
    service::spawn("tunnels", report, move || {
        let (mut failed, mut at_most) = (false, None);
        while !stop.is_set() {
            // It lasts as long as the server: what fails for now is tried again.
            if wait((!failed).then_some(&connections), &stop, at_most).is_err() {
                thread::park_timeout(RETRY);
            }
            failed = false;
            loop {
                match connections.accept() {
                    // It closes with the connection if there is no socket for it.
                    Ok((stream, peer)) => {
                        failed |= begin(stream, peer, to, &controls, &first).is_err();
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(_) => {
                        failed = true;
                        break;
                    }
                }
            }
            let next = controls.relays().expire(clock::now());
            at_most = if failed { Some(RETRY) } else { next };
        }
    })
}

/// Waits until somebody connects, if that is of interest, `stop` is set, or the time is over.
fn wait(
    connections: Option<&TcpListener>,
    stop: &Stop,
    at_most: Option<Duration>,
) -> io::Result<()> {
    let at_most = at_most.map(timespec);
    let stopped = PollFd::new(stop, PollFlags::IN);
    if let Some(connections) = connections {
        let connects = PollFd::new(connections, PollFlags::IN);
        polled(&mut [connects, stopped], at_most.as_ref())?;
    } else {
        polled(&mut [stopped], at_most.as_ref())?;
    }
    Ok(())
}

fn begin(
    stream: TcpStream,
    peer: SocketAddr,
    to: SocketAddr,
    controls: &Controls,
    unanswered: &Unanswered,
) -> io::Result<()> {
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    {
        let unacknowledged = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(&stream, unacknowledged)?;
    }
    let socket = relay_to(to)?;
    let relay = socket.local_addr()?;
    if !controls.relays().enter(relay, peer, stream.try_clone()?) {
        return refuse(stream);
    }
    // Its port stays ours until it has left.
    let held = socket.try_clone()?;
    let (running, unanswered) = (controls.clone(), Arc::clone(unanswered));
    let started = spawn("tunnel-in", move || {
        // However it ended, the connection closes, and sessions through it hear no more.
        let passed = Arc::default();
        let _ended = converse(stream, peer, socket, &running, &passed);
        running.relays().leave(relay);
        if passed.is_unanswered() {
            unanswered(peer);
        }
        drop(held);
    });
    if started.is_err() {
        controls.relays().leave(relay);
    }
    started
}

fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    socket: StdSocket,
    controls: &Controls,
    passed: &Arc<Passed>,
) -> io::Result<()> {
    let mut from = BufReader::with_capacity(BATCH, stream.try_clone()?);
    if !is_asked_for(&mut from) {
        return Ok(());
    }
    let answer = Answer::of(controls.relays().had_udp_from(peer.ip(), clock::now()));
    carry_noting(socket, answer, from, stream, passed)
}
