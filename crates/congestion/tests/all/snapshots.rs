//! Snapshots of each law's window over time. The script is the same for all: a slow start on an
//! empty path of 100 ms to 640 datagrams, a loss, fifty rounds. Then come a queue that adds 20 ms
//! to the rtt for thirty rounds, twenty more without it, a second loss, twenty more. Every tenth
//! window is kept, in datagrams; `oracles.rs` compares windows with formulas.

use std::{fmt::Write, time::Duration};

use crate::path::ScriptedPath;
use farhaul_congestion::lookup;

fn run(spec: &str) -> Vec<f64> {
    let mut path = ScriptedPath::new(100, 1_000, 10);
    let mut law = lookup(spec).expect("the law exists").make();
    path.start(law.as_mut());
    for _ in 0..6 {
        path.round(law.as_mut());
    }
    let mut seen = vec![path.window(law.as_ref())];
    path.loss(law.as_mut(), true);
    for round in 1..=120 {
        match round {
            51 => path.rtt = Duration::from_millis(120),
            81 => path.rtt = Duration::from_millis(100),
            101 => path.loss(law.as_mut(), true),
            _ => {}
        }
        path.round(law.as_mut());
        if round % 10 == 0 {
            seen.push(path.window(law.as_ref()));
        }
    }
    assert!(path.packets() > 1_000, "{spec}");
    seen
}

const CURVES: &[(&str, &str)] = &[
    (
        "reno",
        "640 329 339 349 359 369 379 389 399 409 419 219 229",
    ),
    (
        "cubic",
        "640 507 557 592 616 630 638 640 640 642 648 513 563",
    ),
    (
        "cubic-2.6.25",
        "640 556 592 616 630 637 640 640 642 648 660 573 610",
    ),
    (
        "bic",
        "640 622 637 639 641 643 655 791 949 1108 1267 1158 1257",
    ),
    (
        "hstcp",
        "640 456 506 559 615 675 738 804 874 948 1026 747 814",
    ),
    (
        "scalable",
        "640 613 677 748 826 913 1008 1114 1230 1359 1501 1438 1588",
    ),
    (
        "htcp",
        "640 329 390 553 824 1208 1723 2387 3208 4180 5295 2656 2718",
    ),
    ("westwood", "640 26 36 46 56 66 76 86 96 106 115 105 115"),
    (
        "illinois",
        "640 650 750 849 948 1048 1061 1064 1067 1118 1217 1156 1255",
    ),
    (
        "vegas",
        "640 329 339 349 359 369 361 351 341 349 359 188 198",
    ),
    (
        "compound",
        "640 413 538 690 872 1089 379 389 399 509 655 422 549",
    ),
    (
        "fast",
        "640 820 1320 1820 2320 2820 2254 1882 1641 2135 2635 1718 2218",
    ),
    ("ledbat", "114 16 61 66 71 76 81 86 91 96 2 2 9"),
];

#[test]
fn every_window_law_follows_its_curve() {
    let mut wrong = String::new();
    for (spec, expected) in CURVES {
        let windows: Vec<String> = run(spec).iter().map(|w| format!("{w:.0}")).collect();
        let line = windows.join(" ");
        if line != *expected {
            let _ = writeln!(wrong, "    (\"{spec}\", \"{line}\"),");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
