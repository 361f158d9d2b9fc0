//! What does a datagram cost, through both sessions, with nothing below and above them? Reported per
//! element: one datagram sealed by the sender and opened by the receiver, feedback included.

use std::{net::SocketAddr, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use farhaul_core::{
    datagram::{Ecn, Received, TxBuf},
    protocol::{Accepted, Event, Protocol, Route, Session, Turn},
    rng::Rng,
    store::Hollow,
    time::Instant,
};
use farhaul_haul::{Haul, HaulConfig};

struct End {
    haul: Haul,
    session: Option<Box<dyn Session>>,
    rng: Rng,
    address: SocketAddr,
}

impl End {
    fn transmit(&mut self, now: Instant, out: &mut TxBuf) -> bool {
        let Some(session) = &mut self.session else {
            return false;
        };
        let (rng, store) = (&mut self.rng, &mut Hollow);
        let mut turn = Turn { now, rng, store };
        session.poll_transmit(&mut turn, out).is_some()
    }

    fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        segment: usize,
        bytes: &mut [u8],
    ) -> Vec<u8> {
        let mut reply = Vec::new();
        if self.session.is_none()
            && self.haul.route(bytes) == Route::New
            && let Accepted::Session(_, session) =
                self.haul
                    .accept(now, &mut self.rng, from, bytes, &mut reply)
        {
            self.session = Some(session);
        }
        if let Some(session) = &mut self.session {
            let ecn = Ecn::Ect0;
            let batch = Received {
                from,
                ecn,
                segment,
                bytes,
                waited: Duration::ZERO,
                granted: None,
            };
            let (rng, store) = (&mut self.rng, &mut Hollow);
            let mut turn = Turn { now, rng, store };
            session.handle_datagrams(&mut turn, batch);
        }
        reply
    }

    fn timeout(&mut self, now: Instant) {
        if let Some(session) = &mut self.session
            && session.poll_timeout().is_some_and(|(at, _)| at <= now)
        {
            let (rng, store) = (&mut self.rng, &mut Hollow);
            session.handle_timeout(&mut Turn { now, rng, store });
        }
    }
}

struct Line {
    now: Instant,
    ends: [End; 2],
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
        let end = |haul, address: &str| End {
            haul,
            session: None,
            rng: Rng::new(1),
            address: address.parse().expect("an address"),
        };
        let client = Haul::client(config(1)).expect("a valid configuration");
        let server = Haul::server(config(2)).expect("a valid configuration");
        let mut ends = [end(client, "10.0.0.1:1"), end(server, "10.0.0.2:2")];
        let now = Instant::EPOCH;
        let to = ends[1].address;
        let [client, _] = &mut ends;
        let (_, session) = client.haul.connect(now, &mut client.rng, to, Some(mtu));
        client.session = Some(session);
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
        let client = line.ends[0].session.as_mut().expect("it was connected");
        assert!(matches!(client.poll_event(), Some(Event::Connected { .. })));
        client.send(1, 0, u64::MAX / 4);
        line
    }

    /// Everything that one end may send now arrives at the other; datagrams carried.
    fn step(&mut self, from: usize) -> usize {
        let mut carried = 0;
        self.now += Duration::from_micros(5);
        let source = self.ends[from].address;
        self.ends[from].timeout(self.now);
        while self.ends[from].transmit(self.now, &mut self.out) {
            carried += self.out.count();
            let segment = self.out.segment();
            self.wire.clear();
            self.wire.extend_from_slice(self.out.bytes());
            let other = &mut self.ends[1 - from];
            let mut reply = other.receive(self.now, source, segment, &mut self.wire);
            if !reply.is_empty() {
                let (from_other, n) = (other.address, reply.len());
                self.ends[from].receive(self.now, from_other, n, &mut reply);
            }
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
