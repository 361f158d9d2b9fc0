//! The sending end: stamps and paces, asks the receiver what arrived, and compares.

use std::{
    io::{self, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    process, thread,
    time::Duration,
};

use farhaul_udp::{Outgoing, SendOutcome, SocketOptions, UdpSocket};
use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};

use super::{
    Mode, Paced, Plan, ProbeError, ProbeReport, Receiver, Sender, burst,
    clock::{self, Clock},
    figures::{DelayFigures, Expected, signed},
    full,
    serve::{MAX_DRAIN_MS, MAX_PACKETS, serve},
    statistics::{micros, quantile, ratio},
    stream,
    wire::{Arrived, Ask, EXCHANGE, HEAD, Head, Hello, Ports, Sent, get, put},
};

const CONNECT: Duration = Duration::from_secs(5);
/// The receiver's answer comes over the measured path.
const ANSWER: Duration = Duration::from_mins(1);
/// Wait for late packets after the last one.
const DRAIN_MS: u64 = 300;
/// Packets over the loopback device.
const NOISE_PACKETS: u64 = 500;
/// Faster than this a single sender cannot pace.
const SHORTEST: Duration = Duration::from_micros(10);
/// The bounds of what a link may be.
const RATES: std::ops::RangeInclusive<u64> = 100_000..=100_000_000_000;
const SIZES: std::ops::RangeInclusive<u32> = 72..=65_521;
const TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_mins(5);
/// The wall clock may be set by this much without notice, ns: the resolution of the measurement.
const MAX_STEP: u64 = 20_000;

/// Measures with the server at `to`.
pub fn send(to: SocketAddr, plan: &Plan) -> Result<ProbeReport, ProbeError> {
    plan.validate()?;
    clock::wake_precisely();
    let mut report = match plan.mode {
        Mode::Paced(paced) => {
            let noise = noise(plan, paced)?;
            let mut report = paced_packets(to, plan, paced)?;
            report.noise = Some(noise);
            report
        }
        Mode::Rate(of) => stream::measure(to, plan, of)?,
        Mode::Queue { limit, repeat, gso } => burst::measure(to, plan, limit, repeat, gso)?,
        Mode::Full { stream, every } => {
            let packets = NOISE_PACKETS;
            let noise = noise(plan, Paced { packets, every })?;
            let mut report = full::measure(to, plan, stream, every)?;
            report.noise = Some(noise);
            report
        }
    };
    report.valid = report.complaints.is_empty();
    Ok(report)
}

impl Plan {
    /// Refuses what cannot be measured.
    fn validate(&self) -> Result<(), ProbeError> {
        let refused = |text: String| Err(ProbeError::Usage(text));
        let link = self.expected.link_rate;
        if !SIZES.contains(&self.size) {
            return refused(format!("a packet has 72 to 65521 bytes, not {}", self.size));
        }
        let needed = !matches!(self.mode, Mode::Paced(_));
        if (needed || link != 0) && !RATES.contains(&link) {
            return refused(
                "the rate of the link is needed, from 100kbit to 100Gbit: --link-rate 1Gbit".into(),
            );
        }
        match self.mode {
            Mode::Paced(Paced { packets, every }) => {
                if !(1..=MAX_PACKETS).contains(&packets) {
                    return refused(format!("give 1 to {MAX_PACKETS} packets, not {packets}"));
                }
                self.check_pace(every)
            }
            Mode::Rate(stream) => check_time(stream.time),
            Mode::Queue { limit, repeat, .. } => {
                let packets = burst::packets(limit, self.size).saturating_mul(repeat);
                if repeat == 0 || packets > MAX_PACKETS || limit < u64::from(self.size) {
                    return refused(format!(
                        "a queue of {limit} bytes, filled {repeat} times with packets of {} bytes: give a \
                         queue that holds a packet, and at most {MAX_PACKETS} packets in all",
                        self.size
                    ));
                }
                Ok(())
            }
            Mode::Full { stream, every } => {
                check_time(stream.time)?;
                self.check_pace(every)
            }
        }
    }

    /// Packets one by one must not fill the link.
    fn check_pace(&self, every: Duration) -> Result<(), ProbeError> {
        if every < SHORTEST {
            return Err(ProbeError::Usage(format!(
                "a packet every {every:?} is too fast to be paced: at least {SHORTEST:?}"
            )));
        }
        let offered = f64::from(self.size) * 8.0 / every.as_secs_f64();
        let link = ratio(self.expected.link_rate, 1);
        if link > 0.0 && offered > link / 2.0 {
            return Err(ProbeError::Usage(format!(
                "packets of {} bytes every {every:?} are {:.1} Mbit/s, more than half of the link: they would \
                 wait for each other; choose a longer --every",
                self.size,
                offered / 1e6
            )));
        }
        Ok(())
    }

    /// Bytes of IP and UDP headers toward `to`.
    pub(super) const fn headers(to: SocketAddr) -> u32 {
        if to.is_ipv4() { 28 } else { 48 }
    }

    /// An empty report.
    pub(super) fn report(&self, to: SocketAddr, arrived: &Arrived) -> ProbeReport {
        let mut complaints = Vec::new();
        if arrived.overflowed > 0 {
            complaints.push(format!(
                "the receiver's socket had no space for {} packets",
                arrived.overflowed
            ));
        }
        if arrived.unstamped > 0 {
            complaints.push(format!(
                "{} packets came without the kernel's time of arrival",
                arrived.unstamped
            ));
        }
        if arrived.clock_step > MAX_STEP {
            complaints.push("the wall clock was set during the measurement".into());
        }
        ProbeReport {
            schema: "farhaul.probe/1",
            version: env!("CARGO_PKG_VERSION"),
            mode: self.mode.name(),
            ok: true,
            valid: true,
            complaints,
            to,
            size: self.size,
            expected: self.expected,
            sender: Sender::default(),
            receiver: Receiver {
                packets: arrived.packets + arrived.stream,
                overflowed: arrived.overflowed,
                unstamped: arrived.unstamped,
                clock_step_us: micros(signed(arrived.clock_step, 0)),
            },
            noise: None,
            paced: None,
            rate: None,
            queue: None,
            full: None,
        }
    }
}

fn check_time(time: Duration) -> Result<(), ProbeError> {
    if TIMES.contains(&time) {
        return Ok(());
    }
    Err(ProbeError::Usage(format!(
        "a stream takes 500ms to 300s, not {time:?}"
    )))
}

/// Datagrams that left together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// The number of the first.
    pub(super) first: u64,
    pub(super) count: u64,
    /// Time at which the call began, ns.
    pub(super) at: u64,
    /// Duration of the call, ns.
    pub(super) took: u64,
}

/// Sends numbered and stamped datagrams of one size.
#[derive(Debug)]
pub(super) struct Outlet {
    socket: UdpSocket,
    to: SocketAddr,
    session: u32,
    /// Datagrams that leave in one call.
    train: Vec<u8>,
    payload: usize,
    /// Number of the next datagram.
    pub(super) number: u64,
}

impl Outlet {
    fn open(to: SocketAddr, session: u32, payload: usize, gso: bool) -> io::Result<Self> {
        let mut at = to;
        at.set_ip(if to.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        });
        at.set_port(0);
        let mut options = SocketOptions::new(at);
        options.gso = gso;
        let mut socket = UdpSocket::bind(&options)?;
        socket.connect(to)?;
        let most = if gso {
            // The kernel takes at most 64 segments, and 64 KiB with the first headers.
            (65_000 / payload).clamp(1, 64)
        } else {
            1
        };
        Ok(Self {
            socket,
            to,
            session,
            train: vec![0x5a; payload * most],
            payload,
            number: 0,
        })
    }

    /// Most datagrams that leave in one call.
    pub(super) fn most(&self) -> u64 {
        (self.train.len() / self.payload) as u64
    }

    /// Sends the next `count`, at most [`Self::most`].
    pub(super) fn send(&mut self, count: u64) -> Result<Departure, ProbeError> {
        let count = count.clamp(1, self.most());
        let bytes = usize::try_from(count).unwrap_or(1) * self.payload;
        let at = clock::wall();
        let (session, first) = (self.session, self.number);
        for (number, datagram) in (first..).zip(self.train[..bytes].chunks_mut(self.payload)) {
            Head {
                session,
                number,
                at,
            }
            .encode(datagram);
        }
        let mut sent = 0;
        while sent < bytes {
            let batch = Outgoing {
                to: self.to,
                from: None,
                ecn: farhaul_core::datagram::Ecn::NotEct,
                segment: self.payload,
                bytes: &self.train[sent..bytes],
            };
            match self.socket.send(&batch) {
                SendOutcome::Sent => sent = bytes,
                SendOutcome::Blocked { sent: some } => {
                    sent += some;
                    self.wait_for_space()?;
                }
                SendOutcome::Refused => return Err(ProbeError::HungUp(self.to)),
                SendOutcome::TooLarge => {
                    let text =
                        "the packets are larger than the interface's MTU: choose a smaller --size";
                    return Err(ProbeError::Usage(text.into()));
                }
                SendOutcome::Failed(error) => return Err(error.into()),
            }
        }
        self.number += count;
        Ok(Departure {
            first,
            count,
            at,
            took: clock::wall().saturating_sub(at),
        })
    }

    fn wait_for_space(&self) -> io::Result<()> {
        const LONGEST: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 5_000_000,
        };
        let mut fds = [PollFd::from_borrowed_fd(
            self.socket.as_fd(),
            PollFlags::OUT,
        )];
        poll(&mut fds, Some(&LONGEST))?;
        Ok(())
    }
}

/// The client's end of a measurement.
#[derive(Debug)]
pub(super) struct Session {
    control: BufReader<TcpStream>,
    peer: SocketAddr,
    clock: Clock,
    /// Outlet of datagrams that are recorded one by one.
    pub(super) packets: Outlet,
    /// Counted.
    pub(super) stream: Outlet,
}

impl Session {
    /// Opens a session for at most `packets` recorded datagrams and `stream` counted ones; `gso`
    /// for each.
    pub(super) fn open(
        to: SocketAddr,
        plan: &Plan,
        ask: Ask,
        [packets, stream]: [u64; 2],
        gso: [bool; 2],
    ) -> Result<Self, ProbeError> {
        let control =
            TcpStream::connect_timeout(&to, CONNECT).map_err(|e| ProbeError::NoServer(to, e))?;
        control.set_nodelay(true)?;
        control.set_read_timeout(Some(ANSWER))?;
        let headers = Plan::headers(to);
        let session = low(clock::wall()) ^ process::id();
        let by = plan.expected.reorder_by_ns / 1_000_000;
        let drain_ms = DRAIN_MS.saturating_add(by);
        if drain_ms > MAX_DRAIN_MS {
            let most = MAX_DRAIN_MS - DRAIN_MS;
            let text = format!("packets held back for more than {most} ms cannot be measured");
            return Err(ProbeError::Usage(text));
        }
        let hello = Hello {
            exchange: EXCHANGE.into(),
            session,
            packets,
            stream,
            drain_ms,
            headers,
            ask,
        };
        put(&mut &control, &hello)?;
        let mut control = BufReader::new(control);
        let ports: Ports = get(&mut control, to)?;
        let payload = usize::try_from(plan.size.saturating_sub(headers)).unwrap_or(HEAD);
        let outlet =
            |port, gso| Outlet::open(SocketAddr::new(to.ip(), port), session, payload, gso);
        Ok(Self {
            control,
            peer: to,
            clock: Clock::start(),
            packets: outlet(ports.packets, gso[0])?,
            stream: outlet(ports.stream, gso[1])?,
        })
    }

    /// Asks the receiver for what arrived; the last datagram left at `last` ns.
    pub(super) fn finish(mut self, last: u64) -> Result<Arrived, ProbeError> {
        let sent = Sent {
            packets: self.packets.number,
            stream: self.stream.number,
            last,
        };
        put(self.control.get_mut(), &sent)?;
        let mut arrived: Arrived = get(&mut self.control, self.peer)?;
        if arrived.packets + arrived.stream == 0 {
            return Err(ProbeError::NothingArrived(sent.packets + sent.stream));
        }
        arrived.clock_step = arrived.clock_step.max(self.clock.stepped());
        Ok(arrived)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
const fn low(ns: u64) -> u32 {
    ns as u32
}

/// Quality of the pacing of packets.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pub(super) late: Vec<i64>,
    pub(super) took: Vec<i64>,
}

impl Pace {
    /// Figures for the report: `packets` of `size` bytes from `first` to `last` ns.
    pub(super) fn sender(mut self, packets: u64, size: u32, [first, last]: [u64; 2]) -> Sender {
        self.late.sort_unstable();
        self.took.sort_unstable();
        let seconds = ratio(last.saturating_sub(first), 1_000_000_000);
        Sender {
            packets,
            seconds,
            offered_bits_per_second: ratio(packets * 8 * u64::from(size), 1) / seconds.max(1e-9),
            late_p99_us: micros(quantile(&self.late, 0.99)),
            call_p99_us: micros(quantile(&self.took, 0.99)),
        }
    }
}

fn paced_packets(to: SocketAddr, plan: &Plan, paced: Paced) -> Result<ProbeReport, ProbeError> {
    let ask = Ask::Figures {
        bytes: plan.size.into(),
        expected: plan.expected,
    };
    let mut session = Session::open(to, plan, ask, [paced.packets, 0], [false; 2])?;
    let mut pace = Pace::default();
    let (mut first, mut last) = (None, 0);
    let mut due = clock::now();
    for _ in 0..paced.packets {
        clock::wait_until(due);
        let late = clock::now().duration_since(due);
        let left = session.packets.send(1)?;
        last = left.at;
        first.get_or_insert(left.at);
        pace.late
            .push(i64::try_from(late.as_nanos()).unwrap_or(i64::MAX));
        pace.took.push(signed(left.took, 0));
        // What was missed is not caught up with: a burst would wait for itself on the link.
        due = (due + paced.every).max(clock::now());
    }
    let arrived = session.finish(last)?;
    let mut report = plan.report(to, &arrived);
    report.sender = pace.sender(paced.packets, plan.size, [first.unwrap_or(last), last]);
    let planned = paced.every.as_secs_f64() * ratio(paced.packets, 1);
    if report.sender.seconds > 2.0 * planned + 1.0 {
        report.complaints.push(format!(
            "the packets took {:.1} s instead of {planned:.1} s: the machine is too busy",
            report.sender.seconds
        ));
    }
    report.paced = arrived.paced;
    Ok(report)
}

pub(super) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Sends the packets over the loopback device: the error of the probe itself.
fn noise(plan: &Plan, paced: Paced) -> Result<DelayFigures, ProbeError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = listener.local_addr()?;
    let packets = paced.packets.min(NOISE_PACKETS);
    let local = Plan {
        mode: Mode::Paced(Paced { packets, ..paced }),
        size: plan.size,
        expected: Expected::default(),
    };
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut failed = None;
            serve(&listener, Some(1), |error| failed = Some(error.to_string())).map(|()| failed)
        });
        let measured = paced_packets(to, &local, Paced { packets, ..paced });
        if let Ok(Ok(Some(text))) = server.join() {
            return Err(ProbeError::Io(io::Error::other(text)));
        }
        let paced = measured?.paced.unwrap_or_default();
        Ok(paced.delay)
    })
}
