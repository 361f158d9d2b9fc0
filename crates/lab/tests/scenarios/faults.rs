//! Tests that a transfer goes on, and at what rate, when the path misbehaves: one fault per test.

use farhaul_core::units::{Rate, Size};
use farhaul_link::{Aqm, Jitter, Loss, PathConfig, Policer, QueueLimit, Step, Window};
use farhaul_sim::FlowConfig;
use farhaul_testkit::scale;

use super::kit::{
    Who, cell, dropped, figures, haul, medians, medians_of, ms, over, path, seconds, secs, share,
    transfer,
};

const GBIT: Rate = Rate::gbit(1);

#[test]
fn a_blackout_of_ten_seconds_is_survived() {
    let mut scenario = over(path(GBIT, 100, 9_000), secs(30));
    let dark = vec![Window {
        from: secs(5),
        lasts: secs(10),
    }];
    scenario.forward.blackouts.clone_from(&dark);
    scenario.back.blackouts = dark;
    let report = haul(&scenario);
    figures("blackout", &report);
    let series = seconds(&report, 0, GBIT);
    eprintln!("blackout: {series}");
    assert_eq!(report.flows[0].closed, [None, None], "{series}");
    assert!(share(&report, 0, 3, 5, GBIT) >= 0.98, "{series}");
    assert!(share(&report, 0, 6, 15, GBIT) <= 0.001, "{series}");
    assert!(share(&report, 0, 17, 30, GBIT) >= 0.98, "{series}");
}

#[test]
fn a_transfer_across_a_blackout_completes() {
    let mut scenario = transfer(path(GBIT, 100, 9_000), 1_000_000_000);
    let dark = vec![Window {
        from: secs(3),
        lasts: secs(10),
    }];
    scenario.forward.blackouts.clone_from(&dark);
    scenario.back.blackouts = dark;
    let report = haul(&scenario);
    figures("transfer across a blackout", &report);
    // 8 s of bytes, 10 s of darkness, and one to get going twice.
    let completed = report.flows[0].completed.expect("it completes");
    eprintln!("transfer across a blackout: {completed:.2} s");
    assert!(completed <= 19.0, "{completed}");
}

#[test]
fn a_rate_that_falls_and_rises_is_followed() {
    let mut scenario = over(cell(50, 0.0, 9_000), secs(40));
    let step = |at, gbit| Step {
        at: secs(at),
        to: Rate::gbit(gbit),
    };
    scenario.forward.rate_steps = vec![step(10, 1), step(20, 10)];
    let report = haul(&scenario);
    figures("10 -> 1 -> 10 Gbit/s", &report);
    let series = seconds(&report, 0, GBIT);
    eprintln!("10 -> 1 -> 10 Gbit/s: {series}");
    // Owed are 9.85, 0.98 and 9.85: what is left after the first leap is taken in small steps.
    assert!(share(&report, 0, 1, 10, GBIT) >= 9.7, "{series}");
    assert!(share(&report, 0, 11, 20, GBIT) >= 0.96, "{series}");
    assert!(share(&report, 0, 21, 40, GBIT) >= 9.6, "{series}");
}

#[test]
fn slow_links_are_filled() {
    for (mbit, rtt_ms, queue_ms) in [
        (10, 20, 50),
        (10, 100, 100),
        (10, 100, 1_000),
        (100, 50, 50),
    ] {
        let rate = Rate::mbit(mbit);
        let mut link = path(rate, rtt_ms, 1_500);
        link.queue = QueueLimit::Time(ms(queue_ms));
        // Runs differ by seed; of one alone the phase of its probes decides.
        link.jitter = Some(Jitter {
            spread: ms(1),
            reorder: false,
        });
        let name = format!("{mbit} Mbit/s, {rtt_ms} ms, queue {queue_ms} ms");
        let [reached, lost] = medians(&over(link, secs(30)), &[Who::Haul], |report| {
            figures(&name, report);
            [share(report, 0, 5, 30, rate), dropped(report, "queue")]
        });
        eprintln!("{name}: {reached:.3}, {lost:.4} dropped");
        // Of 21 seeds the median is 0.946 to 0.957; of any five in a row at 10 Mbit/s and 20 ms 0.9365 to 0.950.
        assert!(reached >= 0.935, "{name}: {reached:.3}");
        assert!(lost <= 0.007, "{name}: {lost:.4}");
    }
}

/// Medians of 41 seeds, of seven in the gate. Owed is 0.95 of the link and 1 % repaired.
fn is_not_taken_for_lost(spread_ms: u64, at_least: f64) {
    let jitter = Jitter {
        spread: ms(spread_ms),
        reorder: true,
    };
    let link = PathConfig {
        jitter: Some(jitter),
        ..path(GBIT, 50, 9_000)
    };
    let name = format!("jitter {spread_ms} ms");
    let scenario = over(link, secs(20));
    let [reached, repaired] = medians_of(scale(7, 41), &scenario, &[Who::Haul], |report| {
        let flow = &report.flows[0];
        let repaired = flow.sender.repaired as f64 / flow.received_bytes as f64;
        [share(report, 0, 5, 20, GBIT), repaired]
    });
    eprintln!("{name}: {reached:.3}, repaired {repaired:.4}");
    assert!(reached >= at_least, "{name}: {reached:.3}");
    assert!(repaired <= 0.01, "{name}: {repaired:.4}");
}

#[test]
fn packets_a_millisecond_out_of_order_are_not_taken_for_lost() {
    is_not_taken_for_lost(1, 0.95);
}

#[test]
fn packets_10_ms_out_of_order_are_not_taken_for_lost() {
    is_not_taken_for_lost(10, 0.95);
}

#[test]
fn packets_20_ms_out_of_order_are_not_taken_for_lost() {
    is_not_taken_for_lost(20, 0.9);
}

#[test]
fn losses_in_bursts_cost_what_they_lose() {
    for burst in [5.0, 50.0] {
        let link = PathConfig {
            loss: Loss::bursts(0.01, burst),
            ..path(GBIT, 100, 9_000)
        };
        let mut scenario = over(link, secs(30));
        // The model counts packets, not time: a burst on the way back would outlast a stalled sender.
        scenario.back.loss = Loss::None;
        let name = format!("1 % in bursts of {burst}");
        let [reached, wire] = medians(&scenario, &[Who::Haul], |report| {
            figures(&name, report);
            let wire = report.flows[0].wire_over_goodput;
            [
                share(report, 0, 5, 30, GBIT),
                wire.expect("something arrived"),
            ]
        });
        eprintln!("{name}: {reached:.3}");
        assert!(reached >= 0.955, "{name}: {reached:.3}");
        assert!(wire <= 1.03 / 0.99, "{name}: {wire:.4}");
    }
}

#[test]
fn copies_and_damage_do_no_harm() {
    let link = PathConfig {
        duplicate: 0.05,
        corrupt: 0.01,
        ..path(GBIT, 100, 9_000)
    };
    let report = haul(&over(link, secs(20)));
    figures("5 % copies, 1 % damage", &report);
    let reached = share(&report, 0, 5, 20, GBIT);
    let receiver = &report.flows[0].receiver;
    eprintln!(
        "5 % copies, 1 % damage: {reached:.3}, duplicates {}",
        receiver.dropped_duplicate
    );
    assert!(reached >= 0.975, "{reached:.3}");
    assert!(receiver.dropped_duplicate >= report.forward.duplicated * 9 / 10);
}

#[test]
fn a_policer_is_not_run_against() {
    let rate = Rate::mbit(200);
    let link = PathConfig {
        policer: Some(Policer {
            rate,
            burst: Size::from_bytes(1_000_000),
        }),
        ..path(GBIT, 50, 1_500)
    };
    let [reached, lost] = medians(&over(link, secs(30)), &[Who::Haul], |report| {
        figures("policer", report);
        [share(report, 0, 5, 30, rate), dropped(report, "policer")]
    });
    eprintln!("policer: {reached:.3}, {lost:.4} dropped");
    assert!(reached >= 0.93, "{reached:.3}");
    // Owed is 3 %: a bucket that filled during a pause passes probes which the path could not carry on.
    assert!(lost <= 0.12, "{lost:.4}");
}

#[test]
fn lost_feedback_costs_nothing() {
    let mut scenario = over(path(GBIT, 100, 9_000), secs(20));
    scenario.back.loss = Loss::Random(0.2);
    let report = haul(&scenario);
    figures("20 % of feedback lost", &report);
    let reached = share(&report, 0, 5, 20, GBIT);
    let repaired = report.flows[0].sender.repaired as f64 / report.flows[0].received_bytes as f64;
    eprintln!("20 % of feedback lost: {reached:.3}, repaired {repaired:.5}");
    assert!(reached >= 0.98, "{reached:.3}");
    assert!(repaired <= 0.001, "{repaired:.5}");
}

#[test]
fn a_route_that_changes_is_followed() {
    // A longer route is taken for a standing queue, then for somebody else's, until two looks led to the
    // same delay.
    for (before, after, soon, settled) in [(20, 100, 11, 40), (100, 20, 9, 9)] {
        let mut scenario = over(path(GBIT, before, 9_000), secs(60));
        let step = vec![Step {
            at: secs(8),
            to: ms(after) / 2,
        }];
        scenario.forward.delay_steps.clone_from(&step);
        scenario.back.delay_steps = step;
        let shares = medians(&scenario, &[Who::Haul], |report| {
            [(3, 8), (soon, 60), (settled, 60)].map(|(from, to)| share(report, 0, from, to, GBIT))
        });
        let found = format!("{before} -> {after} ms: {shares:.3?}");
        eprintln!("{found}");
        for (share, owed) in shares.into_iter().zip([0.97, 0.93, 0.98]) {
            assert!(share >= owed, "{found}");
        }
    }
}

#[test]
fn a_route_that_changes_in_an_outage_is_known_at_once() {
    for (lasts, after) in [(100, 60), (300, 100)] {
        let mut scenario = over(path(GBIT, 40, 9_000), secs(16));
        let step = vec![Step {
            at: secs(8),
            to: ms(after) / 2,
        }];
        let outage = vec![Window {
            from: secs(8),
            lasts: ms(lasts),
        }];
        for way in [&mut scenario.forward, &mut scenario.back] {
            way.delay_steps.clone_from(&step);
            way.blackouts.clone_from(&outage);
        }
        let [kept] = medians(&scenario, &[Who::Haul], |report| {
            [share(report, 0, 10, 16, GBIT)]
        });
        eprintln!("40 -> {after} ms, after {lasts} ms without: {kept:.3}");
        assert!(kept >= 0.95, "{after} ms: {kept:.3}");
    }
}

#[test]
fn a_shallow_queue_is_enough() {
    // 2 % of the product of bandwidth and delay.
    let link = PathConfig {
        queue: QueueLimit::Time(ms(2)),
        ..path(GBIT, 100, 9_000)
    };
    let report = haul(&over(link, secs(30)));
    figures("queue of 2 ms", &report);
    let reached = share(&report, 0, 5, 30, GBIT);
    let lost = dropped(&report, "queue");
    eprintln!("queue of 2 ms: {reached:.3}, {lost:.4} dropped");
    assert!(reached >= 0.98, "{reached:.3}");
    assert!(lost <= 0.03, "{lost:.4}");
}

#[test]
fn queue_management_is_parsed() {
    let link = PathConfig {
        aqm: Some(Aqm::Codel {
            // Below the law's own queue, or nothing is marked.
            target: ms(1),
            interval: ms(100),
        }),
        ..path(GBIT, 50, 9_000)
    };
    let report = haul(&over(link, secs(30)));
    figures("CoDel", &report);
    let reached = share(&report, 0, 5, 30, GBIT);
    let wait = report.forward.max_wait_ms;
    eprintln!("CoDel: {reached:.3}, {} marked", report.forward.marked);
    assert!(reached >= 0.98, "{reached:.3}");
    assert!(report.forward.marked > 0);
    // The bursts of the start overrun any queue once.
    let lost = dropped(&report, "queue");
    assert!(lost <= 0.002, "{lost:.5}");
    assert!(wait <= 50.0, "{wait:.1} ms");
}

#[test]
fn intermittent_traffic_gets_its_share() {
    let mut scenario = over(path(GBIT, 50, 9_000), secs(40));
    scenario.flows.push(FlowConfig {
        start: secs(10),
        stop: Some(secs(20)),
        ..FlowConfig::default()
    });
    let who = [Who::Haul, Who::Bare("fixed:rate=500Mbit")];
    // What is used afterwards differs by four per cent between seeds: of 15 the median is 0.974, of five a per cent more or
    // less.
    let [before, beside, after, others] = medians_of(scale(5, 15), &scenario, &who, |report| {
        [
            share(report, 0, 5, 10, GBIT),
            share(report, 0, 12, 20, GBIT),
            share(report, 0, 22, 40, GBIT),
            share(report, 1, 12, 20, GBIT),
        ]
    });
    eprintln!("500 Mbit/s from 10 to 20 s: {before:.3} {beside:.3} {after:.3} {others:.3}");
    assert!(before >= 0.97, "{before:.3}");
    assert!(beside >= 0.4, "{beside:.3}");
    assert!(after >= scale(0.96, 0.97), "{after:.3}");
    assert!(others >= 0.4, "{others:.3}");
}
