use std::{env, fs, path::PathBuf};

use super::*;

const NASTY: &str = "a<b & \"c\" 'd' ]]> \u{1}e";
const SIZES: [(u32, u32); 2] = [(720, 400), (380, 300)];

fn point(x: f64, y: f64, range: Option<(f64, f64)>) -> Point {
    Point {
        x,
        y,
        range,
        label: Some(format!("{x}: {y} <Mbit/s> & more")),
        ..Point::default()
    }
}

fn line(name: &str, origin: Origin, colour: usize, points: &[(f64, f64)]) -> Line {
    let around = |(x, y): &(f64, f64)| point(*x, *y, Some((y * 0.8, y * 1.15)));
    Line {
        name: name.into(),
        origin,
        colour,
        points: points.iter().map(around).collect(),
    }
}

fn axis(label: &str, log: bool) -> Axis {
    Axis {
        label: label.into(),
        log,
        range: None,
    }
}

fn chart(title: &str, x: Axis, y: Axis, body: Body) -> Chart {
    Chart {
        title: title.into(),
        x,
        y,
        key: String::new(),
        body,
    }
}

fn over_loss() -> Chart {
    let loss = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];
    let of = |top: f64, k: f64| -> Vec<(f64, f64)> {
        loss.iter().map(|l| (*l, top / (1.0 + k * l))).collect()
    };
    let lines = vec![
        line("haul, simulated", Origin::Simulated, 0, &of(940.0, 0.02)),
        line("haul, measured", Origin::Measured, 0, &of(900.0, 0.025)),
        line("CUBIC, simulated", Origin::Simulated, 1, &of(700.0, 20.0)),
        line("CUBIC, measured", Origin::Measured, 1, &of(680.0, 25.0)),
        line("UDT, simulated", Origin::Simulated, 2, &of(850.0, 1.0)),
        line("CUBIC, paper", Origin::Published, 1, &of(650.0, 18.0)[..5]),
    ];
    chart(
        "Goodput over loss, 1 Gbit/s, rtt 100 ms",
        axis("loss, %", true),
        axis("goodput, Mbit/s", true),
        Body::Lines(lines),
    )
}

fn over_time() -> Chart {
    let wave = |phase: f64, high: f64| -> Vec<(f64, f64)> {
        let at = |i| {
            let t = f64::from(i) / 10.0;
            (t, high * (1.0 + 0.3 * (t + phase).sin()))
        };
        (0..600).map(at).collect()
    };
    let lines = vec![
        line("flow 1", Origin::Simulated, 0, &wave(0.0, 500e6)),
        line("flow 2", Origin::Measured, 1, &wave(2.0, 300e6)),
    ];
    chart(
        "Two flows",
        axis("time, s", false),
        axis("goodput, bit/s", false),
        Body::Lines(lines),
    )
}

fn groups() -> Chart {
    let names = [
        "1 Gbit/s, 50 ms",
        "1 Gbit/s, 200 ms",
        "10 Gbit/s, 50 ms",
        "10 Gbit/s, 200 ms",
    ];
    let bars = |name: &str, origin, colour, values: [f64; 4]| Bars {
        name: name.into(),
        origin,
        colour,
        values: values
            .iter()
            .map(|v| (*v > 0.0).then(|| point(0.0, *v, Some((v * 0.93, v * 1.05)))))
            .collect(),
    };
    chart(
        "Share of the link that one flow uses",
        axis("path", false),
        axis("utilisation, %", false),
        Body::Bars {
            groups: names.map(String::from).to_vec(),
            series: vec![
                bars(
                    "haul, simulated",
                    Origin::Simulated,
                    0,
                    [94.0, 93.0, 91.0, 90.0],
                ),
                bars(
                    "haul, measured",
                    Origin::Measured,
                    0,
                    [92.0, 90.5, 84.0, 0.0],
                ),
                bars(
                    "CUBIC, simulated",
                    Origin::Simulated,
                    1,
                    [71.0, 43.0, 38.0, 12.3],
                ),
                bars(
                    "CUBIC, paper",
                    Origin::Published,
                    1,
                    [68.0, 45.0, 33.0, 10.0],
                ),
            ],
        },
    )
}

fn table() -> Chart {
    let columns = ["0", "0.001", "0.01", "0.1", "1", "10"];
    let rows = ["10 ms", "50 ms", "100 ms", "200 ms", "400 ms"];
    let cell = |r: usize, c: usize| {
        let value = 940.0 / (1.0 + f64::from(u32::try_from(r * c * c).unwrap()) * 0.3);
        ((r, c) != (4, 5) && (r, c) != (3, 0)).then_some(value)
    };
    let of = |r| (0..columns.len()).map(|c| cell(r, c)).collect();
    chart(
        "Goodput, Mbit/s",
        axis("loss, %", false),
        axis("rtt", false),
        Body::Heat {
            columns: columns.map(String::from).to_vec(),
            rows: rows.map(String::from).to_vec(),
            cells: (0..rows.len()).map(of).collect(),
        },
    )
}

fn pairs() -> Chart {
    let near = |by: f64| -> Vec<(f64, f64)> {
        let at = |i| {
            let x = 10f64.powf(f64::from(i) / 5.0);
            (x, x * by.powf(f64::from(i % 5) - 2.0))
        };
        (0..16).map(at).collect()
    };
    chart(
        "Ours against the paper's",
        axis("published, Mbit/s", false),
        axis("ours, Mbit/s", false),
        Body::Scatter {
            sets: vec![
                line("simulated", Origin::Simulated, 0, &near(1.2)),
                line("measured", Origin::Measured, 1, &near(0.7)),
            ],
            diagonal: true,
        },
    )
}

fn gallery() -> Vec<(&'static str, Chart)> {
    let keyed = |chart: Chart| Chart {
        key: "round-trip time of the path".into(),
        ..chart
    };
    vec![
        ("lines", over_loss()),
        ("lines with a key", keyed(over_loss())),
        ("scatter with a key", keyed(pairs())),
        ("time", over_time()),
        ("bars", groups()),
        ("heat", table()),
        ("scatter", pairs()),
    ]
}

/// The elements of an XML text are closed in order; their number.
fn elements(xml: &str) -> usize {
    let mut open = Vec::new();
    let mut count = 0;
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(!text.contains('>'), "unescaped: {text}");
        entities(text);
        let end = rest.find('>').expect("every tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        entities(tag);
        assert!(!tag.contains('<'), "{tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.to_owned()), "closed in order");
            continue;
        }
        count += 1;
        if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap_or_default().to_owned());
        }
    }
    assert!(open.is_empty(), "{open:?} left open");
    assert!(xml.chars().all(|c| c == '\n' || !c.is_control()));
    count
}

fn entities(text: &str) {
    for (at, _) in text.match_indices('&') {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&apos;"];
        assert!(known.iter().any(|e| text[at..].starts_with(e)), "{text}");
    }
}

fn decoded(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes))
        .read_info()
        .unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (info.width, info.height, pixels)
}

#[test]
fn every_body_is_drawn_for_a_page_and_for_a_phone() {
    let kept = env::var_os("FARHAUL_PLOTS").map(PathBuf::from);
    for (name, chart) in gallery() {
        for size in SIZES {
            let text = svg(&chart, size).unwrap();
            assert!(elements(&text) > 30, "{name}");
            assert!(text.contains(&format!("viewBox=\"0 0 {} {}\"", size.0, size.1)));
            assert!(!text.contains(" id="), "{name}");
            let picture = png(&chart, size).unwrap();
            let (width, height, pixels) = decoded(&picture);
            assert_eq!((width, height), size);
            let coloured = |p: &&[u8]| p.iter().max() > p.iter().min();
            assert!(
                pixels.chunks_exact(3).filter(coloured).count() > 200,
                "{name}"
            );
            if let Some(folder) = &kept {
                let file = folder.join(format!("{name}-{}", size.0));
                fs::write(file.with_extension("svg"), text).unwrap();
                fs::write(file.with_extension("png"), picture).unwrap();
            }
        }
    }
}

#[test]
fn equal_charts_give_equal_bytes() {
    for (_, chart) in gallery() {
        let again = chart.clone();
        assert_eq!(
            svg(&chart, SIZES[0]).unwrap(),
            svg(&again, SIZES[0]).unwrap()
        );
        assert_eq!(
            png(&chart, SIZES[1]).unwrap(),
            png(&again, SIZES[1]).unwrap()
        );
    }
}

fn every_body(name: &str, points: &[(f64, f64)]) -> Vec<Body> {
    let lines = || {
        let origins = [Origin::Simulated, Origin::Measured, Origin::Published];
        origins.map(|origin| line(name, origin, 0, points)).to_vec()
    };
    let values = || points.iter().map(|(x, y)| Some(point(*x, *y, None)));
    vec![
        Body::Lines(lines()),
        Body::Scatter {
            sets: lines(),
            diagonal: false,
        },
        Body::Scatter {
            sets: lines(),
            diagonal: true,
        },
        Body::Bars {
            groups: vec![name.into(); points.len()],
            series: vec![Bars {
                name: name.into(),
                origin: Origin::Measured,
                colour: 12,
                values: values().collect(),
            }],
        },
        Body::Heat {
            columns: vec![name.into(); points.len()],
            rows: vec![name.into(); 2],
            cells: vec![points.iter().map(|(_, y)| Some(*y)).collect()],
        },
    ]
}

#[test]
fn names_are_escaped_and_control_characters_left_out() {
    for body in every_body(NASTY, &[(1.0, 2.0), (3.0, 4.0)]) {
        let chart = chart(NASTY, axis(NASTY, false), axis(NASTY, true), body);
        for size in SIZES {
            let text = svg(&chart, size).unwrap();
            elements(&text);
            assert!(text.contains("a&lt;b &amp; &quot;c&quot;"), "{text}");
        }
    }
}

#[test]
fn values_that_no_axis_shows_are_left_out() {
    let none = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let nothing: Vec<_> = none.iter().map(|v| (*v, *v)).collect();
    let mut cases = vec![(Vec::new(), true), (nothing.clone(), true)];
    let huge = [(f64::MIN, f64::MAX), (f64::MAX, f64::MIN), (0.0, 5e-324)];
    for value in [0.0, 1.0, -1.0, 1e-300, 1e300] {
        cases.push((vec![(value, value)], false));
    }
    cases.push((huge.to_vec(), false));
    cases.push(([nothing, vec![(1.0, 2.0)]].concat(), false));
    for (points, empty) in cases {
        for (log, body) in [false, true]
            .into_iter()
            .flat_map(|log| every_body("n", &points).into_iter().map(move |b| (log, b)))
        {
            let chart = chart("title", axis("x", log), axis("y", log), body);
            let text = svg(&chart, SIZES[1]).unwrap();
            elements(&text);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            if empty {
                assert!(text.contains("no data"), "{:?}", chart.body);
            }
            png(&chart, (160, 120)).unwrap();
        }
    }
}

#[test]
fn impossible_ranges_and_sizes_are_no_panic() {
    let mut chart = over_loss();
    for range in [
        (f64::NAN, 1.0),
        (1.0, 1.0),
        (2.0, 1.0),
        (-1.0, 0.0),
        (1e-9, 1e9),
        (5.0, 6.0),
    ] {
        chart.x.range = Some(range);
        chart.y.range = Some(range);
        elements(&svg(&chart, SIZES[0]).unwrap());
    }
    for size in [
        (0, 0),
        (159, 400),
        (400, 119),
        (9_000, 400),
        (u32::MAX, u32::MAX),
    ] {
        assert!(matches!(svg(&chart, size), Err(PlotError::Size(..))));
        assert!(matches!(png(&chart, size), Err(PlotError::Size(..))));
    }
    for (_, chart) in gallery() {
        elements(&svg(&chart, (160, 120)).unwrap());
    }
}

#[test]
fn points_outside_the_axes_are_counted() {
    let mut chart = over_loss();
    chart.x.range = Some((0.02, 20.0));
    // The first of each of six lines.
    assert!(
        svg(&chart, SIZES[0])
            .unwrap()
            .contains("6 points outside the axes")
    );
    chart.x.range = None;
    assert!(!svg(&chart, SIZES[0]).unwrap().contains("outside"));
}

#[test]
fn a_legend_of_many_names_leaves_space_for_the_data() {
    let name = |i| format!("protocol {i} with a rather long name, simulated over eight seeds");
    let lines = (0..60).map(|i| line(&name(i), Origin::Simulated, i, &[(0.0, 1.0), (1.0, 2.0)]));
    let chart = chart(
        "many",
        axis("x", false),
        axis("y", false),
        Body::Lines(lines.collect()),
    );
    for size in SIZES {
        let scene = picture(&chart, size).unwrap();
        let lowest = scene.shapes.iter().filter_map(|shape| match shape {
            scene::Shape::Text { at, text, .. } if text.starts_with("protocol") => Some(at.1),
            _ => None,
        });
        let lowest = lowest.fold(0.0, f64::max);
        assert!(lowest > 0.0 && lowest < f64::from(size.1) * 0.5, "{lowest}");
        let more = |shape: &scene::Shape| matches!(shape, scene::Shape::Text { text, .. } if text.ends_with(" more"));
        assert!(scene.shapes.iter().any(more));
    }
}

#[test]
fn a_label_is_a_tooltip() {
    let chart = over_loss();
    let text = svg(&chart, SIZES[0]).unwrap();
    assert!(text.contains("<title>0.01: "), "{text}");
    assert!(text.contains(" &lt;Mbit/s&gt; &amp; more</title>"));
}

#[test]
fn every_text_is_within_the_picture() {
    for (name, chart) in gallery() {
        for size in SIZES {
            for shape in picture(&chart, size).unwrap().shapes {
                let scene::Shape::Text {
                    at,
                    text,
                    size: em,
                    anchor,
                    turned,
                    ..
                } = shape
                else {
                    continue;
                };
                let wide = text::width(&text, em);
                let before = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => wide / 2.0,
                    Anchor::End => wide,
                };
                let along = if turned {
                    f64::from(size.1) - at.1
                } else {
                    at.0
                };
                let most = f64::from(if turned { size.1 } else { size.0 });
                let inside = along - before >= -1.0 && along - before + wide <= most + 1.0;
                assert!(inside, "{name} {size:?}: {text} at {at:?}");
            }
        }
    }
}

#[test]
fn a_legend_begins_with_the_name_of_its_variable() {
    let mut chart = over_loss();
    let drawn = |chart: &Chart, size| svg(chart, size).unwrap();
    // Beside the plot, and above it.
    for size in [(720, 432), (360, 320)] {
        chart.key.clear();
        assert!(!drawn(&chart, size).contains("RTT:"));
        chart.key = "RTT".into();
        let svg = drawn(&chart, size);
        let at = |text: &str| svg.find(text).unwrap_or_else(|| panic!("{text}"));
        assert!(at("RTT:") < at("haul, simulated"));
    }
}

#[test]
fn a_chart_has_something_of_ours_or_not() {
    for chart in [over_loss(), over_time(), table(), pairs()] {
        assert!(chart.has_ours(), "{}", chart.title);
    }
    let mut chart = over_loss();
    if let Body::Lines(lines) = &mut chart.body {
        lines.retain(|l| l.origin.is_paper());
        assert!(!lines.is_empty());
    }
    assert!(!chart.has_ours());
}
