//! Tests that SABUL does what its descriptions make it do: ceiling, step, feedback, collapse,
//! window.

use farhaul_core::units::Rate;

use super::kit::{cell, named, over, path, rate, secs};

#[test]
fn ten_microseconds_a_packet_are_the_ceiling_and_880_bytes_a_second_the_feedback() {
    for variant in ["mimd", "aimd"] {
        let law = format!("sabul:variant={variant}");
        let report = named("sabul", Some(&law), &over(cell(10, 0.0, 9_000), secs(20)));
        let flow = &report.flows[0];
        let ceiling = 1_456.0 * 8.0 / 10e-6;
        let reached = rate(flow, 5.0, 20.0);
        let feedback = flow.receiver.feedback_sent as f64 / 20.0;
        eprintln!("{variant}: {reached:.0} of {ceiling:.0} bit/s, {feedback:.0} B/s back");
        assert!(reached <= ceiling * 1.001 && reached >= ceiling * 0.995);
        assert!((850.0..=890.0).contains(&feedback), "{feedback}");
        assert_eq!(flow.sender.packets_lost, 0);
    }
}

#[test]
fn at_a_per_cent_lost_the_papers_variant_collapses_and_at_a_hundredth_it_does_not() {
    let loss = |share| {
        let report = named(
            "sabul",
            Some("sabul"),
            &over(cell(50, share, 9_000), secs(60)),
        );
        let flow = &report.flows[0];
        let reached = rate(flow, 30.0, 60.0);
        eprintln!("{share}: {:.1} Mbit/s", reached / 1e6);
        reached
    };
    assert!(loss(0.000_1) > 0.8e9);
    let collapsed = loss(0.01);
    // Half a microsecond per period is lost faster than a per cent of the gap is won back.
    assert!((1e6..=60e6).contains(&collapsed), "{collapsed}");
}

#[test]
fn a_gigabit_with_a_queue_is_used_by_both_variants_and_losses_are_repaired() {
    // Nothing is published of this link; the figures are this model's own (0.70 each).
    for variant in ["mimd", "aimd"] {
        let law = format!("sabul:variant={variant}");
        let link = path(Rate::gbit(1), 20, 1_500);
        let report = named("sabul", Some(&law), &over(link, secs(30)));
        let flow = &report.flows[0];
        let share = rate(flow, 10.0, 30.0) / 1e9;
        let (lost, again) = (flow.sender.packets_lost, flow.sender.retransmits);
        eprintln!("{variant}: {share:.3}, {lost} lost, {again} sent again");
        assert!(share >= 0.65, "{variant}: {share}");
        assert!(lost > 0 && again >= lost * 9 / 10 && flow.sender.timeouts == 0);
    }
}

#[test]
fn the_window_and_the_clock_of_acknowledgements_bound_long_paths() {
    let report = named(
        "sabul",
        Some("sabul"),
        &over(cell(400, 0.0, 9_000), secs(20)),
    );
    let reached = rate(&report.flows[0], 10.0, 20.0);
    // 25,600 packets per round trip and up to 100 ms until it is reported.
    let (most, least) = (
        25_600.0 * 1_456.0 * 8.0 / 0.4,
        25_600.0 * 1_456.0 * 8.0 / 0.51,
    );
    eprintln!("400 ms: {:.0} Mbit/s", reached / 1e6);
    assert!((least..=most).contains(&reached), "{reached}");
}
