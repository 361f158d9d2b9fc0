//! How much arrives of a stream that the link cannot carry? And the loop that sends streams at a rate.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{
    Plan, ProbeError, ProbeReport, Stream, clock,
    send::{Departure, Outlet, Pace, Session},
    serve::MAX_STREAM,
    statistics::ratio,
    wire::Ask,
};

/// What is offered, per cent of the rate of the link.
const OFFERED: u64 = 105;
/// How long the sender sleeps when it is ahead: what is due then leaves at once.
const REST: Duration = Duration::from_micros(100);

/// A schedule of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Bits per second.
    pub(super) rate: u64,
    /// Bytes at once at the start.
    pub(super) ahead: u64,
    pub(super) time: Duration,
    /// Bytes per datagram, with headers.
    pub(super) size: u64,
}

impl Schedule {
    /// Bytes that should have left after `passed`.
    fn due(&self, passed: Duration) -> u64 {
        let bits = passed.as_nanos() * u128::from(self.rate) / 1_000_000_000;
        self.ahead + u64::try_from(bits / 8).unwrap_or(u64::MAX / 2)
    }

    /// Most datagrams that leave, with some more.
    pub(super) fn most(&self) -> u64 {
        (self.due(self.time) / self.size + 1_000).min(MAX_STREAM)
    }

    /// Sends. `between` is called before every train and may send bytes that count as well.
    pub(super) fn send(
        &self,
        outlet: &mut Outlet,
        mut between: impl FnMut(Instant) -> Result<u64, ProbeError>,
        mut left: impl FnMut(Departure),
    ) -> Result<(), ProbeError> {
        let (start, mut sent) = (clock::now(), 0);
        loop {
            let now = clock::now();
            let passed = now.duration_since(start);
            if passed >= self.time {
                return Ok(());
            }
            sent += between(now)?;
            let train = outlet.most() * self.size;
            if sent + train > self.due(passed) {
                clock::rest_until(now + REST);
                continue;
            }
            left(outlet.send(outlet.most())?);
            sent += train;
        }
    }
}

/// The rate at the receiver.
pub(super) fn measure(
    to: SocketAddr,
    plan: &Plan,
    stream: Stream,
) -> Result<ProbeReport, ProbeError> {
    let link = plan.expected.link_rate;
    let schedule = Schedule {
        rate: link / 100 * OFFERED,
        ahead: 0,
        time: stream.time,
        size: plan.size.into(),
    };
    let limits = [0, schedule.most()];
    let mut session = Session::open(to, plan, Ask::Arrivals, limits, [false, stream.gso])?;
    let (mut first, mut last) = (None, 0);
    let mut pace = Pace::default();
    schedule.send(
        &mut session.stream,
        |_| Ok(0),
        |departure| {
            last = departure.at;
            first.get_or_insert(departure.at);
            pace.took
                .push(i64::try_from(departure.took).unwrap_or(i64::MAX));
        },
    )?;
    let sent = session.stream.number;
    let arrived = session.finish(last)?;
    let mut report = plan.report(to, &arrived);
    report.sender = pace.sender(sent, plan.size, [first.unwrap_or(last), last]);
    if report.sender.offered_bits_per_second < ratio(link, 1) {
        report.complaints.push(format!(
            "the sender offered {:.3} Gbit/s only: the link was not full",
            report.sender.offered_bits_per_second / 1e9
        ));
    }
    let mut rate = arrived.rate.unwrap_or_default().beside(Some(link));
    rate.packets = arrived.stream;
    rate.lost = sent.saturating_sub(arrived.stream);
    report.rate = Some(rate);
    Ok(report)
}
