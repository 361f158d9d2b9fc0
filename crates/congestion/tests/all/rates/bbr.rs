//! BBR, phase by phase.

use std::time::Duration;

use farhaul_congestion::lookup;
use farhaul_core::{congestion::CongestionController, units::Rate};

use super::fluid::FluidPath;

const DATAGRAM: u32 = 8_948;
const TEN: Rate = Rate::gbit(10);

fn bbr(path: &FluidPath) -> Box<dyn CongestionController> {
    let mut law = lookup("bbr").expect("the law exists").make();
    path.start(law.as_mut());
    law
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// ms since the start, phase, Mbit/s paced, packets allowed.
type Line = (u64, &'static str, u64, u64);

/// A line for every phase entered, at the first feedback in it.
fn phases(path: &mut FluidPath, law: &mut dyn CongestionController, lasts: Duration) -> Vec<Line> {
    let began = path.now;
    let mut lines: Vec<Line> = Vec::new();
    path.run_with(law, lasts, &mut |path, law| {
        let phase = law.observe().phase;
        if lines.last().is_none_or(|line| line.1 != phase) {
            let allowed = law.allowance();
            lines.push((
                u64::try_from(path.now.since(began).as_millis()).expect("a short run"),
                phase,
                allowed.rate.bps() / 1_000_000,
                allowed.window.bytes() / u64::from(DATAGRAM),
            ));
        }
    });
    lines
}

#[test]
fn curve_of_10_gbit_and_100_ms() {
    let mut path = FluidPath::new(TEN, 100, DATAGRAM, 250_000_000);
    let mut law = bbr(&path);
    assert_eq!(phases(&mut path, law.as_mut(), secs(12)), CURVE);
}

/// Startup, drain, the rtt every 5 s, bandwidth every 2 to 3 s. The product is 13,970 packets.
const CURVE: [Line; 13] = [
    (118, "startup", 3, 4),
    (2078, "drain", 4950, 30149),
    (2298, "cruise", 9900, 30149),
    (5118, "probe rtt", 9900, 8382),
    (5359, "cruise", 9900, 29337),
    (7699, "refill", 9900, 29337),
    (7809, "probe up", 12375, 30720),
    (8209, "probe down", 8910, 29354),
    (9089, "cruise", 9900, 29354),
    (10329, "refill", 9900, 29376),
    (10439, "probe up", 12375, 30759),
    (10839, "probe down", 8910, 29377),
    (11719, "cruise", 9900, 29377),
];

#[test]
fn startup_doubles_each_round_and_drains_in_about_two() {
    let mut path = FluidPath::new(TEN, 100, DATAGRAM, 250_000_000);
    let mut law = bbr(&path);
    let mut rates = Vec::new();
    path.run_with(law.as_mut(), secs(3), &mut |_, law| {
        if law.observe().phase == "startup" {
            rates.push(law.allowance().rate.as_f64());
        }
    });
    // Ten feedback packets a round, from the first sample to where the queue begins.
    let rising: Vec<f64> = rates.iter().copied().filter(|r| *r < 8e9).collect();
    let rounds = rising.len() as f64 / 10.0;
    let per_round = (rising.last().unwrap() / rising[20]).powf(1.0 / (rounds - 2.0));
    assert!((1.8..2.3).contains(&per_round), "{per_round}");
}

#[test]
fn a_steady_link_is_full_and_its_queue_short() {
    for (rate, rtt) in [
        (TEN, 1),
        (TEN, 20),
        (TEN, 100),
        (TEN, 400),
        (Rate::mbit(50), 50),
    ] {
        let buffer = rate.bytes_in(Duration::from_millis(2 * rtt)).max(4_000_000);
        let mut path = FluidPath::new(rate, rtt, DATAGRAM, buffer);
        let mut law = bbr(&path);
        path.run(law.as_mut(), secs(10));
        let share = path.run(law.as_mut(), secs(20)).as_f64() / rate.as_f64();
        // A probe of the rtt every 5 s takes half of the link for 0.2 s and a round.
        let probed = 0.5 * (0.2 + 2.0 * rtt as f64 / 1e3) / 5.0;
        assert!(share > 0.98 - probed, "{rate} {rtt} ms: {share}");
        assert!(share <= 1.001, "{rate} {rtt} ms: {share}");
    }
}

#[test]
fn random_loss_below_the_threshold_is_survived_and_above_it_not() {
    let mut shares = Vec::new();
    for one_in in [1_000, 100, 20] {
        let mut path = FluidPath::new(Rate::gbit(1), 50, DATAGRAM, 12_500_000);
        path.lose_one_in = one_in;
        let mut law = bbr(&path);
        path.run(law.as_mut(), secs(10));
        shares.push(path.run(law.as_mut(), secs(30)).as_f64() / 1e9);
    }
    // Each round with a loss lowers the rate by the pacing margin until the next probe.
    assert!(shares[0] > 0.85, "{shares:?}");
    assert!(shares[1] > 0.75, "{shares:?}");
    assert!(shares[2] < 0.3, "{shares:?}");
}

#[test]
fn a_shallow_queue_bounds_what_is_in_flight() {
    // A twentieth of the product: startup overshoots, probes find the edge.
    let mut path = FluidPath::new(Rate::gbit(1), 50, DATAGRAM, 312_500);
    let mut law = bbr(&path);
    path.run(law.as_mut(), secs(10));
    let (sent_before, lost_before) = (path.delivered, path.lost);
    let share = path.run(law.as_mut(), secs(30)).as_f64() / 1e9;
    let lost = (path.lost - lost_before) as f64 / (path.delivered - sent_before) as f64;
    assert!(share > 0.85, "{share}");
    assert!(lost < 0.02, "{lost}");
}

#[test]
fn a_wider_link_is_found_and_a_narrower_one_obeyed() {
    let mut path = FluidPath::new(Rate::mbit(500), 50, DATAGRAM, 6_250_000);
    let mut law = bbr(&path);
    path.run(law.as_mut(), secs(8));
    path.capacity = Rate::gbit(2);
    path.run(law.as_mut(), secs(12));
    let wider = path.run(law.as_mut(), secs(5)).as_f64() / 2e9;
    assert!(wider > 0.9, "{wider}");
    path.capacity = Rate::mbit(500);
    path.run(law.as_mut(), secs(8));
    let lost = path.lost;
    let narrower = path.run(law.as_mut(), secs(10)).as_f64() / 5e8;
    assert!(narrower > 0.9, "{narrower}");
    let lost = (path.lost - lost) as f64 / path.delivered as f64;
    assert!(lost < 0.02, "{lost}");
}

#[test]
fn a_sender_without_data_does_not_forget_the_link() {
    let mut path = FluidPath::new(Rate::gbit(1), 20, DATAGRAM, 5_000_000);
    let mut law = bbr(&path);
    path.run(law.as_mut(), secs(4));
    path.app_rate = Rate::mbit(50);
    path.run(law.as_mut(), secs(20));
    path.app_rate = Rate::UNLIMITED;
    let share = path.run(law.as_mut(), secs(2)).as_f64() / 1e9;
    assert!(share > 0.8, "{share}");
}

#[test]
fn a_timeout_leaves_one_packet_more_and_is_recovered_from() {
    let mut path = FluidPath::new(Rate::gbit(1), 20, DATAGRAM, 5_000_000);
    let mut law = bbr(&path);
    path.run(law.as_mut(), secs(4));
    let before = law.allowance().window.bytes();
    law.on_timeout(path.now, 1);
    law.on_timeout(path.now, 2);
    let after = law.allowance().window.bytes();
    assert_eq!(after, path.in_flight + u64::from(DATAGRAM));
    path.run(law.as_mut(), Duration::from_millis(100));
    assert!(law.allowance().window.bytes() >= before * 9 / 10);
}
