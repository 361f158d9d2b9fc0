//! How fast is the kernel's own TCP on the same path? A blaster that needs nothing installed: it
//! opens one connection under a named congestion law, writes as fast as it can for a time, and lets
//! the receiver reports what arrived within it, in the same [`Report`] as any other bench.
//!
//! Nothing is sealed here. Wire and feedback are read from the interfaces' byte counters, so they
//! include IP and TCP headers and all other traffic of the two hosts meanwhile.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use farhaul_core::time::{Instant, nanos};
use farhaul_io::{clock, cpu};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::bench::{Lane, Report, message::Side};

const BLOCK: usize = 1 << 20;
/// How long the receiver's result may take after the time is up.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Longest message accepted from the receiver.
const MAX_WORD: u32 = 1 << 16;

/// What stopped a blast.
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
        let (stream, _) = listener.accept()?;
        take(stream)?;
    }
    Ok(())
}

/// Counts what arrives until the client's time is up, sends the result, and drains the rest.
fn take(mut stream: TcpStream) -> Result<(), TcpError> {
    let (used, sent) = (cpu::process_time(), interface_bytes());
    let mut header = [0; 16];
    stream.read_exact(&mut header)?;
    let field = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| header[at + i]));
    let arrived = clock::now();
    let left = field(0).saturating_sub(field(8));
    let end = arrived + Duration::from_nanos(left);
    let mut block = vec![0; BLOCK];
    let (mut received, mut last) = (0, arrived);
    loop {
        let now = clock::now();
        if now >= end {
            break;
        }
        stream.set_read_timeout(Some(end.since(now).max(Duration::from_millis(1))))?;
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(n) => {
                received += n as u64;
                last = clock::now().min(end);
            }
            Err(e) if is_timeout(&e) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let side = Side {
        farhaul: env!("CARGO_PKG_VERSION").into(),
        cpu_seconds: cpu::process_time().saturating_sub(used).as_secs_f64(),
        max_rss_bytes: cpu::max_rss(),
        wire_sent: interface_bytes().saturating_sub(sent),
        received,
        last_after_hello: nanos(last.since(arrived)),
        complete: true,
        ..Side::default()
    };
    let word = serde_json::to_vec(&side)?;
    let len = u32::try_from(word.len()).unwrap_or(MAX_WORD);
    stream.write_all(&[&len.to_be_bytes()[..], &word].concat())?;
    drain(stream, &mut block)
}

/// Reads until the client has hung up, so that its last writes cause no reset before it has the result.
fn drain(mut stream: TcpStream, block: &mut [u8]) -> Result<(), TcpError> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    loop {
        match stream.read(block) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) if is_timeout(&e) || e.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

fn is_timeout(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Blasts to `to` under the law `cc` for `time`, connecting included.
pub fn blast(to: SocketAddr, cc: &str, time: Duration) -> Result<Report, TcpError> {
    let (used, sent) = (cpu::process_time(), interface_bytes());
    let started = clock::now();
    let mut stream = connect(to, cc)?;
    let hello = clock::now();
    let header = [nanos(time), nanos(hello.since(started))].map(u64::to_be_bytes);
    stream.write_all(header.as_flattened())?;
    push(&mut stream, started + time)?;
    let cpu_seconds = cpu::process_time().saturating_sub(used).as_secs_f64();
    let receiver = word(&mut stream)?;
    // What is still queued need not arrive: a reset ends it.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    let sender = Side {
        farhaul: env!("CARGO_PKG_VERSION").into(),
        cpu_seconds,
        max_rss_bytes: cpu::max_rss(),
        wire_sent: interface_bytes().saturating_sub(sent),
        ..Side::default()
    };
    let elapsed = hello.since(started) + Duration::from_nanos(receiver.last_after_hello);
    let lane = Lane {
        sender,
        receiver,
        // A connection that stalled is held against the whole time.
        elapsed: elapsed.max(time),
    };
    let mut report = Report::new("tcp", cc, false, Duration::ZERO, &[lane]);
    report.limited_by.clear();
    Ok(report)
}

fn connect(to: SocketAddr, cc: &str) -> Result<TcpStream, TcpError> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_congestion(cc.as_bytes()).map_err(|_| {
        let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let known = known.map_or_else(|_| "none listed".into(), |k| k.trim().to_string());
        TcpError::Law(cc.into(), known)
    })?;
    socket
        .connect_timeout(&to.into(), TIMEOUT)
        .map_err(|e| TcpError::Connect(to, e))?;
    Ok(socket.into())
}

/// Writes until `end`.
fn push(stream: &mut TcpStream, end: Instant) -> Result<(), TcpError> {
    let block: Vec<u8> = (0..BLOCK).map(|i| i.to_le_bytes()[0]).collect();
    loop {
        let now = clock::now();
        if now >= end {
            return Ok(());
        }
        stream.set_write_timeout(Some(end.since(now).max(Duration::from_millis(1))))?;
        match stream.write(&block) {
            Ok(_) => {}
            Err(e) if is_timeout(&e) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn word(stream: &mut TcpStream) -> Result<Side, TcpError> {
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

    #[test]
    fn what_arrives_is_reported_by_the_receiver() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let server = thread::spawn(move || serve(&listener, 1));
        let report = blast(to, "cubic", Duration::from_millis(200)).unwrap();
        server.join().unwrap().unwrap();
        assert!(report.bytes > 0);
        assert_eq!(
            (report.protocol.as_str(), report.cc.as_str()),
            ("tcp", "cubic")
        );
        assert!(report.seconds >= 0.2);
    }

    #[test]
    fn unknown_laws_are_named_with_the_known_ones() {
        let to = "127.0.0.1:9".parse().unwrap();
        let error = blast(to, "warp", Duration::ZERO).unwrap_err().to_string();
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
