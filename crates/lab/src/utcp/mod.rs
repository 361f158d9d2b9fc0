//! What does TCP cost outside the kernel? The `tcp` protocol under CUBIC beside the kernel's CUBIC, on
//! one host and between two, for short and for long packets: processor time per bit of both ends, and
//! the rate over time.
//!
//! Source: Y. Gu and R. Grossman, "Optimizing UDP-based Protocol Implementations" (2005), Table 3 and
//! Fig. 6, whose measure is MHz of processor per Mbit/s.

mod tables;

use std::path::Path;

use farhaul_core::units::Rate;
use farhaul_emu::Health;
use serde::{Deserialize, Serialize};

pub use tables::tables;

use crate::{
    bench::{Cost, Interval, LawTime, Report},
    emulated::{EmulatedRun, EmulatedRunError, network},
    grid::{Kept, Verdict},
    host,
    results::Cell,
};

/// The name by which `farhaul lab` knows this.
pub const NAME: &str = "utcp";
/// One line.
pub const ABOUT: &str =
    "TCP over our datagrams beside the kernel's: processor time and rate over time";
/// Default duration of sending of each run, s.
pub const SECONDS: u64 = 10;
/// The law of both.
const LAW: &str = "cubic";
/// Of the path between two hosts: what two cores carry beside both ends without being late.
const LINK: Rate = Rate::gbit(1);
/// What we may cost over what the kernel costs, with packets of 9,000 bytes.
pub const OWED: f64 = 1.5;

/// What carries the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    /// One host.
    Loopback,
    /// Two hosts with the emulator between them: 1 Gbit/s, no delay of its own.
    Namespaces,
}

impl Ground {
    /// As tables name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Namespaces => "namespaces",
        }
    }
}

/// Whose TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// The kernel's, driven by iperf3.
    Kernel,
    /// Ours, driven by `farhaul bench`.
    User,
}

/// One run to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Where.
    pub ground: Ground,
    /// Bytes of an IP packet.
    pub mtu: u32,
    /// Whose.
    pub system: System,
    /// How long it sends, s.
    pub asked_seconds: u64,
}

/// Every question, the two systems of one place next to each other.
pub fn questions(asked_seconds: u64) -> Vec<Question> {
    let places = [Ground::Loopback, Ground::Namespaces]
        .into_iter()
        .flat_map(|ground| [1_500, 9_000].map(|mtu| (ground, mtu)));
    let pairs = places.flat_map(|(ground, mtu)| {
        [System::Kernel, System::User].map(|system| Question {
            ground,
            mtu,
            system,
            asked_seconds,
        })
    });
    pairs.collect()
}

/// What one end cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Processor time of the process, s.
    pub cpu_seconds: f64,
    /// MHz of processor per Mbit/s of goodput.
    pub mhz_per_mbps: f64,
    /// Per cent of one core per Gbit/s of goodput.
    pub cpu_percent_per_gbps: f64,
}

/// One run as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The question.
    #[serde(flatten)]
    pub question: Question,
    /// Program version.
    pub version: String,
    /// Frequency of the processor.
    pub processor_mhz: f64,
    /// How long it took, s.
    pub seconds: f64,
    /// At the receiver.
    pub goodput_bits_per_second: f64,
    /// The sending end.
    pub sender: End,
    /// The receiving end.
    pub receiver: End,
    /// The rate at the receiver over time.
    pub intervals: Vec<Interval>,
    /// What the emulator cost, MHz per Mbit/s: its own work, and what the kernel does in its name for the
    /// ends, such as taking the packets that it hands over. None on one host.
    #[serde(default)]
    pub emulator_mhz_per_mbps: Option<f64>,
    /// What the whole machine did meanwhile, MHz per Mbit/s: both ends, the emulator, and what the kernel
    /// does without charging a process, as in its threads that receive packets from a device. Of an otherwise
    /// idle machine.
    #[serde(default)]
    pub machine_mhz_per_mbps: Option<f64>,
    /// What our law cost.
    pub law: Option<LawTime>,
    /// Why the figures must not be quoted, if so.
    pub invalid: Option<String>,
}

impl Kept for Run {
    fn question(&self) -> String {
        format!("{:?}", self.question)
    }
}

/// Runs one test with `program`, the farhaul binary. A failure is a result too.
pub fn run(question: Question, program: &Path) -> Run {
    let mhz = host::processor_mhz();
    let answered = mhz
        .ok_or_else(|| "the processor's frequency is unknown".to_string())
        .and_then(|mhz| Ok((mhz, ask(question, program).map_err(|e| e.to_string())?)));
    let empty = Run {
        question,
        version: env!("CARGO_PKG_VERSION").into(),
        processor_mhz: mhz.unwrap_or_default(),
        seconds: 0.0,
        goodput_bits_per_second: 0.0,
        sender: End::default(),
        receiver: End::default(),
        intervals: Vec::new(),
        emulator_mhz_per_mbps: None,
        machine_mhz_per_mbps: None,
        law: None,
        invalid: None,
    };
    match answered {
        Ok((mhz, answer)) => made(answer, mhz, empty),
        Err(why) => Run {
            invalid: Some(why),
            ..empty
        },
    }
}

/// The result of one test.
struct Answer {
    report: Report,
    /// How the emulator fared, if anything crossed it.
    emulator: Option<Health>,
    /// Processor time of the whole machine meanwhile, s.
    machine: Option<f64>,
}

/// `empty`, filled in.
fn made(answer: Answer, mhz: f64, empty: Run) -> Run {
    let Answer {
        report,
        emulator,
        machine,
    } = answer;
    let cost = |cpu_seconds: f64| cores(cpu_seconds, &report) * mhz;
    Run {
        emulator_mhz_per_mbps: emulator.as_ref().map(|health| cost(health.cpu_seconds)),
        machine_mhz_per_mbps: machine.map(cost),
        seconds: report.seconds,
        goodput_bits_per_second: report.goodput_bits_per_second,
        sender: end(&report.sender, mhz),
        receiver: end(&report.receiver, mhz),
        intervals: report.intervals,
        law: report.law,
        invalid: emulator
            .filter(|health| !health.valid)
            .map(|health| health.complaints.join("; ")),
        ..empty
    }
}

/// Cores per Mbit/s of goodput.
fn cores(cpu_seconds: f64, report: &Report) -> f64 {
    let megabits = report.goodput_bits_per_second / 1e6 * report.seconds;
    cpu_seconds / megabits.max(f64::MIN_POSITIVE)
}

fn ask(question: Question, program: &Path) -> Result<Answer, EmulatedRunError> {
    let Question {
        ground,
        mtu,
        system,
        asked_seconds,
    } = question;
    let cell = Cell {
        mtu,
        rtt_ms: 0,
        loss_percent: 0.0,
    };
    let mut run = EmulatedRun::build(&network(cell, LINK, 1), program)?;
    if ground == Ground::Loopback {
        run = run.on_one_host();
    }
    let before = host::busy_seconds();
    let report = match system {
        System::Kernel => run.iperf3(LAW, asked_seconds, Some(mtu))?,
        System::User => run.bench_tcp(LAW, mtu, asked_seconds)?,
    };
    let machine = host::busy_seconds()
        .zip(before)
        .map(|(after, before)| after - before);
    let health = run.finish()?.health;
    Ok(Answer {
        report,
        emulator: (ground == Ground::Namespaces).then_some(health),
        machine,
    })
}

fn end(cost: &Cost, mhz: f64) -> End {
    let percent = cost.cpu_percent_per_gbps.unwrap_or_default();
    End {
        cpu_seconds: cost.cpu_seconds,
        // Per cent of a core per 1,000 Mbit/s.
        mhz_per_mbps: percent / 100.0 * mhz / 1_000.0,
        cpu_percent_per_gbps: percent,
    }
}

/// The kernel's run and ours of every place that has both.
fn pairs<'a>(runs: &'a [Run]) -> Vec<(&'a Run, &'a Run)> {
    let of = |question: Question| runs.iter().find(|r| r.question == question);
    let ours = runs.iter().filter(|r| r.question.system == System::User);
    let pair = |ours: &'a Run| {
        let kernel = of(Question {
            system: System::Kernel,
            ..ours.question
        })?;
        Some((kernel, ours))
    };
    ours.filter_map(pair).collect()
}

/// Holds what both ends cost together at 9,000 bytes against the kernel's.
pub fn check(runs: &[Run]) -> Verdict {
    let mut verdict = Verdict::default();
    for (kernel, ours) in pairs(runs) {
        let Question { ground, mtu, .. } = ours.question;
        if mtu < 9_000 {
            verdict.without += 1;
            continue;
        }
        verdict.compared += 1;
        let place = format!("{}, MTU {mtu}", ground.name());
        if let Some(why) = kernel.invalid.as_ref().or(ours.invalid.as_ref()) {
            verdict
                .deviations
                .push(format!("{place}: not valid: {why}"));
            continue;
        }
        let ratio = both(ours) / both(kernel);
        if ratio.is_nan() || ratio > OWED {
            verdict.deviations.push(format!(
                "{place}: {ratio:.2} times the kernel's processor time, at most {OWED} allowed"
            ));
        }
    }
    verdict
}

/// What a run cost, MHz per Mbit/s of both ends together: who does the work of receiving depends on the
/// place, for on one host the kernel does much of it in the sender's name.
fn both(run: &Run) -> f64 {
    run.sender.mhz_per_mbps + run.receiver.mhz_per_mbps
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn run(system: System, mtu: u32, cost: f64) -> Run {
        let half = End {
            cpu_seconds: 1.0,
            mhz_per_mbps: cost / 2.0,
            cpu_percent_per_gbps: 1.0,
        };
        Run {
            question: Question {
                ground: Ground::Loopback,
                mtu,
                system,
                asked_seconds: 2,
            },
            version: "0".into(),
            processor_mhz: 2_000.0,
            seconds: 2.0,
            goodput_bits_per_second: 5e9,
            sender: half,
            receiver: half,
            intervals: [4e9, 6e9]
                .into_iter()
                .zip([0.0, 1.0])
                .map(|(rate, from)| Interval {
                    from,
                    to: from + 1.0,
                    goodput_bits_per_second: rate,
                })
                .collect(),
            emulator_mhz_per_mbps: Some(0.25),
            machine_mhz_per_mbps: Some(cost * 2.0),
            law: Some(LawTime {
                calls: 100,
                seconds: 0.01,
                share_of_cpu: 0.005,
            }),
            invalid: None,
        }
    }

    #[test]
    fn every_place_is_asked_of_both() {
        let all = questions(3);
        assert_eq!(all.len(), 8);
        for pair in all.chunks(2) {
            assert_eq!((pair[0].ground, pair[0].mtu), (pair[1].ground, pair[1].mtu));
            assert_ne!(pair[0].system, pair[1].system);
        }
    }

    #[test]
    fn a_core_at_a_gigabit_is_its_frequency_per_thousand() {
        let cost = Cost {
            cpu_percent_per_gbps: Some(100.0),
            ..Cost::default()
        };
        assert!((end(&cost, 2_400.0).mhz_per_mbps - 2.4).abs() < 1e-9);
    }

    #[test]
    fn long_packets_have_a_bound_and_short_ones_are_reported() {
        let runs = |ours| {
            [
                run(System::Kernel, 9_000, 0.1),
                run(System::User, 9_000, ours),
                run(System::Kernel, 1_500, 0.1),
                run(System::User, 1_500, 1.0),
            ]
        };
        let good = check(&runs(0.15));
        assert_eq!((good.compared, good.without), (1, 1));
        assert!(good.deviations.is_empty());
        let bad = check(&runs(0.16)).deviations;
        assert_eq!(bad.len(), 1);
        assert!(bad[0].contains("1.60 times the kernel's"), "{bad:?}");
        let mut failed = runs(0.1);
        failed[0].invalid = Some("no iperf3".into());
        assert!(check(&failed).deviations[0].contains("no iperf3"));
    }
}
