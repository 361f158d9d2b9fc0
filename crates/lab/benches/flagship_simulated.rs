//! Benchmarks the packets of the flagship that the simulator takes over a link per second: the
//! whole flagship, law, engine and wire, unsealed. The bench of `farhaul-sim` measures the event
//! loop alone.

use std::{hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use farhaul_link::{Loss, PathConfig};
use farhaul_measure::registry::{Choice, protocol};
use farhaul_sim::{Scenario, SimReport, run};

const MTU: u32 = 9_000;

/// 10 Gbit/s, 200 ms.
fn scenario(loss: f64) -> Scenario {
    let path = PathConfig {
        delay: Duration::from_millis(100),
        mtu: Some(MTU),
        loss: if loss > 0.0 {
            Loss::Random(loss)
        } else {
            Loss::None
        },
        ..PathConfig::default()
    };
    Scenario {
        duration: Duration::from_secs(8),
        interval: Duration::ZERO,
        ..Scenario::over(path)
    }
}

fn simulate(scenario: &Scenario) -> SimReport {
    let entry = protocol("haul").expect("haul is there");
    let choice = Choice {
        simulated: true,
        ..Choice::default()
    };
    run(scenario, &mut |_| {
        let client = entry.client(&choice).expect("defaults are fine");
        let server = entry.server(&choice).expect("defaults are fine");
        (client, server)
    })
    .expect("the scenario is valid")
}

fn transfers(c: &mut Criterion) {
    let mut group = c.benchmark_group("flagship_simulated");
    group.sample_size(10);
    for loss in [0.0, 0.02] {
        let scenario = scenario(loss);
        group.throughput(Throughput::Elements(simulate(&scenario).packets));
        let id = BenchmarkId::new("mtu9000_200ms", format!("loss{loss}"));
        group.bench_with_input(id, &scenario, |b, scenario| {
            b.iter(|| black_box(simulate(scenario)));
        });
    }
    group.finish();
}

criterion_group!(benches, transfers);
criterion_main!(benches);
