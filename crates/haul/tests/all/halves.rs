//! Tests laws with a half at each end: a receiving half that grants a rate, asked for by name.
//! Another law's half is one that the other end does not have.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::pair::{config, ms, of};
use farhaul_core::{
    congestion::{
        AckEvent, Allowance, Arrival, CongestionController, FeedbackRequest, LossEvent, ReceiverLaw,
    },
    protocol::{CloseReason, Event},
    time::Instant,
    units::{Rate, Size},
};
use farhaul_haul::Haul;
use farhaul_testkit::Pair;

const MINUTE: Duration = Duration::from_mins(1);

/// Sends at the rate granted, and says hello once.
struct Granted {
    rate: Rate,
    said: bool,
}

impl CongestionController for Granted {
    fn name(&self) -> &'static str {
        "granted"
    }
    fn receiver(&self) -> Option<&'static str> {
        Some("grants")
    }
    fn on_ack(&mut self, _ack: &AckEvent) {}
    fn on_loss(&mut self, _loss: &LossEvent) {}
    fn on_message(&mut self, _now: Instant, bytes: &[u8]) {
        self.rate = Rate::mbit(u64::from(bytes[0]));
    }
    fn message(&mut self, _now: Instant, into: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.said, true) {
            into.extend_from_slice(b"hello");
        }
    }
    fn feedback_request(&self) -> FeedbackRequest {
        FeedbackRequest {
            packets: Some(8),
            ..FeedbackRequest::default()
        }
    }
    fn allowance(&self) -> Allowance {
        Allowance {
            window: Size::UNLIMITED,
            rate: self.rate,
            quantum: Size::from_bytes(3_000),
        }
    }
}

/// Grants 50 Mbit/s after a tick, and counts the flows that share it.
struct Grants {
    flows: Arc<AtomicU64>,
    heard: bool,
    tick: Option<Instant>,
    grant: bool,
}

impl ReceiverLaw for Grants {
    fn name(&self) -> &'static str {
        "grants"
    }
    fn on_start(&mut self, now: Instant, rtt: Duration) {
        self.flows.fetch_add(1, Ordering::Relaxed);
        self.tick = Some(now + rtt);
    }
    fn on_arrival(&mut self, arrival: &Arrival) {
        assert!(arrival.packets > 0 && arrival.received <= arrival.end);
    }
    fn on_message(&mut self, _now: Instant, bytes: &[u8]) {
        assert_eq!(bytes, b"hello");
        self.heard = true;
    }
    fn on_tick(&mut self, now: Instant) {
        self.grant = self.heard;
        self.tick = Some(now + ms(20));
    }
    fn next_tick(&self) -> Option<Instant> {
        self.tick
    }
    fn message(&mut self, _now: Instant, into: &mut Vec<u8>) {
        if std::mem::take(&mut self.grant) {
            into.push(50);
        }
    }
    fn on_close(&mut self, _now: Instant) {
        self.flows.fetch_sub(1, Ordering::Relaxed);
        self.tick = None;
    }
}

fn pair(flows: Option<Arc<AtomicU64>>) -> Pair {
    let mut client = Haul::client(config(1)).expect("valid");
    let mut server = Haul::server(config(2)).expect("valid");
    client.set_law(|| {
        Box::new(Granted {
            rate: Rate::mbit(1),
            said: false,
        })
    });
    if let Some(flows) = flows {
        server.add_receiver_law("grants", move || {
            Box::new(Grants {
                flows: Arc::clone(&flows),
                heard: false,
                tick: None,
                grant: false,
            })
        });
    }
    of(client, server, ms(20), 1_500)
}

#[test]
fn the_receiver_grants_the_rate() {
    let flows = Arc::new(AtomicU64::new(0));
    let mut pair = pair(Some(Arc::clone(&flows)));
    pair.open();
    assert_eq!(flows.load(Ordering::Relaxed), 1);
    pair.client.session().send(1, 0, 5_000_000);
    let began = pair.now;
    pair.until(MINUTE, |p| p.client.delivered());
    // At the 1 Mbit/s it starts with this takes 40 s, at the granted 50 Mbit/s 0.8 s.
    assert!(pair.now.since(began) < Duration::from_secs(2));
    let reports = pair.server.session().stats().feedback_sent / 60;
    assert!(
        reports > 300,
        "every 8 packets, not every few ms: {reports}"
    );
    pair.client.session().close(pair.now, 0, "");
    pair.until(MINUTE, |p| p.server.closed().is_some());
    assert_eq!(flows.load(Ordering::Relaxed), 0);
}

#[test]
fn a_missing_half_is_named() {
    let mut pair = pair(None);
    pair.until(MINUTE, |p| p.client.closed().is_some());
    let reported = |events: &[Event]| {
        events.iter().any(|e| {
            matches!(e, Event::Closed(reason) if matches!(reason, CloseReason::Peer { .. } | CloseReason::Protocol(_))
                && reason.to_string().contains("'grants'"))
        })
    };
    assert!(reported(&pair.client.events), "{:?}", pair.client.events);
}
