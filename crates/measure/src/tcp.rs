//! Measures the kernel's own TCP on the same path. The blaster needs nothing installed. It opens
//! one connection under a named congestion law, and writes as fast as it can for a time. The
//! receiver reports what arrived within that time, in the same [`Report`] as any other bench.
//!
//! Nothing is sealed here. Wire and feedback are read from the interfaces' byte counters. So they
//! include IP and TCP headers and all other traffic of the two hosts meanwhile.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use farhaul_core::{
    time::{Instant, nanos},
    units::Rate,
};
use farhaul_io::{clock, cpu};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use serde::{Deserialize, Serialize};

use crate::bench::{Interval, Lane, Limit, Report, message::Side};

const BLOCK: usize = 1 << 20;
/// Longest wait for the receiver's result after the time is up.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Longest message accepted from the receiver.
const MAX_WORD: u32 = 1 << 24;
/// Most intervals of a series.
const MOST_PARTS: u32 = 10_000;
/// Shortest interval of a series.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);
/// Headers of IPv4 and TCP.
const HEADERS: u32 = 40;
/// Longest timeout.
const LONGEST: Duration = Duration::from_hours(24);

/// Settings of a blast.
#[derive(Clone, Debug)]
pub struct Blast {
    /// The kernel's congestion law.
    pub law: String,
    /// Limit of the blast; a time includes connecting.
    pub limit: Limit,
    /// Between the parts of the series; zero for none.
    pub interval: Duration,
    /// Bytes of the longest packet, if not the interface's.
    pub mtu: Option<u32>,
}

/// The receiver's result.
#[derive(Serialize, Deserialize)]
struct Taken {
    side: Side,
    /// Intervals since the hello.
    intervals: Vec<Interval>,
}

/// Reason why a blast stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpError {
    /// The kernel does not have, or does not allow, this congestion law.
    #[error("the kernel has no congestion law '{0}' (it has {1})")]
    Law(String, String),
    /// No connection.
    #[error("no TCP connection to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    /// The connection broke.
    #[error("the TCP connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The receiver's message is invalid.
    #[error("the receiver's message is invalid: {0}")]
    Word(#[from] serde_json::Error),
}

/// Accepts connections on `listener`, one after the other, `clients` in all.
pub fn serve(listener: &TcpListener, clients: usize) -> Result<(), TcpError> {
    for _ in 0..clients {
        take(listener.accept()?.0, LONGEST)?;
    }
    Ok(())
}

/// Reads all of `bytes` within [`TIMEOUT`].
fn read_soon(stream: &mut TcpStream, bytes: &mut [u8]) -> io::Result<()> {
    let until = clock::now() + TIMEOUT;
    let mut read = 0;
    while read < bytes.len() {
        let left = until.since(clock::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut bytes[read..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => read += n,
            Err(e) if is_timeout(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Counts what arrives until the client's time is up, at most `longest`, or it has sent all. Sends the result, and
/// drains the rest.
pub fn take(mut stream: TcpStream, longest: Duration) -> Result<(), TcpError> {
    let (used, sent) = (cpu::process_time(), interface_bytes());
    let mut header = [0; 24];
    read_soon(&mut stream, &mut header)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let field = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| header[at + i]));
    let arrived = clock::now();
    let left = Duration::from_nanos(field(0).saturating_sub(field(8))).min(longest.min(LONGEST));
    let interval = Duration::from_nanos(field(16));
    // Nobody fills the memory by asking for short intervals.
    let interval =
        (!interval.is_zero()).then(|| interval.max(LEAST_INTERVAL).max(left / MOST_PARTS));
    let mut series = Series::new(arrived, interval.unwrap_or_default());
    let mut block = vec![0; BLOCK];
    count(&mut stream, &mut block, arrived + left, &mut series)?;
    let side = Side {
        farhaul: env!("CARGO_PKG_VERSION").into(),
        cpu_seconds: cpu::process_time().saturating_sub(used).as_secs_f64(),
        max_rss_bytes: cpu::max_rss(),
        wire_sent: interface_bytes().saturating_sub(sent),
        received: series.bytes,
        last_after_hello: nanos(series.last.since(arrived)),
        complete: true,
        ..Side::default()
    };
    let intervals = series.parts;
    let word = serde_json::to_vec(&Taken { side, intervals })?;
    let len = u32::try_from(word.len()).unwrap_or(MAX_WORD);
    stream.write_all(&[&len.to_be_bytes()[..], &word].concat())?;
    drain(stream, &mut block)
}

/// Takes what comes until the `end`, or the client's.
fn count(
    stream: &mut TcpStream,
    block: &mut [u8],
    end: Instant,
    series: &mut Series,
) -> io::Result<()> {
    loop {
        let now = clock::now();
        if now >= end {
            series.to(end);
            return Ok(());
        }
        if now.since(series.last) >= TIMEOUT {
            return Err(ErrorKind::TimedOut.into());
        }
        let most = end.since(now).min(series.rest(now)).min(TIMEOUT);
        stream.set_read_timeout(Some(most.max(Duration::from_millis(1))))?;
        match stream.read(block) {
            Ok(0) => return Ok(()),
            Ok(n) => series.add(clock::now().min(end), n as u64),
            Err(e) if is_timeout(&e) => series.to(clock::now().min(end)),
            Err(e) => return Err(e),
        }
    }
}

/// Bytes that have arrived, in all and in each interval.
struct Series {
    begin: Instant,
    last: Instant,
    bytes: u64,
    interval: Duration,
    parts: Vec<Interval>,
    /// Time since which the part that is not over lasts, and its bytes.
    open: (Instant, u64),
}

impl Series {
    const fn new(begin: Instant, interval: Duration) -> Self {
        Self {
            begin,
            last: begin,
            bytes: 0,
            interval,
            parts: Vec::new(),
            open: (begin, 0),
        }
    }

    fn add(&mut self, now: Instant, bytes: u64) {
        self.to(now);
        self.bytes += bytes;
        self.open.1 += bytes;
        self.last = now;
    }

    /// Rest of the part's time.
    fn rest(&self, now: Instant) -> Duration {
        if self.interval.is_zero() {
            return LONGEST;
        }
        (self.open.0 + self.interval).since(now)
    }

    /// Ends the parts that are over.
    fn to(&mut self, now: Instant) {
        while !self.interval.is_zero() && now.since(self.open.0) >= self.interval {
            let (from, bytes) = self.open;
            let to = from + self.interval;
            self.parts.push(Interval {
                from: from.since(self.begin).as_secs_f64(),
                to: to.since(self.begin).as_secs_f64(),
                goodput_bits_per_second: Rate::of(bytes, self.interval).as_f64(),
            });
            self.open = (to, 0);
        }
    }
}

/// Reads until the client has hung up, so that its last writes cause no reset before it has the result.
fn drain(mut stream: TcpStream, block: &mut [u8]) -> Result<(), TcpError> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let until = clock::now() + TIMEOUT;
    while clock::now() < until {
        match stream.read(block) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) if is_timeout(&e) || e.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn is_timeout(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Blasts to `to`.
pub fn blast(to: SocketAddr, how: &Blast) -> Result<Report, TcpError> {
    let (used, sent) = (cpu::process_time(), interface_bytes());
    let started = clock::now();
    let mut stream = connect(to, how)?;
    let hello = clock::now();
    let (time, bytes) = match how.limit {
        Limit::Nanos(time) => (Some(Duration::from_nanos(time)), u64::MAX),
        Limit::Bytes(bytes) => (None, bytes),
    };
    let connecting = hello.since(started);
    let header = [time.unwrap_or(Duration::MAX), connecting, how.interval];
    stream.write_all(header.map(|d| nanos(d).to_be_bytes()).as_flattened())?;
    let end = time.map_or(Instant::FAR_FUTURE, |time| started + time);
    push(&mut stream, end, bytes)?;
    if time.is_none() {
        stream.shutdown(Shutdown::Write)?;
    }
    let cpu_seconds = cpu::process_time().saturating_sub(used).as_secs_f64();
    let Taken { side, intervals } = word(&mut stream)?;
    // What is still queued need not arrive: a reset ends it.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    let sender = Side {
        farhaul: env!("CARGO_PKG_VERSION").into(),
        cpu_seconds,
        max_rss_bytes: cpu::max_rss(),
        wire_sent: interface_bytes().saturating_sub(sent),
        ..Side::default()
    };
    let elapsed = connecting + Duration::from_nanos(side.last_after_hello);
    let lane = Lane {
        sender,
        receiver: side,
        // A connection that stalled is held against the whole time.
        elapsed: elapsed.max(time.unwrap_or_default()),
    };
    let mut report = Report::new("tcp", &how.law, false, Duration::ZERO, &[lane]);
    report.limited_by.clear();
    let before = connecting.as_secs_f64();
    report.intervals = intervals;
    for part in &mut report.intervals {
        part.from += before;
        part.to += before;
    }
    Ok(report)
}

fn connect(to: SocketAddr, how: &Blast) -> Result<TcpStream, TcpError> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_congestion(how.law.as_bytes()).map_err(|_| {
        let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let known = known.map_or_else(|_| "none listed".into(), |k| k.trim().to_string());
        TcpError::Law(how.law.clone(), known)
    })?;
    if let Some(mtu) = how.mtu {
        socket.set_tcp_mss(mtu.saturating_sub(HEADERS))?;
    }
    socket
        .connect_timeout(&to.into(), TIMEOUT)
        .map_err(|e| TcpError::Connect(to, e))?;
    Ok(socket.into())
}

/// Writes until `end`, or `bytes`.
fn push(stream: &mut TcpStream, end: Instant, mut bytes: u64) -> Result<(), TcpError> {
    let block: Vec<u8> = (0..BLOCK).map(|i| i.to_le_bytes()[0]).collect();
    while bytes > 0 {
        let now = clock::now();
        if now >= end {
            return Ok(());
        }
        let most = end.since(now).min(LONGEST);
        stream.set_write_timeout(Some(most.max(Duration::from_millis(1))))?;
        let next = usize::try_from(bytes).unwrap_or(BLOCK).min(BLOCK);
        match stream.write(&block[..next]) {
            Ok(n) => bytes -= n as u64,
            Err(e) if is_timeout(&e) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Result of the receiver; the last bytes may have to be sent again for a while.
fn word(stream: &mut TcpStream) -> Result<Taken, TcpError> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len).min(MAX_WORD);
    let mut word = Vec::new();
    stream.take(u64::from(len)).read_to_end(&mut word)?;
    Ok(serde_json::from_slice(&word)?)
}

/// Bytes that this host's interfaces, loopback apart, have sent so far.
fn interface_bytes() -> u64 {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    sent_bytes(&table)
}

fn sent_bytes(table: &str) -> u64 {
    table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.trim() != "lo")
        .filter_map(|(_, fields)| fields.split_whitespace().nth(8)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn how(law: &str, limit: Limit) -> Blast {
        Blast {
            law: law.into(),
            limit,
            interval: Duration::from_millis(50),
            mtu: Some(1_500),
        }
    }

    fn run(limit: Limit) -> Report {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let server = thread::spawn(move || serve(&listener, 1));
        let report = blast(to, &how("cubic", limit)).unwrap();
        server.join().unwrap().unwrap();
        report
    }

    #[test]
    fn what_arrives_is_reported_by_the_receiver() {
        // A busy machine may take some tenths of a second to begin.
        let report = run(Limit::Nanos(1_000_000_000));
        assert!(report.bytes > 0);
        assert_eq!(
            (report.protocol.as_str(), report.cc.as_str()),
            ("tcp", "cubic")
        );
        assert!(report.seconds >= 1.0);
        let parts = &report.intervals;
        let arrived = report.goodput_bits_per_second * report.seconds / 8.0;
        let sum: f64 = parts
            .iter()
            .map(|part| part.goodput_bits_per_second * 0.05 / 8.0)
            .sum();
        assert!((1..=20).contains(&parts.len()), "{parts:?}");
        assert!(sum <= arrived + 4.0, "{sum} {arrived}");
    }

    #[test]
    fn bytes_arrive_to_the_last() {
        let report = run(Limit::Bytes(5_000_001));
        assert_eq!(report.bytes, 5_000_001);
    }

    #[test]
    fn a_series_has_the_parts_without_arrivals_too() {
        let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
        let mut series = Series::new(at(0), Duration::from_millis(10));
        series.add(at(5), 1_250);
        assert_eq!(series.rest(at(5)), Duration::from_millis(5));
        series.add(at(31), 100);
        let rates: Vec<f64> = series
            .parts
            .iter()
            .map(|p| p.goodput_bits_per_second)
            .collect();
        assert_eq!(rates, [1e6, 0.0, 0.0]);
        assert_eq!((series.bytes, series.last), (1_350, at(31)));
    }

    #[test]
    fn unknown_laws_are_named_with_the_known_ones() {
        let to = "127.0.0.1:9".parse().unwrap();
        let error = blast(to, &how("warp", Limit::Nanos(0)))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("'warp'") && error.contains("cubic"),
            "{error}"
        );
    }

    #[test]
    fn the_interface_table_is_summed_without_loopback() {
        let table = "Inter-| Receive | Transmit\n face |bytes packets\n    \
            lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n  \
            eth0: 5 1 0 0 0 0 0 0 70 1 0 0 0 0 0 0\n  far: 1 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n";
        assert_eq!(sent_bytes(table), 77);
    }
}
