//! Which figures are computed from the tracks of a run?

use std::{collections::BTreeMap, ops::Range};

use farhaul_core::units::Rate;

use super::{
    Case, Figure, Question,
    indices::{float, jain, mean, p95, ratio},
    setting::{MTU, Times, bdp, low},
    tracks::{SECOND, Track, Tracks, seconds},
};

/// The part of a rate that goodput must reach; headers take some of the rest.
const REACHED: f64 = 0.9;

struct Figures(BTreeMap<Figure, f64>);

impl Figures {
    /// What is no number is left out.
    fn put(&mut self, figure: Figure, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|v| v.is_finite()) {
            self.0.insert(figure, value);
        }
    }
}

/// Every figure of the run.
pub(super) fn figures(question: &Question, tracks: &Tracks) -> BTreeMap<Figure, f64> {
    let mut out = Figures(BTreeMap::new());
    let times = Times::new(question.quick);
    let rate = question.rate();
    match (&question.case, tracks.flows.as_slice()) {
        (Case::Among { .. }, _) => {
            let shares = tracks.goodputs(&times.last_third());
            out.put(Figure::Jain, jain(&shares));
            out.put(
                Figure::Utilisation,
                shares.iter().sum::<f64>() / rate.as_f64(),
            );
            let converged = tracks.converged(&times.all_there());
            out.put(Figure::ConvergedSeconds, converged);
        }
        (Case::RoundTrips, [short, long]) => {
            let span = times.after_start();
            let (short, long) = (short.goodput(&span), long.goodput(&span));
            out.put(Figure::ShortOverLong, short / long);
            out.put(Figure::Utilisation, (short + long) / rate.as_f64());
        }
        (Case::Against { .. }, [standard, law]) => {
            let span = times.after_start();
            let (theirs, ours) = (standard.goodput(&span), law.goodput(&span));
            out.put(Figure::Share, ours / (ours + theirs));
            out.put(Figure::OverStandard, ours / theirs);
            out.put(Figure::Utilisation, (ours + theirs) / rate.as_f64());
            flow(&mut out, standard, &span);
            queue(&mut out, tracks, &span, rate);
        }
        (Case::Alone { .. }, [law]) => {
            let span = times.after_start();
            out.put(Figure::Utilisation, law.goodput(&span) / rate.as_f64());
            flow(&mut out, law, &span);
            queue(&mut out, tracks, &span, rate);
        }
        (Case::RateStep, [law]) => step(&mut out, question, law),
        (Case::ReportsLost | Case::CapacityLost, [law]) => collapse(&mut out, question, law),
        // Another number of flows than requested: no figures.
        _ => {}
    }
    out.0
}

fn flow(out: &mut Figures, track: &Track, span: &Range<usize>) {
    let (sent, dropped) = track.packets(span);
    out.put(Figure::GoodputBitsPerSecond, track.goodput(span));
    out.put(Figure::Loss, ratio(dropped, sent));
}

fn queue(out: &mut Figures, tracks: &Tracks, span: &Range<usize>, rate: Rate) {
    let bytes = &tracks.queue[span.clone()];
    let bdp = float(bdp(rate));
    let mean = mean(bytes);
    let wait = mean.map(|bytes| bytes * 8.0 / rate.as_f64() * 1e3);
    out.put(Figure::QueueMeanMs, wait);
    out.put(Figure::QueueMean, mean.map(|bytes| bytes / bdp));
    out.put(Figure::QueueP95, p95(bytes).map(|bytes| bytes / bdp));
}

fn step(out: &mut Figures, question: &Question, law: &Track) {
    let case = &question.case;
    let [_, down, up] = Times::new(question.quick).collapse(case);
    let owed = |rate: Rate| rate.scale(REACHED);
    let low = low(case, question.rate());
    out.put(Figure::DownSeconds, law.stays(&down, owed(low)));
    out.put(Figure::DownDropped, float(law.packets(&down).1));
    out.put(Figure::UpSeconds, law.reaches(&up, owed(question.rate())));
    out.put(Figure::UpDropped, float(law.packets(&up).1));
}

fn collapse(out: &mut Figures, question: &Question, law: &Track) {
    let case = &question.case;
    let [before, during, after] = Times::new(question.quick).collapse(case);
    let first = during.start..during.start + SECOND;
    let settled = usize::midpoint(during.start, during.end)..during.end;
    let per_second = |span: &Range<usize>| float(law.packets(span).0) / seconds(span.len());
    out.put(Figure::SentBefore, per_second(&before));
    out.put(Figure::SentFirst, per_second(&first));
    out.put(Figure::SentSettled, per_second(&settled));
    let (sent, dropped) = law.packets(&settled);
    out.put(Figure::DroppedSettled, ratio(dropped, sent));
    let carried = low(case, question.rate()).as_f64() / (8.0 * f64::from(MTU));
    out.put(Figure::CapacityPackets, carried);
    let owed = question.rate().scale(REACHED);
    out.put(Figure::RecoveredSeconds, law.reaches(&after, owed));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(case: Case) -> Question {
        Question {
            law: "haul".into(),
            case,
            rate_bits_per_second: 10_000_000,
            quick: true,
            seed: 1,
        }
    }

    /// A flow that gets `bytes(second)` and sends `packets(second)` in each bin of 30 s; every fourth
    /// packet is dropped.
    fn track(bytes: impl Fn(usize) -> u64, packets: impl Fn(usize) -> u64) -> Track {
        let mut total = 0;
        let bins = 0..30 * SECOND;
        let delivered = bins.clone().map(|bin| {
            total += bytes(bin / SECOND);
            total
        });
        Track {
            delivered: delivered.collect(),
            sent: bins.clone().map(|bin| packets(bin / SECOND)).collect(),
            dropped: bins.map(|bin| packets(bin / SECOND) / 4).collect(),
        }
    }

    fn near(figures: &BTreeMap<Figure, f64>, figure: Figure, value: f64) {
        let got = figures.get(&figure).copied().unwrap_or(f64::NAN);
        assert!((got - value).abs() < 1e-6, "{figure}: {got}, not {value}");
    }

    #[test]
    fn a_pair_is_measured_after_its_start() {
        // 25 kB a bin are 10 Mbit/s.
        let standard = track(|s| if s < 10 { 25_000 } else { 5_000 }, |_| 8);
        let law = track(|s| if s < 10 { 0 } else { 15_000 }, |_| 8);
        let tracks = Tracks {
            flows: vec![standard, law],
            queue: vec![31_250; 30 * SECOND],
        };
        let case = Case::Against {
            standard: "reno".into(),
            queue_percent: 100,
        };
        let figures = figures(&question(case), &tracks);
        near(&figures, Figure::Share, 0.75);
        near(&figures, Figure::OverStandard, 3.0);
        near(&figures, Figure::GoodputBitsPerSecond, 2e6);
        near(&figures, Figure::Loss, 0.25);
        near(&figures, Figure::QueueMeanMs, 25.0);
        near(&figures, Figure::QueueP95, 0.5);
        near(&figures, Figure::Utilisation, 0.8);
    }

    #[test]
    fn a_starved_standard_has_no_ratio() {
        let tracks = Tracks {
            flows: vec![track(|_| 0, |_| 0), track(|_| 25_000, |_| 8)],
            queue: vec![0; 30 * SECOND],
        };
        let case = Case::Against {
            standard: "reno".into(),
            queue_percent: 100,
        };
        let figures = figures(&question(case), &tracks);
        near(&figures, Figure::Share, 1.0);
        assert_eq!(figures.get(&Figure::OverStandard), None);
        assert_eq!(figures.get(&Figure::Loss), None);
    }

    #[test]
    fn a_collapse_is_counted_in_its_first_second_and_its_second_half() {
        // No reports from 10 to 20 s.
        let packets = |s| match s {
            10 => 8,
            11..=14 => 4,
            15..=19 => 0,
            _ => 16,
        };
        let law = track(|s| if (10..22).contains(&s) { 0 } else { 25_000 }, packets);
        let tracks = Tracks {
            flows: vec![law],
            queue: vec![0; 30 * SECOND],
        };
        let figures = figures(&question(Case::ReportsLost), &tracks);
        near(&figures, Figure::SentBefore, 800.0);
        near(&figures, Figure::SentFirst, 400.0);
        near(&figures, Figure::SentSettled, 0.0);
        assert_eq!(figures.get(&Figure::DroppedSettled), None);
        // Nine tenths of a second's bytes are there 0.9 s after 2 s of nothing, less the window itself.
        near(&figures, Figure::RecoveredSeconds, 1.9);
    }

    #[test]
    fn a_rate_step_is_two_recoveries() {
        // Down from 10 s to 16.66 s: nothing in its first second, then a tenth; then all at once.
        let bytes = |s| match s {
            10 => 0,
            11..=16 => 2_500,
            _ => 25_000,
        };
        let tracks = Tracks {
            flows: vec![track(bytes, |_| 4)],
            queue: vec![0; 30 * SECOND],
        };
        let figures = figures(&question(Case::RateStep), &tracks);
        near(&figures, Figure::DownSeconds, 0.9);
        near(&figures, Figure::DownDropped, 333.0);
        near(&figures, Figure::UpDropped, 667.0);
        // From 16.66 s: the full rate begins at 17 s; a window from 16.9 s on has nine tenths.
        assert!(figures[&Figure::UpSeconds] < 0.3, "{figures:?}");
    }
}
