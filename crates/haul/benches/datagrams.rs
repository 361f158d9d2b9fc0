//! Benchmarks a datagram through both sessions, with nothing below and above them. Reported per
//! element: one datagram sealed by the sender and opened by the receiver, feedback included.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use farhaul_core::{
    datagram::{Ecn, Received, TxBuf},
    protocol::{Event, Protocol},
    rng::Rng,
    store::Hollow,
    time::Instant,
};
use farhaul_haul::{Haul, HaulConfig};
use farhaul_testkit::{Admitted, Driver};

struct Line {
    now: Instant,
    ends: [Driver<Hollow>; 2],
    out: TxBuf,
    wire: Vec<u8>,
}

impl Line {
    fn new(mtu: u32, plain: bool) -> Self {
        let config = |seed: u8| HaulConfig {
            law: "fixed:rate=100Gbit,quantum=256KiB".into(),
            plain,
            ..HaulConfig::new([seed; 32])
        };
        let end = |haul: Box<dyn Protocol>, address: &str| {
            let address = address.parse().expect("an address");
            Driver::new(haul, address, Hollow, Rng::new(1))
        };
        let client = Haul::client(config(1)).expect("a valid configuration");
        let server = Haul::server(config(2)).expect("a valid configuration");
        let mut ends = [
            end(Box::new(client), "10.0.0.1:1"),
            end(Box::new(server), "10.0.0.2:2"),
        ];
        let now = Instant::EPOCH;
        let to = ends[1].address;
        ends[0].connect(now, to, Some(mtu));
        let (out, wire) = (TxBuf::default(), Vec::new());
        let mut line = Self {
            now,
            ends,
            out,
            wire,
        };
        for _ in 0..50 {
            line.step(0);
            line.step(1);
        }
        let client = line.ends[0].session();
        assert!(matches!(client.poll_event(), Some(Event::Connected { .. })));
        client.send(1, 0, u64::MAX / 4);
        line
    }

    /// Everything that one end may send now arrives at the other; datagrams carried.
    fn step(&mut self, from: usize) -> usize {
        let mut carried = 0;
        self.now += Duration::from_micros(5);
        let source = self.ends[from].address;
        self.ends[from].expire(self.now);
        while let Some(transmit) = self.ends[from].transmit(self.now, &mut self.out) {
            carried += self.out.count();
            self.wire.clear();
            self.wire.extend_from_slice(self.out.bytes());
            let other = &mut self.ends[1 - from];
            if other.session.is_none()
                && let Admitted::Reply(mut reply) = other.admit(self.now, source, &self.wire)
            {
                self.ends[from].feed(self.now, transmit.to, &mut reply);
                continue;
            }
            let batch = Received {
                from: source,
                ecn: Ecn::Ect0,
                segment: self.out.segment(),
                bytes: &mut self.wire,
                waited: Duration::ZERO,
                granted: None,
            };
            other.feed_batch(self.now, batch);
        }
        carried
    }
}

fn datagrams(c: &mut Criterion) {
    for (mtu, plain) in [(9_000, false), (1_500, false), (9_000, true)] {
        let mut line = Line::new(mtu, plain);
        let name = if plain { "plain" } else { "sealed" };
        let mut group = c.benchmark_group(format!("{name} both ways"));
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("mtu {mtu}, ns per datagram"), |b| {
            b.iter_custom(|n| {
                // Criterion's clock, scaled to the datagrams that went.
                let mut carried = 0;
                let clock = criterion::measurement::WallTime;
                let start = criterion::measurement::Measurement::start(&clock);
                while carried < n {
                    carried += line.step(0) as u64;
                    line.step(1);
                }
                let time = criterion::measurement::Measurement::end(&clock, start);
                // The last batch may have carried more than was asked for.
                let share = u128::from(n) * time.as_nanos() / u128::from(carried);
                Duration::from_nanos(u64::try_from(share).expect("less than 584 years"))
            });
        });
        group.finish();
    }
}

criterion_group!(benches, datagrams);
criterion_main!(benches);
