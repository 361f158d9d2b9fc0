//! Tests runs on several links at once: chains, merging hosts, cross traffic, and onlookers that
//! change nothing.

use std::time::Duration;

use farhaul_core::units::{Rate, Size};
use farhaul_link::{Jitter, Loss, PathConfig, QueueLimit, Reorder};
use farhaul_sim::{
    Bursts, CrossConfig, Error, FlowConfig, Pcapng, Qlog, Route, Scenario, Side, SimReport, run,
    run_observed,
};
use farhaul_testkit::Steady;
use serde_json::Value;

const MTU: u16 = 1_500;

fn link(rate: Rate, delay_ms: u64, queue_packets: u64) -> PathConfig {
    PathConfig {
        rate,
        delay: Duration::from_millis(delay_ms),
        mtu: Some(MTU.into()),
        queue: QueueLimit::Bytes(Size::from_bytes(queue_packets * 1_538)),
        ..PathConfig::default()
    }
}

/// Links 0 and 1 are everybody's reverse path and a spare. Links 2 and 3 are two hosts' interfaces,
/// 4 is where they meet and 5 comes after it.
fn merge(flows: usize) -> Scenario {
    let gigabit = Rate::gbit(1);
    Scenario {
        forward: link(gigabit, 1, 1_000),
        back: link(gigabit, 20, 1_000),
        links: vec![
            link(gigabit, 0, 10_000),
            link(gigabit, 0, 10_000),
            link(gigabit, 5, 64),
            link(gigabit, 15, 64),
        ],
        routes: (0..2)
            .map(|host| Route {
                forward: vec![2 + host, 4, 5],
                back: vec![1],
            })
            .collect(),
        flows: (0..flows)
            .map(|flow| FlowConfig {
                route: Some(flow),
                bytes: Some(20_000_000),
                ..FlowConfig::default()
            })
            .collect(),
        framing: 38,
        queue_interval: Duration::from_millis(1),
        interval: Duration::from_millis(50),
        interface_mtu: Some(MTU.into()),
        duration: Duration::from_secs(20),
        ..Scenario::default()
    }
}

fn simulate(scenario: &Scenario, rate: Rate) -> SimReport {
    let steady = Steady::new(rate, MTU);
    run(scenario, &mut |_| {
        (Box::new(steady.endpoint()), Box::new(steady.endpoint()))
    })
    .expect("the scenario is valid")
}

#[test]
fn delays_add_up_and_a_lone_flow_behind_an_equal_interface_queues_nowhere() {
    let report = simulate(&merge(1), Rate::mbit(1_200));
    let flow = &report.flows[0];
    assert_eq!(flow.received_bytes, 20_000_000);
    assert_eq!(flow.dropped, [0, 0]);
    // 5 ms, 15 ms and 20 ms, and a hello of some bytes on four links.
    let connected = flow.connected.unwrap();
    assert!((0.040..0.040_01).contains(&connected), "{connected}");
    // The interface spaces the packets as the links behind it do.
    let (interface, meeting) = (&report.links[0], &report.links[2]);
    assert!(interface.max_queue_bytes > 64 * 1_538);
    // The packet in service apart, nobody waits behind it.
    assert!(meeting.max_queue_bytes <= 1_538);
    assert!(meeting.drops.is_empty());
    // Every frame is 38 bytes longer on the line than its packet.
    assert_eq!(meeting.passed_bytes, interface.passed_bytes);
    let packets = 20_000_000_u64.div_ceil(1_447);
    assert!(meeting.offered >= packets);
    assert!(meeting.passed_bytes > packets * 1_500);
}

#[test]
fn two_hosts_at_full_rate_overflow_the_queue_where_they_meet() {
    let report = simulate(&merge(2), Rate::mbit(900));
    let meeting = &report.links[2];
    assert!(meeting.drops["queue"] > 1_000, "{:?}", meeting.drops);
    assert!(meeting.mean_queue_bytes.unwrap() > 20_000.0);
    assert!(meeting.p95_queue_bytes.unwrap() <= 64 * 1_538);
    assert!(
        report.links[3].drops.is_empty(),
        "it is fed at its own rate"
    );
    let dropped: u64 = report.flows.iter().map(|f| f.dropped[0]).sum();
    assert_eq!(dropped, meeting.drops["queue"]);
    for flow in &report.flows {
        assert_eq!(flow.received_bytes, 20_000_000);
    }
}

#[test]
fn segments_gather_only_if_they_may() {
    let apart = Scenario {
        coalesce: Duration::ZERO,
        ..merge(1)
    };
    let (one, many) = (
        simulate(&merge(1), Rate::mbit(900)),
        simulate(&apart, Rate::mbit(900)),
    );
    assert_eq!(one.flows[0].received_bytes, many.flows[0].received_bytes);
    // Two links further on, and the receiver: three events a packet.
    assert!(many.events > many.packets * 29 / 10, "{}", many.events);
    assert!(
        one.events < many.events - many.packets / 5,
        "{}",
        one.events
    );
}

#[test]
fn a_rough_chain_loses_no_byte_in_the_end() {
    for coalesce in [Duration::ZERO, Duration::from_millis(1)] {
        let mut rough = Scenario {
            coalesce,
            ..merge(2)
        };
        for (i, link) in rough.links.iter_mut().enumerate() {
            link.jitter = Some(Jitter {
                spread: Duration::from_micros(300),
                reorder: i % 2 == 0,
            });
            link.duplicate = 0.02;
            link.corrupt = 0.01;
            link.loss = Loss::Random(0.01);
            link.reorder = Some(Reorder {
                share: 0.02,
                by: Duration::from_millis(2),
            });
        }
        let report = simulate(&rough, Rate::mbit(400));
        for flow in &report.flows {
            assert_eq!(flow.received_bytes, 20_000_000);
        }
        assert!(
            report
                .links
                .iter()
                .all(|l| l.duplicated > 0 || l.offered < 100)
        );
    }
}

fn udp(links: Vec<usize>) -> CrossConfig {
    CrossConfig {
        links,
        rate: Rate::mbit(200),
        packet: 1_500,
        start: Duration::from_millis(500),
        stop: Some(Duration::from_millis(1_500)),
        bursts: None,
        jitter: 0.0,
    }
}

#[test]
fn cross_traffic_takes_what_it_sends_and_no_more() {
    let mut scenario = merge(1);
    scenario.flows[0].bytes = None;
    scenario.duration = Duration::from_secs(2);
    scenario.cross = vec![udp(vec![3, 4, 5])];
    let report = simulate(&scenario, Rate::mbit(700));
    let cross = &report.cross[0];
    // 200 Mbit/s of 1,500 bytes for a second.
    assert_eq!(cross.sent, 16_667);
    assert_eq!((cross.dropped, cross.arrived), (0, cross.sent));
    let on: Vec<f64> = cross.series.iter().map(|p| p.bits_per_second).collect();
    assert_eq!((on[8], on[31]), (0.0, 0.0));
    assert!(on[10..29].iter().all(|r| (r - 200e6).abs() < 1e6), "{on:?}");
    assert!(report.flows[0].dropped[0] == 0);
    let busy = report.links[2].utilisation;
    assert!((0.7..0.95).contains(&busy), "{busy}");
    // Together too much: both lose.
    let report = simulate(&scenario, Rate::mbit(950));
    assert!(report.cross[0].loss.unwrap() > 0.01);
    assert!(report.flows[0].dropped[0] > 0);
}

#[test]
fn staggered_flows_of_a_parking_lot_all_arrive() {
    // Two bottlenecks in a row; the first flow crosses both, the others one each.
    let scenario = Scenario {
        links: vec![link(Rate::mbit(100), 5, 200), link(Rate::mbit(100), 5, 200)],
        routes: [vec![2, 3], vec![2], vec![3]]
            .into_iter()
            .map(|forward| Route {
                forward,
                back: vec![1],
            })
            .collect(),
        flows: (0..3)
            .map(|i| FlowConfig {
                route: Some(i),
                start: Duration::from_millis(100 * i as u64),
                stop: (i == 2).then_some(Duration::from_secs(1)),
                bytes: (i != 2).then_some(5_000_000),
                ..FlowConfig::default()
            })
            .collect(),
        ..merge(1)
    };
    let report = simulate(&scenario, Rate::mbit(45));
    assert_eq!(report.flows[0].received_bytes, 5_000_000);
    assert_eq!(report.flows[1].received_bytes, 5_000_000);
    assert!(report.flows[2].received_bytes > 3_000_000);
    assert!(report.flows[2].closed[0].is_some());
}

#[test]
fn observers_see_everything_and_change_nothing() {
    let mut scenario = merge(2);
    scenario.cross = vec![CrossConfig {
        bursts: Some(Bursts {
            on: Duration::from_millis(20),
            off: Duration::from_millis(30),
            random: true,
        }),
        start: Duration::from_millis(100),
        jitter: 0.3,
        ..udp(vec![3, 4])
    }];
    let alone = simulate(&scenario, Rate::mbit(600));
    assert_eq!(
        alone,
        simulate(&scenario, Rate::mbit(600)),
        "same seed, same run"
    );
    let steady = Steady::new(Rate::mbit(600), MTU);
    let mut trace = Pcapng::new(Vec::new(), 4, "meeting").unwrap();
    let observed = run_observed(
        &scenario,
        &mut |_| (Box::new(steady.endpoint()), Box::new(steady.endpoint())),
        &mut trace,
    );
    assert_eq!(observed.unwrap(), alone);
    let file = trace.finish().unwrap();
    let comments = file.windows(14).filter(|w| *w == b"dropped: queue").count();
    assert_eq!(comments as u64, alone.links[2].drops["queue"]);
    let other = Scenario {
        seed: 2,
        ..scenario.clone()
    };
    let other = simulate(&other, Rate::mbit(600));
    assert_ne!(other.trace_hash, alone.trace_hash);
}

#[test]
fn a_sessions_events_are_records_in_order_of_time() {
    let scenario = merge(2);
    let steady = Steady::new(Rate::mbit(900), MTU);
    let mut log = Qlog::new(Vec::new(), 1, Side::Client, "flow 1").unwrap();
    let make: farhaul_sim::Maker<'_> =
        &mut |_| (Box::new(steady.endpoint()), Box::new(steady.endpoint()));
    run_observed(&scenario, make, &mut log).unwrap();
    let text = String::from_utf8(log.finish().unwrap()).unwrap();
    let records: Vec<Value> = text
        .split('\x1e')
        .skip(1)
        .map(|record| serde_json::from_str(record).expect("each record is an object"))
        .collect();
    assert_eq!(records[0]["qlog_format"], "JSON-SEQ");
    assert_eq!(records[0]["trace"]["vantage_point"]["type"], "client");
    let times: Vec<f64> = records[1..]
        .iter()
        .map(|r| r["time"].as_f64().expect("every event has a time"))
        .collect();
    assert!(times.is_sorted() && times.len() > 5);
    let names: Vec<&str> = records[1..]
        .iter()
        .filter_map(|r| r["name"].as_str())
        .collect();
    for name in [
        "connectivity:connection_started",
        "connectivity:connection_state_updated",
        "recovery:metrics_updated",
        "farhaul:delivered",
        "connectivity:connection_closed",
    ] {
        assert!(names.contains(&name), "{name} is missing");
    }
}

#[test]
fn ways_that_lead_nowhere_are_refused() {
    let refused = |change: fn(&mut Scenario)| {
        let mut scenario = merge(1);
        change(&mut scenario);
        let steady = Steady::new(Rate::mbit(1), MTU);
        run(&scenario, &mut |_| {
            (Box::new(steady.endpoint()), Box::new(steady.endpoint()))
        })
        .unwrap_err()
    };
    let route = |error| matches!(error, Error::Route { .. });
    assert!(route(refused(|s| s.routes[0].forward.clear())));
    assert!(route(refused(|s| s.routes[1].back = vec![9])));
    assert!(route(refused(|s| s.cross = vec![udp(vec![6])])));
    assert!(matches!(
        refused(|s| s.flows[0].route = Some(2)),
        Error::Flow { .. }
    ));
    assert!(matches!(
        refused(|s| s.links[1].rate = Rate::ZERO),
        Error::Link { link: 3, .. }
    ));
    let cross = |change: fn(&mut CrossConfig)| {
        let mut scenario = merge(1);
        let mut one = udp(vec![0]);
        change(&mut one);
        scenario.cross = vec![one];
        let steady = Steady::new(Rate::mbit(1), MTU);
        run(&scenario, &mut |_| {
            (Box::new(steady.endpoint()), Box::new(steady.endpoint()))
        })
        .unwrap_err()
    };
    for change in [
        (|c| c.rate = Rate::ZERO) as fn(&mut CrossConfig),
        |c| c.packet = 27,
        |c| c.stop = Some(c.start),
        |c| c.jitter = 1.5,
    ] {
        assert!(matches!(cross(change), Error::Cross { cross: 0, .. }));
    }
}
