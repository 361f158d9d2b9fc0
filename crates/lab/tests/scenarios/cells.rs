//! Tests that the link is full in the cells of the papers' grid, start included: 10 Gbit/s, 30 s.
//! The gate has 15 s, which are judged after the longest start that the target allows.

use farhaul_testkit::scale;

use super::kit::{cell, figures, haul, over, rate, secs};

/// Target of a cell.
struct Owed {
    rtt_ms: u64,
    loss: f64,
    mtu: u32,
    /// Goodput as a share of the UDP payload which the link can carry.
    share: f64,
    /// KiB per GiB.
    feedback: f64,
    /// Time to nine tenths of the link's rate, s.
    start: f64,
}

fn check(owed: &Owed) {
    let lasts = scale(15, 30);
    let report = haul(&over(cell(owed.rtt_ms, owed.loss, owed.mtu), secs(lasts)));
    let name = format!("{} ms, {} %, {}", owed.rtt_ms, owed.loss * 100.0, owed.mtu);
    figures(&name, &report);
    let flow = &report.flows[0];
    let carried = 10e9 * (1.0 - owed.loss) * f64::from(owed.mtu - 28) / f64::from(owed.mtu);
    let reached = scale(
        rate(flow, owed.start.ceil(), 15.0),
        flow.goodput_bits_per_second,
    );
    let share = reached / carried;
    eprintln!("{name}: {share:.4} of what the link carries");
    assert!(share >= owed.share, "{name}: {share:.4}");
    let wire = flow.wire_over_goodput.expect("something arrived");
    assert!(wire <= 1.03 / (1.0 - owed.loss), "{name}: {wire:.4}");
    let feedback = flow.feedback_kib_per_gib.expect("something arrived");
    assert!(feedback <= owed.feedback, "{name}: {feedback:.1} KiB/GiB");
    let start = flow.time_to_90_percent.expect("the link is filled");
    assert!(start <= owed.start, "{name}: {start:.3} s");
    assert_eq!(flow.closed, [None, None], "{name}");
}

macro_rules! cells {
    ($($name:ident: $rtt_ms:literal ms, $loss:literal, $mtu:literal =>
        share $share:literal, feedback $feedback:literal, start $start:literal s;)*) => {
        $(#[test]
        fn $name() {
            check(&Owed {
                rtt_ms: $rtt_ms,
                loss: $loss,
                mtu: $mtu,
                share: $share,
                feedback: $feedback,
                start: $start,
            });
        })*
    };
}

// The shares include the start; the farther, the more of the 30 s it takes. Owed is a start of 8 round
// trips, which none but the longest is near.
cells! {
    no_rtt_no_loss:
        0 ms, 0.0, 9_000 => share 0.98, feedback 13.0, start 0.2 s;
    rtt_50_loss_01:
        50 ms, 0.001, 9_000 => share 0.97, feedback 16.0, start 0.85 s;
    rtt_100_loss_1:
        100 ms, 0.01, 9_000 => share 0.96, feedback 16.0, start 1.2 s;
    rtt_200_loss_1:
        200 ms, 0.01, 9_000 => share 0.93, feedback 16.0, start 2.1 s;
    rtt_400_loss_2:
        400 ms, 0.02, 9_000 => share 0.88, feedback 24.0, start 4.0 s;
    no_rtt_loss_5:
        0 ms, 0.05, 9_000 => share 0.97, feedback 48.0, start 0.5 s;
    rtt_50_loss_5:
        50 ms, 0.05, 9_000 => share 0.97, feedback 48.0, start 1.0 s;
    rtt_200_loss_5:
        200 ms, 0.05, 9_000 => share 0.93, feedback 48.0, start 3.0 s;
    small_packets_no_rtt_no_loss:
        0 ms, 0.0, 1_500 => share 0.96, feedback 16.0, start 0.2 s;
    small_packets_rtt_100_loss_01:
        100 ms, 0.001, 1_500 => share 0.94, feedback 16.0, start 1.3 s;
}
