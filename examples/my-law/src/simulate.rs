//! What does it take to see a law at work? Two endpoints that are given it, and a path.

use std::{error::Error, time::Duration};

use farhaul_haul::{Haul, HaulConfig};
use farhaul_link::PathConfig;
use farhaul_sim::{FlowConfig, Scenario, run};

/// Goodput of each flow over its last half, Mbit/s.
pub type Shares = Vec<f64>;

/// Runs `flows` flows for `duration` over `path`; `dress` gives both ends of each what they need.
///
/// # Panics
/// Never: the simulator makes each flow once.
pub fn simulate(
    path: PathConfig,
    flows: usize,
    duration: Duration,
    mut dress: impl FnMut(&mut Haul, &mut Haul),
) -> Result<Shares, Box<dyn Error>> {
    let scenario = Scenario {
        duration,
        flows: vec![FlowConfig::default(); flows],
        ..Scenario::over(path)
    };
    // The simulator carries no payload: nothing is sealed there.
    let config = |seed| HaulConfig {
        plain: true,
        ..HaulConfig::new([seed; 32])
    };
    let mut ends = Vec::new();
    for _ in 0..flows {
        let (mut near, mut far) = (Haul::client(config(1))?, Haul::server(config(2))?);
        dress(&mut near, &mut far);
        ends.push(Some((near, far)));
    }
    let report = run(&scenario, &mut |flow| {
        let (near, far) = ends[flow].take().expect("each flow is made once");
        (Box::new(near), Box::new(far))
    })?;
    let late = duration.as_secs_f64() / 2.0;
    Ok(report
        .flows
        .iter()
        .map(|flow| {
            let points = flow.series.iter().filter(|p| p.at > late);
            let (sum, n) = points.fold((0.0, 0.0), |(sum, n), p| {
                (sum + p.goodput_bits_per_second, n + 1.0)
            });
            sum / f64::max(n, 1.0) / 1e6
        })
        .collect())
}
