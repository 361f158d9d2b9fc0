//! The receiving end: records when datagrams arrive, by the kernel's stamps, and answers.

use std::{
    io::{self, BufReader, ErrorKind, Read, Write},
    mem,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use farhaul_udp::{Inbox, ReceiveOutcome, SocketOptions, UdpSocket};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    time::Timespec,
};

use super::{
    ProbeError,
    clock::{self, Clock},
    figures::{Arrival, PacedFigures},
    rate::Windows,
    wire::{Arrived, Ask, EXCHANGE, Head, Hello, Ports, Sent, get, put},
};

/// Longest time in which a client may send its wishes.
const HELLO: Duration = Duration::from_secs(10);
/// Longest time that a client may stay in all: no measurement takes longer.
const SESSION: Duration = Duration::from_mins(15);
/// Longest time in which a client may take its answer.
const ANSWER: Duration = Duration::from_mins(1);
/// Longest wait for late datagrams that a client may ask for, ms.
pub(super) const MAX_DRAIN_MS: u64 = 10_000;
/// Pause before the next attempt, when there is no descriptor or memory for a connection.
const BACK_OFF: Duration = Duration::from_millis(200);
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
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if passes(&error) => {
                failed(&error.into());
                clock::rest_until(clock::now() + BACK_OFF);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        served += 1;
        if let Err(error) = session(&stream, peer) {
            failed(&error);
        }
    }
    Ok(())
}

/// True if the listener can go on after it: the connection was given up, or there is too little of
/// something now.
fn passes(error: &io::Error) -> bool {
    let errors = [
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::PERM,
        Errno::PROTO,
    ];
    Errno::from_io_error(error).is_some_and(|e| errors.contains(&e))
}

/// A connection whose other end has until then, however slowly it goes on.
struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Until<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(clock::now());
        if left.is_zero() {
            let text = "the client took too long";
            return Err(io::Error::new(ErrorKind::TimedOut, text));
        }
        Ok(left)
    }
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(into)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// True if the client asks for no more than a measurement needs.
fn bounded(hello: &Hello) -> bool {
    let possible = match &hello.ask {
        Ask::Figures { expected, .. } => expected.is_possible(),
        Ask::Arrivals => true,
    };
    hello.exchange == EXCHANGE
        && hello.packets <= MAX_PACKETS
        && hello.stream <= MAX_STREAM
        && hello.drain_ms <= MAX_DRAIN_MS
        && possible
}

fn session(stream: &TcpStream, peer: SocketAddr) -> Result<(), ProbeError> {
    stream.set_nodelay(true)?;
    let until = |time| Until {
        stream,
        end: clock::now() + time,
    };
    let mut from = BufReader::new(until(HELLO));
    let end = clock::now() + SESSION;
    let hello: Hello = get(&mut from, peer)?;
    if !bounded(&hello) {
        return Err(ProbeError::NoProbe(peer));
    }
    from.get_mut().end = end;
    let mut recorder = Recorder::open(stream.local_addr()?.ip(), &hello)?;
    let clock = Clock::start();
    put(&mut until(ANSWER), &recorder.ports()?)?;
    let done = AtomicBool::new(false);
    let sent: Sent = thread::scope(|scope| {
        let recording = thread::Builder::new()
            .spawn_scoped(scope, || recorder.run(&done, hello.drain_ms, end))
            .map_err(ProbeError::Io)?;
        let sent: Result<Sent, ProbeError> = get(&mut from, peer);
        done.store(true, Ordering::Release);
        let recorded = recording.join().unwrap_or_else(|panic| {
            std::panic::resume_unwind(panic);
        });
        sent.and_then(|sent| recorded.map(|()| sent).map_err(ProbeError::Io))
    })?;
    put(
        &mut until(ANSWER),
        &recorder.answer(&hello, &sent, clock.stepped()),
    )
}

/// Recorder of what arrives.
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

    /// Records until `done`, and then until nothing has arrived for `drain_ms`; until `end` at the
    /// latest.
    fn run(&mut self, done: &AtomicBool, drain_ms: u64, end: Instant) -> io::Result<()> {
        let mut inbox = Inbox::new();
        let drain = Duration::from_millis(drain_ms);
        let mut last: Option<Instant> = None;
        loop {
            let mut any = false;
            for which in 0..self.sockets.len() {
                any |= self.receive(which, &mut inbox)?;
            }
            if any && clock::now() < end {
                last = None;
                continue;
            }
            if done.load(Ordering::Acquire) {
                if clock::now() >= end {
                    return Ok(());
                }
                let since = *last.get_or_insert_with(clock::now);
                if clock::now().duration_since(since) >= drain {
                    return Ok(());
                }
            }
            let [packets, stream] = &self.sockets;
            let mut fds = [packets, stream].map(|socket| PollFd::new(socket, PollFlags::IN));
            match poll(&mut fds, Some(&TICK)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes what there is on one socket; answers whether something of it was of this session.
    fn receive(&mut self, which: usize, inbox: &mut Inbox) -> io::Result<bool> {
        match self.sockets[which].receive(inbox) {
            ReceiveOutcome::Some { .. } => {}
            ReceiveOutcome::Empty | ReceiveOutcome::Refused => return Ok(false),
            ReceiveOutcome::Failed(error) => return Err(error),
        }
        let mut own = false;
        for message in inbox.messages() {
            let mut unstamped = u64::from(message.arrived.is_none());
            let at = message.arrived.map_or_else(clock::wall, clock::ns);
            let segments = message.bytes.chunks(message.segment);
            for (head, len) in segments.filter_map(|s| Some((Head::decode(s)?, s.len()))) {
                if head.session != self.session {
                    continue;
                }
                own = true;
                self.unstamped += mem::take(&mut unstamped);
                self.windows.add(at, len as u64 + self.headers);
                if which == 0 {
                    self.record(head, at);
                } else {
                    self.count(head);
                }
            }
        }
        Ok(own)
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
    let mut number = 0;
    while number < end {
        let word = usize::try_from(number / 64)
            .ok()
            .and_then(|at| seen.get(at));
        // From this number on to the end of its word.
        let missing = !word.copied().unwrap_or(0) >> (number % 64);
        let left = (64 - number % 64).min(end - number);
        let there = u64::from(missing.trailing_zeros()).min(left);
        if there > 0 {
            number += there;
            continue;
        }
        let gone = u64::from(missing.trailing_ones()).min(left);
        let at_end = found.len() == MOST;
        match found.last_mut() {
            Some((first, count)) if *first + *count == number => *count += gone,
            _ if at_end => break,
            _ => found.push((number, gone)),
        }
        number += gone;
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
        assert_eq!(gaps(&[0, 0, 1], 200), [(0, 128), (129, 71)]);
        assert_eq!(gaps(&[u64::MAX; 3], 192), []);
        // One by one it would take a minute.
        assert_eq!(gaps(&[], MAX_STREAM), [(0, MAX_STREAM)]);
    }
}
