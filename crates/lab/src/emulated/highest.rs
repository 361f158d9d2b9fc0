//! Finds the rate that this machine emulates in time: the requested rate, or else the next lower
//! one at which a run is valid.

use farhaul_core::units::Rate;

use super::{EmulatedRunError, FlowsRun};

/// A run that is not valid.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Rate of the link.
    pub rate: Rate,
    /// Reason why the figures must not be quoted.
    pub invalid: String,
    /// The run, with what it found all the same.
    pub run: FlowsRun,
}

/// Highest rate with a valid run.
#[derive(Clone, Debug)]
pub struct Highest {
    /// The first valid run, with the rate of its link.
    pub valid: Option<(Rate, FlowsRun)>,
    /// Runs before it, in their order.
    pub attempts: Vec<Attempt>,
}

/// `rate`, and the rates tried where that is too much: a half, a fifth, a tenth of it.
pub fn lower_rates(rate: Rate) -> [Rate; 4] {
    [1, 2, 5, 10].map(|part| Rate::from_bps((rate.bps() / part).max(1)))
}

/// Runs at each of `rates`, up to `attempts` times, until a run is valid. A lower rate is tried only where the
/// emulator was late: a flow that fails at one would fail at the next.
pub fn highest_rate(
    rates: &[Rate],
    attempts: u32,
    run: &mut dyn FnMut(Rate) -> Result<FlowsRun, EmulatedRunError>,
) -> Result<Highest, EmulatedRunError> {
    let mut tried = Vec::new();
    for &rate in rates {
        let mut late = false;
        for _ in 0..attempts {
            let made = run(rate)?;
            let Some(invalid) = made.invalid() else {
                return Ok(Highest {
                    valid: Some((rate, made)),
                    attempts: tried,
                });
            };
            late |= !made.wan.health.valid;
            tried.push(Attempt {
                rate,
                invalid,
                run: made,
            });
        }
        if !late {
            break;
        }
    }
    Ok(Highest {
        valid: None,
        attempts: tried,
    })
}

#[cfg(test)]
mod tests {
    use farhaul_emu::{DirectionReport, Health, Lateness, WanReport};

    use super::*;
    use crate::emulated::FlowResult;

    fn made(late: bool, failed: Option<&str>) -> FlowsRun {
        FlowsRun {
            machine_cpu_seconds: None,
            flows: vec![FlowResult {
                name: "f".into(),
                failed: failed.map(Into::into),
                ..FlowResult::default()
            }],
            wan: WanReport {
                schema: "",
                network: String::new(),
                seed: 1,
                seconds: 1.0,
                near_to_far: DirectionReport::default(),
                far_to_near: DirectionReport::default(),
                health: Health {
                    valid: !late,
                    complaints: if late {
                        vec!["late".into()]
                    } else {
                        Vec::new()
                    },
                    lateness: Lateness::default(),
                    own_drops: 0,
                    max_held_bytes: 0,
                    cpu_seconds: 0.0,
                    pm_qos: false,
                    offload: "",
                },
                emulator_limited: false,
            },
        }
    }

    #[test]
    fn the_first_valid_run_is_taken_and_those_before_it_are_told() {
        let rates = lower_rates(Rate::gbit(10));
        let mut runs = 0;
        let found = highest_rate(&rates, 2, &mut |rate| {
            runs += 1;
            Ok(made(rate > Rate::gbit(5) || runs == 3, None))
        });
        let found = found.unwrap();
        assert_eq!(found.valid.map(|(rate, _)| rate), Some(Rate::gbit(5)));
        let tried: Vec<_> = found
            .attempts
            .iter()
            .map(|a| (a.rate, a.invalid.as_str()))
            .collect();
        let [ten, five] = [Rate::gbit(10), Rate::gbit(5)];
        assert_eq!(tried, [(ten, "late"), (ten, "late"), (five, "late")]);
    }

    #[test]
    fn what_fails_without_lateness_is_not_tried_slower() {
        let rates = lower_rates(Rate::gbit(1));
        let mut asked = Vec::new();
        let found = highest_rate(&rates, 2, &mut |rate| {
            asked.push(rate);
            Ok(made(false, Some("broken")))
        });
        let found = found.unwrap();
        assert!(found.valid.is_none());
        assert_eq!(asked, [Rate::gbit(1); 2]);
        assert_eq!(found.attempts[1].invalid, "f: broken");
    }

    #[test]
    fn where_all_are_late_there_is_none() {
        let rates = lower_rates(Rate::mbit(100));
        let found = highest_rate(&rates, 1, &mut |_| Ok(made(true, None))).unwrap();
        assert!(found.valid.is_none());
        let tried: Vec<_> = found.attempts.iter().map(|a| a.rate).collect();
        assert_eq!(tried, [100, 50, 20, 10].map(Rate::mbit));
    }
}
