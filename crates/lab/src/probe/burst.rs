//! Measures what an idle queue takes of a burst. Bursts have twice the queue's limit, as fast as
//! the sender can.

use std::{net::SocketAddr, time::Duration};

use serde::Serialize;

use super::{
    Plan, ProbeError, ProbeReport, clock,
    figures::signed,
    link_model::LinkModel,
    send::{Departure, Pace, Session},
    statistics::{micros, quantile, ratio},
    wire::Ask,
};

/// Packets beside twice the limit.
const MORE: u64 = 32;
/// Pause until the next burst, after the queue has drained.
const IDLE: Duration = Duration::from_millis(50);

/// The limit of a queue; medians over the bursts.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct QueueFigures {
    /// Bursts.
    pub bursts: u64,
    /// Packets in each.
    pub packets: u64,
    /// Packets that came through.
    pub through: i64,
    /// Packets that come through a link of this rate and limit, from the times at which they left.
    pub expected_through: i64,
    /// The former less the latter.
    pub error_packets: i64,
    /// The longest time that a packet waited and was served.
    pub longest_wait_us: f64,
    /// Expected wait in a queue filled to its limit.
    pub expected_wait_us: f64,
    /// The former less the latter: down to the service time of a packet less, since a packet that
    /// does not fit is refused whole, and up to the delay error more.
    pub wait_error_us: f64,
    /// The longest wait as bytes at the rate of the link.
    pub reached_bytes: f64,
    /// The configured limit.
    pub expected_bytes: u64,
}

/// Packets in a burst that fills `limit` bytes.
pub(super) fn packets(limit: u64, size: u32) -> u64 {
    (limit / u64::from(size.max(1))).saturating_mul(2) + MORE
}

/// Outcome of one burst.
#[derive(Clone, Copy, Debug)]
struct Burst {
    through: i64,
    expected: i64,
    wait: i64,
}

/// The queue's limit.
pub(super) fn measure(
    to: SocketAddr,
    plan: &Plan,
    limit: u64,
    repeat: u64,
    gso: bool,
) -> Result<ProbeReport, ProbeError> {
    let packets = packets(limit, plan.size);
    let limits = [packets * repeat, 0];
    let mut session = Session::open(to, plan, Ask::Arrivals, limits, [gso, false])?;
    let drained = Duration::from_secs_f64(ratio(limit * 8, plan.expected.link_rate)) + IDLE;
    let mut departures = Vec::new();
    let mut pace = Pace::default();
    for _ in 0..repeat {
        let mut left = packets;
        while left > 0 {
            let departure = session.packets.send(left)?;
            left -= departure.count;
            pace.took.push(signed(departure.took, 0));
            departures.push(departure);
        }
        clock::rest_until(clock::now() + drained);
    }
    let span = [departures.first(), departures.last()].map(|d| d.map_or(0, |d| d.at));
    let arrived = session.finish(span[1])?;
    let mut report = plan.report(to, &arrived);
    report.sender = pace.sender(packets * repeat, plan.size, span);
    let bursts: Vec<Burst> = (0..repeat)
        .map(|burst| {
            judge(
                burst * packets,
                packets,
                &departures,
                &arrived.arrivals,
                plan,
                limit,
            )
        })
        .collect();
    let figures = figures(&bursts, packets, limit, plan);
    if figures.through >= i64::try_from(packets).unwrap_or(i64::MAX) {
        let text = "every packet of the bursts came through: the sender did not fill the queue";
        report.complaints.push(text.into());
    }
    report.queue = Some(figures);
    Ok(report)
}

/// The burst that begins with packet `first`.
fn judge(
    first: u64,
    count: u64,
    departures: &[Departure],
    arrivals: &[(u64, u64)],
    plan: &Plan,
    limit: u64,
) -> Burst {
    let own = first..first + count;
    let mut model = LinkModel::new(plan.expected.link_rate, plan.expected.delay_ns, Some(limit));
    let mut expected = 0;
    let mut left = Vec::new();
    for departure in departures.iter().filter(|d| own.contains(&d.first)) {
        for _ in 0..departure.count {
            left.push(departure.at);
            let fits = model.offer(departure.at, plan.size.into()).is_some();
            expected += i64::from(fits);
        }
    }
    let mut through = 0;
    let mut wait = 0;
    for (number, at) in arrivals.iter().filter(|(number, _)| own.contains(number)) {
        let left = usize::try_from(number - first)
            .ok()
            .and_then(|i| left.get(i));
        let Some(left) = left else { continue };
        through += 1;
        wait = wait.max(signed(*at, left + plan.expected.delay_ns));
    }
    Burst {
        through,
        expected,
        wait,
    }
}

fn figures(bursts: &[Burst], packets: u64, limit: u64, plan: &Plan) -> QueueFigures {
    let median = |of: fn(&Burst) -> i64| {
        let mut values: Vec<i64> = bursts.iter().map(of).collect();
        values.sort_unstable();
        quantile(&values, 0.5)
    };
    let wait = median(|burst| burst.wait);
    let rate = ratio(plan.expected.link_rate, 1);
    let full = ratio(limit * 8, 1) / rate * 1e6;
    QueueFigures {
        bursts: bursts.len() as u64,
        packets,
        through: median(|burst| burst.through),
        expected_through: median(|burst| burst.expected),
        error_packets: median(|burst| burst.through - burst.expected),
        longest_wait_us: micros(wait),
        expected_wait_us: full,
        wait_error_us: micros(wait) - full,
        reached_bytes: micros(wait) / 1e6 * rate / 8.0,
        expected_bytes: limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Expected, Mode};

    #[test]
    fn a_burst_is_compared_with_a_queue_of_its_own() {
        // 8 Gbit/s: a byte per ns. Six packets of 1,000 bytes at once into 3,000 bytes.
        let plan = Plan {
            mode: Mode::Queue {
                limit: 3_000,
                repeat: 1,
                gso: true,
            },
            size: 1_000,
            expected: Expected {
                delay_ns: 500,
                link_rate: 8_000_000_000,
                ..Expected::default()
            },
        };
        let departures = [Departure {
            first: 0,
            count: 6,
            at: 10,
            took: 1,
        }];
        let arrivals = [(0, 1_510), (1, 2_510), (2, 3_510)];
        let burst = judge(0, 6, &departures, &arrivals, &plan, 3_000);
        let found = figures(&[burst], 6, 3_000, &plan);
        assert_eq!((found.through, found.expected_through), (3, 3));
        assert!((found.reached_bytes - 3_000.0).abs() < 1e-6);
        assert!(found.wait_error_us.abs() < 1e-9);
        assert!((found.expected_wait_us - 3.0).abs() < 1e-9);
    }
}
