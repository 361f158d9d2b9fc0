//! Does the Tsunami UDP protocol do what was published of it? The demonstration's rate, the ceiling, the
//! ramp.

use farhaul_core::units::Rate;
use farhaul_lab::registry::{self, Choice};
use farhaul_link::{Loss, PathConfig};
use farhaul_sim::{FlowReport, Scenario, run};

use super::kit::{over, path, secs};

fn ttp(spec: &str, scenario: &Scenario) -> FlowReport {
    let choice = Choice {
        simulated: true,
        ..Choice::default()
    };
    let entry = registry::protocol(spec).expect("a protocol");
    let mut make = |_| {
        let end = "the settings are valid";
        (
            entry.client(&choice).expect(end),
            entry.server(&choice).expect(end),
        )
    };
    let mut report = run(scenario, &mut make).expect("the run ends");
    report.flows.remove(0)
}

/// Bytes received from second `from` to second `to`, as a rate.
fn rate(flow: &FlowReport, from: f64, to: f64) -> f64 {
    let at = |time: f64| {
        let point = flow.series.iter().rfind(|p| p.at <= time + 1e-9);
        point.map_or(0, |p| p.delivered)
    };
    (at(to) - at(from)) as f64 * 8.0 / (to - from)
}

#[test]
fn over_800_mbit_at_three_per_cent_as_in_the_demonstration_of_2002() {
    let link = PathConfig {
        loss: Loss::Random(0.03),
        ..path(Rate::gbit(1), 60, 1_500)
    };
    let flow = ttp("ttp:rate=900Mbit", &over(link, secs(12)));
    let reached = rate(&flow, 4.0, 12.0);
    eprintln!("{:.0} Mbit/s", reached / 1e6);
    assert!((840e6..=900e6).contains(&reached), "{reached}");
}

#[test]
fn thirty_two_bits_are_the_ceiling() {
    let link = over(path(Rate::gbit(10), 10, 9_000), secs(5));
    let flow = ttp("ttp:rate=4294967295bit,mtu=9000", &link);
    let reached = rate(&flow, 3.0, 5.0);
    // 16.7 us are 16.
    let most = 8_966.0 * 8.0 / 16e-6;
    assert!((0.99 * most..=1.001 * most).contains(&reached), "{reached}");
    assert_eq!(flow.sender.retransmits, 0);
}
