//! Tests that the flagship keeps what it knows of a path that holds its breath, as busy hosts and
//! radios do, and that it finds what it does not know yet.

use std::time::Duration;

use farhaul_core::units::Rate;
use farhaul_link::{Jitter, Loss, PathConfig, Step};

use super::kit::{figures, haul, ms, over, path, seconds, secs, share};

const GBIT: Rate = Rate::gbit(1);
/// Rate as good as nothing.
const STALLED: Rate = Rate::from_bps(100_000);

/// Stalls of 60 ms at most, a fresh one each 150 ms on the average, drawn from `seed`.
fn stalls(seed: u64, until: Duration) -> Vec<Step<Rate>> {
    let mut state = seed;
    let mut draw = |most: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ms((state >> 33) % most)
    };
    let mut steps = Vec::new();
    let mut at = ms(1);
    while at < until {
        at += draw(300) + ms(1);
        steps.push(Step { at, to: STALLED });
        at += ms(20) + draw(40);
        steps.push(Step { at, to: GBIT });
    }
    steps
}

#[test]
fn a_path_that_holds_its_breath_is_not_forgotten() {
    for seed in 1..=12 {
        let mut scenario = over(path(GBIT, 50, 9_000), secs(5));
        scenario.seed = seed;
        scenario.forward.rate_steps = stalls(seed, secs(5));
        let report = haul(&scenario);
        figures("stalls", &report);
        let series = seconds(&report, 0, GBIT);
        let reached = share(&report, 0, 0, 5, GBIT);
        eprintln!("stalls, seed {seed}: {reached:.3} = {series}");
        // A quarter of the time is lost to stalls, and the start to the handshake.
        assert!(reached >= 0.3, "{series}");
    }
}

#[test]
fn a_link_that_grows_a_hundredfold_is_found() {
    for (rtt_ms, loss, jitter_ms, at_least) in [
        (100, 0.01, 0, 0.9),
        (100, 0.01, 9, 0.7),
        (400, 0.02, 0, 0.7),
    ] {
        let link = PathConfig {
            loss: Loss::Random(loss),
            jitter: (jitter_ms > 0).then_some(Jitter {
                spread: ms(jitter_ms),
                reorder: false,
            }),
            ..path(GBIT, rtt_ms, 9_000)
        };
        let mut scenario = over(link, secs(15));
        scenario.forward.rate_steps = [(0, Rate::mbit(10)), (2, GBIT)]
            .map(|(at, to)| Step { at: secs(at), to })
            .to_vec();
        let report = haul(&scenario);
        let name = format!("10 Mbit/s -> 1 Gbit/s, {rtt_ms} ms, jitter {jitter_ms} ms");
        figures(&name, &report);
        let series = seconds(&report, 0, GBIT);
        eprintln!("{name}: {series}");
        assert!(
            share(&report, 0, 9, 15, GBIT) >= at_least,
            "{name}: {series}"
        );
    }
}
