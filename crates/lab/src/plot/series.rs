//! Draws what happened over time, from a simulation or a bench: goodput, window, rtt, queue and
//! losses of several flows, one above the other on one time axis.

use std::{io, path::Path, str::FromStr};

use farhaul_sim::FlowReport;

use super::{
    Axis, Body, Chart, Line, Origin, PlotError, Point,
    axes::{self, Room},
    canvas, legend, lines, nothing, paint,
    scale::{Bounds, to_f64},
    scene::{Rect, Scene},
    style::Style,
    title,
};
use farhaul_measure::bench::{Interval, Sample};

/// Windows from here on are "no limit".
const UNLIMITED: u64 = 1 << 60;

/// A flow over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    /// Name in the legend.
    pub name: String,
    /// Moments in the order of time.
    pub moments: Vec<Moment>,
}

/// A flow at one moment; unknown figures are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Time since the start, s.
    pub at: f64,
    /// Goodput at the receiver since the last moment, bit/s.
    pub goodput: Option<f64>,
    /// Bytes that the law allows in flight.
    pub window: Option<f64>,
    /// Smoothed rtt, ms.
    pub rtt: Option<f64>,
    /// Bytes in the queue of the narrowest link.
    pub queue: Option<f64>,
    /// Sent again since the start, bytes.
    pub repaired: Option<f64>,
    /// Episodes of loss since the start.
    pub episodes: Option<f64>,
}

#[expect(clippy::cast_precision_loss, reason = "drawn")]
fn float(n: u64) -> f64 {
    n as f64
}

fn window(bytes: u64) -> Option<f64> {
    (bytes < UNLIMITED).then(|| float(bytes))
}

impl Track {
    /// A simulated flow.
    pub fn of_flow(name: &str, flow: &FlowReport) -> Self {
        let mut repaired = 0;
        let moment = |point: &farhaul_sim::Point| {
            repaired += point.repaired;
            Moment {
                at: point.at,
                goodput: Some(point.goodput_bits_per_second),
                window: window(point.window),
                rtt: point.rtt_ms,
                queue: Some(float(point.queue)),
                repaired: Some(float(repaired)),
                episodes: Some(float(point.episodes)),
            }
        };
        Self {
            name: name.into(),
            moments: flow.series.iter().map(moment).collect(),
        }
    }

    /// Track of what arrived in a bench, over all parallel sessions.
    pub fn of_intervals(name: &str, intervals: &[Interval]) -> Self {
        let moment = |interval: &Interval| Moment {
            at: interval.to,
            goodput: Some(interval.goodput_bits_per_second),
            ..Moment::default()
        };
        Self {
            name: name.into(),
            moments: intervals.iter().map(moment).collect(),
        }
    }

    /// The sender of one parallel session of a bench.
    pub fn of_sender<'a>(name: &str, samples: impl IntoIterator<Item = &'a Sample>) -> Self {
        let moment = |sample: &Sample| Moment {
            at: sample.at.as_secs_f64(),
            window: window(sample.window),
            rtt: sample.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            repaired: Some(float(sample.repaired)),
            episodes: Some(float(sample.episodes)),
            ..Moment::default()
        };
        Self {
            name: name.into(),
            moments: samples.into_iter().map(moment).collect(),
        }
    }
}

/// A quantity, its units with their sizes, and what a track has of it.
struct Quantity {
    name: &'static str,
    units: &'static [(f64, &'static str)],
    of: fn(&Moment) -> Option<f64>,
}

const RATES: &[(f64, &str)] = &[
    (1e9, "Gbit/s"),
    (1e6, "Mbit/s"),
    (1e3, "kbit/s"),
    (1.0, "bit/s"),
];
const SIZES: &[(f64, &str)] = &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];

const QUANTITIES: [Quantity; 6] = [
    Quantity {
        name: "goodput",
        units: RATES,
        of: |m| m.goodput,
    },
    Quantity {
        name: "window",
        units: SIZES,
        of: |m| m.window,
    },
    Quantity {
        name: "rtt",
        units: &[(1.0, "ms")],
        of: |m| m.rtt,
    },
    Quantity {
        name: "queue",
        units: SIZES,
        of: |m| m.queue,
    },
    Quantity {
        name: "re-sent",
        units: SIZES,
        of: |m| m.repaired,
    },
    Quantity {
        name: "loss episodes",
        units: &[(1.0, "")],
        of: |m| m.episodes,
    },
];

/// A chart of every quantity that is known, with one time axis; of all but the goodput only if it is ever other
/// than 0. Each track has one colour.
pub fn charts(tracks: &[Track]) -> Vec<Chart> {
    let moments = || tracks.iter().flat_map(|track| &track.moments);
    let end = moments().map(|m| m.at).fold(0.0, f64::max);
    let mut charts = Vec::new();
    for quantity in QUANTITIES {
        let values = moments().filter_map(quantity.of);
        let most = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
        if most <= 0.0 && quantity.name != "goodput" {
            continue;
        }
        let fits = |unit: &&(f64, &str)| most >= unit.0;
        let (size, unit) = quantity
            .units
            .iter()
            .find(fits)
            .or(quantity.units.last())
            .copied()
            .unwrap_or((1.0, ""));
        let line = |(colour, track): (usize, &Track)| {
            let point = |m: &Moment| {
                Some(Point {
                    x: m.at,
                    y: (quantity.of)(m)? / size,
                    ..Point::default()
                })
            };
            Line {
                name: track.name.clone(),
                // With nothing to be distinguished from, a dashed line is only harder to read.
                origin: Origin::Simulated,
                colour,
                points: track.moments.iter().filter_map(point).collect(),
            }
        };
        let comma = if unit.is_empty() { "" } else { ", " };
        charts.push(Chart {
            title: String::new(),
            x: Axis {
                label: "time, s".into(),
                range: Some((0.0, end)),
                ..Axis::default()
            },
            y: Axis {
                label: format!("{}{comma}{unit}", quantity.name),
                ..Axis::default()
            },
            key: String::new(),
            body: Body::Lines(tracks.iter().enumerate().map(line).collect()),
        });
    }
    charts
}

/// File format of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Scales.
    Svg,
    /// Pixels.
    Png,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(extension: &str) -> Result<Self, String> {
        match extension.to_ascii_lowercase().as_str() {
            "svg" => Ok(Self::Svg),
            "png" => Ok(Self::Png),
            _ => Err(format!(
                "'{extension}' is no kind of figure: give svg or png"
            )),
        }
    }
}

impl Format {
    /// Format by the extension of `path`; none if it has none.
    pub fn of(path: &Path) -> Result<Option<Self>, String> {
        let extension = path.extension().map(|e| e.to_string_lossy());
        extension.map(|e| e.parse()).transpose()
    }
}

/// Width of stored figures, px.
const WIDTH: u32 = 800;
/// Height of a panel's plot, px; the first is higher.
const PANEL: f64 = 105.0;
const FIRST: f64 = 170.0;

/// Draws the tracks as SVG.
pub fn svg(name: &str, tracks: &[Track]) -> Result<String, PlotError> {
    stacked_svg(name, &charts(tracks), WIDTH)
}

/// Stores the tracks as a figure.
///
/// # Errors
/// If it could not be drawn or written.
pub fn save(path: &Path, format: Format, name: &str, tracks: &[Track]) -> io::Result<()> {
    let bytes = match format {
        Format::Svg => svg(name, tracks).map(String::into_bytes),
        Format::Png => stacked_png(name, &charts(tracks), WIDTH),
    };
    std::fs::write(path, bytes.map_err(io::Error::other)?)
}

/// Charts of lines above one another, with the first one's legend and the last one's time axis, as SVG for a
/// space of `width` px.
pub fn stacked_svg(title: &str, charts: &[Chart], width: u32) -> Result<String, PlotError> {
    paint::svg(&stacked(title, charts, width)?)
}

/// Draws stacked charts as PNG of `width` px.
pub fn stacked_png(title: &str, charts: &[Chart], width: u32) -> Result<Vec<u8>, PlotError> {
    paint::png(&stacked(title, charts, width)?)
}

fn stacked(name: &str, charts: &[Chart], width: u32) -> Result<Scene, PlotError> {
    let style = Style::of(f64::from(width));
    let below = Style::leading(style.tick) + Style::leading(style.label) + 5.0;
    let named = if style.small {
        Style::leading(style.label)
    } else {
        0.0
    };
    let heights: Vec<f64> = (0..charts.len())
        .map(|i| named + if i == 0 { FIRST } else { PANEL })
        .collect();
    let panels = heights.iter().sum::<f64>() + to_f64(charts.len()) * 12.0 + below;
    // What title and legend need is known when they are drawn.
    let head = 120.0 + PANEL;
    let mut scene = canvas(name, (width, pixels(panels + head)))?;
    let margin = style.margin;
    let whole = scene.rect();
    let area = Rect::new(margin, margin, whole.right - margin, whole.bottom - margin);
    let area = title(&mut scene, area, name, &style);
    let Some((first, last)) = charts.first().zip(charts.last()) else {
        nothing(&mut scene, area, &style);
        return Ok(scene);
    };
    let area = match &first.body {
        Body::Lines(lines) if lines.len() > 1 => legend::draw(&mut scene, area, first, &style),
        _ => area,
    };
    let gutter = charts
        .iter()
        .zip(&heights)
        .filter_map(|(chart, height)| {
            let (_, y) = lines::scales(chart, of(chart), Bounds::Tight)?;
            Some(axes::gutter(&chart.y.label, &y, height - 12.0, &style))
        })
        .fold(0.0, f64::max);
    let mut top = area.top;
    for (chart, height) in charts.iter().zip(&heights) {
        let is_last = std::ptr::eq(chart, last);
        let room = Room {
            gutter: Some(gutter),
            bare: !is_last,
            square: false,
        };
        let bottom = top + height + if is_last { below } else { 3.0 };
        let panel = Rect {
            top,
            bottom,
            ..area
        };
        if !lines::lines(&mut scene, panel, chart, of(chart), room, &style) {
            nothing(&mut scene, panel, &style);
        }
        top = bottom + 9.0;
    }
    scene.size.1 = pixels(top - 9.0 + margin);
    Ok(scene)
}

fn of(chart: &Chart) -> &[Line] {
    match &chart.body {
        Body::Lines(lines) | Body::Scatter { sets: lines, .. } => lines,
        Body::Bars { .. } | Body::Heat { .. } => &[],
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a height of less than 2^32 pixels"
)]
#[expect(clippy::cast_sign_loss, reason = "a height")]
fn pixels(height: f64) -> u32 {
    height.ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(name: &str, phase: f64) -> Track {
        let moment = |i: u32| {
            let at = f64::from(i) / 10.0;
            let wave = 1.0 + (at + phase).sin();
            Moment {
                at,
                goodput: Some(wave * 3e8),
                window: Some(wave * 2e6),
                rtt: (i > 2).then_some(50.0 + wave),
                queue: Some(0.0),
                repaired: Some(at.floor() * 3e3),
                episodes: None,
            }
        };
        Track {
            name: name.into(),
            moments: (0..300).map(moment).collect(),
        }
    }

    fn labels(charts: &[Chart]) -> Vec<&str> {
        charts.iter().map(|c| c.y.label.as_str()).collect()
    }

    #[test]
    fn panels_are_of_what_is_known_and_not_always_zero() {
        let charts = charts(&[track("a", 0.0), track("b", 2.0)]);
        let expected = ["goodput, Mbit/s", "window, MB", "rtt, ms", "re-sent, kB"];
        assert_eq!(labels(&charts), expected);
        for chart in &charts {
            let lines = of(chart);
            assert_eq!(lines.len(), 2);
            assert_eq!((lines[0].colour, lines[1].colour), (0, 1));
            assert_eq!(chart.x.range, Some((0.0, 29.9)));
        }
        assert_eq!(of(&charts[2])[0].points.len(), 297);
    }

    #[test]
    fn panels_stand_above_one_another_over_one_time_axis() {
        let tracks = [track("flow <a>", 0.0), track("b", 2.0)];
        let charts = charts(&tracks);
        let mut heights = Vec::new();
        for width in [380, 800] {
            let scene = stacked("two & two", &charts, width).unwrap();
            assert_eq!(scene.size.0, width);
            let texts = scene.shapes.iter().filter_map(|shape| match shape {
                super::super::scene::Shape::Text { text, .. } => Some(text.as_str()),
                _ => None,
            });
            let texts: Vec<_> = texts.collect();
            for once in ["time, s", "flow <a>", "b", "rtt, ms", "two & two"] {
                assert_eq!(texts.iter().filter(|t| **t == once).count(), 1, "{once}");
            }
            heights.push(scene.size.1);
        }
        assert!(
            heights.iter().all(|h| (450..800).contains(h)),
            "{heights:?}"
        );
        let text = stacked_svg("two & two", &charts, 800).unwrap();
        assert!(text.contains("flow &lt;a&gt;") && text.contains("two &amp; two"));
        let none = stacked_svg("nothing", &[], 800).unwrap();
        assert!(none.contains("no data"));
        let empty = super::charts(&[Track::default()]);
        assert!(
            stacked_svg("nothing", &empty, 800)
                .unwrap()
                .contains("no data")
        );
    }

    #[test]
    fn the_name_of_a_file_decides_how_it_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        for (name, starts) in [("a.svg", &b"<svg"[..]), ("a.PNG", b"\x89PNG")] {
            let path = folder.path().join(name);
            let format = Format::of(&path).unwrap().unwrap();
            save(&path, format, "a", &[track("a", 0.0)]).unwrap();
            assert!(std::fs::read(&path).unwrap().starts_with(starts));
        }
        assert_eq!(Format::of(Path::new("plots")), Ok(None));
        assert!(
            Format::of(Path::new("a.pdf"))
                .unwrap_err()
                .contains("svg or png")
        );
    }
}
