//! Tests the Tsunami UDP protocol against its published figures: the demonstration's rate, and the
//! most that can be asked for.

use farhaul_core::units::Rate;
use farhaul_link::{Loss, PathConfig};
use farhaul_sim::{FlowReport, Scenario};

use super::kit::{named, over, path, rate, secs};

fn ttp(spec: &str, scenario: &Scenario) -> FlowReport {
    named(spec, None, scenario).flows.remove(0)
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
fn the_most_that_32_bits_ask_for_is_rounded_up_to_whole_microseconds() {
    let link = over(path(Rate::gbit(10), 10, 9_000), secs(5));
    let flow = ttp("ttp:rate=4294967295bit,mtu=9000", &link);
    let reached = rate(&flow, 3.0, 5.0);
    // 16.7 us are 16.
    let most = 8_966.0 * 8.0 / 16e-6;
    assert!((0.99 * most..=1.001 * most).contains(&reached), "{reached}");
    assert_eq!(flow.sender.retransmits, 0);
}
