//! A page with everything in it that a study may bring.

use crate::{
    plot::{Axis, Bars, Body, Chart, Line, Origin, Point},
    reference::Kind,
    report::{Figure, Outcome, Page, Progress, Section, Table, Verdict},
};

/// Text that must be shown as it is.
pub(super) const MARKUP: &str = "<script>document.title = 'taken'</script> & \"so on\" | *this*";

/// Text without a place where it could be broken.
pub(super) fn long() -> String {
    "congestion-window-of-".repeat(20)
}

pub(in crate::report) fn page() -> Page {
    Page {
        name: "kachan-2014".into(),
        title: "Comparison of contemporary solutions for high speed data transport on WAN connections".into(),
        source: "D. Kachan and E. Siemens, “Comparison of Contemporary Protocols for High-speed Data Transport via \
                 10 Gbps WAN Connections” (2014)"
            .into(),
        about: "Six round-trip times and seven loss rates over a path of 10 Gbit/s, 180 s each. The paper compares \
                the rate, the processor time and the feedback of UDT, RBUDP, MTP and RWTP; here the same protocols \
                run over the same paths, in the simulator and over an emulated network."
            .into(),
        quick: false,
        deviations: vec![
            "The hosts of the paper are modelled by the cost of one receiver; their network cards are not.".into(),
            MARKUP.into(),
            long(),
        ],
        sections: vec![
            rates(),
            feedback(),
            hostile(),
            empty("K5", "Preset rates above the capacity of the path"),
            empty("K5", "The same name again"),
            empty("K6", ""),
        ],
        facts: vec![
            ("Program".into(), "farhaul 0.1.0".into()),
            ("Machine".into(), "2 x AMD EPYC 7763, 24 GiB, one NUMA node".into()),
            ("Kernel".into(), "Linux 6.8.0-45-generic".into()),
            (MARKUP.into(), long()),
        ],
        progress: Some(Progress {
            ended: 37,
            runs: 168,
            text: "K1, udt, 200 ms, 0.5 %, seed 2; about 12 min left".into(),
        }),
    }
}

fn rates() -> Section {
    Section {
        id: "K1".into(),
        title: "Rate over loss and round-trip time".into(),
        about: "A memory-to-memory transfer of 180 s in each of 42 cells, four seeds. The paper reports the best \
                of four runs; so do we, and the range of the seeds beside it."
            .into(),
        figures: vec![
            figure("k1-rate", "Fig. 3", "Goodput over loss, a line per round-trip time.", lines()),
            figure("k1-cells", "Fig. 3", "Median goodput in each of the 42 cells.", heat()),
            figure("k1-all", "", "Ours over published, each number once.", scatter()),
        ],
        tables: vec![table()],
        verdicts: outcomes(),
        deviations: vec!["Ours are medians of four seeds; the paper shows the best of four runs.".into()],
        repeat: "farhaul lab run kachan-2014/K1 --backend sim --seed 1..4".into(),
        ran: true,
        undrawn: Vec::new(),
        open: Vec::new(),
        remarks: vec![
            "udt, 400 ms, 2 %, seed 3 (emu): the emulator was late by 65 ms; tried three times.".into(),
            "rwtp, 400 ms, seed 1: its window needs 1.2 GiB of memory, there is 1 GiB.".into(),
        ],
    }
}

/// One or more of each.
fn outcomes() -> Vec<Verdict> {
    [judged(), apart()].concat()
}

fn judged() -> Vec<Verdict> {
    vec![
        verdict(
            "UDT, no delay and no loss",
            "3.56 Gbit/s, derived",
            "3.19 Gbit/s",
            Outcome::Met,
            "",
        ),
        verdict(
            "UDT, 0.1 % loss",
            "at most 200 Mbit/s, printed",
            "189 Mbit/s",
            Outcome::Met,
            "",
        ),
        verdict(
            "UDT, 0.3 % loss",
            "at most 100 Mbit/s, printed",
            "211 Mbit/s",
            Outcome::Missed,
            "111 % above the bound",
        ),
        verdict(
            "UDT, 0.5 % loss",
            "at most 100 Mbit/s, printed",
            "152 Mbit/s",
            Outcome::Known,
            "the sending interval grows by 1/8 for each loss report; the version that was measured is not known",
        ),
        verdict(
            "RBUDP, 2 % loss",
            "more than 100 Mbit/s, printed",
            "2.58 Gbit/s",
            Outcome::Met,
            "",
        ),
        verdict(
            "RBUDP, host loss",
            "3.43 Gbit/s, recalled",
            "3.44 Gbit/s",
            Outcome::Fitted,
            "the loss at hosts",
        ),
        verdict(
            "RBUDP, processor of the sender",
            "10.4 %/Gbps, printed",
            "14 %/Gbps",
            Outcome::FittedOutside,
            "the time for a packet; 20 % above the bound",
        ),
    ]
}

fn apart() -> Vec<Verdict> {
    vec![
        verdict(
            "MTP, no loss",
            "4.1 Gbit/s, assumed",
            "3.9 Gbit/s",
            Outcome::Shown,
            "",
        ),
        verdict(
            "RWTP, 200 ms, 1 % loss",
            "4.0 Gbit/s, printed",
            "1.2 Gbit/s",
            Outcome::NotComparable,
            "the emulator was late in every run",
        ),
        verdict(
            "RWTP, 400 ms, 0.1 % loss",
            "7.2 or 2.8 Gbit/s, printed",
            "",
            Outcome::NotRun,
            "no run of 180 s",
        ),
    ]
}

fn feedback() -> Section {
    Section {
        id: "K3".into(),
        title: "Feedback".into(),
        about: "Bytes that a receiver sends for each GiB it receives, whole Ethernet frames."
            .into(),
        figures: vec![
            figure(
                "k3-feedback",
                "Figs. 5, 8, 11 and 14",
                "Feedback per GiB.",
                bars(),
            ),
            figure(
                "k3-window",
                "Fig. 9",
                "The congestion window over time.",
                series(),
            ),
        ],
        tables: Vec::new(),
        verdicts: (0..4).map(case).collect(),
        deviations: Vec::new(),
        repeat: "farhaul lab run kachan-2014/K3".into(),
        ran: true,
        undrawn: vec!["fig8".into()],
        open: vec!["sim: 3 of 12 runs are not made yet".into()],
        remarks: Vec::new(),
    }
}

/// Names that are long, or markup; a figure without data.
fn hostile() -> Section {
    let empty = Chart {
        body: Body::Lines(Vec::new()),
        ..lines()
    };
    let mut cell = verdict(&long(), &long(), &long(), Outcome::Missed, &long());
    cell.case = long();
    cell.setting = long();
    Section {
        id: MARKUP.into(),
        title: long(),
        about: MARKUP.into(),
        figures: vec![
            figure("hostile-empty", MARKUP, MARKUP, empty),
            figure("hostile-names", "Fig. 1", &long(), names()),
        ],
        tables: Vec::new(),
        verdicts: vec![cell, verdict(MARKUP, MARKUP, MARKUP, Outcome::Met, MARKUP)],
        deviations: vec![long()],
        repeat: format!("farhaul lab run {}", long()),
        ran: true,
        undrawn: Vec::new(),
        open: Vec::new(),
        remarks: vec![MARKUP.into(), long()],
    }
}

fn empty(id: &str, title: &str) -> Section {
    Section {
        id: id.into(),
        title: title.into(),
        about: String::new(),
        figures: Vec::new(),
        tables: Vec::new(),
        verdicts: Vec::new(),
        deviations: Vec::new(),
        repeat: String::new(),
        ran: false,
        undrawn: Vec::new(),
        open: Vec::new(),
        remarks: Vec::new(),
    }
}

fn figure(id: &str, place: &str, caption: &str, chart: Chart) -> Figure {
    Figure {
        id: id.into(),
        place: place.into(),
        caption: caption.into(),
        chart,
    }
}

fn verdict(what: &str, published: &str, ours: &str, outcome: Outcome, note: &str) -> Verdict {
    Verdict {
        row: Some(what.to_lowercase()),
        kind: Some(Kind::Printed),
        place: "Fig. 3".into(),
        quantity: what.into(),
        what: "goodput / goodput with rtt=0ms".into(),
        case: "all".into(),
        setting: String::new(),
        backend: "sim",
        published: published.into(),
        ours: ours.into(),
        range: if ours.is_empty() {
            ""
        } else {
            "3.02 to 3.31 over 4 seeds"
        }
        .into(),
        bounds: "±15 %".into(),
        off: 0.0,
        outcome,
        note: note.into(),
    }
}

fn case(n: u32) -> Verdict {
    let mut verdict = verdict(
        "Feedback of UDT",
        "1.2 MiB/GiB, printed",
        "0.78 MiB/GiB",
        Outcome::Met,
        "",
    );
    verdict.case = format!("loss=0.{n}% rtt={}ms", n * 50);
    verdict.setting = format!("loss 0.{n} %, RTT {} ms", n * 50);
    verdict.backend = "emu";
    verdict
}

fn axis(label: &str, log: bool) -> Axis {
    Axis {
        label: label.into(),
        log,
        range: None,
    }
}

fn point(x: f64, y: f64, spread: f64) -> Point {
    Point {
        x,
        y,
        range: Some((y * (1.0 - spread), y * (1.0 + spread))),
        label: Some(format!("{y:.1} at {x}")),
        ..Point::default()
    }
}

const LOSSES: [f64; 7] = [0.0, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0];

fn line(name: &str, origin: Origin, colour: usize, y: impl Fn(f64) -> f64) -> Line {
    Line {
        name: name.into(),
        origin,
        colour,
        points: LOSSES.iter().map(|x| point(*x, y(*x), 0.12)).collect(),
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

fn lines() -> Chart {
    let udt = |base: f64| move |loss: f64| base / (1.0 + 40.0 * loss);
    let body = Body::Lines(vec![
        line("udt, 0 ms", Origin::Simulated, 0, udt(3_200.0)),
        line("udt, 0 ms", Origin::Measured, 0, udt(2_900.0)),
        line("udt, 400 ms", Origin::Simulated, 1, udt(1_100.0)),
        line("rbudp, 400 ms", Origin::Simulated, 2, |loss| {
            1_180.0 / (1.0 + loss)
        }),
        line("UDT in the paper", Origin::Published, 0, udt(3_560.0)),
    ]);
    chart(
        "Rate over loss",
        axis("loss, %", false),
        axis("goodput, Mbit/s", true),
        body,
    )
}

fn heat() -> Chart {
    let rtts = [0, 50, 100, 150, 200, 400];
    let cells = rtts.map(|rtt| {
        let cell = |loss: &f64| {
            (rtt != 400 || *loss < 2.0).then(|| 3_000.0 / (1.0 + loss * f64::from(rtt + 10)))
        };
        LOSSES.iter().map(cell).collect()
    });
    let body = Body::Heat {
        columns: LOSSES.map(|loss| loss.to_string()).into(),
        rows: rtts.map(|rtt| rtt.to_string()).into(),
        cells: cells.into(),
    };
    chart(
        "UDT, Mbit/s",
        axis("loss, %", false),
        axis("round-trip time, ms", false),
        body,
    )
}

fn scatter() -> Chart {
    let body = Body::Scatter {
        sets: vec![
            line("sim", Origin::Simulated, 0, |x| 20.0 + x * 100.0),
            line("emu", Origin::Measured, 1, |x| 30.0 + x * 60.0),
        ],
        diagonal: true,
    };
    chart(
        "Ours over published",
        axis("published, Mbit/s", true),
        axis("ours, Mbit/s", true),
        body,
    )
}

fn bars() -> Chart {
    let bar = |name: &str, origin, colour, values: [Option<f64>; 4]| Bars {
        name: name.into(),
        origin,
        colour,
        values: values.map(|y| y.map(|y| point(0.0, y, 0.1))).into(),
    };
    let body = Body::Bars {
        groups: ["UDT", "RBUDP", "MTP", "RWTP"].map(String::from).into(),
        series: vec![
            bar(
                "published",
                Origin::Published,
                0,
                [1_229.0, 37.0, 3_277.0, 1_024.0].map(Some),
            ),
            bar(
                "sim",
                Origin::Simulated,
                0,
                [790.0, 36.0, 3_100.0, 980.0].map(Some),
            ),
            bar(
                "emu",
                Origin::Measured,
                1,
                [Some(770.0), None, Some(2_900.0), None],
            ),
        ],
    };
    chart(
        "Feedback",
        axis("protocol", false),
        axis("KiB per GiB", true),
        body,
    )
}

/// Lines of many points.
fn series() -> Chart {
    let points = (0..600).map(|i| Point {
        x: f64::from(i) * 0.1,
        y: 40.0 + f64::from(i % 120) * 0.5,
        ..Point::default()
    });
    let body = Body::Lines(vec![Line {
        name: "cubic".into(),
        origin: Origin::Simulated,
        colour: 3,
        points: points.collect(),
    }]);
    chart(
        "Window",
        axis("time, s", false),
        axis("window, packets", false),
        body,
    )
}

fn names() -> Chart {
    let mut chart = lines();
    chart.key = long();
    chart.title = long();
    chart.x.label = MARKUP.into();
    if let Body::Lines(lines) = &mut chart.body {
        lines[0].name = long();
        lines[1].name = MARKUP.into();
        lines[0].points[0].label = Some(MARKUP.into());
    }
    chart
}

fn table() -> Table {
    let row = |cells: [&str; 3]| cells.map(Into::into).to_vec();
    Table {
        id: "rates".into(),
        place: "Table 1".into(),
        caption: format!("Rates {MARKUP}"),
        head: row(["loss", "udt: goodput, Mbit/s", "runs"]),
        rows: vec![row(["0 %", "3558", "4"]), row([MARKUP, "-", "0"])],
    }
}
