//! Prints how full a law keeps the link over the papers' grid. `laws LAW [RATE [MTU [SECONDS]]]`
//! prints goodput as a share of the rate, the time to nine tenths of it, repairs, feedback and
//! speed.

use std::{
    env,
    error::Error,
    io::{Write, stdout},
    time::Duration,
};

use farhaul_congestion::{Factory, lookup};
use farhaul_core::units::Rate;
use farhaul_link::{Loss, PathConfig};
use farhaul_sim::{Scenario, SimReport, run};
use farhaul_testkit::bare;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let arg = |i: usize, default: &str| args.get(i).cloned().unwrap_or_else(|| default.into());
    let law = lookup(&arg(0, "haul"))?;
    let rate: Rate = arg(1, "10Gbit").parse()?;
    let mtu: u16 = arg(2, "9000").parse()?;
    let seconds: u64 = arg(3, "20").parse()?;
    let mut out = stdout().lock();
    writeln!(out, "{law} {rate} mtu {mtu} {seconds} s")?;
    writeln!(
        out,
        "rtt_ms loss_%  goodput_%  to_90%_s  repaired_%  KiB/GiB  max_queue_ms  packets"
    )?;
    for rtt in [0, 50, 100, 200, 400] {
        for loss in [0.0, 0.001, 0.01, 0.02] {
            let path = PathConfig {
                rate,
                delay: Duration::from_millis(rtt) / 2,
                mtu: Some(u32::from(mtu)),
                loss: Loss::Random(loss),
                ..PathConfig::default()
            };
            let report = simulate(path, &law, mtu, seconds)?;
            writeln!(out, "{rtt:6} {:6} {}", loss * 100.0, line(&report, rate))?;
        }
    }
    Ok(())
}

fn simulate(
    path: PathConfig,
    law: &Factory,
    mtu: u16,
    seconds: u64,
) -> Result<SimReport, farhaul_sim::Error> {
    let scenario = Scenario {
        duration: Duration::from_secs(seconds),
        ..Scenario::over(path)
    };
    run(&scenario, &mut |_| {
        let (near, far) = (law.clone(), law.clone());
        (
            Box::new(bare(move || near.make(), mtu)),
            Box::new(bare(move || far.make(), mtu)),
        )
    })
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn line(report: &SimReport, rate: Rate) -> String {
    let flow = &report.flows[0];
    format!(
        "{:10.2} {:9.3} {:11.2} {:8.1} {:13.2} {:8}",
        flow.goodput_bits_per_second / rate.as_f64() * 100.0,
        flow.time_to_90_percent.unwrap_or(f64::NAN),
        flow.sender.repaired as f64 / flow.received_bytes.max(1) as f64 * 100.0,
        flow.feedback_kib_per_gib.unwrap_or(f64::NAN),
        report.forward.max_wait_ms,
        report.packets,
    )
}
