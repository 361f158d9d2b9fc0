//! Sends datagrams that yield to nobody, as cross traffic on real networks: a sender with a fixed
//! rate and no congestion control, and a receiver that counts.
//!
//! Every datagram starts with eight bytes: seven of a magic, then 0, or 1 in those that say that it
//! is over. The sender repeats these until nobody listens any more. In data follows the time at
//! which it was sent, ns on the machine's monotonic clock, if there is room. Both ends on one
//! machine have one clock, and the delay of each way is known. [`highest`] sends trains and asks
//! after each how much of it has arrived. The question is 2 and the train's number, the answer 3,
//! the number and the count.

mod search;

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
use socket2::SockRef;

use crate::{
    bench::Interval,
    histogram::{Histogram, RttMs},
};
pub use search::{Found, highest};

/// IPv4 and UDP headers.
const HEADERS: u32 = 28;
const MAGIC: [u8; 7] = *b"fh-udp2";
const DATA: u8 = 0;
const OVER: u8 = 1;
const ASK: u8 = 2;
const ANSWER: u8 = 3;
/// The most segments of one batch, and bytes of its payload.
const MAX_SEGMENTS: u32 = 64;
const MAX_BATCH: u32 = 65_000;
/// Pause between notes that the sending is over, and the most of them.
const FAREWELL: Duration = Duration::from_millis(50);
const FAREWELLS: u32 = 200;
/// Silence after which the receiver takes the sending to be over.
const SILENCE: Duration = Duration::from_secs(15);

/// The sender's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Datagrams.
    pub packets: u64,
    /// Bytes of the datagrams' payload.
    pub bytes: u64,
    /// Duration, s.
    pub seconds: f64,
    /// Result of a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Found>,
}

/// The receiver's result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Datagrams.
    pub packets: u64,
    /// Bytes of the datagrams' payload.
    pub bytes: u64,
    /// Time from the arrival of the first to that of the last, s.
    pub seconds: f64,
    /// Intervals from the arrival of the first.
    pub intervals: Vec<Interval>,
    /// Delays from sending to reading, if both ends are on one machine.
    #[serde(default)]
    pub delay_ms: RttMs,
}

/// Settings of the socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// Bytes of its buffer in the direction of the data, as the kernel counts them, if not the default.
    pub buffer: Option<usize>,
    /// True for one packet in each call of the kernel.
    pub plain: bool,
    /// True if packets longer than the MTU leave as fragments.
    pub fragments: bool,
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
        options.fragments = self.fragments;
        let socket = UdpSocket::bind(&options)?;
        // Buffers of ours only grow; here one smaller than the system's may be wanted. The kernel doubles it.
        let (kernel, half) = (
            SockRef::from(&socket),
            self.buffer.unwrap_or(usize::MAX) / 2,
        );
        if receives && kernel.recv_buffer_size()? / 2 > half {
            kernel.set_recv_buffer_size(half)?;
        } else if !receives && kernel.send_buffer_size()? / 2 > half {
            kernel.set_send_buffer_size(half)?;
        }
        Ok(socket)
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
    let mut sender = Sender::new(to, packet, setting)?;
    let sent = sender.train(rate, time)?;
    farewell(&mut sender.socket, to, sender.segment)?;
    Ok(sent)
}

/// Sender of trains of datagrams of one size.
struct Sender {
    socket: UdpSocket,
    to: SocketAddr,
    /// Payload of a datagram.
    segment: u32,
    batch: Vec<u8>,
}

impl Sender {
    fn new(to: SocketAddr, packet: u32, setting: Setting) -> io::Result<Self> {
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
        Ok(Self {
            socket,
            to,
            segment,
            batch: datagrams(DATA, segment),
        })
    }

    /// Sends at `rate` for `time`, or more slowly if the kernel takes no more.
    fn train(&mut self, rate: Rate, time: Duration) -> io::Result<Sent> {
        let (segment, length) = (self.segment as usize, u64::from(self.segment + HEADERS));
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
            let ready = (due - sent).min((self.batch.len() / segment) as u64);
            let bytes = usize::try_from(ready).unwrap_or(1) * segment;
            stamp(&mut self.batch[..bytes], segment);
            let went = send(&mut self.socket, self.to, segment, &self.batch[..bytes])?;
            sent += (went / segment) as u64;
        }
        Ok(Sent {
            packets: sent,
            bytes: sent * u64::from(self.segment),
            seconds: clock::now().since(begin).as_secs_f64(),
            found: None,
        })
    }
}

/// Position of the time of sending.
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

/// Datagrams of this kind, as many as go into one batch.
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

/// Sends the note that sending is over until nobody listens any more.
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

/// Counts what arrives at `at` until its sender ends, or nothing comes any more; with a series if
/// `interval` is not zero.
pub fn serve(at: SocketAddr, interval: Duration, setting: Setting) -> io::Result<Received> {
    take(setting.socket(at, true)?, interval)
}

fn take(mut socket: UdpSocket, interval: Duration) -> io::Result<Received> {
    let (mut inbox, mut count) = (Inbox::new(), Count::new(interval));
    loop {
        match socket.receive(&mut inbox) {
            ReceiveOutcome::Some { .. } => {
                let (now, read, mut asked) = (clock::now(), monotonic(), None);
                for message in inbox.messages() {
                    for datagram in message.bytes.chunks(message.segment.max(1)) {
                        match count.add(now, datagram) {
                            Arrived::Data => {}
                            Arrived::Over => return Ok(count.finish()),
                            Arrived::Question(answer) => asked = Some((message.from, answer)),
                        }
                        count.delay(read, datagram);
                    }
                }
                if let Some((to, answer)) = asked {
                    // If it is lost, it is asked for again.
                    socket.send(&Outgoing {
                        to,
                        from: None,
                        ecn: Ecn::NotEct,
                        segment: answer.len(),
                        bytes: &answer,
                    });
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

/// Kind of a datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arrived {
    /// A datagram that counts, or a stranger's.
    Data,
    Over,
    /// A question how much of a train has come, with the answer.
    Question([u8; WORD]),
}

/// Bytes of questions and answers: magic and kind, a train's number, a count.
const WORD: usize = 24;

fn word(kind: u8, train: u64, packets: u64) -> [u8; WORD] {
    let mut word = [0; WORD];
    word[..7].copy_from_slice(&MAGIC);
    word[7] = kind;
    word[8..16].copy_from_slice(&train.to_be_bytes());
    word[16..].copy_from_slice(&packets.to_be_bytes());
    word
}

/// Kind, number and count of what [`word`] has made.
fn read_word(bytes: &[u8]) -> Option<(u8, u64, u64)> {
    let bytes: &[u8; WORD] = bytes.try_into().ok()?;
    let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
    (bytes[..7] == MAGIC).then(|| (bytes[7], number(8), number(16)))
}

/// Counts of what has arrived.
#[derive(Debug)]
struct Count {
    interval: Duration,
    first: Option<Instant>,
    last: Instant,
    packets: u64,
    bytes: u64,
    /// Bytes of every interval.
    parts: Vec<u64>,
    /// Packets of the train that arrives; number and packets of the one that was asked for last.
    train: u64,
    asked: Option<(u64, u64)>,
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
            train: 0,
            asked: None,
            delays: Histogram::default(),
            least: None,
        }
    }

    /// Notes how long this datagram of ours was on its way; a time to come is another machine's.
    fn delay(&mut self, read: u64, datagram: &[u8]) {
        let sent = datagram.get(STAMP).and_then(|b| b.try_into().ok());
        let sent = sent.map(u64::from_be_bytes);
        if !datagram.starts_with(&MAGIC) || datagram.get(MAGIC.len()) != Some(&DATA) {
            return;
        }
        if let Some(way) = sent.and_then(|sent| read.checked_sub(sent)) {
            let way = Duration::from_nanos(way);
            self.delays.add(way);
            self.least = Some(self.least.map_or(way, |least| least.min(way)));
        }
    }

    fn add(&mut self, now: Instant, datagram: &[u8]) -> Arrived {
        let Some([head @ .., kind]) = datagram.get(..8) else {
            return Arrived::Data;
        };
        if head != MAGIC {
            return Arrived::Data;
        }
        match *kind {
            DATA => {}
            OVER => return Arrived::Over,
            _ => {
                return self
                    .answer(datagram)
                    .map_or(Arrived::Data, Arrived::Question);
            }
        }
        let first = *self.first.get_or_insert(now);
        self.last = now;
        self.packets += 1;
        self.train += 1;
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
        Arrived::Data
    }

    /// A train's question follows its packets; one that is asked again gets the same answer.
    fn answer(&mut self, question: &[u8]) -> Option<[u8; WORD]> {
        let (_, number, _) = read_word(question).filter(|(kind, ..)| *kind == ASK)?;
        let packets = match self.asked {
            Some((last, packets)) if last == number => packets,
            _ => std::mem::take(&mut self.train),
        };
        self.asked = Some((number, packets));
        Some(word(ANSWER, number, packets))
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

/// True if an event came before the time was over.
fn wait(socket: &UdpSocket, what: PollFlags, most: Option<Duration>) -> io::Result<bool> {
    let most = most.map(timespec);
    match poll(&mut [PollFd::new(socket, what)], most.as_ref()) {
        Ok(n) => Ok(n > 0),
        Err(Errno::INTR) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// A duration as the kernel takes it.
pub fn timespec(d: Duration) -> Timespec {
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
            assert_eq!(count.add(at(ms), &data[..1_250]), Arrived::Data);
        }
        assert_eq!(count.add(at(31), b"fh-udp2"), Arrived::Data, "too short");
        assert_eq!(count.add(at(31), b"something else"), Arrived::Data);
        for _ in 0..2 {
            let asked = count.add(at(31), &word(ASK, 7, 0));
            assert_eq!(asked, Arrived::Question(word(ANSWER, 7, 3)), "and again");
        }
        let next = count.add(at(31), &word(ASK, 8, 0));
        assert_eq!(next, Arrived::Question(word(ANSWER, 8, 0)));
        assert_eq!(count.add(at(31), &word(ANSWER, 9, 0)), Arrived::Data);
        assert_eq!(count.add(at(40), &datagrams(OVER, 8)[..8]), Arrived::Over);
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
