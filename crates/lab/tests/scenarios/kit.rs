//! Paths, runs, and figures read from a report, shared by the scenarios.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use farhaul_congestion::lookup;
use farhaul_core::{
    congestion::SavedPath,
    protocol::Protocol,
    time::Instant,
    units::{Rate, Size},
};
use farhaul_haul::{PathEntry, PathMemory};
use farhaul_link::{Loss, PathConfig, QueueLimit};
use farhaul_measure::registry::{self, Choice, Entry};
use farhaul_sim::{FlowConfig, FlowReport, Scenario, SimReport};
use farhaul_testkit::{bare, scale};

/// Driver of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The flagship.
    Haul,
    /// The flagship's session under this law.
    HaulUnder(&'static str),
    /// The flagship, which proved this of the path before.
    Resumed(SavedPath),
    /// The bare engine under this law.
    Bare(&'static str),
}

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A clean path with a queue of one bandwidth-delay product, at least 50 ms.
pub(crate) fn path(rate: Rate, rtt_ms: u64, mtu: u32) -> PathConfig {
    PathConfig {
        rate,
        delay: ms(rtt_ms) / 2,
        mtu: Some(mtu),
        queue: QueueLimit::Bytes(Size::from_bytes(rate.bytes_in(ms(rtt_ms.max(50))))),
        ..PathConfig::default()
    }
}

/// A path of the papers' grid: 10 Gbit/s, 18 MB of queue, `loss` in both directions.
pub(crate) fn cell(rtt_ms: u64, loss: f64, mtu: u32) -> PathConfig {
    PathConfig {
        delay: ms(rtt_ms) / 2,
        mtu: Some(mtu),
        loss: if loss > 0.0 {
            Loss::Random(loss)
        } else {
            Loss::None
        },
        ..PathConfig::default()
    }
}

/// One endless flow for so long, with a point each second.
pub(crate) fn over(path: PathConfig, duration: Duration) -> Scenario {
    Scenario {
        duration,
        interval: secs(1),
        ..Scenario::over(path)
    }
}

/// One transfer of this many bytes.
pub(crate) fn transfer(path: PathConfig, bytes: u64) -> Scenario {
    Scenario {
        flows: vec![FlowConfig {
            bytes: Some(bytes),
            ..FlowConfig::default()
        }],
        ..over(path, secs(120))
    }
}

/// Runs `scenario` with the flagship in every flow.
pub(crate) fn haul(scenario: &Scenario) -> SimReport {
    run(scenario, &[Who::Haul])
}

/// Flow `i` is driven by `who[i]`, or by the last of them.
pub(crate) fn run(scenario: &Scenario, who: &[Who]) -> SimReport {
    let mtu = scenario.interface_mtu.unwrap_or(1_500);
    let mtu = u16::try_from(mtu).expect("no scenario has a larger MTU");
    farhaul_sim::run(scenario, &mut |flow| {
        ends(who[flow.min(who.len() - 1)], mtu)
    })
    .expect("the scenario is valid")
}

/// Medians of figures over five seeds, of three in the gate.
pub(crate) fn medians<const N: usize>(
    scenario: &Scenario,
    who: &[Who],
    figures: impl Fn(&SimReport) -> [f64; N],
) -> [f64; N] {
    medians_of(scale(3, 5), scenario, who, figures)
}

/// Medians of figures over this many seeds. Which packet numbers are left out differs from seed to
/// seed, and with it where probes fall.
pub(crate) fn medians_of<const N: usize>(
    seeds: u64,
    scenario: &Scenario,
    who: &[Who],
    figures: impl Fn(&SimReport) -> [f64; N],
) -> [f64; N] {
    let runs: Vec<_> = (1..=seeds)
        .map(|seed| {
            let scenario = Scenario {
                seed,
                ..scenario.clone()
            };
            figures(&run(&scenario, who))
        })
        .collect();
    std::array::from_fn(|i| {
        let mut all: Vec<_> = runs.iter().map(|figures| figures[i]).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    })
}

fn ends(who: Who, mtu: u16) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    match who {
        Who::Haul => named_ends("haul", None)(0),
        Who::HaulUnder(law) => named_ends("haul", Some(law))(0),
        Who::Resumed(saved) => ends_of(registry::haul(Some(remembers(saved))), None)(0),
        Who::Bare(spec) => {
            let bare = || {
                let law = lookup(spec).expect("the law exists");
                Box::new(bare(move || law.make(), mtu))
            };
            (bare(), bare())
        }
    }
}

/// A memory of the path to the simulator's server.
fn remembers(saved: SavedPath) -> Arc<PathMemory> {
    let memory = PathMemory::default();
    let entry = PathEntry {
        peer: None,
        address: Ipv4Addr::new(10, 99, 0, 2).into(),
        saved,
        datagram: 0,
        age: Duration::ZERO,
    };
    memory.note(Instant::EPOCH, entry);
    Arc::new(memory)
}

/// The ends of a protocol of the registry, under its own law or another; all that the same value gives receive at one
/// host.
fn named_ends(
    protocol: &str,
    law: Option<&str>,
) -> impl FnMut(usize) -> (Box<dyn Protocol>, Box<dyn Protocol>) + use<> {
    let entry = registry::protocol(protocol).expect("the protocol exists");
    ends_of(entry, law)
}

fn ends_of(
    entry: Entry,
    law: Option<&str>,
) -> impl FnMut(usize) -> (Box<dyn Protocol>, Box<dyn Protocol>) + use<> {
    let choice = Choice {
        simulated: true,
        law: law.map(Into::into),
        ..Choice::default()
    };
    move |_| {
        (
            entry.client(&choice).expect("the settings are valid"),
            entry.server(&choice).expect("the settings are valid"),
        )
    }
}

/// Runs `scenario` with a protocol of the registry in every flow.
pub(crate) fn named(protocol: &str, law: Option<&str>, scenario: &Scenario) -> SimReport {
    farhaul_sim::run(scenario, &mut named_ends(protocol, law)).expect("the scenario is valid")
}

/// Bytes received from second `from` to second `to`, as a rate.
pub(crate) fn rate(flow: &FlowReport, from: f64, to: f64) -> f64 {
    let at = |time: f64| {
        let point = flow.series.iter().rfind(|p| p.at <= time + 1e-9);
        point.map_or(0, |p| p.delivered)
    };
    (at(to) - at(from)) as f64 * 8.0 / (to - from)
}

/// Mean goodput of flow `flow` in the points of time `from..=to` (s), as a share of `rate`.
pub(crate) fn share(report: &SimReport, flow: usize, from: u64, to: u64, rate: Rate) -> f64 {
    let points: Vec<f64> = report.flows[flow]
        .series
        .iter()
        .filter(|p| p.at > from as f64 + 1e-6 && p.at <= to as f64 + 1e-6)
        .map(|p| p.goodput_bits_per_second)
        .collect();
    assert!(!points.is_empty(), "no points in {from}..={to}");
    points.iter().sum::<f64>() / points.len() as f64 / rate.as_f64()
}

/// The goodput of each second as a share of `rate`, for a failure's message.
pub(crate) fn seconds(report: &SimReport, flow: usize, rate: Rate) -> String {
    let points = &report.flows[flow].series;
    let shares = points
        .iter()
        .map(|p| format!("{:.2}", p.goodput_bits_per_second / rate.as_f64()));
    shares.collect::<Vec<_>>().join(" ")
}

/// Share of the packets which the forward link dropped for `cause`.
pub(crate) fn dropped(report: &SimReport, cause: &str) -> f64 {
    let drops = report.forward.drops.get(cause).copied().unwrap_or(0);
    drops as f64 / report.forward.offered as f64
}

/// Jain's index of fairness.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|s| s * s).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// One line of the first flow's figures.
pub(crate) fn figures(name: &str, report: &SimReport) {
    let flow = &report.flows[0];
    eprintln!(
        "{name}: {:.1} Mbit/s, wire/goodput {:.4}, feedback {:.1} KiB/GiB, 90 % at {:.3} s, \
         lost {} spurious {}, dropped as duplicate {}, timeouts {}, max wait {:.1} ms, drops {:?}",
        flow.goodput_bits_per_second / 1e6,
        flow.wire_over_goodput.unwrap_or(f64::NAN),
        flow.feedback_kib_per_gib.unwrap_or(f64::NAN),
        flow.time_to_90_percent.unwrap_or(f64::NAN),
        flow.sender.packets_lost,
        flow.sender.packets_spurious,
        flow.receiver.dropped_duplicate,
        flow.sender.timeouts,
        report.forward.max_wait_ms,
        report.forward.drops,
    );
}
