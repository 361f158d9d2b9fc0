//! Tests that a run comes out as arithmetic says, and the same each time, with a session of fixed
//! rate.

use std::{sync::atomic::AtomicBool, time::Duration};

use farhaul_core::{protocol::Protocol, units::Rate};
use farhaul_link::{Jitter, Loss, PathConfig, Reorder, Window};
use farhaul_sim::{Error, FlowConfig, Scenario, SimReport, run, run_until};
use farhaul_testkit::Steady;

fn path(rate: Rate, loss: f64) -> PathConfig {
    PathConfig {
        rate,
        delay: Duration::from_millis(50),
        mtu: Some(9_000),
        loss: if loss > 0.0 {
            Loss::Random(loss)
        } else {
            Loss::None
        },
        ..PathConfig::default()
    }
}

fn scenario(loss: f64) -> Scenario {
    Scenario {
        flows: vec![FlowConfig {
            bytes: Some(100_000_000),
            ..FlowConfig::default()
        }],
        ..Scenario::over(path(Rate::gbit(1), loss))
    }
}

fn simulate(scenario: &Scenario, rate: Rate) -> SimReport {
    let steady = Steady::new(rate, 9_000);
    run(scenario, &mut |_| {
        (Box::new(steady.endpoint()), Box::new(steady.endpoint()))
    })
    .expect("the scenario is valid")
}

#[test]
fn a_clean_transfer_takes_the_time_of_its_bytes() {
    let report = simulate(&scenario(0.0), Rate::mbit(900));
    let flow = &report.flows[0];
    // A round trip for the hello, the bytes with their headers at the rate, half a round trip.
    let expected = 0.1 + 100e6 * 8.0 * (8_972.0 / 8_947.0) / 900e6 + 0.05;
    let completed = flow.completed.unwrap();
    assert!(
        (completed - expected).abs() < 0.002,
        "{completed} {expected}"
    );
    assert_eq!(flow.received_bytes, 100_000_000);
    assert_eq!(flow.sender.repaired, 0);
    assert_eq!(report.forward.drops.len(), 0);
    assert_eq!(flow.connected, Some(0.100_000_624));
    assert!(flow.closed.iter().all(Option::is_some));
    assert!(report.seconds < 2.0, "the run ends when its flow does");
}

#[test]
fn a_lossy_transfer_ends_with_every_byte() {
    let report = simulate(&scenario(0.02), Rate::mbit(900));
    let flow = &report.flows[0];
    assert_eq!(flow.received_bytes, 100_000_000);
    assert!(flow.delivered.unwrap() >= flow.completed.unwrap());
    let dropped = report.forward.drops["random"];
    assert!(
        flow.sender.repaired >= (dropped - 3) * 8_947 / 2,
        "{dropped}"
    );
}

#[test]
fn the_link_is_the_limit_and_the_queue_drops_the_rest() {
    let endless = Scenario {
        flows: vec![FlowConfig::default()],
        duration: Duration::from_secs(3),
        ..scenario(0.0)
    };
    let report = simulate(&endless, Rate::mbit(1_200));
    // From the hello's return to the end, and a full queue at the end.
    let wire = report.forward.passed_bytes;
    let expected = 1_000_000_000 * 29 / 80 + 18_000_000;
    assert!(wire.abs_diff(expected) < 50_000, "{wire} {expected}");
    assert!(report.forward.drops["queue"] > 0);
    assert!(report.forward.max_queue_bytes <= 18_000_000);
    assert_eq!(report.flows[0].series.len(), 30);
}

#[test]
fn ninety_percent_is_reached_when_the_link_is_full() {
    let endless = Scenario {
        flows: vec![FlowConfig::default()],
        duration: Duration::from_secs(3),
        ..scenario(0.0)
    };
    let full = simulate(&endless, Rate::mbit(950)).flows[0].time_to_90_percent;
    assert!((0.13..0.17).contains(&full.unwrap()), "{full:?}");
    let half = simulate(&endless, Rate::mbit(500)).flows[0].time_to_90_percent;
    assert_eq!(half, None);
}

#[test]
fn flows_start_and_stop_on_schedule_and_share_the_link() {
    let flow = |start, stop| FlowConfig {
        start: Duration::from_millis(start),
        stop: Some(Duration::from_millis(stop)),
        ..FlowConfig::default()
    };
    let two = Scenario {
        flows: vec![flow(0, 1_000), flow(500, 2_000)],
        ..scenario(0.0)
    };
    let report = simulate(&two, Rate::mbit(400));
    for (flow, seconds) in report.flows.iter().zip([1.0, 1.5]) {
        assert!((flow.seconds - seconds).abs() < 1e-9);
        let sending = seconds - 0.15;
        let expected = 400e6 * sending / seconds * (8_947.0 / 8_972.0);
        let error = flow.goodput_bits_per_second / expected - 1.0;
        assert!(error.abs() < 0.02, "{error}");
    }
}

#[test]
fn same_seed_same_run_other_seed_other_run() {
    let mut rough = scenario(0.01);
    rough.forward.jitter = Some(Jitter {
        spread: Duration::from_micros(300),
        reorder: true,
    });
    rough.forward.reorder = Some(Reorder {
        share: 0.01,
        by: Duration::from_millis(2),
    });
    rough.forward.duplicate = 0.01;
    rough.back.corrupt = 0.01;
    let first = simulate(&rough, Rate::mbit(900));
    assert_eq!(first, simulate(&rough, Rate::mbit(900)));
    assert_eq!(first.flows[0].received_bytes, 100_000_000);
    rough.seed = 2;
    let other = simulate(&rough, Rate::mbit(900));
    assert_ne!(first.trace_hash, other.trace_hash);
}

#[test]
fn the_report_is_json() {
    let report = simulate(&scenario(0.0), Rate::mbit(900));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["flows"][0]["received_bytes"], 100_000_000);
    assert_eq!(json["trace_hash"].as_str().unwrap().len(), 16);
}

#[test]
fn a_flow_may_have_a_longer_way_than_the_others() {
    let mut two = scenario(0.0);
    two.flows = vec![
        two.flows[0],
        FlowConfig {
            extra_delay: Duration::from_millis(75),
            ..two.flows[0]
        },
    ];
    let report = simulate(&two, Rate::mbit(400));
    let rtts: Vec<_> = report
        .flows
        .iter()
        .map(|f| f.sender.rtt_smoothed_ms.map(f64::round))
        .collect();
    assert_eq!(rtts, [Some(100.0), Some(250.0)]);
}

#[test]
fn a_dark_second_costs_a_second_and_no_byte() {
    let mut dark = scenario(0.0);
    dark.forward.blackouts = vec![Window {
        from: Duration::from_millis(500),
        lasts: Duration::from_secs(1),
    }];
    let clean = simulate(&scenario(0.0), Rate::mbit(900));
    let report = simulate(&dark, Rate::mbit(900));
    assert_eq!(report.flows[0].received_bytes, 100_000_000);
    let cost = report.flows[0].completed.unwrap() - clean.flows[0].completed.unwrap();
    assert!((0.5..1.6).contains(&cost), "{cost}");
}

#[test]
fn a_path_that_cannot_be_and_a_session_without_rest_are_errors() {
    let mut impossible = scenario(0.0);
    impossible.back.rate = Rate::ZERO;
    let steady = Steady::new(Rate::mbit(100), 9_000);
    let error = run(&impossible, &mut |_| {
        (Box::new(steady.endpoint()), Box::new(steady.endpoint()))
    })
    .unwrap_err();
    assert!(
        error.to_string().starts_with("path back: the rate"),
        "{error}"
    );
    let mut idle = scenario(0.0);
    idle.flows[0].bytes = Some(0);
    let error = run(&idle, &mut |_| {
        (Box::new(steady.endpoint()), Box::new(steady.endpoint()))
    })
    .unwrap_err();
    assert!(
        error.to_string().starts_with("flow 0: it has nothing"),
        "{error}"
    );
    let restless = Steady::new(Rate::UNLIMITED, 9_000);
    let endless = Scenario {
        flows: vec![FlowConfig::default()],
        ..scenario(0.0)
    };
    let error = run(&endless, &mut |_| {
        (Box::new(restless.endpoint()), Box::new(restless.endpoint()))
    })
    .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Livelock {
                flow: 0,
                side: "client",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_path_that_takes_no_time_is_refused_with_what_it_needs() {
    let restless = Steady::new(Rate::UNLIMITED, 9_000);
    let instant = |delay| {
        let path = PathConfig {
            rate: Rate::UNLIMITED,
            delay,
            ..PathConfig::default()
        };
        Scenario {
            duration: Duration::from_millis(1),
            ..Scenario::over(path)
        }
    };
    let error = run(&instant(Duration::ZERO), &mut |_| {
        (Box::new(restless.endpoint()), Box::new(restless.endpoint()))
    });
    let error = error.unwrap_err();
    assert_eq!(error, Error::Instant { flow: 0 });
    assert!(
        error.to_string().contains("needs a round-trip time"),
        "{error}"
    );
    let paced = Steady::new(Rate::gbit(1), 9_000);
    let fine = run(&instant(Duration::ZERO), &mut |_| {
        (Box::new(paced.endpoint()), Box::new(paced.endpoint()))
    });
    assert!(
        fine.is_ok(),
        "a sender with a rate of its own comes to rest"
    );
}

#[test]
fn a_run_that_is_told_to_stop_has_no_report_and_one_that_is_not_is_as_ever() {
    let scenario = scenario(0.01);
    let until = |stop: bool| {
        let steady = Steady::new(Rate::mbit(900), 9_000);
        let mut make = |_| -> (Box<dyn Protocol>, Box<dyn Protocol>) {
            (Box::new(steady.endpoint()), Box::new(steady.endpoint()))
        };
        run_until(&scenario, &mut make, None, &AtomicBool::new(stop))
    };
    let Err(Error::Stopped { at }) = until(true) else {
        panic!("it was told to stop");
    };
    assert!(at.as_nanos() < 1_000_000_000, "{at}");
    let whole = simulate(&scenario, Rate::mbit(900));
    assert_eq!(until(false).unwrap().trace_hash, whole.trace_hash);
}
