//! Measures how much arrives of a stream that the link cannot carry. The file also has the loop
//! that sends streams at a rate.

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

/// Rate offered, per cent of the rate of the link.
const OFFERED: u64 = 105;
/// Sleep of a sender that is ahead: datagrams due by then leave at once.
const REST: Duration = Duration::from_micros(100);

/// A byte, in bits per second times ns.
const BYTE: u128 = 8_000_000_000;

/// A bucket that leaks at a rate and is kept full. Bytes missed while the sender had no processor
/// are not sent later, beyond the bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Bits per second.
    pub(super) rate: u64,
    /// The bucket, bytes.
    pub(super) bucket: u64,
    pub(super) time: Duration,
    /// Bytes per datagram, with headers.
    pub(super) size: u64,
}

impl Schedule {
    /// Most datagrams that leave, with some more.
    pub(super) fn most(&self) -> u64 {
        let leaked = self.time.as_nanos() * u128::from(self.rate) / BYTE;
        let bytes = u64::try_from(leaked).unwrap_or(u64::MAX / 2) + self.bucket;
        (bytes / self.size + 1_000).min(MAX_STREAM)
    }

    /// Sends. `between` is called before every train and may send bytes that count as well.
    pub(super) fn send(
        &self,
        outlet: &mut Outlet,
        mut between: impl FnMut(Instant) -> Result<u64, ProbeError>,
        mut left: impl FnMut(Departure),
    ) -> Result<(), ProbeError> {
        let train = outlet.most() * self.size;
        let full = u128::from(self.bucket.max(train)) * BYTE;
        let end = clock::now() + self.time;
        let (mut level, mut at) = (0, clock::now());
        while at < end {
            let now = clock::now();
            let leaked = now.duration_since(at).as_nanos() * u128::from(self.rate);
            level = u128::saturating_sub(level, leaked);
            at = now;
            level += u128::from(between(now)?) * BYTE;
            if level + u128::from(train) * BYTE > full {
                clock::rest_until(now + REST);
                continue;
            }
            left(outlet.send(outlet.most())?);
            level += u128::from(train) * BYTE;
        }
        Ok(())
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
        bucket: stream.limit / 2,
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
