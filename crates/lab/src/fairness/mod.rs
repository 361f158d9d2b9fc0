//! Is a law fair, and is it safe? The same questions to every law, over the same engine and the same
//! simulated bottleneck: among its own flows, with round trips of different length, against the laws
//! that are in use, and alone when the path changes or breaks.
//!
//! - [`Question`], [`Case`]: the tests
//! - [`Run`], [`Figure`]: what is answered, as it is kept
//! - [`run`]: runs them, in parallel
//! - [`tables`]: the answers, under the headings of RFC 9743
//! - [`Bounds`]: requirements on a law
//!
//! The order of the questions and the idea of harm follow RFC 9743, and R. Ware et al., "Beyond Jain's
//! Fairness Index", `HotNets` 2019.

mod bounds;
mod figures;
mod indices;
mod plan;
mod setting;
mod tables;
mod tracks;

use std::{collections::BTreeMap, fmt};

use farhaul_congestion::lookup;
use farhaul_core::units::Rate;
use serde::{Deserialize, Serialize};

pub use bounds::Bounds;
pub use indices::{harm, jain};
pub use plan::{questions, run};
pub use tables::{Harm, harms, tables};

use crate::grid::Kept;

/// The name by which `farhaul lab` knows these questions.
pub const NAME: &str = "fairness";
/// One line.
pub const ABOUT: &str =
    "every law among itself, against Reno, CUBIC and BBRv3, and when the path breaks";
/// The default bottleneck.
pub const RATE: Rate = Rate::mbit(100);
/// Below this rate the shortest tested queue is less than two packets.
const LEAST_RATE: Rate = Rate::mbit(10);
/// The laws that others are held against.
pub const STANDARDS: [&str; 3] = ["reno", "cubic", "bbr"];
/// Laws that are no answer to congestion by themselves.
const LEFT_OUT: [&str; 2] = ["fixed", "xcp"];

/// The setting of a run, the law apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The bottleneck.
    pub rate: Rate,
    /// A third of the time, and fewer questions.
    pub quick: bool,
    /// All randomness is derived from it.
    pub seed: u64,
}

impl Setting {
    /// Refuses rates too low for the tested queues, with a text.
    pub fn new(rate: Rate, quick: bool, seed: u64) -> Result<Self, String> {
        if rate < LEAST_RATE || rate == Rate::UNLIMITED {
            return Err(format!(
                "fairness needs a rate from {LEAST_RATE} on, and an end to it"
            ));
        }
        Ok(Self { rate, quick, seed })
    }
}

/// What happens on the bottleneck.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "case", rename_all = "snake_case")]
pub enum Case {
    /// So many flows of the law, one after the other, with a queue of 1 BDP.
    Among {
        /// How many.
        flows: u32,
    },
    /// Two flows of the law at once, with round trips of 20 and 200 ms.
    RoundTrips,
    /// A flow of a standard law, joined by one of the law.
    Against {
        /// The standard law.
        standard: String,
        /// The queue, per cent of the BDP.
        queue_percent: u32,
    },
    /// One flow of the law.
    Alone {
        /// The queue, per cent of the BDP.
        queue_percent: u32,
    },
    /// The rate falls to a tenth and is restored.
    RateStep,
    /// For 10 s nothing from the receiver arrives.
    ReportsLost,
    /// The rate falls to a hundredth and is restored.
    CapacityLost,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Among { flows } => write!(f, "{flows} flows"),
            Self::RoundTrips => f.write_str("20 and 200 ms"),
            Self::Against {
                standard,
                queue_percent,
            } => write!(f, "against {standard}, queue {queue_percent} % of the BDP"),
            Self::Alone { queue_percent } => {
                write!(f, "alone, queue {queue_percent} % of the BDP")
            }
            Self::RateStep => f.write_str("rate step"),
            Self::ReportsLost => f.write_str("reports lost"),
            Self::CapacityLost => f.write_str("capacity lost"),
        }
    }
}

/// One run to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The law with its parameters.
    pub law: String,
    /// What happens.
    #[serde(flatten)]
    pub case: Case,
    /// The bottleneck, bit/s.
    pub rate_bits_per_second: u64,
    /// A third of the time.
    pub quick: bool,
    /// Seed of all randomness.
    pub seed: u64,
}

/// What is measured. Rates are goodput at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Jain's index over the last third.
    Jain,
    /// From the last start until Jain's index over 1 s stays at 0.9 or more, s.
    ConvergedSeconds,
    /// Goodput of all flows over the rate.
    Utilisation,
    /// The short round trip's rate over the long one's.
    ShortOverLong,
    /// The law's share of what both got, 0 to 1.
    Share,
    /// The law's rate over the standard's.
    OverStandard,
    /// Rate of the flow; against a standard law, of the standard flow.
    GoodputBitsPerSecond,
    /// Dropped over sent packets of that flow, 0 to 1.
    Loss,
    /// Mean wait in the queue, ms.
    QueueMeanMs,
    /// Mean of the queue over the BDP.
    QueueMean,
    /// The 95th percentile of the queue over the BDP.
    QueueP95,
    /// After the step down, until 1 s means stay at nine tenths of the rate, s.
    DownSeconds,
    /// Packets dropped while the rate was low.
    DownDropped,
    /// After the step up, until nine tenths of the rate over 1 s, s.
    UpSeconds,
    /// Packets dropped after the step up.
    UpDropped,
    /// Packets sent in the second before the collapse.
    SentBefore,
    /// Packets sent in its first second.
    SentFirst,
    /// Packets sent per second in its second half.
    SentSettled,
    /// Packets that the path carried per second in its second half.
    CapacityPackets,
    /// Dropped over sent packets in its second half, 0 to 1.
    DroppedSettled,
    /// After the collapse, until nine tenths of the rate over 1 s, s.
    RecoveredSeconds,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Serialize::serialize(self, f)
    }
}

/// A question and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The question.
    #[serde(flatten)]
    pub question: Question,
    /// Program version.
    pub version: String,
    /// Virtual time, s.
    pub seconds: f64,
    /// What was measured; what never happened is left out.
    pub figures: BTreeMap<Figure, f64>,
    /// Equal for equal runs.
    pub trace_hash: Option<String>,
    /// Why there are no figures, if so.
    pub invalid: Option<String>,
}

impl Run {
    /// A figure, if it was measured.
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        self.figures.get(&figure).copied()
    }

    /// Its setting.
    pub const fn setting(&self) -> Setting {
        Setting {
            rate: Rate::from_bps(self.question.rate_bits_per_second),
            quick: self.question.quick,
            seed: self.question.seed,
        }
    }

    /// Of full length, as a test wants it.
    #[cfg(test)]
    fn example(law: &str, case: Case, figures: &[(Figure, f64)]) -> Self {
        Self {
            question: Question {
                law: law.into(),
                case,
                rate_bits_per_second: 100_000_000,
                quick: false,
                seed: 1,
            },
            version: "0".into(),
            seconds: 90.0,
            figures: figures.iter().copied().collect(),
            trace_hash: None,
            invalid: None,
        }
    }
}

impl Kept for Run {
    fn question(&self) -> String {
        format!("{:?}", self.question)
    }
}

/// The laws named in `given`, each text a list separated by commas; every law if it is empty. A piece
/// such as `b=2` belongs to the law before it: `cubic:beta=0.8,c=0.3,reno` are two.
pub fn laws(given: &[String]) -> Result<Vec<String>, farhaul_congestion::Error> {
    if given.is_empty() {
        let names = farhaul_congestion::laws().iter().map(|law| law.name);
        let all = names.filter(|name| !LEFT_OUT.contains(name));
        return Ok(all.map(Into::into).collect());
    }
    let mut found: Vec<String> = Vec::new();
    for piece in given.iter().flat_map(|list| list.split(',')) {
        let piece = piece.trim();
        match found.last_mut() {
            Some(law) if piece.contains('=') && !piece.contains(':') => {
                law.push(',');
                law.push_str(piece);
            }
            _ => found.push(piece.into()),
        }
    }
    let mut laws: Vec<String> = Vec::new();
    for law in found {
        lookup(&law)?;
        if !laws.contains(&law) {
            laws.push(law);
        }
    }
    Ok(laws)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_are_named_in_lists_with_their_parameters() {
        let given = |list: &[&str]| laws(&list.iter().map(|s| (*s).into()).collect::<Vec<_>>());
        let all = given(&[]).unwrap();
        assert!(all.contains(&"haul".into()) && !all.contains(&"fixed".into()));
        let two = given(&["reno:beta=0.7,slow_start=classic, cubic", "cubic"]).unwrap();
        assert_eq!(two, ["reno:beta=0.7,slow_start=classic", "cubic"]);
        let error = given(&["reno,cubik"]).unwrap_err().to_string();
        assert!(error.contains("did you mean 'cubic'?"), "{error}");
        assert!(given(&["beta=0.7"]).is_err());
        assert!(given(&[""]).is_err());
    }

    #[test]
    fn a_rate_without_a_queue_is_refused() {
        assert!(Setting::new(Rate::mbit(9), false, 1).is_err());
        assert!(Setting::new(Rate::UNLIMITED, false, 1).is_err());
        assert!(Setting::new(Rate::mbit(10), true, 1).is_ok());
    }

    #[test]
    fn a_run_is_kept_as_one_flat_object() {
        let run = Run {
            question: Question {
                law: "reno".into(),
                case: Case::Against {
                    standard: "cubic".into(),
                    queue_percent: 10,
                },
                rate_bits_per_second: 100_000_000,
                quick: false,
                seed: u64::MAX,
            },
            version: "0".into(),
            seconds: 90.0,
            figures: [(Figure::OverStandard, 0.5)].into(),
            trace_hash: None,
            invalid: None,
        };
        let text = serde_json::to_string(&run).unwrap();
        assert!(
            text.contains(r#""case":"against","standard":"cubic","queue_percent":10,"#),
            "{text}"
        );
        assert!(
            text.contains(r#""figures":{"over_standard":0.5}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run);
        assert_eq!(Figure::OverStandard.to_string(), "over_standard");
    }
}
