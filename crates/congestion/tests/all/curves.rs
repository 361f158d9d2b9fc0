//! Tests the windows of the laws over time. Rounds run on a scripted path, and are compared with
//! tables and with the RFCs' formulas.

use std::time::Duration;

use crate::path::ScriptedPath;
use farhaul_congestion::lookup;
use farhaul_core::congestion::CongestionController;

fn law(spec: &str) -> Box<dyn CongestionController> {
    lookup(spec).expect("the law exists").make()
}

/// The window in whole packets after each of `rounds` rounds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "windows are positive and small"
)]
fn curve(path: &mut ScriptedPath, law: &mut dyn CongestionController, rounds: u32) -> Vec<u64> {
    (0..rounds)
        .map(|_| {
            path.round(law);
            path.window(law).round() as u64
        })
        .collect()
}

/// Grows `law` by slow start to about `packets` and loses one packet there.
fn cut_at(path: &mut ScriptedPath, law: &mut dyn CongestionController, packets: f64) -> f64 {
    path.start(law);
    while path.window(law) < packets {
        path.round(law);
    }
    let before = path.window(law);
    path.loss(law, true);
    path.round(law); // recovery: what returns was sent before
    before
}

#[test]
fn slow_start_doubles_then_reno_adds_one_packet_a_round() {
    // A lone feedback packet a round comes when recovery is just over.
    for (feedbacks, first) in [(1, 321), (7, 320), (40, 320)] {
        let mut path = ScriptedPath::new(100, 1_000, feedbacks);
        let mut reno = law("reno:slow_start=classic");
        path.start(reno.as_mut());
        let slow = curve(&mut path, reno.as_mut(), 6);
        assert_eq!(slow, [20, 40, 80, 160, 320, 640], "{feedbacks}");
        path.loss(reno.as_mut(), true);
        let after = curve(&mut path, reno.as_mut(), 8);
        let expected: Vec<u64> = (first..first + 8).collect();
        assert_eq!(after, expected, "{feedbacks}");
        // Six rounds of doubling from ten, eight of some 323.
        assert!(
            (3_190..3_240).contains(&path.packets()),
            "{}",
            path.packets()
        );
    }
}

#[test]
fn reno_needs_half_its_window_in_rounds_to_recover() {
    let mut path = ScriptedPath::new(100, 8_948, 10);
    let mut reno = law("reno:slow_start=classic");
    let before = cut_at(&mut path, reno.as_mut(), 1_000.0);
    let mut rounds = 0.0;
    while path.window(reno.as_ref()) < before {
        path.round(reno.as_mut());
        rounds += 1.0;
    }
    assert!(
        (rounds / (before / 2.0) - 1.0).abs() < 0.01,
        "{rounds} {before}"
    );
}

#[test]
fn cubic_follows_its_curve() {
    let mut path = ScriptedPath::new(100, 1_000, 10);
    let mut cubic = law("cubic:slow_start=classic");
    let w_max = cut_at(&mut path, cubic.as_mut(), 10_000.0);
    let k = (w_max * 0.3 / 0.4).cbrt();
    let epoch = path.now;
    let mut worst: f64 = 0.0;
    for _ in 0..400 {
        path.round(cubic.as_mut());
        let t = path.now.since(epoch).as_secs_f64();
        let formula = 0.4 * (t - k).powi(3) + w_max;
        worst = worst.max((path.window(cubic.as_ref()) / formula - 1.0).abs());
    }
    // The window trails the target, one rtt ahead, by about one rtt.
    assert!(worst < 0.02, "{worst}");
}

#[test]
fn cubic_per_second_at_100_ms() {
    let mut path = ScriptedPath::new(100, 1_000, 10);
    let mut cubic = law("cubic:slow_start=classic");
    let before = cut_at(&mut path, cubic.as_mut(), 10_000.0);
    assert!((before - 10_240.0).abs() < 1.0);
    let curve = curve(&mut path, cubic.as_mut(), 300);
    let each_second: Vec<u64> = curve.iter().skip(9).step_by(10).copied().take(26).collect();
    assert_eq!(each_second, CUBIC_AT_10240);
}

/// 0.4 (t - 19.73)^3 + 10240 for t = 1, 2, ... s.
const CUBIC_AT_10240: [u64; 26] = [
    7613, 8012, 8368, 8684, 8963, 9206, 9416, 9595, 9746, 9872, 9974, 10056, 10118, 10165, 10198,
    10219, 10232, 10238, 10240, 10240, 10241, 10245, 10254, 10271, 10299, 10339,
];

#[test]
fn cubic_is_never_slower_than_reno_of_the_same_average() {
    // 10 ms: the cubic is far below; alpha = 9/17 a round up to the old window, then 1.
    let mut path = ScriptedPath::new(10, 1_000, 10);
    let mut cubic = law("cubic:slow_start=classic");
    let before = cut_at(&mut path, cubic.as_mut(), 100.0);
    let start = path.window(cubic.as_ref());
    for _ in 0..50 {
        path.round(cubic.as_mut());
    }
    let expected = start + 50.0 * 9.0 / 17.0;
    assert!(expected < before);
    let window = path.window(cubic.as_ref());
    assert!(
        (window / expected - 1.0).abs() < 0.01,
        "{window} {expected}"
    );
    while path.window(cubic.as_ref()) < before + 5.0 {
        path.round(cubic.as_mut());
    }
    let from = path.window(cubic.as_ref());
    for _ in 0..20 {
        path.round(cubic.as_mut());
    }
    let grown = path.window(cubic.as_ref()) - from;
    assert!((grown - 20.0).abs() < 1.0, "{grown}");
}

#[test]
fn fast_convergence_gives_way() {
    for (spec, plateau) in [
        ("cubic:slow_start=classic", 0.85 * 0.7),
        ("cubic:slow_start=classic,fast_convergence=off", 0.7),
    ] {
        let mut path = ScriptedPath::new(100, 1_000, 10);
        let mut cubic = law(spec);
        let first = cut_at(&mut path, cubic.as_mut(), 10_000.0);
        path.loss(cubic.as_mut(), true);
        path.round(cubic.as_mut());
        // At the inflection growth all but stops: there is the plateau.
        let k = (first * (plateau - 0.49) / 0.4).cbrt();
        let end = path.now + Duration::from_secs_f64(k);
        while path.now < end {
            path.round(cubic.as_mut());
        }
        let window = path.window(cubic.as_ref());
        assert!(
            (window / (first * plateau) - 1.0).abs() < 0.01,
            "{spec} {window}"
        );
    }
}

#[test]
fn one_cut_per_episode_and_undo_takes_it_back() {
    for spec in ["reno", "cubic"] {
        let mut path = ScriptedPath::new(100, 1_000, 10);
        let mut law = law(spec);
        path.start(law.as_mut());
        curve(&mut path, law.as_mut(), 5);
        let before = path.window(law.as_ref());
        path.loss(law.as_mut(), true);
        let after = path.window(law.as_ref());
        path.loss(law.as_mut(), false);
        assert!(path.window(law.as_ref()) >= after);
        assert!(after < 0.75 * before);
        law.on_undo(path.now);
        assert!(path.window(law.as_ref()) >= before);
        law.on_undo(path.now);
        assert!(path.window(law.as_ref()) <= before, "only once");
    }
}

#[test]
fn a_timeout_starts_again_from_one_packet() {
    for (spec, kept) in [("reno", 0.5), ("cubic", 0.7)] {
        let mut path = ScriptedPath::new(100, 1_000, 10);
        let mut law = law(spec);
        path.start(law.as_mut());
        curve(&mut path, law.as_mut(), 6);
        let before = path.window(law.as_ref());
        law.on_timeout(path.now, 1);
        law.on_timeout(path.now, 2);
        assert!((path.window(law.as_ref()) - 1.0).abs() < 1e-9);
        let threshold = law.observe().ssthresh.expect("set by the timeout");
        let expected = before * kept * 1_000.0;
        assert!(threshold.abs_diff(farhaul_core::units::Rate::from_f64(expected).bps()) <= 1);
        let again = curve(&mut path, law.as_mut(), 7);
        assert_eq!(again[..5], [2, 4, 8, 16, 32]);
    }
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    for spec in ["reno", "cubic", "reno:slow_start=classic"] {
        let mut path = ScriptedPath::new(100, 1_000, 10);
        let mut law = law(spec);
        let _ = cut_at(&mut path, law.as_mut(), 500.0);
        let before = path.window(law.as_ref());
        for _ in 0..50 {
            path.round_with(law.as_mut(), 0.3);
        }
        assert!((path.window(law.as_ref()) - before).abs() < 1e-9, "{spec}");
        // And idling is not made up for afterwards.
        path.round(law.as_mut());
        path.round(law.as_mut());
        assert!(path.window(law.as_ref()) < before * 1.1, "{spec}");
    }
}

#[test]
fn hystart_leaves_when_the_rtt_rises_and_stays_when_it_was_a_blip() {
    let phase = |law: &dyn CongestionController| law.observe().phase;
    for feedbacks in [2, 10] {
        let mut path = ScriptedPath::new(100, 1_000, feedbacks);
        let mut law = law("reno");
        path.start(law.as_mut());
        curve(&mut path, law.as_mut(), 4);
        // 12 ms more is below 100 / 8 = 12.5.
        path.rtt = Duration::from_millis(112);
        curve(&mut path, law.as_mut(), 2);
        assert_eq!(phase(law.as_ref()), "slow start");
        path.rtt = Duration::from_millis(130);
        curve(&mut path, law.as_mut(), 2);
        assert_eq!(phase(law.as_ref()), "conservative slow start");
        path.rtt = Duration::from_millis(112);
        curve(&mut path, law.as_mut(), 2);
        assert_eq!(phase(law.as_ref()), "slow start", "a blip, {feedbacks}");
        path.rtt = Duration::from_millis(130);
        let before = path.window(law.as_ref());
        curve(&mut path, law.as_mut(), 7);
        assert_eq!(phase(law.as_ref()), "avoidance", "{feedbacks}");
        let grown = path.window(law.as_ref()) / before;
        assert!(
            grown < 8.0,
            "a quarter of the pace for five rounds: {grown}"
        );
        assert!(law.observe().ssthresh.is_some());
    }
}

#[test]
fn pacing_follows_the_window() {
    let mut path = ScriptedPath::new(100, 1_000, 10);
    let mut reno = law("reno");
    path.start(reno.as_mut());
    path.round(reno.as_mut());
    let rate_over_window = |law: &dyn CongestionController| {
        let per_second = path_rate(law) / 8.0;
        per_second * 0.1 / f64::from(u32::try_from(law.allowance().window.bytes()).unwrap_or(1))
    };
    assert!((rate_over_window(reno.as_ref()) - 2.0).abs() < 0.01);
    path.loss(reno.as_mut(), true);
    assert!((rate_over_window(reno.as_ref()) - 1.25).abs() < 0.01);
}

fn path_rate(law: &dyn CongestionController) -> f64 {
    law.allowance().rate.as_f64()
}
