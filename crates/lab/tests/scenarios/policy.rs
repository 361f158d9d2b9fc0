//! Tests that `--policy` means what it says. `low` has a link that nobody else wants, leaves it to
//! everybody who does, and comes back; `high` gets more than `fair`, and leaves `fair` its part.

use farhaul_core::units::Rate;
use farhaul_link::Loss;
use farhaul_sim::{FlowConfig, Scenario};

use super::kit::{Who, medians, over, path, run, secs, share};

const RATE: Rate = Rate::mbit(500);
const LOW: Who = Who::HaulUnder("haul:policy=low");
const HIGH: Who = Who::HaulUnder("haul:policy=high");

/// Flow 0 for the whole time, flow 1 from 10 s on until `stop`.
fn beside(rtt_ms: u64, loss: f64, stop: u64, lasts: u64) -> Scenario {
    let mut link = path(RATE, rtt_ms, 9_000);
    if loss > 0.0 {
        link.loss = Loss::Random(loss);
    }
    let second = FlowConfig {
        start: secs(10),
        stop: Some(secs(stop)),
        ..FlowConfig::default()
    };
    Scenario {
        flows: vec![FlowConfig::default(), second],
        ..over(link, secs(lasts))
    }
}

#[test]
fn low_has_an_idle_link() {
    for (rtt_ms, loss, owed) in [
        (10, 0.0, 0.93),
        (100, 0.0, 0.93),
        (100, 0.01, 0.93),
        (200, 0.02, 0.85),
    ] {
        let mut link = path(RATE, rtt_ms, 9_000);
        if loss > 0.0 {
            link.loss = Loss::Random(loss);
        }
        let [got] = medians(&over(link, secs(40)), &[LOW], |report| {
            [share(report, 0, 10, 40, RATE)]
        });
        assert!(got >= owed, "{rtt_ms} ms, loss {loss}: {got:.3}");
    }
}

/// [`LOW`] leaves the link to `other` while that is there.
fn yields_and_recovers(rtt_ms: u64, loss: f64, other: Who) {
    let scenario = beside(rtt_ms, loss, 60, 100);
    let [during, its, after] = medians(&scenario, &[LOW, other], |report| {
        [
            share(report, 0, 30, 60, RATE),
            share(report, 1, 30, 60, RATE),
            share(report, 0, 75, 100, RATE),
        ]
    });
    let found = format!(
        "{rtt_ms} ms, loss {loss}, {other:?}: beside it {during:.3} (the other {its:.3}), after it {after:.3}"
    );
    eprintln!("{found}");
    assert!(during <= 0.13, "{found}");
    assert!(its >= 0.8, "{found}");
    assert!(after >= 0.95, "{found}");
}

#[test]
fn low_yields_to_fair_and_recovers() {
    for (rtt_ms, loss) in [(20, 0.0), (100, 0.0), (100, 0.01)] {
        yields_and_recovers(rtt_ms, loss, Who::Haul);
    }
}

#[test]
fn low_yields_to_other_laws_and_recovers() {
    for (rtt_ms, law) in [(20, "cubic"), (100, "cubic"), (100, "bbr")] {
        yields_and_recovers(rtt_ms, 0.0, Who::Bare(law));
    }
}

#[test]
fn high_gets_more_than_fair_and_leaves_it_some() {
    for rtt_ms in [20, 100] {
        let mut ratios = Vec::new();
        for order in [[HIGH, Who::Haul], [Who::Haul, HIGH]] {
            let report = run(&beside(rtt_ms, 0.0, 130, 130), &order);
            let high = usize::from(order[0] != HIGH);
            let [a, b] = [high, 1 - high].map(|flow| share(&report, flow, 50, 130, RATE));
            eprintln!(
                "{rtt_ms} ms, {order:?}: high {a:.3}, fair {b:.3}, {:.2}",
                a / b
            );
            assert!(a + b >= 0.88, "{rtt_ms} ms: {a:.3} and {b:.3}");
            ratios.push(a / b);
        }
        let mean = (ratios[0] * ratios[1]).sqrt();
        assert!((1.2..=3.0).contains(&mean), "{rtt_ms} ms: {ratios:.2?}");
    }
}
