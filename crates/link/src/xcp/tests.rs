use std::time::Duration;

use farhaul_core::datagram::Ecn;

use super::*;
use crate::{
    config::{PathConfig, Router},
    path::{Path, Verdict},
};

const GBIT: Rate = Rate::gbit(1);

fn path(router: Option<Router>) -> Path {
    let config = PathConfig {
        rate: GBIT,
        router,
        ..PathConfig::default()
    };
    Path::new(&config, &farhaul_core::rng::Rng::new(1))
}

/// A flow of packets of 1,000 bytes.
#[derive(Clone, Copy)]
struct Flow {
    rtt_ms: u64,
    window: u64,
    /// Time from packet to packet, µs.
    every_us: u64,
}

impl Flow {
    /// A flow that sends its window once per rtt.
    fn of(rtt_ms: u64, window: u64) -> Self {
        let every_us = rtt_ms * 1_000 * 1_000 / window;
        Self {
            rtt_ms,
            window,
            every_us,
        }
    }

    fn header(self) -> CongestionHeader {
        CongestionHeader {
            window: Size::from_bytes(self.window),
            rtt: Duration::from_millis(self.rtt_ms),
            feedback: f64::MAX,
            written: false,
        }
    }
}

/// Bytes granted to each flow in `from_ms..to_ms`.
fn granted(path: &mut Path, flows: &[Flow], from_ms: u64, to_ms: u64) -> Vec<f64> {
    let mut granted = vec![0.0; flows.len()];
    for us in 0..to_ms * 1_000 {
        for (flow, sum) in flows.iter().zip(&mut granted) {
            if us % flow.every_us != 0 {
                continue;
            }
            let mut header = flow.header();
            let now = Instant::from_nanos(us * 1_000);
            let verdict = path.offer_with_header(now, 1_000, Ecn::NotEct, Some(&mut header));
            assert!(matches!(verdict, Verdict::Pass { .. }));
            assert!(header.written && header.feedback.is_finite());
            if us >= from_ms * 1_000 {
                *sum += header.feedback;
            }
        }
    }
    granted
}

fn close(a: f64, b: f64, within: f64) -> bool {
    (a - b).abs() <= within * b.abs()
}

#[test]
fn the_aggregate_is_the_papers() {
    // 10 Gbit/s idle for 100 ms: 0.4 of 125 MB; 1 MB of queue at full rate: 226 kB less.
    assert!(close(aggregate(0.1, 1.25e9, 0.0), 50e6, 1e-9));
    assert!(close(aggregate(0.1, 0.0, 1e6), -226e3, 1e-9));
}

#[test]
fn four_tenths_of_the_spare_rate_are_given_out_in_a_round() {
    // 100 ms at 500 of 1,000 Mbit/s: the window of 6.25 MB may grow by 0.4 of the 6.25 MB that are free,
    // less nothing: a tenth of the traffic is less than what is given out anyway.
    let mut path = path(Some(Router::Xcp));
    let flow = Flow::of(100, 6_250_000);
    let grant = granted(&mut path, &[flow], 200, 300)[0];
    assert!(close(grant, 2_500_000.0, 0.02), "{grant}");
}

#[test]
fn a_full_link_is_dealt_anew_by_a_tenth() {
    // 800 and 200 Mbit/s at 50 ms: nothing is spare; a tenth of 6.25 MB goes round, taken by rate and
    // given by head: 0.8 and 0.2 of 625 kB against half of it each.
    let mut path = path(Some(Router::Xcp));
    let flows = [Flow::of(50, 5_000_000), Flow::of(50, 1_250_000)];
    let grants = granted(&mut path, &flows, 200, 250);
    assert!(close(grants[0], -187_500.0, 0.02), "{grants:?}");
    assert!(close(grants[1], 187_500.0, 0.02), "{grants:?}");
}

#[test]
fn the_gain_in_rate_is_the_same_at_any_rtt() {
    let mut path = path(Some(Router::Xcp));
    let flows = [Flow::of(20, 500_000), Flow::of(200, 5_000_000)];
    let grants = granted(&mut path, &flows, 1_000, 2_000);
    // Equal rates, 200 Mbit/s each, so what is lost is equal too; a window is a rate times an rtt.
    assert!(close(grants[0] / 0.02, grants[1] / 0.2, 0.02), "{grants:?}");
    assert!(grants[0] > 0.0);
}

#[test]
fn a_router_lowers_a_request_and_never_raises_it() {
    let mut path = path(Some(Router::Xcp));
    let flow = Flow::of(100, 1_000_000);
    granted(&mut path, &[flow], 0, 300);
    let mut modest = CongestionHeader {
        feedback: 3.0,
        ..flow.header()
    };
    let now = Instant::from_nanos(300_000_000);
    let verdict = path.offer_with_header(now, 1_000, Ecn::NotEct, Some(&mut modest));
    assert!(matches!(verdict, Verdict::Pass { .. }));
    assert!(modest.written && close(modest.feedback, 3.0, 1e-9));
}

#[test]
fn without_a_router_headers_pass_as_they_are() {
    let mut path = path(None);
    let sent = Flow::of(100, 1_000_000).header();
    let mut header = sent;
    let verdict = path.offer_with_header(Instant::EPOCH, 1_000, Ecn::NotEct, Some(&mut header));
    assert!(matches!(verdict, Verdict::Pass { .. }));
    assert_eq!(header, sent);
}
