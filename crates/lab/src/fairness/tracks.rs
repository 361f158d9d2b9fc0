//! What did each flow do, when? Packets as they enter the bottleneck, bytes as they arrive, and the
//! queue, in bins of 20 ms.

use std::{ops::Range, time::Duration};

use farhaul_core::{time::Instant, units::Rate};
use farhaul_sim::{Observer, Packet, SimReport};

use super::indices::{float, jain};

/// The length of a bin: no divisor of the base rtt, so that samples do not coincide with the same phase of a
/// round trip each time.
pub(super) const BIN: Duration = Duration::from_millis(20);
/// Bins of a second.
pub(super) const SECOND: usize = 50;
/// Jain's index from which on flows have converged.
const CONVERGED: f64 = 0.9;

/// The bin in which `at` lies.
pub(super) fn bin(at: Duration) -> usize {
    usize::try_from(at.as_nanos() / BIN.as_nanos()).unwrap_or(usize::MAX)
}

/// The time that `bins` take, s.
pub(super) fn seconds(bins: usize) -> f64 {
    BIN.as_secs_f64() * float(bins as u64)
}

/// Counts packets at the entrance of the bottleneck, link 0.
#[derive(Debug, Default)]
pub(super) struct Meter {
    flows: Vec<Vec<Count>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    sent: u64,
    dropped: u64,
}

impl Observer for Meter {
    fn on_packet(&mut self, packet: &Packet<'_>) {
        let Some(flow) = packet.flow.filter(|_| packet.link == 0) else {
            return;
        };
        if self.flows.len() <= flow {
            self.flows.resize_with(flow + 1, Vec::new);
        }
        let at = bin(packet.at.since(Instant::EPOCH));
        let counts = &mut self.flows[flow];
        if counts.len() <= at {
            counts.resize(at + 1, Count::default());
        }
        counts[at].sent += 1;
        counts[at].dropped += u64::from(packet.dropped.is_some());
    }
}

/// One flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Track {
    /// Distinct bytes at the receiver at the end of each bin.
    pub(super) delivered: Vec<u64>,
    /// Packets sent in each bin.
    pub(super) sent: Vec<u64>,
    /// Of those, packets that the bottleneck dropped.
    pub(super) dropped: Vec<u64>,
}

impl Track {
    /// Bytes that arrived within `span`.
    pub(super) fn bytes(&self, span: &Range<usize>) -> u64 {
        let until = |bin: usize| bin.checked_sub(1).map_or(0, |last| self.delivered[last]);
        until(span.end) - until(span.start)
    }

    /// Goodput within `span`, bit/s.
    pub(super) fn goodput(&self, span: &Range<usize>) -> f64 {
        8.0 * float(self.bytes(span)) / seconds(span.len())
    }

    /// Packets sent and dropped within `span`.
    pub(super) fn packets(&self, span: &Range<usize>) -> (u64, u64) {
        let sum = |counts: &[u64]| counts[span.clone()].iter().sum();
        (sum(&self.sent), sum(&self.dropped))
    }

    /// From the begin of `span` to the first second in it whose goodput is `owed` or more, s.
    pub(super) fn reaches(&self, span: &Range<usize>, owed: Rate) -> Option<f64> {
        let found = windows(span, 1).position(|second| self.goodput(&second) >= owed.as_f64());
        found.map(seconds)
    }

    /// From the begin of `span` to the first second in it from which on the goodput of every second is
    /// `owed` or more, s.
    pub(super) fn stays(&self, span: &Range<usize>, owed: Rate) -> Option<f64> {
        let all: Vec<_> = windows(span, 1).collect();
        let short = |second: &Range<usize>| self.goodput(second) < owed.as_f64();
        since(&all, short).map(seconds)
    }
}

/// All flows of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tracks {
    pub(super) flows: Vec<Track>,
    /// Bytes in the bottleneck's queue at the end of each bin.
    pub(super) queue: Vec<u64>,
}

impl Tracks {
    /// Of a run whose series has a point per bin, and of `duration`.
    pub(super) fn new(report: &SimReport, meter: &Meter, duration: Duration) -> Self {
        let bins = bin(duration);
        let mut tracks = Self {
            flows: Vec::with_capacity(report.flows.len()),
            queue: vec![0; bins],
        };
        for (flow, flow_report) in report.flows.iter().enumerate() {
            let mut track = Track {
                delivered: vec![0; bins],
                sent: vec![0; bins],
                dropped: vec![0; bins],
            };
            // Points are at the ends of bins; half a bin earlier is inside.
            let half = BIN.as_secs_f64() / 2.0;
            for point in &flow_report.series {
                let at = bin(Duration::from_secs_f64((point.at - half).max(0.0)));
                if at < bins {
                    track.delivered[at] = point.delivered;
                    tracks.queue[at] = point.queue;
                }
            }
            // A flow that ended has no more points, and gets no more.
            let mut most = 0;
            for delivered in &mut track.delivered {
                most = most.max(*delivered);
                *delivered = most;
            }
            for (at, count) in meter.flows.get(flow).into_iter().flatten().enumerate() {
                if at < bins {
                    (track.sent[at], track.dropped[at]) = (count.sent, count.dropped);
                }
            }
            tracks.flows.push(track);
        }
        tracks
    }

    /// Goodput of each flow within `span`, bit/s.
    pub(super) fn goodputs(&self, span: &Range<usize>) -> Vec<f64> {
        self.flows.iter().map(|f| f.goodput(span)).collect()
    }

    /// From the begin of `span` to the first of its seconds from which on Jain's index stays high, s.
    pub(super) fn converged(&self, span: &Range<usize>) -> Option<f64> {
        let all: Vec<_> = windows(span, SECOND).collect();
        let unfair = |second: &Range<usize>| {
            jain(&self.goodputs(second)).is_none_or(|index| index < CONVERGED)
        };
        since(&all, unfair).map(|n| seconds(n * SECOND))
    }
}

/// Every second within `span`, each so many bins after the one before.
fn windows(span: &Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let starts = span.start..(span.end + 1).saturating_sub(SECOND);
    starts.step_by(step).map(|from| from..from + SECOND)
}

/// The first of `windows` from which on none is bad; none if the last one is.
fn since(windows: &[Range<usize>], bad: impl Fn(&Range<usize>) -> bool) -> Option<usize> {
    let first = windows.iter().rposition(bad).map_or(0, |last| last + 1);
    (first < windows.len()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow that gets so many bytes in each bin of each of these seconds.
    fn track(seconds: &[u64]) -> Track {
        let mut total = 0;
        let bins = seconds.iter().flat_map(|bytes| [*bytes; SECOND]);
        let delivered: Vec<u64> = bins
            .map(|bytes| {
                total += bytes;
                total
            })
            .collect();
        Track {
            sent: vec![2; delivered.len()],
            dropped: vec![1; delivered.len()],
            delivered,
        }
    }

    #[test]
    fn goodput_and_packets_are_of_the_span() {
        let track = track(&[0, 20, 40]);
        assert_eq!(track.bytes(&(0..50)), 0);
        assert_eq!(track.bytes(&(25..75)), 500);
        // 50 bins of 40 B in a second.
        assert!((track.goodput(&(100..150)) - 16_000.0).abs() < 1e-9);
        assert_eq!(track.packets(&(10..20)), (20, 10));
    }

    #[test]
    fn convergence_is_when_it_stays() {
        let two = |a: &[u64], b: &[u64]| Tracks {
            flows: vec![track(a), track(b)],
            queue: Vec::new(),
        };
        let fair = two(&[9, 5, 9, 5, 5], &[1, 5, 1, 5, 5]);
        assert_eq!(fair.converged(&(0..250)), Some(3.0));
        assert_eq!(fair.converged(&(150..250)), Some(0.0));
        let unfair_in_the_end = two(&[5, 5, 9], &[5, 5, 1]);
        assert_eq!(unfair_in_the_end.converged(&(0..150)), None);
        let silent = two(&[0, 0], &[0, 0]);
        assert_eq!(silent.converged(&(0..100)), None);
        assert_eq!(fair.converged(&(0..10)), None, "no second in it");
    }

    #[test]
    fn a_rate_is_reached_once_or_for_good() {
        // 125 B per bin are 50 kbit/s.
        let track = track(&[10, 125, 10, 125, 125]);
        let (span, owed) = (0..250, Rate::from_bps(50_000));
        assert_eq!(track.reaches(&span, owed), Some(1.0));
        assert_eq!(track.stays(&span, owed), Some(3.0));
        let more = Rate::from_bps(50_001);
        assert_eq!(track.reaches(&span, more), None);
        assert_eq!(track.stays(&span, more), None);
        // Half of the second before counts for a rate of a half.
        let half = track.reaches(&span, Rate::from_bps(27_000));
        assert_eq!(half, Some(0.5));
    }
}
