//! 20 cells of rtt and loss in the simulator, at a tenth of the rate of Kachan and Siemens and for
//! 10 s (30 in `cargo xtask soak`), so that they run in seconds. The flagship fills the link in
//! each. The paper's 42 tests are `farhaul lab run kachan-2014/K1`.

use std::time::Duration;

use farhaul_core::units::{Rate, Size};
use farhaul_link::{Loss, PathConfig, QueueLimit};
use farhaul_measure::registry::{Choice, Entry, protocols};
use farhaul_sim::{Scenario, SimReport};
use farhaul_testkit::scale;

const RATE: Rate = Rate::gbit(1);

fn lasts() -> u32 {
    scale(10, 30)
}

fn simulate(rtt_ms: u32, loss: f64, seed: u64) -> Vec<SimReport> {
    let path = PathConfig {
        rate: RATE,
        delay: Duration::from_millis(rtt_ms.into()) / 2,
        mtu: Some(9_000),
        queue: QueueLimit::Bytes(Size::from_bytes(1_800_000)),
        loss: Loss::Random(loss),
        ..PathConfig::default()
    };
    let scenario = Scenario {
        forward: path.clone(),
        back: path,
        duration: Duration::from_secs(lasts().into()),
        interval: Duration::ZERO,
        interface_mtu: Some(9_000),
        seed,
        ..Scenario::default()
    };
    let choice = Choice {
        simulated: true,
        ..Choice::default()
    };
    let each = protocols()
        .iter()
        .filter(|entry| owes_it(entry))
        .map(|entry| {
            let made = "simulated protocols need nothing";
            let client = || entry.client(&choice).expect(made);
            let server = || entry.server(&choice).expect(made);
            farhaul_sim::run(&scenario, &mut |_| (client(), server()))
                .expect("the scenario is valid")
        });
    each.collect()
}

/// True for protocols that have targets. Published protocols are there to be compared; their
/// results are no promise.
fn owes_it(entry: &Entry) -> bool {
    entry.descriptor.sealed || entry.descriptor.name == "haul"
}

#[test]
fn every_cell_of_the_grid_is_filled() {
    for rtt_ms in [0, 50, 100, 200, 400] {
        for loss in [0.0, 0.001, 0.01, 0.02] {
            for report in simulate(rtt_ms, loss, 1) {
                let flow = &report.flows[0];
                let share = flow.goodput_bits_per_second / RATE.as_f64();
                // Ten round trips of start, headers, and what is lost.
                let start = 0.010 * f64::from(rtt_ms) / f64::from(lasts());
                let owed = (1.0 - loss) * (0.95 - start);
                assert!(
                    share >= owed,
                    "{rtt_ms} ms, {loss}: {share:.3} of {owed:.3}"
                );
                let feedback = flow.feedback_kib_per_gib.expect("something arrived");
                assert!(
                    feedback < 480.0,
                    "{rtt_ms} ms, {loss}: {feedback:.0} KiB/GiB"
                );
            }
        }
    }
}

#[test]
fn a_run_can_be_repeated_from_its_seed() {
    let hash = |seed| simulate(50, 0.01, seed)[0].trace_hash.clone();
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}
