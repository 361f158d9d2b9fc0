//! SABUL's rate control.

use std::time::Duration;

use farhaul_congestion::lookup;
use farhaul_core::units::Rate;

use super::fluid::FluidPath;

fn run(spec: &str) -> (Vec<u64>, f64) {
    let mut path = FluidPath::new(Rate::gbit(1), 20, 1_472, 2_500_000);
    let mut law = lookup(spec).expect("the law exists").make();
    path.start(law.as_mut());
    let curve = (0..12)
        .map(|_| {
            path.run(law.as_mut(), Duration::from_millis(500));
            law.allowance().rate.bps() / 1_000_000
        })
        .collect();
    let share = path.run(law.as_mut(), Duration::from_secs(30)).as_f64() / 1e9;
    (curve, share)
}

#[test]
fn curve_of_the_papers() {
    let (curve, share) = run("sabul");
    assert_eq!(curve, MIMD);
    assert!(share > 0.9, "{share}");
}

#[test]
fn curve_of_version_2_3() {
    let (curve, share) = run("sabul:variant=aimd");
    assert_eq!(curve, AIMD);
    assert!(share > 0.6, "{share}");
}

/// Mbit/s each half second; the first gap of 10 us is 1,178.
const MIMD: [u64; 12] = [
    941, 808, 928, 1150, 989, 851, 736, 1177, 1040, 894, 769, 1177,
];
const AIMD: [u64; 12] = [
    952, 1011, 1070, 1003, 1062, 994, 1053, 985, 1044, 977, 1036, 968,
];
