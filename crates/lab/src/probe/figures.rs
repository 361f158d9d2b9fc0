//! Figures of paced packets: delay error, loss, order and copies, each beside what was configured.

use serde::{Deserialize, Serialize};

use super::statistics::{Interval, micros, quantile, ratio, run_length_interval, share_interval};

/// Points of a distribution besides its tail.
const POINTS: u32 = 48;
/// Lengths of bursts that are counted apart; longer ones are together in the last.
const LENGTHS: usize = 20;

/// Configuration of the network. Shares are 0..=1, times ns.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Expected {
    /// Time from the first bit sent to the first bit received.
    pub delay_ns: u64,
    /// Bits per second of the slowest link; 0 if its service time counts as error.
    pub link_rate: u64,
    /// Mean loss.
    pub loss: Option<f64>,
    /// Mean length of bursts of lost packets; 1 for independent losses.
    pub burst: f64,
    /// Share of packets held back.
    pub reorder: Option<f64>,
    /// Time by which reordered packets are late, ns.
    pub reorder_by_ns: u64,
    /// Share delivered twice.
    pub duplicate: Option<f64>,
}

impl Expected {
    /// True if figures can be compared with it: shares are from 0 to 1.
    pub(super) fn is_possible(&self) -> bool {
        let mut shares = [self.loss, self.reorder, self.duplicate]
            .into_iter()
            .flatten();
        shares.all(|share| (0.0..=1.0).contains(&share)) && self.burst.is_finite()
    }

    /// One-way delay of a packet of `bytes` (with its IP header) on an idle link.
    pub(super) fn one_way(&self, bytes: u64) -> u64 {
        let service = u128::from(bytes) * 8_000_000_000 / u128::from(self.link_rate.max(1));
        let service = if self.link_rate == 0 { 0 } else { service };
        self.delay_ns
            .saturating_add(u64::try_from(service).unwrap_or(u64::MAX))
    }
}

/// A datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) number: u64,
    /// Times at which the datagram left and arrived, ns.
    pub(super) left: u64,
    pub(super) at: u64,
}

/// Errors of the one-way delay: measured less configured, us.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DelayFigures {
    /// Packets measured.
    pub packets: u64,
    /// Median one-way delay as measured.
    pub one_way_p50_us: f64,
    /// Configured delay, with the service time of the link.
    pub expected_us: f64,
    /// The smallest error.
    pub min_us: f64,
    /// Quantiles of the error.
    pub p50_us: f64,
    /// 90 % had no larger one.
    pub p90_us: f64,
    /// 99 % had no larger one.
    pub p99_us: f64,
    /// The largest.
    pub max_us: f64,
    /// 99 % of the errors were not larger in magnitude, early or late.
    pub magnitude_p99_us: f64,
    /// The distribution.
    pub cdf: Vec<Point>,
}

/// A point of a distribution.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Share of the packets that had no larger error.
    pub share: f64,
    /// The error, us.
    pub us: f64,
}

/// A share beside the configured one.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ShareFigures {
    /// Packets that had the property.
    pub count: u64,
    /// Packets in all.
    pub of: u64,
    /// `count / of`.
    pub share: f64,
    /// The interval that contains the probability with 99 % confidence.
    #[serde(flatten)]
    pub interval: Interval,
    /// The configured probability.
    pub expected: Option<f64>,
    /// True if the expected share is within the interval.
    pub inside: Option<bool>,
}

/// Bursts of lost packets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BurstFigures {
    /// Bursts.
    pub count: u64,
    /// Mean length of the bursts, packets.
    pub mean: f64,
    /// Interval of the mean at 99 % confidence, for geometric lengths.
    #[serde(flatten)]
    pub interval: Interval,
    /// The configured mean; for independent losses 1 / (1 - loss).
    pub expected: Option<f64>,
    /// True if the expected mean is within the interval.
    pub inside: Option<bool>,
    /// Bursts of 1, 2, ... packets; the last entry has all longer ones.
    pub lengths: Vec<u64>,
}

/// Everything about paced packets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PacedFigures {
    /// Delay of packets that were neither held back nor copies.
    pub delay: DelayFigures,
    /// Lost ones.
    pub loss: ShareFigures,
    /// Bursts of the losses.
    pub bursts: BurstFigures,
    /// Packets that arrived after one that left later (RFC 4737).
    pub reorder: ShareFigures,
    /// Median time by which reordered packets were late, us; configured: `expected_by_us`.
    pub reorder_by_us: f64,
    /// Configured lateness.
    pub expected_by_us: f64,
    /// Packets that arrived twice.
    pub duplicate: ShareFigures,
}

impl DelayFigures {
    /// Figures of `errors` (ns) and of the one-way delays that gave them.
    pub(super) fn new(mut errors: Vec<i64>, mut one_way: Vec<i64>, expected: u64) -> Self {
        errors.sort_unstable();
        one_way.sort_unstable();
        let mut magnitude: Vec<i64> = errors.iter().map(|e| e.saturating_abs()).collect();
        magnitude.sort_unstable();
        let at = |q| micros(quantile(&errors, q));
        let shares = (0..POINTS).map(|i| f64::from(i) / f64::from(POINTS));
        let tail = [0.99, 0.995, 0.999, 1.0];
        Self {
            packets: errors.len() as u64,
            one_way_p50_us: micros(quantile(&one_way, 0.5)),
            expected_us: micros(i64::try_from(expected).unwrap_or(i64::MAX)),
            min_us: at(0.0),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            max_us: at(1.0),
            magnitude_p99_us: micros(quantile(&magnitude, 0.99)),
            cdf: shares
                .chain(tail)
                .map(|share| Point {
                    share,
                    us: at(share),
                })
                .collect(),
        }
    }
}

impl ShareFigures {
    pub(super) fn new(count: u64, of: u64, expected: Option<f64>, correlation: f64) -> Self {
        let interval = share_interval(count, of, correlation);
        Self {
            count,
            of,
            share: ratio(count, of),
            interval,
            expected,
            inside: expected.map(|share| interval.contains(share)),
        }
    }
}

impl PacedFigures {
    /// Figures of `sent` packets of `bytes` each, the last of which left at `last`; `arrivals` in
    /// their order.
    pub(super) fn new(
        arrivals: &[Arrival],
        sent: u64,
        last: u64,
        bytes: u64,
        expected: &Expected,
    ) -> Self {
        let order = Order::of(arrivals, sent, last, expected.reorder_by_ns);
        let one_way = expected.one_way(bytes);
        let delays: Vec<i64> = order.first.iter().map(|a| signed(a.at, a.left)).collect();
        let errors = delays
            .iter()
            .map(|d| d.saturating_sub(signed(one_way, 0)))
            .collect();
        let mut held: Vec<i64> = order
            .late
            .iter()
            .map(|a| signed(a.at, a.left).saturating_sub(signed(one_way, 0)))
            .collect();
        held.sort_unstable();
        let lost = order.lost.iter().sum();
        let loss = expected.loss.unwrap_or(0.0);
        // In a chain of two states: 1 - P(good to bad) - P(bad to good).
        let correlation = match expected.burst {
            burst if burst > 1.0 => 1.0 - 1.0 / burst - loss / (1.0 - loss) / burst,
            _ => 0.0,
        };
        let mean = (expected.burst > 1.0)
            .then_some(expected.burst)
            .or(expected.loss.map(|loss| 1.0 / (1.0 - loss)));
        Self {
            delay: DelayFigures::new(errors, delays, one_way),
            loss: ShareFigures::new(lost, sent, expected.loss, correlation),
            bursts: BurstFigures::new(&order.lost, mean),
            reorder: ShareFigures::new(
                order.late.len() as u64,
                order.could_be_late,
                expected.reorder,
                0.0,
            ),
            reorder_by_us: micros(quantile(&held, 0.5)),
            expected_by_us: micros(signed(expected.reorder_by_ns, 0)),
            duplicate: ShareFigures::new(order.copies, sent - lost, expected.duplicate, 0.0),
        }
    }
}

impl BurstFigures {
    fn new(bursts: &[u64], expected: Option<f64>) -> Self {
        let (count, total) = (bursts.len() as u64, bursts.iter().sum());
        if count == 0 {
            return Self::default();
        }
        let mut lengths = vec![0; LENGTHS];
        for length in bursts {
            let at = usize::try_from(*length).unwrap_or(LENGTHS).min(LENGTHS);
            lengths[at - 1] += 1;
        }
        let mean = ratio(total, count);
        let interval = run_length_interval(mean, expected.unwrap_or(mean), count);
        Self {
            count,
            mean,
            interval,
            expected,
            inside: expected.map(|expected| interval.contains(expected)),
            lengths,
        }
    }
}

/// Order of arrivals.
struct Order {
    /// First copies that nothing had overtaken.
    first: Vec<Arrival>,
    /// First copies that others had overtaken.
    late: Vec<Arrival>,
    /// Packets that could have been overtaken by one that left at least `by` after them.
    could_be_late: u64,
    copies: u64,
    /// Lengths of runs of lost packets.
    lost: Vec<u64>,
}

impl Order {
    fn of(arrivals: &[Arrival], sent: u64, last: u64, by: u64) -> Self {
        let mut sorted: Vec<Arrival> = arrivals
            .iter()
            .copied()
            .filter(|arrival| arrival.number < sent)
            .collect();
        // By arrival; the kernel's stamps may be equal, then the socket's order stays.
        sorted.sort_by_key(|arrival| arrival.at);
        let mut seen = vec![false; usize::try_from(sent).unwrap_or(0)];
        let mut order = Self {
            first: Vec::new(),
            late: Vec::new(),
            could_be_late: 0,
            copies: 0,
            lost: Vec::new(),
        };
        let mut highest = None;
        for arrival in sorted {
            let Some(seen) = usize::try_from(arrival.number)
                .ok()
                .and_then(|at| seen.get_mut(at))
            else {
                continue;
            };
            if std::mem::replace(seen, true) {
                order.copies += 1;
                continue;
            }
            let overtaken = highest.is_some_and(|highest| arrival.number < highest);
            let can_be = arrival.left.saturating_add(by) < last;
            order.could_be_late += u64::from(can_be);
            if overtaken && can_be {
                order.late.push(arrival);
            } else if !overtaken {
                order.first.push(arrival);
            }
            highest = highest.max(Some(arrival.number));
        }
        let mut run = 0;
        for arrived in seen.into_iter().chain([true]) {
            if arrived && run > 0 {
                order.lost.push(run);
            }
            run = if arrived { 0 } else { run + 1 };
        }
        order
    }
}

/// `a - b`.
pub(super) fn signed(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}
