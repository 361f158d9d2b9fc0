//! Tests that the TCP session behaves as a kernel's TCP does, in the simulator: against the
//! formulas of its laws, its timers, and the ceilings of named receivers.
//!
//! The runs move gigabytes: `cargo xtask test -E 'package(farhaul-lab) & binary(tcp)'`.

use std::time::Duration;

use farhaul_core::units::{Rate, Size};
use farhaul_link::{Loss, PathConfig, QueueLimit};
use farhaul_measure::registry::{self, Choice};
use farhaul_sim::{FlowConfig, FlowReport, Scenario};
use farhaul_testkit::scale;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A path with loss of data but not of acknowledgements.
fn path(rate: Rate, rtt: u64, mtu: u32, loss: f64) -> Scenario {
    let back = PathConfig {
        rate,
        delay: ms(rtt) / 2,
        mtu: Some(mtu),
        queue: QueueLimit::Bytes(Size::from_bytes(rate.bytes_in(ms(rtt.max(20))))),
        ..PathConfig::default()
    };
    Scenario {
        forward: PathConfig {
            loss: if loss > 0.0 {
                Loss::Random(loss)
            } else {
                Loss::None
            },
            ..back.clone()
        },
        back,
        interface_mtu: Some(mtu),
        interval: Duration::ZERO,
        ..Scenario::default()
    }
}

fn run(mut scenario: Scenario, secs: u64, protocol: &str, law: &str) -> FlowReport {
    scenario.duration = Duration::from_secs(secs);
    let entry = registry::protocol(protocol).expect("a protocol");
    let choice = Choice {
        law: Some(law.into()),
        simulated: true,
        ..Choice::default()
    };
    let made = "the settings are valid";
    let mut make = |_| {
        (
            entry.client(&choice).expect(made),
            entry.server(&choice).expect(made),
        )
    };
    let report = farhaul_sim::run(&scenario, &mut make).expect("the scenario is valid");
    let flow = report.flows.into_iter().next().expect("one flow");
    eprintln!(
        "{protocol} {law}: {:.1} Mbit/s, {:?}",
        flow.goodput_bits_per_second / 1e6,
        flow.sender
    );
    flow
}

/// Mbit/s.
fn mbps(flow: &FlowReport) -> f64 {
    flow.goodput_bits_per_second / 1e6
}

#[test]
fn reno_keeps_the_square_root_law() {
    for (rtt, loss, secs, settings) in [
        (20, 1e-3, 300, ""),
        (20, 1e-4, 600, ""),
        (20, 1e-3, 300, ":recovery=rfc6675,tlp=off"),
        (20, 1e-3, 300, ":recovery=newreno"),
    ] {
        let scenario = path(Rate::gbit(10), rtt, 1_500, loss);
        let flow = run(scenario, secs, &format!("tcp{settings}"), "reno");
        // RFC 5348 §3.1 without its timeouts, every byte counted: 1.22 / sqrt(p) segments per rtt.
        let expected = 1_428.0 * 8.0 / ms(rtt).as_secs_f64() * (1.5 / loss).sqrt() / 1e6;
        let ratio = mbps(&flow) / expected;
        assert!(
            (0.85..=1.15).contains(&ratio),
            "{settings} at {loss}: {ratio:.3} of {expected:.1}"
        );
        if !settings.contains("newreno") {
            assert_eq!(flow.sender.timeouts, 0, "{settings} at {loss}");
        }
    }
}

/// Rate halving never sends beyond one segment more than the bytes in flight, and leaves an episode
/// with what that came to. So several losses in one window cost more than a half.
#[test]
fn rate_halving_costs_more_than_half() {
    let settings = "tcp:recovery=fack,reduction=halving,stretch=off";
    let halving = mbps(&run(
        path(Rate::gbit(10), 20, 1_500, 1e-3),
        300,
        settings,
        "reno",
    ));
    let prr = mbps(&run(
        path(Rate::gbit(10), 20, 1_500, 1e-3),
        300,
        "tcp",
        "reno",
    ));
    assert!((0.4..0.9).contains(&(halving / prr)), "{halving} and {prr}");
}

#[test]
fn cubic_keeps_its_law() {
    // The law is of evenly spaced losses; long gaps between random ones favour a window that grows with
    // the cube of time.
    // RFC 9438 §5.2: (C (3 + beta) / (4 (1 - beta)))^(1/4) rtt^(3/4) / p^(3/4) segments.
    let (rtt, loss) = (200, 1e-4_f64);
    let flow = run(path(Rate::gbit(10), rtt, 9_000, loss), 600, "tcp", "cubic");
    let seconds = ms(rtt).as_secs_f64();
    let window = (0.4 * 3.7 / 1.2_f64).powf(0.25) * seconds.powf(0.75) / loss.powf(0.75);
    let expected = window * 8_928.0 * 8.0 / seconds / 1e6;
    let ratio = mbps(&flow) / expected;
    assert!(
        (0.80..=1.60).contains(&ratio),
        "{ratio:.3} of {expected:.1}"
    );
}

#[test]
fn random_loss_of_one_percent_causes_no_timeout() {
    let flow = run(path(Rate::gbit(1), 50, 1_500, 0.01), 120, "tcp", "reno");
    let sender = &flow.sender;
    assert!(sender.packets_lost > 200, "{sender:?}");
    assert!(sender.timeouts <= 1, "{sender:?}");
    assert_eq!(sender.packets_spurious, 0, "{sender:?}");
}

#[test]
fn a_clean_path_is_filled_and_nothing_is_repaired_twice() {
    for law in ["reno", "cubic"] {
        let flow = run(path(Rate::mbit(100), 40, 1_500, 0.0), 60, "tcp", law);
        let share = mbps(&flow) / 100.0;
        assert!(share > 0.90, "{law}: {share}");
        assert_eq!(flow.sender.timeouts, 0, "{law}");
        assert_eq!(flow.sender.packets_spurious, 0, "{law}");
    }
}

#[test]
fn a_lost_tail_needs_no_timeout() {
    for seed in 0..20 {
        let mut scenario = path(Rate::mbit(100), 60, 1_500, 0.05);
        scenario.seed = seed;
        scenario.flows = vec![FlowConfig {
            bytes: Some(30_000),
            ..FlowConfig::default()
        }];
        let flow = run(scenario, 60, "tcp", "cubic");
        let took = flow.delivered.expect("it ends");
        let timeouts = flow.sender.timeouts;
        assert!(
            timeouts <= 1 && took < 2.5,
            "seed {seed}: {took} s, {timeouts}"
        );
    }
}

/// Iwanaga et al. §4.1: one flow over 1 Gbit/s. Linux and Windows 7 fill it, the others have what
/// their applications read.
/// Over 100 s, in the gate over `gate_s`.
fn has_its_ceiling(profile: &str, gate_s: u64, low: f64, high: f64) {
    let scenario = path(Rate::gbit(1), 50, 1_500, 0.0);
    let protocol = format!("tcp:profile={profile},reduction=halving,recovery=fack");
    let flow = run(scenario, scale(gate_s, 100), &protocol, "cubic");
    let got = mbps(&flow);
    assert!((low..=high).contains(&got), "{profile}: {got:.0} Mbit/s");
}

#[test]
fn linux_has_the_ceiling_of_its_profile() {
    has_its_ceiling("linux-2.6.29", 40, 850.0, 942.0);
}

#[test]
fn windows_7_has_the_ceiling_of_its_profile() {
    has_its_ceiling("windows-7", 80, 850.0, 942.0);
}

#[test]
fn windows_before_7_has_the_ceilings_of_its_profiles() {
    has_its_ceiling("windows-vista-sp2", 20, 340.0, 358.0);
    has_its_ceiling("windows-xp-x64", 20, 195.0, 212.0);
}
