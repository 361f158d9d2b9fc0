//! Measures how much this machine's emulator can carry. A sender keeps a fixed number of bytes on
//! the network, without any protocol, and a receiver counts. The rate that they reach is the
//! ceiling of everything that is measured through the emulator.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use farhaul_core::time::Instant;
use farhaul_link::Ecn;
use farhaul_udp::{Inbox, Outgoing, ReceiveOutcome, SendOutcome, SocketOptions, UdpSocket};
use rustix::event::{PollFd, PollFlags, poll};

use crate::{
    clock::{Clock, timespec},
    host::Host,
    report::WanReport,
    wan::{Wan, WanConfig, WanError},
};

/// Longest wait for a socket or for the other thread.
const TIMEOUT: Duration = Duration::from_millis(5);
/// Pause of the sender when the network is full.
const BACK_OFF: Duration = Duration::from_micros(20);
/// Without any arrival for this long, missing bytes count as lost.
const LOST: Duration = Duration::from_millis(500);
const PORT: u16 = 17_990;
/// IPv4 and UDP headers.
const HEADERS: u32 = 28;

/// Figures that a blast reached.
#[derive(Clone, Debug)]
pub struct Blast {
    /// Payload bits per second at the receiver.
    pub goodput_bps: f64,
    /// The network's own account.
    pub report: WanReport,
}

/// Blasts datagrams that fill the MTU from near to far for `time`, at most `window` bytes at once on
/// the network.
pub fn blast(config: &WanConfig, window: u64, time: Duration) -> Result<Blast, WanError> {
    let wan = Wan::start(config)?;
    let target = SocketAddr::new(wan.far().address().into(), PORT);
    let mut sender = open(wan.near(), SocketAddr::new(wan.near().address().into(), 0))?;
    let mut receiver = open(wan.far(), target)?;
    sender.connect(target).map_err(WanError::Running)?;
    let segment = usize::try_from(config.mtu - HEADERS).unwrap_or(usize::MAX);
    let received = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let clock = Clock::start();
    let goodput_bps = thread::scope(|scope| {
        let counting = thread::Builder::new()
            .spawn_scoped(scope, || count(&mut receiver, &received, &done))?;
        let sent = send(&mut sender, segment, window, &received, clock, time);
        let bytes = received.load(Ordering::Relaxed);
        let seconds = (clock.now() - Instant::EPOCH).as_secs_f64();
        done.store(true, Ordering::Relaxed);
        let counted = counting.join().unwrap_or(Ok(()));
        sent.and(counted).map(|()| rate(bytes, seconds))
    })
    .map_err(WanError::Running)?;
    Ok(Blast {
        goodput_bps,
        report: wan.finish()?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / seconds
}

fn open(host: &Host, address: SocketAddr) -> Result<UdpSocket, WanError> {
    host.run(move || UdpSocket::bind(&SocketOptions::new(address)))
        .map_err(WanError::Running)
}

fn send(
    socket: &mut UdpSocket,
    segment: usize,
    window: u64,
    received: &AtomicU64,
    clock: Clock,
    time: Duration,
) -> io::Result<()> {
    let to = SocketAddr::new([10, 99, 0, 2].into(), PORT);
    let segments = (65_507 / segment).clamp(1, 64);
    let train = vec![0x5a; segment * segments];
    let batch = Outgoing {
        to,
        from: None,
        ecn: Ecn::NotEct,
        segment,
        bytes: &train,
    };
    let mut sent = 0;
    let (mut seen, mut progress) = (0, clock.now());
    while clock.now() - Instant::EPOCH < time {
        let arrived = received.load(Ordering::Relaxed);
        if arrived != seen {
            (seen, progress) = (arrived, clock.now());
        }
        if clock.now() - progress > LOST {
            (sent, progress) = (arrived, clock.now());
        }
        if sent >= arrived + window {
            poll(&mut [], Some(&timespec(BACK_OFF)))?;
            continue;
        }
        match socket.send(&batch) {
            SendOutcome::Sent => sent += train.len() as u64,
            SendOutcome::Blocked { sent: bytes } => {
                sent += bytes as u64;
                wait(socket, PollFlags::OUT)?;
            }
            SendOutcome::Refused | SendOutcome::TooLarge => {}
            SendOutcome::Failed(error) => return Err(error),
        }
    }
    Ok(())
}

fn count(socket: &mut UdpSocket, received: &AtomicU64, done: &AtomicBool) -> io::Result<()> {
    let mut inbox = Inbox::new();
    while !done.load(Ordering::Relaxed) {
        match socket.receive(&mut inbox) {
            ReceiveOutcome::Some { .. } => {
                let bytes: usize = inbox.messages().map(|message| message.bytes.len()).sum();
                received.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            ReceiveOutcome::Empty => wait(socket, PollFlags::IN)?,
            ReceiveOutcome::Refused => {}
            ReceiveOutcome::Failed(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait(socket: &UdpSocket, what: PollFlags) -> io::Result<()> {
    poll(&mut [PollFd::new(socket, what)], Some(&timespec(TIMEOUT)))?;
    Ok(())
}
