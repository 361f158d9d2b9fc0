//! Tests that PA-UDP keeps to what the receiver's disk and memory take. The sizes are the
//! reference's: a memory of 1 GB before a disk of 600 Mbit/s.

use farhaul_core::units::Rate;
use farhaul_sim::{DiskConfig, FlowConfig, FlowReport, Scenario};

use super::kit::{cell, ms, named, over, path, secs, transfer};

const GB: u64 = 1_000_000_000;
const DISK: Rate = Rate::mbit(600);

/// One transfer of `bytes` to a disk of [`DISK`] behind `memory`.
fn to_disk(protocol: &str, memory: u64, bytes: u64) -> FlowReport {
    let mut scenario = Scenario {
        interval: ms(100),
        ..over(cell(20, 0.0, 9_000), secs(200))
    };
    scenario.flows = vec![FlowConfig {
        bytes: Some(bytes),
        disk: Some(DiskConfig {
            rate: DISK,
            memory,
            stall: None,
        }),
        ..FlowConfig::default()
    }];
    named(protocol, None, &scenario).flows.remove(0)
}

/// Derived: `r_disk / (1 - m/f)`, within 5 %: 1,200 Mbit/s for twice the memory, 750 for five times. And the memory
/// is about full when the last byte arrives.
#[test]
fn the_mean_rate_fills_the_memory_with_the_last_byte() {
    for tenths in [10, 12, 15, 20, 30, 40, 50] {
        let bytes = tenths * GB / 10;
        let flow = to_disk("pa-udp:rate=4Gbit,mtu=9000", GB, bytes);
        let (had, reported) = (flow.completed.unwrap(), flow.delivered.unwrap());
        let times = bytes as f64 / GB as f64;
        let wanted = (DISK.as_f64() / (1.0 - 1.0 / times)).min(4e9);
        let reached = flow.goodput_bits_per_second;
        // What is written after the last byte came was in memory; the rest is half an rtt.
        let left = (reported - had - 0.01) * DISK.as_f64() / 8.0 / GB as f64;
        let lost = flow.receiver.dropped_full as f64 / flow.receiver.datagrams_received as f64;
        eprintln!(
            "{times} GB: {:.0} of {:.0} Mbit/s, {:.1} % full at the end, {:.4} % had no room",
            reached / 1e6,
            wanted / 1e6,
            left * 100.0,
            lost * 100.0
        );
        assert!(
            (reached / wanted - 1.0).abs() <= 0.05,
            "{reached} of {wanted}"
        );
        // Memory and time differ where all of it fits.
        assert!(left <= 1.01 && (times <= 1.0 || left >= 0.95), "{left}");
        assert!(lost <= 1e-3, "{lost}");
    }
}

/// A disk of a third of the sending rate, for ten seconds: data without room are lost.
#[test]
fn a_slow_disk_costs_next_to_nothing_where_others_lose_most() {
    let lost = |protocol: &str| {
        let mut scenario = over(path(Rate::gbit(1), 50, 9_000), secs(10));
        scenario.flows = vec![FlowConfig {
            disk: Some(DiskConfig {
                rate: Rate::mbit(300),
                memory: 16 << 20,
                stall: None,
            }),
            ..FlowConfig::default()
        }];
        let flow = named(protocol, None, &scenario).flows.remove(0);
        let lost = flow.receiver.dropped_full as f64 / flow.receiver.datagrams_received as f64;
        let mbit = flow.goodput_bits_per_second / 1e6;
        eprintln!(
            "{protocol}: {:.2} % had no room, {mbit:.0} Mbit/s",
            lost * 100.0
        );
        assert_eq!(flow.closed, [const { None }; 2]);
        (lost, mbit)
    };
    let (own, mbit) = lost("pa-udp:rate=900Mbit,mtu=9000");
    assert!(own < 0.001, "{own}");
    assert!(mbit >= 0.95 * 300.0, "{mbit}");
    for other in ["rbudp:rate=900Mbit", "ttp:rate=900Mbit,mtu=9000"] {
        let (lost, _) = lost(other);
        // Derived: two thirds of what comes once the memory is full.
        assert!(lost > 0.3, "{other}: {lost}");
    }
}

/// Without a disk in the way it is a fixed rate. Derived: a file costs an offer and its answer.
/// Where units are lost, those of the last round trip are asked for at a look and come a round trip
/// later, some of them twice.
#[test]
fn without_a_disk_the_link_is_filled_whatever_the_rtt() {
    for (rtt, loss) in [(0, 0.0), (100, 0.0), (100, 0.01), (400, 0.01)] {
        let scenario = transfer(cell(rtt, loss, 9_000), 9 * GB);
        let flow = named("pa-udp:rate=9Gbit,mtu=9000", None, &scenario)
            .flows
            .remove(0);
        let rtt = rtt as f64 / 1e3;
        let repair = if loss > 0.0 {
            3.0 * (rtt + (rtt / 2.0).max(0.1))
        } else {
            0.0
        };
        // Losses halve what they are: every second period is one of the law.
        let wanted = 8.0 / (1.0 - 1.5 * loss) + 2.0 * rtt + repair;
        let took = flow.completed.unwrap();
        eprintln!("{rtt} s, {loss}: {took:.2} of {wanted:.2} s");
        assert!(took <= wanted * 1.02, "{took} of {wanted}");
    }
}
