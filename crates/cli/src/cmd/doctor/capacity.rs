//! Measures how much the path carries, each way, and how much of it is lost. A few seconds of
//! `bench` against the server: one of benches as it is, one of files by a session that it lends.

use std::{io, sync::Arc, time::Duration};

use farhaul_core::{time::nanos, units::Rate};
use farhaul_haul::Haul;
use farhaul_io::{Buffers, Stop};
use farhaul_measure::{
    bench::{self, BenchError, Limit, Report as Measured, Spec, Wrap},
    doctor::{Finding, Grade},
    visit::Visit,
};
use farhaul_transfer::{
    TransferError,
    client::{Answer, Answered, Lent, Probe, offers_probes},
};
use serde_json::{Value, json};

use super::{report::Report, target::Target};
use crate::{
    connect::{Attempt, Visitor, taken},
    exit::Failure,
    wait::Wait,
    when,
};

/// Share from which on the sender itself is the limit.
const MOSTLY: f64 = 0.5;
/// Smallest share of lost packets that is a finding.
const LOSSY: f64 = 0.001;

/// Measurement of a path.
pub(super) struct Capacity<'a> {
    pub(super) target: &'a Target,
    pub(super) visitor: &'a Visitor<'a>,
    pub(super) time: Duration,
}

/// Both ways, and whether the server sends.
const WAYS: [(&str, bool); 2] = [("upload", false), ("download", true)];

/// Reason that one way was not measured.
enum Unmeasured {
    /// The way can be measured for so long at most.
    Shorter(Duration),
    Refused(TransferError),
    Failed(BenchError),
    System(io::Error),
}

impl Capacity<'_> {
    /// Measures both ways.
    pub(super) fn examine(&self, visit: &Visit, report: &mut Report) {
        // A server of benches declares nothing.
        let of_files = !visit.peer_app.is_empty();
        if of_files && let Err(e) = offers_probes(&visit.peer_app) {
            report.add(refused("capacity", &e));
            return;
        }
        for (name, fetch) in WAYS {
            let wait = format!("measuring the {name}");
            let wait = (!report.json).then(|| Wait::start(move |_| wait.clone()));
            let measured = match self.measure(fetch, self.time, of_files) {
                Err(Unmeasured::Shorter(time)) if time > Duration::ZERO => {
                    self.measure(fetch, time, of_files)
                }
                measured => measured,
            };
            drop(wait);
            if self.visitor.console.is_interrupted() {
                report.failure = Some(Failure::interrupted());
                return;
            }
            match measured {
                Ok((measured, lent)) => {
                    report.path[name] = object(&measured, lent);
                    report.add(finding(name, &measured, lent));
                    if fetch {
                        report.add(mtu_back(visit, &measured, self.target));
                    }
                }
                Err(e) => {
                    report.add(unmeasured(name, &e));
                    // The other way would be no different.
                    if matches!(e, Unmeasured::Refused(_)) {
                        return;
                    }
                }
            }
        }
    }

    fn measure(
        &self,
        fetch: bool,
        time: Duration,
        of_files: bool,
    ) -> Result<(Measured, Option<Lent>), Unmeasured> {
        let answer = Answer::default();
        // A bench that fails sets it.
        let ending = self
            .visitor
            .console
            .stop()
            .map_err(io::Error::other)
            .map_err(Unmeasured::System)?;
        let target = bench::Target {
            to: self.target.to(),
            protocol: "haul".into(),
            cc: "haul".into(),
            buffers: Buffers::default(),
            stop: Some(ending.clone()),
            stopwatch: None,
            wrap: of_files.then(|| wrap(&answer, (time, fetch), ending.clone())),
        };
        let spec = Spec {
            limit: Limit::Nanos(nanos(time)),
            reverse: fetch,
            // The start is not what the path carries.
            omit: time / 3,
            interval: Duration::ZERO,
            live: false,
            ..Spec::default()
        };
        let config = self.visitor.config(&Attempt::At(self.target.to()));
        let mut make = || -> Box<dyn farhaul_core::protocol::Protocol> {
            Box::new(Haul::client(config.clone()).expect("it was valid for the visit"))
        };
        let measured = bench::run(&target, &spec, &mut make, &mut |_| {});
        let lent = match taken(&answer).map_err(Unmeasured::Refused)? {
            Some(Answered::Lent(lent)) if lent.time < time => {
                return Err(Unmeasured::Shorter(lent.time));
            }
            Some(Answered::Lent(lent)) => Some(lent),
            Some(Answered::Disk(_) | Answered::Shares { .. }) | None => None,
        };
        let measured = measured.map_err(Unmeasured::Failed)?;
        Ok((measured, lent))
    }
}

/// The bench's client in a session that a server of files lends.
fn wrap(answer: &Answer, wanted: (Duration, bool), stop: Stop) -> Wrap {
    let answer = Arc::clone(answer);
    Wrap(Arc::new(move |client| {
        Box::new(Probe::new(
            Box::new(client),
            wanted,
            &answer,
            Some(stop.clone()),
        ))
    }))
}

/// Object as `bench` reports it, with what the server allowed.
fn object(measured: &Measured, lent: Option<Lent>) -> Value {
    let mut object = json!(measured);
    object["loss_ratio"] = json!(measured.loss_ratio());
    object["allowed_bits_per_second"] = json!(lent.and_then(|l| l.rate).map(Rate::bps));
    object
}

fn finding(name: &'static str, measured: &Measured, lent: Option<Lent>) -> Finding {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "?".into(), |ms| format!("{ms:.1}"));
    let loss = measured.loss_ratio();
    let lost = loss.map_or_else(
        || "loss unknown".into(),
        |loss| format!("{:.2} % of packets lost", loss * 100.0),
    );
    let allowed = lent.and_then(|lent| lent.rate);
    let allowed = allowed.map_or_else(String::new, |rate| format!("; the server allows {rate}"));
    let text = format!(
        "{}{}, over {:.1} s after the start; {lost}; rtt {} ms median, {} ms at 99 %; limited by {}{allowed}",
        Rate::from_f64(measured.goodput_bits_per_second),
        terabyte(measured.goodput_bits_per_second),
        measured.seconds,
        ms(measured.rtt_ms.p50),
        ms(measured.rtt_ms.p99),
        measured.limits()
    );
    let share = |why: &str| measured.limited_by.get(why).copied().unwrap_or(0.0);
    let (grade, fix) = if share("sending") > MOSTLY {
        let fix = "the sender's core was busy: copy with more lanes, cp -P 2";
        (Grade::Fair, Some(fix))
    } else if share("peer") > MOSTLY && lent.is_none_or(|lent| lent.rate.is_none()) {
        let fix = "the receiver's core was busy: copy with more lanes, cp -P 2";
        (Grade::Fair, Some(fix))
    } else if loss.is_some_and(|loss| loss > LOSSY) {
        (Grade::Fair, None)
    } else {
        (Grade::Good, None)
    };
    let finding = Finding::new(name, grade, text);
    match fix {
        Some(fix) => finding.fix(fix),
        None => finding,
    }
}

/// Time that a terabyte takes at this rate, in words.
fn terabyte(bits_per_second: f64) -> String {
    let seconds = 8e12 / bits_per_second;
    let time = Duration::try_from_secs_f64(seconds);
    time.map_or_else(
        |_| String::new(),
        |time| format!(", 1 TB in {}", when::rough(time)),
    )
}

fn mtu_back(visit: &Visit, measured: &Measured, target: &Target) -> Finding {
    let headers = if target.to().is_ipv4() { 28 } else { 48 };
    let back = measured.datagram_size + headers;
    let text = format!("{back} bytes");
    if back >= visit.path_mtu {
        return Finding::new("path MTU back", Grade::Good, text);
    }
    let text = format!(
        "{text}, {} there: costs only processor time",
        visit.path_mtu
    );
    Finding::new("path MTU back", Grade::Fair, text)
}

pub(super) fn refused(name: &'static str, e: &TransferError) -> Finding {
    let finding = Finding::new(name, Grade::Fair, format!("not measured: {}", e.text));
    if e.fix.is_empty() {
        finding
    } else {
        finding.fix(&*e.fix)
    }
}

fn unmeasured(name: &'static str, e: &Unmeasured) -> Finding {
    let text = match e {
        Unmeasured::Refused(e) => return refused(name, e),
        Unmeasured::Shorter(time) => format!("the server allows only {time:?}"),
        Unmeasured::Failed(e) => e.to_string(),
        Unmeasured::System(e) => e.to_string(),
    };
    Finding::new(name, Grade::Fair, format!("not measured: {text}"))
}
