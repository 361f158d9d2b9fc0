//! How do others do beside datagrams that yield to nobody? A sender with a fixed rate and no congestion
//! control, and a receiver that counts, for cross traffic on real networks.
//!
//! Every datagram starts with eight bytes: seven of a magic, then 0, or 1 in those that say that it is over. The
//! sender repeats these until nobody listens any more. Then comes the time at which it was sent, ns on the machine's
//! monotonic clock, if there is room: both ends on one machine have one clock, and the delay of each way is known.

use std::{io, net::SocketAddr, time::Duration};

use farhaul_core::{time::Instant, units::Rate};
use farhaul_io::clock;
use farhaul_link::Ecn;
use farhaul_udp::{Inbox, Outgoing, ReceiveOutcome, SendOutcome, SocketOptions, UdpSocket};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    time::{ClockId, Timespec, clock_gettime},
};
use serde::{Deserialize, Serialize};

use crate::{
    bench::Interval,
    measure::{Histogram, RttMs},
};

/// IPv4 and UDP headers.
const HEADERS: u32 = 28;
const MAGIC: [u8; 7] = *b"fh-udp2";
const DATA: u8 = 0;
const OVER: u8 = 1;
/// The most segments of one batch, and bytes of its payload.
const MAX_SEGMENTS: u32 = 64;
const MAX_BATCH: u32 = 65_000;
/// How often it is said that it is over, and how many times at most.
const FAREWELL: Duration = Duration::from_millis(50);
const FAREWELLS: u32 = 200;
/// Without a datagram for this long the receiver takes it to be over.
const SILENCE: Duration = Duration::from_secs(15);

/// The sender's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Datagrams.
    pub packets: u64,
    /// Of their payload.
    pub bytes: u64,
    /// For how long, s.
    pub seconds: f64,
}

/// The receiver's result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Datagrams.
    pub packets: u64,
    /// Of their payload.
    pub bytes: u64,
    /// From the arrival of the first to that of the last, s.
    pub seconds: f64,
    /// From the arrival of the first.
    pub intervals: Vec<Interval>,
    /// From sending to reading, if both ends are on one machine.
    #[serde(default)]
    pub delay_ms: RttMs,
}

/// How the socket is set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// Bytes of its buffer in the direction of the data, as the kernel counts them, if not the default.
    pub buffer: Option<usize>,
    /// One packet in each call of the kernel.
    pub plain: bool,
}

impl Setting {
    fn socket(self, at: SocketAddr, receives: bool) -> io::Result<UdpSocket> {
        let mut options = SocketOptions::new(at);
        if let Some(bytes) = self.buffer {
            let buffer = if receives {
                &mut options.receive_buffer
            } else {
                &mut options.send_buffer
            };
            *buffer = bytes;
        }
        (options.gso, options.gro) = (!self.plain, !self.plain);
        UdpSocket::bind(&options)
    }
}

/// Sends packets of `packet` bytes (IP header included) at `rate` for `time`.
pub fn blast(
    to: SocketAddr,
    rate: Rate,
    packet: u32,
    time: Duration,
    setting: Setting,
) -> io::Result<Sent> {
    let any = SocketAddr::new(
        if to.is_ipv4() {
            [0; 4].into()
        } else {
            [0_u16; 8].into()
        },
        0,
    );
    let mut socket = setting.socket(any, false)?;
    socket.connect(to)?;
    let segment = packet.saturating_sub(HEADERS).max(8);
    let mut train = datagrams(DATA, segment);
    let length = u64::from(segment + HEADERS);
    let (begin, mut sent) = (clock::now(), 0_u64);
    loop {
        let elapsed = clock::now().since(begin);
        if elapsed >= time {
            break;
        }
        let due = rate.bytes_in(elapsed) / length + 1;
        if due <= sent {
            let next = rate.time_for(sent.saturating_mul(length));
            pause(next.min(time).saturating_sub(elapsed))?;
            continue;
        }
        let ready = (due - sent).min((train.len() / segment as usize) as u64);
        let bytes = usize::try_from(ready).unwrap_or(1) * segment as usize;
        stamp(&mut train[..bytes], segment as usize);
        let went = send(&mut socket, to, segment as usize, &train[..bytes])?;
        sent += (went / segment as usize) as u64;
    }
    let seconds = clock::now().since(begin).as_secs_f64();
    farewell(&mut socket, to, segment)?;
    Ok(Sent {
        packets: sent,
        bytes: sent * u64::from(segment),
        seconds,
    })
}

/// Where the time of sending is.
const STAMP: std::ops::Range<usize> = 8..16;

/// Writes the time into each of these datagrams.
fn stamp(train: &mut [u8], segment: usize) {
    let time = monotonic().to_be_bytes();
    for datagram in train.chunks_mut(segment) {
        if let Some(place) = datagram.get_mut(STAMP) {
            place.copy_from_slice(&time);
        }
    }
}

/// ns, the same for all processes of a machine.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec, now.tv_nsec);
    let whole = u64::try_from(seconds).unwrap_or_default() * 1_000_000_000;
    whole + u64::try_from(nanos).unwrap_or_default()
}

/// As many datagrams of this kind as go into one batch.
fn datagrams(kind: u8, segment: u32) -> Vec<u8> {
    let count = (MAX_BATCH / segment).clamp(1, MAX_SEGMENTS);
    let mut one = vec![0x5a; segment as usize];
    one[..7].copy_from_slice(&MAGIC);
    one[7] = kind;
    one.repeat(count as usize)
}

/// Payload bytes that the kernel took.
fn send(socket: &mut UdpSocket, to: SocketAddr, segment: usize, bytes: &[u8]) -> io::Result<usize> {
    let outcome = socket.send(&Outgoing {
        to,
        from: None,
        ecn: Ecn::NotEct,
        segment,
        bytes,
    });
    match outcome {
        SendOutcome::Sent => Ok(bytes.len()),
        SendOutcome::Blocked { sent } => {
            wait(socket, PollFlags::OUT, None)?;
            Ok(sent)
        }
        SendOutcome::Refused => Err(io::Error::other("nobody listens there")),
        SendOutcome::TooLarge => Err(io::Error::other("a packet is longer than the MTU allows")),
        SendOutcome::Failed(e) => Err(e),
    }
}

/// Says that it is over until nobody listens any more.
fn farewell(socket: &mut UdpSocket, to: SocketAddr, segment: u32) -> io::Result<()> {
    let over = datagrams(OVER, segment);
    for _ in 0..FAREWELLS {
        let outcome = socket.send(&Outgoing {
            to,
            from: None,
            ecn: Ecn::NotEct,
            segment: segment as usize,
            bytes: &over[..segment as usize],
        });
        match outcome {
            SendOutcome::Refused => return Ok(()),
            SendOutcome::Failed(e) => return Err(e),
            _ => pause(FAREWELL)?,
        }
    }
    Ok(())
}

/// Counts what arrives at `at` until its sender says that it is over, or nothing comes any more; with a series if
/// `interval` is not zero.
pub fn serve(at: SocketAddr, interval: Duration, setting: Setting) -> io::Result<Received> {
    take(setting.socket(at, true)?, interval)
}

fn take(mut socket: UdpSocket, interval: Duration) -> io::Result<Received> {
    let (mut inbox, mut count) = (Inbox::new(), Count::new(interval));
    loop {
        match socket.receive(&mut inbox) {
            ReceiveOutcome::Some { .. } => {
                let (now, read) = (clock::now(), monotonic());
                for message in inbox.messages() {
                    for datagram in message.bytes.chunks(message.segment.max(1)) {
                        if count.add(now, datagram) {
                            return Ok(count.finish());
                        }
                        count.delay(read, datagram);
                    }
                }
            }
            ReceiveOutcome::Empty => {
                let most = count.first.map(|_| SILENCE);
                if !wait(&socket, PollFlags::IN, most)? {
                    return Ok(count.finish());
                }
            }
            ReceiveOutcome::Refused => {}
            ReceiveOutcome::Failed(e) => return Err(e),
        }
    }
}

/// What has arrived.
#[derive(Debug)]
struct Count {
    interval: Duration,
    first: Option<Instant>,
    last: Instant,
    packets: u64,
    bytes: u64,
    /// Bytes of every interval.
    parts: Vec<u64>,
    delays: Histogram,
    least: Option<Duration>,
}

impl Count {
    fn new(interval: Duration) -> Self {
        Self {
            interval,
            first: None,
            last: Instant::EPOCH,
            packets: 0,
            bytes: 0,
            parts: Vec::new(),
            delays: Histogram::default(),
            least: None,
        }
    }

    /// How long this one of ours was on its way; a time to come is another machine's.
    fn delay(&mut self, read: u64, datagram: &[u8]) {
        let sent = datagram.get(STAMP).and_then(|b| b.try_into().ok());
        let sent = sent.map(u64::from_be_bytes);
        if !datagram.starts_with(&MAGIC) {
            return;
        }
        if let Some(way) = sent.and_then(|sent| read.checked_sub(sent)) {
            let way = Duration::from_nanos(way);
            self.delays.add(way);
            self.least = Some(self.least.map_or(way, |least| least.min(way)));
        }
    }

    /// Whether this one says that it is over.
    fn add(&mut self, now: Instant, datagram: &[u8]) -> bool {
        let Some([head @ .., kind]) = datagram.get(..8) else {
            return false;
        };
        if head != MAGIC {
            return false;
        }
        if *kind != DATA {
            return *kind == OVER;
        }
        let first = *self.first.get_or_insert(now);
        self.last = now;
        self.packets += 1;
        self.bytes += datagram.len() as u64;
        if let Some(part) = now
            .since(first)
            .as_nanos()
            .checked_div(self.interval.as_nanos())
        {
            let part = usize::try_from(part)
                .unwrap_or(usize::MAX)
                .min(MAX_PARTS - 1);
            if self.parts.len() <= part {
                self.parts.resize(part + 1, 0);
            }
            self.parts[part] += datagram.len() as u64;
        }
        false
    }

    fn finish(self) -> Received {
        let seconds = self
            .first
            .map_or(0.0, |first| self.last.since(first).as_secs_f64());
        let each = self.interval.as_secs_f64();
        let part = |(number, bytes): (usize, &u64)| {
            let from = each * precise(number as u64);
            let to = (from + each).min(seconds.max(from));
            Interval {
                from,
                to,
                goodput_bits_per_second: precise(*bytes) * 8.0 / (to - from).max(each / 1e3),
            }
        };
        Received {
            packets: self.packets,
            bytes: self.bytes,
            seconds,
            intervals: self.parts.iter().enumerate().map(part).collect(),
            delay_ms: RttMs::new(self.least, &self.delays),
        }
    }
}

/// The most parts of a series.
const MAX_PARTS: usize = 1 << 20;

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
const fn precise(n: u64) -> f64 {
    n as f64
}

fn pause(time: Duration) -> io::Result<()> {
    match poll(&mut [], Some(&timespec(time))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Whether it came before the time was over.
fn wait(socket: &UdpSocket, what: PollFlags, most: Option<Duration>) -> io::Result<bool> {
    let most = most.map(timespec);
    match poll(&mut [PollFd::new(socket, what)], most.as_ref()) {
        Ok(n) => Ok(n > 0),
        Err(Errno::INTR) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// A duration as the kernel takes it.
pub(crate) fn timespec(d: Duration) -> Timespec {
    Timespec {
        tv_sec: d.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: d.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, thread};

    use super::*;

    #[test]
    fn what_is_sent_is_counted_at_both_ends() {
        let free = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = free.local_addr().unwrap();
        drop(free);
        let (ready, bound) = std::sync::mpsc::channel();
        let server = thread::spawn(move || {
            let socket = UdpSocket::bind(&SocketOptions::new(at)).unwrap();
            ready.send(()).unwrap();
            take(socket, Duration::from_millis(20))
        });
        bound.recv().unwrap();
        let sent = blast(
            at,
            Rate::mbit(20),
            500,
            Duration::from_millis(100),
            Setting::default(),
        )
        .unwrap();
        let got = server.join().unwrap().unwrap();
        assert!(
            sent.packets > 0 && sent.bytes == sent.packets * 472,
            "{sent:?}"
        );
        let most = 20e6 / 8.0 / 500.0 * sent.seconds + 1.0;
        assert!(precise(sent.packets) <= most, "{sent:?}: at most {most}");
        assert_eq!(
            (got.packets, got.bytes),
            (sent.packets, sent.bytes),
            "loopback loses nothing"
        );
        assert!(!got.intervals.is_empty());
        let delay = got.delay_ms;
        assert!(delay.min.is_some() && delay.p50 <= delay.p99, "{delay:?}");
    }

    #[test]
    fn a_series_counts_what_arrived_in_each_part() {
        let at = |ms: u64| Instant::EPOCH + Duration::from_millis(1_000 + ms);
        let mut count = Count::new(Duration::from_millis(10));
        let data = datagrams(DATA, 1_250);
        for ms in [0, 9, 30] {
            assert!(!count.add(at(ms), &data[..1_250]));
        }
        assert!(!count.add(at(31), b"fh-udp2"), "too short");
        assert!(!count.add(at(31), b"something else"));
        assert!(count.add(at(40), &datagrams(OVER, 8)[..8]));
        let mut sent = data[..1_250].to_vec();
        sent[STAMP].copy_from_slice(&5_000_000_u64.to_be_bytes());
        count.delay(15_000_000, &sent);
        count.delay(15_000_000, &sent[..12]);
        count.delay(4_000_000, &sent);
        let got = count.finish();
        assert_eq!(
            got.delay_ms.min,
            Some(10.0),
            "the others have no time of this machine"
        );
        assert_eq!((got.packets, got.bytes), (3, 3_750));
        let rates: Vec<f64> = got
            .intervals
            .iter()
            .map(|p| p.goodput_bits_per_second)
            .collect();
        assert_eq!(rates[..3], [2e6, 0.0, 0.0]);
        assert!((got.seconds - 0.03).abs() < 1e-9);
    }

    #[test]
    fn where_nobody_listens_that_is_told() {
        let free = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = free.local_addr().unwrap();
        drop(free);
        let failed = blast(
            at,
            Rate::mbit(10),
            500,
            Duration::from_secs(20),
            Setting::default(),
        )
        .unwrap_err();
        assert!(failed.to_string().contains("nobody listens"), "{failed}");
    }
}
