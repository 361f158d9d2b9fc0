//! What does a law cost? Nanoseconds per feedback packet, for every law with its
//! defaults, ten to a round, after the first loss: the event and the one question for the allowance
//! that the engine asks after it.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use farhaul_congestion::{laws, lookup};
use farhaul_core::{
    congestion::{AckEvent, Facts, LossEvent, PathView, RateSample},
    time::Instant,
    units::{Rate, Size},
};

fn on_ack(c: &mut Criterion) {
    let mut group = c.benchmark_group("on_ack");
    for law in laws() {
        let mut controller = lookup(law.name).expect("listed").make();
        let mut ack = ack();
        controller.on_start(ack.now, &ack.path);
        controller.on_ack(&ack);
        // Out of slow start: what a law does for most of its life.
        controller.on_loss(&loss(&ack));
        let mut feedbacks = 0_u64;
        let mut allowance = controller.allowance();
        group.bench_function(law.name, |b| {
            b.iter(|| {
                ack.now += Duration::from_millis(10);
                feedbacks += 1;
                ack.round = feedbacks / 10;
                ack.delivered += ack.acked;
                ack.newest = Some(Facts {
                    sent_at: ack.now.earlier_by(Duration::from_millis(100)),
                    in_flight: ack.in_flight_before,
                    delivered: ack.delivered - Size::from_bytes(10_000_000),
                    ..Facts::default()
                });
                ack.in_flight_before = allowance.window;
                controller.on_ack(black_box(&ack));
                allowance = controller.allowance();
                black_box(allowance)
            });
        });
    }
    group.finish();
}

fn loss(ack: &AckEvent) -> LossEvent {
    LossEvent {
        now: ack.now,
        lost: Size::from_bytes(u64::from(ack.path.datagram)),
        packets: 1,
        new_episode: true,
        in_flight_before: ack.acked,
        path: ack.path,
        ..LossEvent::default()
    }
}

fn ack() -> AckEvent {
    let rtt = Duration::from_millis(100);
    AckEvent {
        now: Instant::from_nanos(1_000_000_000),
        acked: Size::from_bytes(1_000_000),
        packets: 112,
        round: 0,
        in_flight_before: Size::ZERO,
        rtt: Some(rtt),
        queue_delay: Some(Duration::ZERO),
        rate: Some(RateSample {
            rate: Rate::gbit(1),
            sent: Rate::gbit(1),
            interval: rtt,
            app_limited: false,
            loss: 0.0,
        }),
        ce: 0,
        app_limited: false,
        path: PathView {
            datagram: 8_948,
            srtt: rtt,
            min_rtt: rtt,
            feedback_interval: Duration::from_millis(10),
            in_flight: Size::from_bytes(10_000_000),
        },
        ..AckEvent::default()
    }
}

criterion_group!(benches, on_ack);
criterion_main!(benches);
