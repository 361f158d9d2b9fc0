//! The receiving end: records when datagrams arrive, by the kernel's stamps, and answers.

use std::{
    io::{self, BufReader},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use farhaul_udp::{Inbox, ReceiveOutcome, SocketOptions, UdpSocket};
use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};

use super::{
    ProbeError,
    clock::{self, Clock},
    figures::{Arrival, PacedFigures},
    rate::Windows,
    wire::{Arrived, Ask, EXCHANGE, Head, Hello, Ports, Sent, get, put},
};

/// How long a client may be silent between its messages: no measurement takes longer.
const SILENCE: Duration = Duration::from_mins(15);
/// Longest wait for a datagram before the end is looked for.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
/// Receive buffer, bytes as the kernel counts them: 100 ms at 10 Gbit/s.
const BUFFER: usize = 256 << 20;
/// Most datagrams that a client may announce.
pub(super) const MAX_PACKETS: u64 = 5_000_000;
/// Most datagrams of a stream.
pub(super) const MAX_STREAM: u64 = 1 << 32;

/// Measures for clients of `listener`, one after the other, `clients` of them if there is a limit. What
/// goes wrong with one goes to `failed`, and the next one has its turn.
pub fn serve(
    listener: &TcpListener,
    clients: Option<u64>,
    mut failed: impl FnMut(&ProbeError),
) -> Result<(), ProbeError> {
    let mut served = 0;
    while clients.is_none_or(|clients| served < clients) {
        let (stream, peer) = listener.accept()?;
        served += 1;
        if let Err(error) = session(&stream, peer) {
            failed(&error);
        }
    }
    Ok(())
}

fn session(stream: &TcpStream, peer: SocketAddr) -> Result<(), ProbeError> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let mut from = BufReader::new(stream);
    let mut to = stream;
    let hello: Hello = get(&mut from, peer)?;
    if hello.exchange != EXCHANGE || hello.packets > MAX_PACKETS || hello.stream > MAX_STREAM {
        return Err(ProbeError::NoProbe(peer));
    }
    let mut recorder = Recorder::open(stream.local_addr()?.ip(), &hello)?;
    let clock = Clock::start();
    put(&mut to, &recorder.ports()?)?;
    let done = AtomicBool::new(false);
    let sent: Sent = thread::scope(|scope| {
        let recording = scope.spawn(|| recorder.run(&done, hello.drain_ms));
        let sent: Result<Sent, ProbeError> = get(&mut from, peer);
        done.store(true, Ordering::Release);
        let recorded = recording.join().unwrap_or_else(|panic| {
            std::panic::resume_unwind(panic);
        });
        sent.and_then(|sent| recorded.map(|()| sent).map_err(ProbeError::Io))
    })?;
    put(&mut to, &recorder.answer(&hello, &sent, clock.stepped()))
}

/// What arrives.
struct Recorder {
    /// Datagrams one by one, and a stream.
    sockets: [UdpSocket; 2],
    session: u32,
    most: usize,
    arrivals: Vec<Arrival>,
    seen: Vec<u64>,
    stream: u64,
    headers: u64,
    windows: Windows,
    unstamped: u64,
}

impl Recorder {
    fn open(at: IpAddr, hello: &Hello) -> io::Result<Self> {
        let open = |gro| {
            let mut options = SocketOptions::new(SocketAddr::new(at, 0));
            options.receive_buffer = BUFFER;
            options.gro = gro;
            UdpSocket::bind(&options)
        };
        let words = usize::try_from(hello.stream.div_ceil(64)).unwrap_or(0);
        Ok(Self {
            sockets: [open(false)?, open(true)?],
            session: hello.session,
            most: usize::try_from(hello.packets * 2).unwrap_or(0),
            arrivals: Vec::new(),
            seen: vec![0; words],
            stream: 0,
            headers: hello.headers.into(),
            windows: Windows::default(),
            unstamped: 0,
        })
    }

    fn ports(&self) -> io::Result<Ports> {
        let [packets, stream] = &self.sockets;
        Ok(Ports {
            packets: packets.local_addr()?.port(),
            stream: stream.local_addr()?.port(),
        })
    }

    /// Until `done`, and then until nothing has arrived for `drain_ms`.
    fn run(&mut self, done: &AtomicBool, drain_ms: u64) -> io::Result<()> {
        let mut inbox = Inbox::new();
        let drain = Duration::from_millis(drain_ms);
        let mut last: Option<Instant> = None;
        loop {
            let mut any = false;
            for which in 0..self.sockets.len() {
                any |= self.receive(which, &mut inbox)?;
            }
            if any {
                last = None;
                continue;
            }
            if done.load(Ordering::Acquire) {
                let since = *last.get_or_insert_with(clock::now);
                if clock::now().duration_since(since) >= drain {
                    return Ok(());
                }
            }
            let [packets, stream] = &self.sockets;
            let mut fds = [packets, stream].map(|socket| PollFd::new(socket, PollFlags::IN));
            match poll(&mut fds, Some(&TICK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes what there is on one socket; answers whether there was anything.
    fn receive(&mut self, which: usize, inbox: &mut Inbox) -> io::Result<bool> {
        match self.sockets[which].receive(inbox) {
            ReceiveOutcome::Some { .. } => {}
            ReceiveOutcome::Empty => return Ok(false),
            ReceiveOutcome::Refused => return Ok(true),
            ReceiveOutcome::Failed(error) => return Err(error),
        }
        for message in inbox.messages() {
            self.unstamped += u64::from(message.arrived.is_none());
            let at = message.arrived.map_or_else(clock::wall, clock::ns);
            let segments = message.bytes.chunks(message.segment);
            for (head, len) in segments.filter_map(|s| Some((Head::decode(s)?, s.len()))) {
                if head.session != self.session {
                    continue;
                }
                self.windows.add(at, len as u64 + self.headers);
                if which == 0 {
                    self.record(head, at);
                } else {
                    self.count(head);
                }
            }
        }
        Ok(true)
    }

    fn record(&mut self, head: Head, at: u64) {
        if self.arrivals.len() < self.most {
            self.arrivals.push(Arrival {
                number: head.number,
                left: head.at,
                at,
            });
        }
    }

    fn count(&mut self, head: Head) {
        self.stream += 1;
        let word = usize::try_from(head.number / 64).unwrap_or(usize::MAX);
        if let Some(word) = self.seen.get_mut(word) {
            *word |= 1 << (head.number % 64);
        }
    }

    fn answer(&self, hello: &Hello, sent: &Sent, clock_step: u64) -> Arrived {
        let overflowed = self.sockets.iter().map(|s| s.counters().overflowed).sum();
        let mut arrived = Arrived {
            packets: self.arrivals.len() as u64,
            stream: self.stream,
            overflowed,
            unstamped: self.unstamped,
            clock_step,
            rate: self.windows.figures(),
            gaps: gaps(&self.seen, sent.stream.min(hello.stream)),
            ..Arrived::default()
        };
        match hello.ask {
            Ask::Figures { bytes, expected } => {
                let sent_packets = sent.packets.min(hello.packets);
                arrived.paced = Some(PacedFigures::new(
                    &self.arrivals,
                    sent_packets,
                    sent.last,
                    bytes,
                    &expected,
                ));
            }
            Ask::Arrivals => {
                arrived.arrivals = self.arrivals.iter().map(|a| (a.number, a.at)).collect();
            }
        }
        arrived
    }
}

/// Runs of numbers below `end` whose bit is not set: first and count.
fn gaps(seen: &[u64], end: u64) -> Vec<(u64, u64)> {
    /// More would not describe losses but a flood that went nowhere.
    const MOST: usize = 200_000;
    let mut found: Vec<(u64, u64)> = Vec::new();
    for number in 0..end {
        let word = usize::try_from(number / 64)
            .ok()
            .and_then(|at| seen.get(at));
        if word.is_some_and(|word| word >> (number % 64) & 1 == 1) {
            continue;
        }
        let at_end = found.len() == MOST;
        match found.last_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            _ if at_end => break,
            _ => found.push((number, 1)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_runs_of_missing_numbers() {
        let seen = [u64::MAX ^ 0b110 ^ (1 << 63), 0b1110];
        assert_eq!(gaps(&seen, 70), [(1, 2), (63, 2), (68, 2)]);
        assert_eq!(gaps(&seen, 1), []);
        assert_eq!(gaps(&[], 3), [(0, 3)]);
    }
}
