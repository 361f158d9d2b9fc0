//! Measures the delay of a packet through two end systems. One packet at a time goes to the other
//! end and comes back, by the kernel's UDP or TCP. Half of the round trip is the delay. Over a path
//! without delay that of a sender and a receiver is left.
//!
//! Every packet starts with its number, eight bytes. Both ends send TCP without delay (`TCP_NODELAY`), and the packet
//! is as long as one of UDP: one segment.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

use farhaul_core::time::Instant;
use farhaul_io::clock;
use serde::{Deserialize, Serialize};

/// IPv4 and UDP headers; IPv4 and TCP headers with timestamps.
const UDP_HEADERS: u32 = 28;
const TCP_HEADERS: u32 = 52;
/// Round trips before the first that counts: routes and buffers exist then.
const BEFORE: u32 = 10;
/// A packet that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// Silence after which the other end takes the measurement to be over.
const SILENCE: Duration = Duration::from_secs(15);

/// Round trips to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trips {
    /// True for TCP in place of UDP.
    pub tcp: bool,
    /// Bytes of a packet, IP header included.
    pub packet: u32,
    /// Count of packets.
    pub count: u32,
}

impl Trips {
    /// Payload of one packet, at least its number.
    fn payload(self) -> Vec<u8> {
        let headers = if self.tcp { TCP_HEADERS } else { UDP_HEADERS };
        vec![0x5a; self.packet.saturating_sub(headers).max(8) as usize]
    }
}

/// Measured delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delays {
    /// Packets that came back.
    pub packets: u64,
    /// Packets that did not come back.
    pub lost: u64,
    /// Payload of those that came back.
    pub bytes: u64,
    /// Duration of the whole measurement, s.
    pub seconds: f64,
    /// Half of a round trip, µs: mean, and median.
    pub mean_us: f64,
    /// See above.
    pub p50_us: f64,
}

/// Sends every packet at `at` back to one client until it ends.
pub fn serve(at: SocketAddr, trips: Trips) -> io::Result<()> {
    let mut payload = trips.payload();
    if trips.tcp {
        let (mut stream, _) = TcpListener::bind(at)?.accept()?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        loop {
            match stream.read_exact(&mut payload) {
                Ok(()) => stream.write_all(&payload)?,
                Err(e) if is_over(&e) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }
    let socket = UdpSocket::bind(at)?;
    socket.set_read_timeout(None)?;
    loop {
        match socket.recv_from(&mut payload) {
            Ok((length, from)) => drop(socket.send_to(&payload[..length], from)?),
            Err(e) if is_over(&e) => return Ok(()),
            Err(e) => return Err(e),
        }
        socket.set_read_timeout(Some(SILENCE))?;
    }
}

fn is_over(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::WouldBlock
            | ErrorKind::TimedOut
    )
}

/// Sends packets to `to`, each when the one before has come back or is lost, for `time` at most.
pub fn ask(to: SocketAddr, trips: Trips, time: Duration) -> io::Result<Delays> {
    let mut payload = trips.payload();
    let end = clock::now() + time;
    let mut way = Way::open(to, trips.tcp)?;
    let (mut halves, mut lost, mut begin) = (Vec::new(), 0, clock::now());
    for number in 0..u64::from(BEFORE + trips.count) {
        if number == u64::from(BEFORE) {
            (halves, lost, begin) = (Vec::new(), 0, clock::now());
        }
        let left = end.since(clock::now());
        if left.is_zero() {
            return Err(io::Error::other(format!(
                "{number} packets took all of {time:?}"
            )));
        }
        payload[..8].copy_from_slice(&number.to_be_bytes());
        let sent = clock::now();
        match way.trip(&mut payload, sent + PATIENCE.min(left))? {
            Some(back) => halves.push(back.since(sent).as_secs_f64() * 1e6 / 2.0),
            None => lost += 1,
        }
    }
    let seconds = clock::now().since(begin).as_secs_f64();
    Ok(summary(halves, lost, payload.len() as u64, seconds))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn summary(mut halves: Vec<f64>, lost: u64, payload: u64, seconds: f64) -> Delays {
    let packets = halves.len() as u64;
    halves.sort_by(f64::total_cmp);
    Delays {
        packets,
        lost,
        bytes: packets * payload,
        seconds,
        mean_us: halves.iter().sum::<f64>() / packets.max(1) as f64,
        p50_us: halves.get(halves.len() / 2).copied().unwrap_or_default(),
    }
}

enum Way {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Way {
    fn open(to: SocketAddr, tcp: bool) -> io::Result<Self> {
        if tcp {
            let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
            stream.set_nodelay(true)?;
            return Ok(Self::Tcp(stream));
        }
        let any = match to {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(Self::Udp(socket))
    }

    /// Time at which `packet` is back; none if it is lost. What comes late of one before is passed
    /// over.
    fn trip(&mut self, packet: &mut [u8], until: Instant) -> io::Result<Option<Instant>> {
        let mut number = [0; 8];
        number.copy_from_slice(&packet[..8]);
        let left = || until.since(clock::now()).max(Duration::from_micros(1));
        match self {
            Self::Tcp(stream) => {
                stream.write_all(packet)?;
                stream.set_read_timeout(Some(left()))?;
                stream.read_exact(packet)?;
                Ok(Some(clock::now()))
            }
            Self::Udp(socket) => {
                socket.send(packet)?;
                while clock::now() < until {
                    socket.set_read_timeout(Some(left()))?;
                    match socket.recv(packet) {
                        Ok(_) if packet[..8] == number => return Ok(Some(clock::now())),
                        Ok(_) => {}
                        Err(e) if is_timeout(&e) => break,
                        Err(e) => return Err(e),
                    }
                }
                packet[..8].copy_from_slice(&number);
                Ok(None)
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_delay_is_half_a_round_trip_and_the_lost_are_none() {
        let found = summary(vec![30.0, 10.0, 20.0], 2, 100, 0.5);
        assert_eq!((found.packets, found.lost, found.bytes), (3, 2, 300));
        assert_eq!((found.mean_us, found.p50_us), (20.0, 20.0));
        assert_eq!(summary(Vec::new(), 1, 100, 0.5).packets, 0);
    }

    #[test]
    fn a_packet_of_either_transport_is_as_long() {
        let payload = |tcp| {
            let trips = Trips {
                tcp,
                packet: 1_500,
                count: 1,
            };
            trips.payload().len()
        };
        assert_eq!((payload(false), payload(true)), (1_472, 1_448));
    }

    #[test]
    fn every_packet_comes_back_over_loopback() {
        for tcp in [false, true] {
            let trips = Trips {
                tcp,
                packet: 1_500,
                count: 20,
            };
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let at = free.local_addr().unwrap();
            drop(free);
            let server = thread::spawn(move || serve(at, trips));
            // The server may not listen yet.
            let found = loop {
                match ask(at, trips, Duration::from_mins(1)) {
                    Err(e) if e.kind() == ErrorKind::ConnectionRefused => thread::yield_now(),
                    found => break found.unwrap(),
                }
            };
            assert_eq!((found.packets, found.lost), (20, 0), "tcp: {tcp}");
            assert!(found.mean_us > 0.0 && found.p50_us > 0.0, "{found:?}");
            if tcp {
                server.join().unwrap().unwrap();
            }
        }
    }
}
