//! Benchmarks the packets that the simulator takes through a link per second. The session is
//! [`Steady`], which costs next to nothing, so that the figure is the event loop's own.

use std::{hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use farhaul_core::units::Rate;
use farhaul_link::{Loss, PathConfig};
use farhaul_sim::{Scenario, SimReport, run};
use farhaul_testkit::Steady;

fn scenario(mtu: u32, loss: f64) -> Scenario {
    let path = PathConfig {
        rate: Rate::gbit(10),
        delay: Duration::from_millis(100),
        mtu: Some(mtu),
        loss: if loss > 0.0 {
            Loss::Random(loss)
        } else {
            Loss::None
        },
        ..PathConfig::default()
    };
    Scenario {
        duration: Duration::from_secs(2),
        ..Scenario::over(path)
    }
}

fn simulate(scenario: &Scenario, mtu: u16) -> SimReport {
    let steady = Steady::new(Rate::mbit(9_900), mtu);
    run(scenario, &mut |_| {
        (Box::new(steady.endpoint()), Box::new(steady.endpoint()))
    })
    .expect("the scenario is valid")
}

fn transfers(c: &mut Criterion) {
    let mut group = c.benchmark_group("simulated_transfer");
    group.sample_size(10);
    for (mtu, loss) in [(9_000, 0.0), (9_000, 0.02), (1_500, 0.0)] {
        let scenario = scenario(u32::from(mtu), loss);
        let packets = simulate(&scenario, mtu).packets;
        group.throughput(Throughput::Elements(packets));
        let id = BenchmarkId::new(format!("mtu{mtu}"), format!("loss{loss}"));
        group.bench_with_input(id, &scenario, |b, scenario| {
            b.iter(|| black_box(simulate(scenario, mtu)));
        });
    }
    group.finish();
}

criterion_group!(benches, transfers);
criterion_main!(benches);
