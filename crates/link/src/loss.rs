//! Loses packets on the wire: independently, in bursts, or as in a recording.

use std::sync::Arc;

use farhaul_core::rng::Rng;

use crate::{
    config::{ConfigError, share},
    counters::DropCause,
    parse::ParseError,
    shares::Share,
};

/// A model of random loss. Shares are 0..=1.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Each packet is lost with this probability, independently.
    Random(f64),
    /// Gilbert-Elliott: two states with their own loss, changed between packets.
    GilbertElliott {
        /// Probability of going from good to bad.
        enter: f64,
        /// Probability of going from bad to good.
        leave: f64,
        /// Loss in the good state.
        good: f64,
        /// Loss in the bad state.
        bad: f64,
    },
    /// Losses as recorded, over and over.
    Trace(LossTrace),
}

impl Loss {
    /// Bursts of `burst` packets on average, all of them lost, such that `mean` of all packets is.
    pub fn bursts(mean: f64, burst: f64) -> Self {
        let leave = 1.0 / burst;
        Self::GilbertElliott {
            enter: leave * mean / (1.0 - mean),
            leave,
            good: 0.0,
            bad: 1.0,
        }
    }

    /// The share of packets lost in the long run.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn mean(&self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Random(p) => *p,
            Self::GilbertElliott {
                enter,
                leave,
                good,
                bad,
            } => {
                let in_bad = enter / (enter + leave).max(f64::MIN_POSITIVE);
                in_bad * bad + (1.0 - in_bad) * good
            }
            Self::Trace(LossTrace(lost)) => {
                lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64
            }
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Random(p) => share("loss", *p),
            Self::GilbertElliott {
                enter,
                leave,
                good,
                bad,
            } => {
                share("entering the bad state", *enter)?;
                share("leaving the bad state", *leave)?;
                share("loss in the good state", *good)?;
                share("loss in the bad state", *bad)
            }
            Self::Trace(trace) if trace.0.is_empty() => Err(ConfigError::Zero {
                what: "the length of the loss trace",
                hint: "",
            }),
            Self::None | Self::Trace(_) => Ok(()),
        }
    }
}

/// The fate of successive packets, `true` for lost. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossTrace(Arc<[bool]>);

impl LossTrace {
    /// A trace from one entry per packet.
    pub fn new(lost: impl IntoIterator<Item = bool>) -> Self {
        Self(lost.into_iter().collect())
    }

    /// Parses text: `0` or `.` for a packet that arrived, `1` or `x` for a lost one. White space is
    /// ignored, and `#` begins a comment that ends with its line.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut lost = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            for symbol in line.chars().filter(|c| !c.is_whitespace()) {
                lost.push(match symbol {
                    '0' | '.' => false,
                    '1' | 'x' => true,
                    _ => return Err(ParseError::Trace(symbol, index + 1)),
                });
            }
        }
        if lost.is_empty() {
            return Err(ParseError::EmptyTrace);
        }
        Ok(Self(lost.into()))
    }
}

/// The state of a loss model.
#[derive(Clone, Debug)]
pub(crate) enum LossState {
    None,
    Random(Share),
    TwoState {
        in_bad: bool,
        enter: Share,
        leave: Share,
        good: Share,
        bad: Share,
    },
    Trace {
        lost: Arc<[bool]>,
        next: usize,
    },
}

impl LossState {
    pub(crate) fn new(loss: &Loss) -> Self {
        match loss {
            Loss::None => Self::None,
            Loss::Random(p) => Self::Random(Share::new(*p)),
            Loss::GilbertElliott {
                enter,
                leave,
                good,
                bad,
            } => Self::TwoState {
                in_bad: false,
                enter: Share::new(*enter),
                leave: Share::new(*leave),
                good: Share::new(*good),
                bad: Share::new(*bad),
            },
            Loss::Trace(LossTrace(lost)) if lost.is_empty() => Self::None,
            Loss::Trace(LossTrace(lost)) => Self::Trace {
                lost: Arc::clone(lost),
                next: 0,
            },
        }
    }

    /// Cause of loss of the next packet, if that packet is lost.
    pub(crate) fn strikes(&mut self, rng: &mut Rng) -> Option<DropCause> {
        match self {
            Self::None => None,
            Self::Random(p) => p.hit(rng).then_some(DropCause::Random),
            Self::TwoState {
                in_bad,
                enter,
                leave,
                good,
                bad,
            } => {
                if if *in_bad { leave } else { enter }.hit(rng) {
                    *in_bad = !*in_bad;
                }
                let lost = if *in_bad { bad } else { good }.hit(rng);
                lost.then_some(DropCause::Burst)
            }
            Self::Trace { lost, next } => {
                let strikes = lost[*next];
                *next = (*next + 1) % lost.len();
                strikes.then_some(DropCause::Trace)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Losses and bursts of losses in `n` packets.
    fn count(loss: &Loss, n: u32) -> (u32, u32) {
        let mut state = LossState::new(loss);
        let mut rng = Rng::new(11);
        let (mut lost, mut bursts, mut before) = (0, 0, false);
        for _ in 0..n {
            let hit = state.strikes(&mut rng).is_some();
            lost += u32::from(hit);
            bursts += u32::from(hit && !before);
            before = hit;
        }
        (lost, bursts)
    }

    #[test]
    fn bursts_have_the_configured_mean_and_length() {
        let loss = Loss::bursts(0.01, 8.0);
        assert!((loss.mean() - 0.01).abs() < 1e-12);
        let (lost, bursts) = count(&loss, 4_000_000);
        // 5,000 bursts expected; the mean burst within 5 sigma (8 / sqrt(5000) * 5 = 0.6).
        assert!((36_000..44_000).contains(&lost), "{lost}");
        let mean = f64::from(lost) / f64::from(bursts);
        assert!((7.4..8.6).contains(&mean), "{mean}");
    }

    #[test]
    fn random_loss_is_inside_its_99_percent_interval() {
        let (lost, _) = count(&Loss::Random(0.01), 1_000_000);
        assert!((9_744..10_256).contains(&lost), "{lost}");
    }

    #[test]
    fn a_trace_repeats() {
        let trace = LossTrace::parse("..x. # a comment x\n 01").unwrap();
        assert_eq!(count(&Loss::Trace(trace), 12), (4, 4));
        assert_eq!(
            LossTrace::parse(".\n?").unwrap_err().to_string(),
            "'?' in line 2 of the loss trace: use . or 0 for arrived, x or 1 for lost"
        );
        assert!(LossTrace::parse("# nothing").is_err());
    }
}
