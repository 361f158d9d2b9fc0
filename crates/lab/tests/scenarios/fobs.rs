//! Tests FOBS against its published figures: about 90 % of the link from 100 Mbit/s to 1 Gbit/s and
//! 0 to 65 ms (printed), some 3 % of the data sent twice by the greedy algorithm (printed, on paths
//! of 100 Mbit/s).

use farhaul_core::units::Rate;
use farhaul_link::Loss;
use farhaul_testkit::scale;

use super::kit::{named, over, path, secs};

/// Goodput as a share of the link, bytes sent again for each sent once, and KiB of feedback per GiB. A link carries
/// 1,466 of 1,500 bytes; the rate leaves it 1 %.
fn carried(protocol: &str, mbit: u64, rtt_ms: u64, loss: f64) -> (f64, f64, f64) {
    let link = Rate::mbit(mbit);
    // In the gate still for seven chunks of 100 MB and more; with loss as long as ever, until the rate has settled.
    let lasts = if loss > 0.0 || mbit < 200 {
        60
    } else {
        scale(30, 60)
    };
    let mut scenario = over(path(link, rtt_ms, 1_500), secs(lasts));
    if loss > 0.0 {
        scenario.forward.loss = Loss::Random(loss);
    }
    let protocol = format!("{protocol}:rate={}kbit", mbit * 967);
    let flow = named(&protocol, None, &scenario).flows.remove(0);
    let share = flow.goodput_bits_per_second / link.as_f64();
    let waste = flow.sender.repaired as f64 / flow.sender.data_sent as f64;
    let feedback = flow.feedback_kib_per_gib.expect("something arrived");
    eprintln!(
        "{protocol} {rtt_ms} ms {loss}: {share:.3} of the link, {waste:.4} again, {feedback:.0} KiB/GiB"
    );
    (share, waste, feedback)
}

/// The share that a chunk's end leaves of 0.967: a round trip for each 100 MB.
fn with_pauses(mbit: u64, rtt_ms: u64) -> f64 {
    let chunk = 8e8 / (mbit as f64 * 0.967e6);
    0.967 * chunk / (chunk + rtt_ms as f64 / 1e3)
}

#[test]
fn nine_tenths_of_the_link_are_used_and_greedy_wastes_a_round_trip_of_each_chunk() {
    let all = [
        (100, 65),
        (622, 26),
        (1_000, 0),
        (1_000, 65),
        (100, 0),
        (100, 26),
        (1_000, 26),
    ];
    for (mbit, rtt_ms) in all.into_iter().take(scale(4, all.len())) {
        let (share, waste, feedback) = carried("fobs", mbit, rtt_ms, 0.0);
        let derived = with_pauses(mbit, rtt_ms);
        assert!(
            (share / derived - 1.0).abs() < 0.02 && share > 0.88,
            "{share} of {derived}"
        );
        assert!(waste < 0.001 && feedback < 89.0, "{waste} {feedback}");
        // Derived: a round trip of packets for each 100 MB, 3 % at 0.37 Gbit/s over 65 ms.
        let (share, waste, _) = carried("fobs-greedy", mbit, rtt_ms, 0.0);
        let derived = mbit as f64 * 0.967e6 * rtt_ms as f64 / 8e11;
        assert!((waste - derived).abs() < 0.006, "{waste} of {derived}");
        // Printed: 3 %. Missed at 1 Gbit/s, as docs/protocols/fobs.md §6 says.
        assert_eq!(waste <= 0.03, mbit < 1_000 || rtt_ms == 0, "{waste}");
        assert!(share > 0.88, "{share}");
    }
}

/// Tolerated loss leaves the rate alone: 1 % of a segment, as preset; each chunk's end costs one more round trip.
#[test]
fn loss_that_is_tolerated_leaves_the_rate_alone_and_more_does_not() {
    let (some, again, feedback) = carried("fobs", 622, 26, 0.005);
    assert!(some > 0.88 && again < 0.03, "{some} {again}");
    // Derived: a bit for each packet is 89 KiB; that some are said again is ours.
    assert!((89.0..89.0 * 2.5).contains(&feedback), "{feedback}");
    let (more, ..) = carried("fobs", 622, 26, 0.03);
    assert!(more < 0.1, "{more}");
    let (greedy, ..) = carried("fobs-greedy", 100, 65, 0.03);
    assert!(greedy > 0.88, "{greedy}");
}
