//! Carries a GiB over a bad path in the simulator: `cargo run --release -p my-protocol [LAW]`.

use std::{
    env,
    error::Error,
    io::{Write, stdout},
    time::Duration,
};

use farhaul_core::units::Rate;
use farhaul_link::{Loss, PathConfig};
use farhaul_sim::{FlowConfig, Scenario, run};
use my_protocol::tiny;

fn main() -> Result<(), Box<dyn Error>> {
    let law = env::args().nth(1).unwrap_or_else(|| "haul".into());
    let (near, far) = (tiny(&law, 9_000)?, tiny(&law, 9_000)?);
    let scenario = Scenario {
        duration: Duration::from_mins(10),
        flows: vec![FlowConfig {
            bytes: Some(1 << 30),
            ..FlowConfig::default()
        }],
        ..Scenario::over(PathConfig {
            rate: Rate::gbit(1),
            delay: Duration::from_millis(50),
            mtu: Some(9_000),
            loss: Loss::Random(0.01),
            ..PathConfig::default()
        })
    };
    let report = run(&scenario, &mut |_| {
        (Box::new(near.clone()), Box::new(far.clone()))
    })?;
    let flow = &report.flows[0];
    writeln!(
        stdout(),
        "{law}: 1 GiB over 1 Gbit/s, 100 ms, 1 %: {:.1} s, {:.0} Mbit/s, {:.1} KiB of feedback per GiB",
        flow.completed.unwrap_or(f64::NAN),
        flow.goodput_bits_per_second / 1e6,
        flow.feedback_kib_per_gib.unwrap_or(f64::NAN),
    )?;
    Ok(())
}
