//! UDT's control.

use std::time::Duration;

use farhaul_congestion::lookup;
use farhaul_core::{congestion::CongestionController, units::Rate};

use super::fluid::FluidPath;

fn daimd(path: &FluidPath) -> Box<dyn CongestionController> {
    let mut law = lookup("daimd:window=1000000")
        .expect("the law exists")
        .make();
    path.start(law.as_mut());
    law
}

/// A link of 1 Gbit/s and 100 ms with a queue of the product.
fn gigabit(tells_rates: bool) -> FluidPath {
    let mut path = FluidPath::new(Rate::gbit(1), 100, 1_472, 12_500_000);
    path.tells_rates = tells_rates;
    path
}

#[test]
fn curve_of_1_gbit_and_100_ms() {
    let mut path = gigabit(true);
    let mut law = daimd(&path);
    let curve: Vec<u64> = (0..20)
        .map(|_| {
            path.run(law.as_mut(), Duration::from_millis(500));
            law.allowance().rate.bps() / 1_000_000
        })
        .collect();
    assert_eq!(curve, CURVE);
}

/// Mbit/s each half second. Slow start sends at once what the window holds, losses end it at the
/// arrival rate, then 120 and, with a tenth of the link spare, 12 Mbit/s more each second.
const CURVE: [u64; 20] = [
    11776, 11776, 490, 544, 603, 662, 721, 780, 839, 898, 908, 914, 920, 925, 931, 937, 943, 949,
    955, 961,
];

#[test]
fn the_link_is_full_with_or_without_its_capacity() {
    for tells_rates in [true, false] {
        let mut path = gigabit(tells_rates);
        let mut law = daimd(&path);
        path.run(law.as_mut(), Duration::from_secs(20));
        let share = path.run(law.as_mut(), Duration::from_secs(40)).as_f64() / 1e9;
        assert!(share > 0.9, "{tells_rates}: {share}");
    }
}

#[test]
fn growth_is_120_mbit_per_second_each_second_below_1_gbit() {
    let mut path = FluidPath::new(Rate::gbit(10), 10, 1_472, 100_000_000);
    path.tells_rates = true;
    let mut law = daimd(&path);
    path.run(law.as_mut(), Duration::from_secs(2));
    // Down to a tenth by losses, then free.
    path.lose_one_in = 20;
    path.run(law.as_mut(), Duration::from_secs(1));
    path.lose_one_in = 0;
    path.run(law.as_mut(), Duration::from_millis(100));
    let before = law.allowance().rate.as_f64();
    path.run(law.as_mut(), Duration::from_secs(1));
    let grown = (law.allowance().rate.as_f64() - before) * 1_500.0 / 1_472.0;
    // More than a Gbit/s is spare.
    assert!((1.1e9..1.3e9).contains(&grown), "{before} {grown}");
}

#[test]
fn random_loss_is_what_udt_pays_for() {
    let mut shares = Vec::new();
    for one_in in [100_000, 1_000, 100] {
        let mut path = gigabit(true);
        path.lose_one_in = one_in;
        let mut law = daimd(&path);
        path.run(law.as_mut(), Duration::from_secs(20));
        shares.push(path.run(law.as_mut(), Duration::from_secs(40)).as_f64() / 1e9);
    }
    assert!(shares.is_sorted_by(|a, b| a > b), "{shares:?}");
    assert!(shares[0] > 0.8 && shares[2] < 0.3, "{shares:?}");
}
