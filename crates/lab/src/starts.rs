//! Draws the times at which flows begin. They are not round: a result that depends on a phase
//! between flows should differ from seed to seed.

use std::time::Duration;

use farhaul_core::rng::Rng;
use farhaul_sim::Scenario;

/// Gives the scenario its seed, and delays the start and stop of every flow by up to `most`, drawn
/// from it.
pub(crate) fn spread(scenario: &mut Scenario, seed: u64, most: Duration) {
    scenario.seed = seed;
    let rng = Rng::new(seed);
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    for (i, flow) in scenario.flows.iter_mut().enumerate() {
        let late = Duration::from_nanos(rng.fork(&format!("start/{i}")).below(most));
        flow.start += late;
        flow.stop = flow.stop.map(|stop| stop + late);
    }
}
