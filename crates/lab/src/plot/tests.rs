use std::{env, fs, path::PathBuf};

use super::*;

const SIZES: [(u32, u32); 2] = [(720, 400), (380, 300)];

fn point(x: f64, y: f64, range: Option<(f64, f64)>) -> Point {
    Point {
        x,
        y,
        range,
        label: Some(format!("{x}: {y} <Mbit/s> & more")),
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
    vec![
        ("lines", over_loss()),
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
