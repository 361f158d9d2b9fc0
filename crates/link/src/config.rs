//! Describes a path: plain data, checked in one place before a path is built from it.

use std::time::Duration;

use farhaul_core::{
    time::nanos,
    units::{Rate, Size},
};

use crate::loss::Loss;

/// One direction of a network. The default is a clean 10 Gbit/s link without delay and with a queue
/// of 18 MB.
#[derive(Clone, Debug, PartialEq)]
pub struct PathConfig {
    /// Rate of the bottleneck at the start.
    pub rate: Rate,
    /// Later rates, in order of time.
    pub rate_steps: Vec<Step<Rate>>,
    /// One-way propagation delay at the start.
    pub delay: Duration,
    /// Later one-way delays, in order of time. A packet has the delay in force when it leaves the
    /// bottleneck, so after a step down later packets may overtake earlier ones.
    pub delay_steps: Vec<Step<Duration>>,
    /// Limit of the bottleneck's queue.
    pub queue: QueueLimit,
    /// Longest packet, in bytes with its IP header; longer ones are dropped.
    pub mtu: Option<u32>,
    /// A token bucket in front of the queue.
    pub policer: Option<Policer>,
    /// Random loss.
    pub loss: Loss,
    /// Place of random loss.
    pub loss_place: LossPlace,
    /// Random extra delay.
    pub jitter: Option<Jitter>,
    /// Packets held back.
    pub reorder: Option<Reorder>,
    /// Share of packets delivered twice, 0..=1.
    pub duplicate: f64,
    /// Share of packets damaged, 0..=1.
    pub corrupt: f64,
    /// Windows in which the link is dark.
    pub blackouts: Vec<Window>,
    /// Queue management; none is tail drop.
    pub aqm: Option<Aqm>,
    /// A router that writes into packets; only the simulator's have anything to write into.
    pub router: Option<Router>,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            rate: Rate::gbit(10),
            rate_steps: Vec::new(),
            delay: Duration::ZERO,
            delay_steps: Vec::new(),
            queue: QueueLimit::Bytes(Size::from_bytes(18_000_000)),
            mtu: None,
            policer: None,
            loss: Loss::None,
            loss_place: LossPlace::default(),
            jitter: None,
            reorder: None,
            duplicate: 0.0,
            corrupt: 0.0,
            blackouts: Vec::new(),
            aqm: None,
            router: None,
        }
    }
}

/// Step of a value: from `at` after the driver's epoch on, the value is `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<T> {
    /// Time of the step since the driver's epoch.
    pub at: Duration,
    /// The new value.
    pub to: T,
}

/// Limit of the queue at the bottleneck; a packet that does not fit is dropped on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes, the packet in service and the arriving one included.
    Bytes(Size),
    /// Time the arriving packet would wait.
    Time(Duration),
}

/// A token bucket that drops what exceeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Tokens arrive at this rate.
    pub rate: Rate,
    /// The bucket's depth.
    pub burst: Size,
}

/// Place of random loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossPlace {
    /// The wire behind the bottleneck: a lost packet has used the link's capacity.
    #[default]
    Wire,
    /// The point before the policer and the queue: a lost packet uses no capacity.
    Ingress,
}

/// Extra delay, uniform in 0..=`spread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// The most that is added.
    pub spread: Duration,
    /// True if packets may overtake each other because of it.
    pub reorder: bool,
}

/// A share of the packets is held back so that later ones overtake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// 0..=1.
    pub share: f64,
    /// Time for which each of them is held back.
    pub by: Duration,
}

/// A window of time since the driver's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Beginning of the window.
    pub from: Duration,
    /// Length of the window.
    pub lasts: Duration,
}

/// A router in front of the queue that gives feedback to senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// The explicit control protocol of Katabi, Handley and Rohrs (SIGCOMM 2002), for senders under the
    /// law `xcp`.
    Xcp,
}

/// Active queue management. Marks packets that can be marked, drops the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aqm {
    /// `CoDel`, RFC 8289.
    Codel {
        /// Acceptable standing wait.
        target: Duration,
        /// Time for which the target may be exceeded.
        interval: Duration,
    },
    /// Gentle RED on the average wait.
    Red {
        /// Average wait below which nothing is signalled.
        min: Duration,
        /// Average wait at which `share` of the packets is signalled; at twice this all are
        /// dropped.
        max: Duration,
        /// 0..=1.
        share: f64,
    },
}

/// Reason to refuse a [`PathConfig`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A share outside 0..=1.
    #[error("{what} of {} % is impossible: give 0 % to 100 %", share * 100.0)]
    Share {
        /// Name of the share.
        what: &'static str,
        /// Value of the share.
        share: f64,
    },
    /// A value that must not be zero is.
    #[error("{what} must be more than zero{hint}")]
    Zero {
        /// Name of the value.
        what: &'static str,
        /// Text of what to write instead.
        hint: &'static str,
    },
    /// A schedule whose times do not increase.
    #[error("{what} must be given in order of time, each later than the one before")]
    Order {
        /// Name of the schedule.
        what: &'static str,
    },
    /// A value above what the model can represent.
    #[error("{what} is too large: at most {max}")]
    TooLarge {
        /// Name of the value.
        what: &'static str,
        /// The bound.
        max: &'static str,
    },
    /// The queue is so short that nothing could ever pass.
    #[error("the queue of {queue} cannot hold one packet of {mtu} B: give at least {mtu}B")]
    QueueBelowMtu {
        /// The queue's limit.
        queue: Size,
        /// The path's MTU.
        mtu: u32,
    },
    /// Thresholds the wrong way round.
    #[error("RED needs its lower threshold below its upper one")]
    RedThresholds,
}

/// Longer delays and waits than this are refused; they would be a typing error.
const MAX_DELAY: Duration = Duration::from_hours(1);

/// A router shares out its link's rate, so that has to be one.
const MAX_ROUTED: Rate = Rate::gbit(100_000);

impl PathConfig {
    /// Refuses invalid values.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_rates()?;
        self.validate_delays()?;
        self.validate_queue()?;
        share("duplication", self.duplicate)?;
        share("corruption", self.corrupt)?;
        if let Some(reorder) = self.reorder {
            share("reordering", reorder.share)?;
            non_zero("the time a packet is held back", nanos(reorder.by))?;
            delay("the time a packet is held back", reorder.by)?;
        }
        if self.blackouts.iter().any(|window| window.lasts.is_zero()) {
            return Err(zero("the length of a blackout", ", as in 5s+10s"));
        }
        self.loss.validate()
    }

    fn validate_rates(&self) -> Result<(), ConfigError> {
        for rate in self
            .rate_steps
            .iter()
            .map(|step| step.to)
            .chain([self.rate])
        {
            if rate == Rate::ZERO {
                return Err(zero("the rate", "; for a dark link use a blackout"));
            }
            if self.router.is_some() && rate > MAX_ROUTED {
                let what = "the rate of a link with a router";
                return Err(ConfigError::TooLarge {
                    what,
                    max: "100Tbit",
                });
            }
        }
        in_order("rate steps", &self.rate_steps)?;
        if let Some(policer) = self.policer {
            non_zero("the policer's rate", policer.rate.bps())?;
            non_zero("the policer's burst", policer.burst.bytes())?;
        }
        Ok(())
    }

    fn validate_delays(&self) -> Result<(), ConfigError> {
        for step in &self.delay_steps {
            delay("a delay step", step.to)?;
        }
        in_order("delay steps", &self.delay_steps)?;
        if let Some(jitter) = self.jitter {
            delay("jitter", jitter.spread)?;
        }
        delay("the delay", self.delay)
    }

    fn validate_queue(&self) -> Result<(), ConfigError> {
        match self.queue {
            QueueLimit::Bytes(Size::ZERO) => {
                return Err(zero(
                    "the queue",
                    "; one packet must fit, as in 18MB or 50ms",
                ));
            }
            QueueLimit::Bytes(queue) => {
                if let Some(mtu) = self.mtu.filter(|mtu| queue.bytes() < u64::from(*mtu)) {
                    return Err(ConfigError::QueueBelowMtu { queue, mtu });
                }
            }
            QueueLimit::Time(wait) => {
                non_zero("the queue", nanos(wait))?;
                delay("the queue", wait)?;
            }
        }
        if self.mtu == Some(0) {
            return Err(zero("the MTU", ""));
        }
        match self.aqm {
            Some(Aqm::Codel { target, interval }) => {
                non_zero("CoDel's target", nanos(target))?;
                non_zero("CoDel's interval", nanos(interval))?;
                delay("CoDel's interval", interval)
            }
            Some(Aqm::Red { min, max, share: p }) => {
                share("RED's marking", p)?;
                delay("RED's threshold", max)?;
                if min < max {
                    Ok(())
                } else {
                    Err(ConfigError::RedThresholds)
                }
            }
            None => Ok(()),
        }
    }
}

pub(crate) fn share(what: &'static str, share: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&share) {
        Ok(())
    } else {
        Err(ConfigError::Share { what, share })
    }
}

fn zero(what: &'static str, hint: &'static str) -> ConfigError {
    ConfigError::Zero { what, hint }
}

fn non_zero(what: &'static str, value: u64) -> Result<(), ConfigError> {
    if value == 0 {
        Err(zero(what, ""))
    } else {
        Ok(())
    }
}

fn delay(what: &'static str, value: Duration) -> Result<(), ConfigError> {
    if value <= MAX_DELAY {
        Ok(())
    } else {
        Err(ConfigError::TooLarge { what, max: "1h" })
    }
}

fn in_order<T>(what: &'static str, steps: &[Step<T>]) -> Result<(), ConfigError> {
    if steps.is_sorted_by(|a, b| a.at < b.at) {
        Ok(())
    } else {
        Err(ConfigError::Order { what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut PathConfig)) -> String {
        let mut config = PathConfig {
            mtu: Some(9_000),
            ..PathConfig::default()
        };
        config.validate().unwrap();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn impossible_paths_are_refused_with_their_bounds() {
        let messages = [
            refused(|c| c.loss = Loss::Random(1.5)),
            refused(|c| c.duplicate = -0.1),
            refused(|c| c.corrupt = f64::NAN),
            refused(|c| c.rate = Rate::ZERO),
            refused(|c| c.queue = QueueLimit::Bytes(Size::ZERO)),
            refused(|c| c.queue = QueueLimit::Bytes(Size::from_bytes(1_500))),
            refused(|c| c.queue = QueueLimit::Time(Duration::ZERO)),
            refused(|c| c.delay = Duration::from_hours(2)),
            refused(|c| {
                let step = Step {
                    at: Duration::from_secs(1),
                    to: Rate::gbit(1),
                };
                c.rate_steps = vec![step, step];
            }),
        ];
        let expected = [
            "loss of 150 % is impossible: give 0 % to 100 %",
            "duplication of -10 % is impossible: give 0 % to 100 %",
            "corruption of NaN % is impossible: give 0 % to 100 %",
            "the rate must be more than zero; for a dark link use a blackout",
            "the queue must be more than zero; one packet must fit, as in 18MB or 50ms",
            "the queue of 1.5 KiB cannot hold one packet of 9000 B: give at least 9000B",
            "the queue must be more than zero",
            "the delay is too large: at most 1h",
            "rate steps must be given in order of time, each later than the one before",
        ];
        assert_eq!(messages, expected);
    }
}
