//! How are the questions put? In the simulator, with the flagship's protocol under each law, on as
//! many cores as there are.

use std::{collections::BTreeMap, io};

use farhaul_core::protocol::Protocol;
use farhaul_sim::{SimReport, run_observed};

use super::{
    Case, Question, Run, STANDARDS, Setting,
    figures::figures,
    tracks::{Meter, Tracks},
};
use crate::{
    parallel,
    registry::{self, Choice, ChoiceError},
};

/// The protocol that carries every law: all of them meet the same feedback, loss detection and repair.
const CARRIER: &str = "haul";

/// The two ends of a flow.
type Pair = (Box<dyn Protocol>, Box<dyn Protocol>);

/// Every question about `laws`, and those about the standards alone that they are compared with.
pub fn questions(laws: &[String], setting: Setting) -> Vec<Question> {
    let question = |law: &str, case| Question {
        law: law.into(),
        case,
        rate_bits_per_second: setting.rate.bps(),
        quick: setting.quick,
        seed: setting.seed,
    };
    let flows: &[u32] = if setting.quick { &[2, 4] } else { &[2, 4, 16] };
    let queues: &[u32] = if setting.quick {
        &[100]
    } else {
        &[10, 100, 400]
    };
    let alone = |law: &str| {
        let each = queues.iter().map(|queue_percent| Case::Alone {
            queue_percent: *queue_percent,
        });
        each.map(|case| question(law, case)).collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    for law in laws {
        all.extend(
            flows
                .iter()
                .map(|flows| question(law, Case::Among { flows: *flows })),
        );
        all.push(question(law, Case::RoundTrips));
        for standard in STANDARDS {
            all.extend(queues.iter().map(|queue_percent| {
                let case = Case::Against {
                    standard: standard.into(),
                    queue_percent: *queue_percent,
                };
                question(law, case)
            }));
        }
        all.extend(alone(law));
        for case in [Case::RateStep, Case::ReportsLost, Case::CapacityLost] {
            all.push(question(law, case));
        }
    }
    let others = STANDARDS.iter().filter(|s| !laws.iter().any(|l| l == *s));
    all.extend(others.flat_map(|law| alone(law)));
    all
}

/// Answers each of `questions` and hands each run to `keep` as it ends.
pub fn run(
    questions: &[Question],
    jobs: usize,
    keep: &mut dyn FnMut(Run) -> io::Result<()>,
) -> io::Result<()> {
    parallel::answer(jobs, questions, answered, keep)
}

fn answered(question: &Question) -> Run {
    let empty = Run {
        question: question.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        seconds: 0.0,
        figures: BTreeMap::new(),
        trace_hash: None,
        invalid: None,
    };
    let mut meter = Meter::default();
    let report = match simulate(question, &mut meter) {
        Ok(report) => report,
        Err(why) => {
            return Run {
                invalid: Some(why),
                ..empty
            };
        }
    };
    let ended = report.flows.iter().flat_map(|f| f.closed.iter().flatten());
    let ended = ended.map(|why| format!("a session ended: {why}")).next();
    let tracks = Tracks::new(&report, &meter, question.scenario().duration);
    Run {
        seconds: report.seconds,
        figures: figures(question, &tracks),
        trace_hash: Some(report.trace_hash),
        invalid: ended,
        ..empty
    }
}

fn simulate(question: &Question, meter: &mut Meter) -> Result<SimReport, String> {
    let entry = registry::protocol(CARRIER).map_err(|e| e.to_string())?;
    let pair = |law: &str| -> Result<Pair, ChoiceError> {
        let choice = Choice {
            law: Some(law.into()),
            simulated: true,
            ..Choice::default()
        };
        Ok((entry.client(&choice)?, entry.server(&choice)?))
    };
    let pairs: Result<Vec<_>, _> = question.laws().into_iter().map(pair).collect();
    let mut pairs = pairs.map_err(|e| e.to_string())?.into_iter();
    let mut make = |_| {
        pairs
            .next()
            .expect("there is a law for every flow, in order")
    };
    run_observed(&question.scenario(), &mut make, meter).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use farhaul_core::units::Rate;

    use super::*;

    fn asked(laws: &[&str], quick: bool) -> Vec<Question> {
        let setting = Setting::new(Rate::mbit(10), quick, 7).unwrap();
        let laws: Vec<String> = laws.iter().map(|l| (*l).into()).collect();
        questions(&laws, setting)
    }

    #[test]
    fn standards_run_alone_once() {
        let one = asked(&["haul"], false);
        // 3 among, 1 of rtts, 9 against, 3 alone, 3 of changes; 3 standards alone in 3 queues.
        assert_eq!(one.len(), 19 + 9);
        assert_eq!(
            asked(&["haul", "reno", "cubic", "bbr"], false).len(),
            4 * 19
        );
        assert_eq!(asked(&["haul"], true).len(), 10 + 3);
        let flows = |q: &Question| q.laws().len() == q.scenario().flows.len();
        assert!(one.iter().all(flows));
        assert!(one.iter().all(|q| q.seed == 7 && !q.quick));
    }

    #[test]
    fn a_law_that_does_not_exist_is_a_run_without_figures() {
        let question = Question {
            law: "cubik".into(),
            ..asked(&["haul"], true).remove(0)
        };
        let run = answered(&question);
        assert!(run.figures.is_empty());
        assert!(run.invalid.is_some_and(|why| why.contains("cubik")));
    }
}
