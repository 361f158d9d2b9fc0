//! Shows the intervals of a bench: lines for people, events for programs, tracks for a plot.

use std::{collections::BTreeMap, fmt, time::Duration};

use farhaul_core::units::Size;
#[cfg(feature = "lab")]
use farhaul_lab::plot::series::Track;
use farhaul_measure::bench::{Datagrams, Report, Sample, Span};
use serde_json::{Value, json};

/// Puts intervals together where they are shorter than those that are to be shown, each with what the sender here
/// has seen meanwhile.
pub(super) struct Shown {
    every: Duration,
    /// The end of the next interval that is shown.
    next: Duration,
    /// Intervals since the last that was shown.
    open: Span,
    /// Bytes in all intervals that were shown.
    printed: u64,
    /// Latest sample of each parallel session here that sends.
    latest: BTreeMap<u32, Sample>,
    /// Packets lost up to the last interval that was shown.
    lost: u64,
}

/// An interval that is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) span: Span,
    /// Round-trip time at its end and packets lost within, if the sender is here.
    pub(super) sender: Option<(Duration, u64)>,
}

impl Shown {
    /// Interval of reports; none if it is 0.
    pub(super) fn every(every: Duration) -> Self {
        Self {
            every,
            next: every,
            open: Span::default(),
            printed: 0,
            latest: BTreeMap::new(),
            lost: 0,
        }
    }

    /// Takes a sample of a sender here.
    pub(super) fn sample(&mut self, lane: u32, sample: Sample) {
        self.latest.insert(lane, sample);
    }

    /// Adds an interval; returns the one that is to be shown now.
    pub(super) fn add(&mut self, span: Span) -> Option<Line> {
        self.open.bytes = self.open.bytes.saturating_add(span.bytes);
        self.open.to = span.to;
        let before = self.open.datagrams.unwrap_or_default();
        self.open.datagrams = span.datagrams.map(|more| Datagrams {
            jitter_ns: more.jitter_ns,
            ..before.and(more)
        });
        if self.every.is_zero() || span.to < self.next {
            return None;
        }
        // Times are the server's word: it may claim any.
        let every = self.every.as_nanos().max(1);
        let passed = span.to.saturating_sub(self.next).as_nanos() / every + 1;
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.next = self.next.saturating_add(self.every.saturating_mul(passed));
        let next = Span {
            from: span.to,
            ..Span::default()
        };
        let span = std::mem::replace(&mut self.open, next);
        self.printed = self.printed.saturating_add(span.bytes);
        Some(Line {
            span,
            sender: self.sender(),
        })
    }

    /// The longest round-trip time, and losses since the last call.
    fn sender(&mut self) -> Option<(Duration, u64)> {
        let samples = || self.latest.values();
        let rtt = samples().filter_map(|sample| sample.rtt).max()?;
        let lost = samples().map(|sample| sample.lost).sum();
        let before = std::mem::replace(&mut self.lost, lost);
        Some((rtt, lost.saturating_sub(before)))
    }

    /// Rest at the end, if that is most of an interval; unknown if the start was omitted.
    pub(super) fn rest(&self, report: &Report) -> Option<Line> {
        let end = Duration::from_secs_f64(report.seconds);
        let bytes = report.bytes.checked_sub(self.printed)?;
        let most = end.saturating_sub(self.open.from) > self.every / 2;
        let span = Span {
            to: end,
            bytes,
            ..self.open
        };
        (most && !self.every.is_zero()).then_some(Line { span, sender: None })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = &self.span;
        write!(
            f,
            "{:8.2}-{:<8.2} s   {:>12}   {:>15}",
            span.from.as_secs_f64(),
            span.to.as_secs_f64(),
            Size::from_bytes(span.bytes).to_string(),
            span.rate().to_string()
        )?;
        // Where the receiver counts datagrams, its losses are the truth.
        if let (Some((rtt, lost)), None) = (self.sender, &span.datagrams) {
            let ms = rtt.as_secs_f64() * 1e3;
            write!(f, "   rtt {ms:>7.2} ms   lost {lost}")?;
        }
        match &span.datagrams {
            Some(datagrams) => write!(f, "   {datagrams}"),
            None => Ok(()),
        }
    }
}

impl Line {
    /// The interval as an event.
    pub(super) fn event(&self) -> Value {
        let span = &self.span;
        let mut event = json!({
            "type": "interval",
            "from_s": span.from.as_secs_f64(),
            "to_s": span.to.as_secs_f64(),
            "bytes": span.bytes,
            "bits_per_second": span.rate().as_f64(),
        });
        if let Some((rtt, lost)) = self.sender {
            event["rtt_ms"] = (rtt.as_secs_f64() * 1e3).into();
            event["packets_lost"] = lost.into();
        }
        if let Some(datagrams) = &span.datagrams {
            event["datagrams"] = serde_json::to_value(datagrams).unwrap_or_default();
        }
        event
    }
}

/// Tracks over time: one of a single session, or one of all parallel sessions and one of each.
#[cfg(feature = "lab")]
pub(super) fn tracks(lanes: u32, report: &Report, samples: &[(u32, Sample)]) -> Vec<Track> {
    let lane = |lane: u32, name: &str| {
        let of = samples.iter().filter(|(l, _)| *l == lane);
        Track::of_sender(name, of.map(|(_, sample)| sample))
    };
    let name = if lanes == 1 { "flow" } else { "all lanes" };
    let mut all = Track::of_intervals(name, &report.intervals);
    if lanes == 1 {
        all.moments.extend(lane(0, name).moments);
        return vec![all];
    }
    let each = (0..lanes).map(|l| lane(l, &format!("lane {l}")));
    [all].into_iter().chain(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn interval(from: u64, to: u64, bytes: u64) -> Span {
        Span {
            from: ms(from),
            to: ms(to),
            bytes,
            datagrams: None,
        }
    }

    #[test]
    fn short_intervals_are_shown_as_long_ones() {
        let line = |span| Some(Line { span, sender: None });
        let mut shown = Shown::every(ms(1_000));
        assert_eq!(shown.add(interval(0, 501, 5)), None);
        assert_eq!(
            shown.add(interval(501, 1_002, 6)),
            line(interval(0, 1_002, 11))
        );
        // As long after the beginning, not after the last one.
        assert_eq!(
            shown.add(interval(1_002, 2_000, 7)),
            line(interval(1_002, 2_000, 7))
        );
        let mut report = Report {
            seconds: 2.9,
            bytes: 27,
            ..Report::default()
        };
        assert_eq!(shown.rest(&report), line(interval(2_000, 2_900, 9)));
        report.seconds = 2.1;
        assert_eq!(shown.rest(&report), None);
        assert_eq!(Shown::every(ms(0)).add(interval(0, 5_000, 1)), None);
    }

    #[test]
    fn an_interval_has_its_own_losses_and_datagrams() {
        let mut shown = Shown::every(ms(10));
        let sample = |lost| Sample {
            at: ms(0),
            window: 0,
            rtt: Some(ms(40)),
            repaired: 0,
            episodes: 0,
            lost,
        };
        let datagrams = |sent, jitter_ns| {
            Some(Datagrams {
                sent,
                received: sent - 1,
                jitter_ns,
                ..Datagrams::default()
            })
        };
        shown.sample(0, sample(3));
        shown.sample(1, sample(4));
        let part = |from, to, datagrams| Span {
            datagrams,
            ..interval(from, to, 1)
        };
        assert_eq!(shown.add(part(0, 5, datagrams(10, 7_000_000))), None);
        let line = shown
            .add(part(5, 10, datagrams(20, 2_000_000)))
            .expect("it is due");
        assert_eq!(line.sender, Some((ms(40), 7)));
        assert!(
            line.to_string()
                .ends_with("jitter 2.000 ms, lost 2 of 30 (6.67 %)"),
            "{line}"
        );
        assert_eq!(line.event()["datagrams"]["received"], 28);
        shown.sample(1, sample(5));
        let line = shown.add(part(10, 20, None)).expect("it is due");
        assert_eq!(
            (line.sender, line.event()["packets_lost"].as_u64()),
            (Some((ms(40), 1)), Some(1))
        );
    }
}
