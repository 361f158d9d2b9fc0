//! One line about a path for people: everything but its delay that differs from a clean link.

use std::fmt;

use crate::config::{Aqm, PathConfig, QueueLimit};

/// A share in per cent.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the last bits of a product.
        let rounded = (self.0 * 1e11).round() / 1e9;
        write!(f, "{rounded} %")
    }
}

impl fmt::Display for PathConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rate)?;
        match self.queue {
            QueueLimit::Bytes(size) => write!(f, ", queue {size}")?,
            QueueLimit::Time(wait) => write!(f, ", queue {wait:?}")?,
        }
        write!(f, ", loss {}", Percent(self.loss.mean()))?;
        if let Some(jitter) = self.jitter {
            write!(f, ", jitter {:?}", jitter.spread)?;
        }
        if let Some(reorder) = self.reorder {
            let share = Percent(reorder.share);
            write!(f, ", {share} reordered by {:?}", reorder.by)?;
        }
        for (share, word) in [(self.duplicate, "duplicated"), (self.corrupt, "damaged")] {
            if share > 0.0 {
                write!(f, ", {} {word}", Percent(share))?;
            }
        }
        if let Some(policer) = self.policer {
            write!(f, ", policer {}, {}", policer.rate, policer.burst)?;
        }
        match self.aqm {
            Some(Aqm::Codel { .. }) => f.write_str(", CoDel")?,
            Some(Aqm::Red { .. }) => f.write_str(", RED")?,
            None => {}
        }
        for (number, what) in [
            (self.blackouts.len(), "outage"),
            (self.rate_steps.len(), "step of the rate"),
            (self.delay_steps.len(), "step of the delay"),
        ] {
            match number {
                0 => {}
                1 => write!(f, ", 1 {what}")?,
                n => write!(
                    f,
                    ", {n} {}",
                    what.replacen("step", "steps", 1)
                        .replace("outage", "outages")
                )?,
            }
        }
        Ok(())
    }
}

/// One line about the two directions of a path whose longest packets have `mtu` bytes.
pub fn describe(forward: &PathConfig, reverse: &PathConfig, mtu: u32) -> String {
    let rtt = (forward.delay + reverse.delay).as_secs_f64() * 1e3;
    let (there, back) = (forward.to_string(), reverse.to_string());
    let both = if there == back {
        there
    } else {
        format!("forward {there}, reverse {back}")
    };
    format!("rtt {rtt} ms, {both}, mtu {mtu}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farhaul_core::units::{Rate, Size};

    use super::*;
    use crate::{Jitter, Loss, Window};

    #[test]
    fn everything_that_was_set_is_named() {
        let clean = PathConfig {
            rate: Rate::mbit(100),
            queue: QueueLimit::Bytes(Size::from_bytes(125_000)),
            ..PathConfig::default()
        };
        assert_eq!(clean.to_string(), "100.0 Mbit/s, queue 122.1 KiB, loss 0 %");
        let window = Window {
            from: Duration::ZERO,
            lasts: Duration::from_secs(1),
        };
        let odd = PathConfig {
            queue: QueueLimit::Time(Duration::from_millis(50)),
            loss: Loss::Random(0.001),
            jitter: Some(Jitter {
                spread: Duration::from_millis(5),
                reorder: false,
            }),
            corrupt: 0.07,
            blackouts: vec![window; 2],
            ..clean
        };
        assert_eq!(
            odd.to_string(),
            "100.0 Mbit/s, queue 50ms, loss 0.1 %, jitter 5ms, 7 % damaged, 2 outages"
        );
    }
}
