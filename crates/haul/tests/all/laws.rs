//! Tests congestion laws that answer nonsense. The session ends with an error that names the law,
//! or goes on; never without end, and never with more memory than a session may take.

use crate::pair::{config, ms, of};
use farhaul_core::{
    congestion::{AckEvent, Allowance, CongestionController, LossEvent},
    protocol::CloseReason,
    units::{Rate, Size},
};
use farhaul_haul::Haul;
use farhaul_testkit::Fate;

/// Answers what `answer` makes of the number of acknowledgements.
struct Nonsense {
    acks: u32,
    answer: Answer,
}

impl CongestionController for Nonsense {
    fn name(&self) -> &'static str {
        "nonsense"
    }
    fn on_ack(&mut self, _: &AckEvent) {
        self.acks += 1;
    }
    fn on_loss(&mut self, _: &LossEvent) {}
    fn allowance(&self) -> Allowance {
        (self.answer)(self.acks)
    }
}

/// Answer of a law, after this many acknowledgements.
type Answer = fn(u32) -> Allowance;

fn allow(window: f64, bits_per_second: f64) -> Allowance {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the mistake that laws make"
    )]
    let window = Size::from_bytes(window as u64);
    Allowance {
        window,
        rate: Rate::from_f64(bits_per_second),
        quantum: Size::from_bytes(64_000),
    }
}

/// Sends 30 MB under the law over a path that loses 10 % both ways; how it ended at the sender.
fn run(answer: Answer) -> Option<CloseReason> {
    let mut client = Haul::client(config(1)).expect("valid");
    client.set_law(move || Box::new(Nonsense { acks: 0, answer }));
    let server = Haul::server(config(2)).expect("valid");
    let mut pair = of(client, server, ms(20), 1_500);
    pair.open();
    pair.client.session().send(1, 0, 30_000_000);
    let mut rng = farhaul_core::rng::Rng::new(9);
    pair.set_script(move |_| Fate::drop_if(rng.chance(0.1)));
    pair.until(std::time::Duration::from_mins(5), |p| {
        p.client.delivered() || p.client.closed().is_some()
    });
    pair.client.closed().cloned()
}

#[test]
fn a_law_that_answers_what_cannot_be_is_named() {
    let wrong: [(&str, Answer); 4] = [
        ("a window of zero or not a number", |_| allow(f64::NAN, 1e8)),
        ("a rate of zero or not a number", |_| allow(1e6, 0.0)),
        ("an infinite rate", |n| {
            allow(1e6, if n < 3 { 1e8 } else { f64::INFINITY })
        }),
        ("an infinite window", |n| {
            allow(1e4 * 4_f64.powi(n.min(300).cast_signed()), 1e8)
        }),
    ];
    for (words, answer) in wrong {
        match run(answer) {
            Some(CloseReason::Internal(text)) => {
                assert!(
                    text.contains("'nonsense'") && text.ends_with(words),
                    "{text}"
                );
            }
            other => panic!("{words}: {other:?}"),
        }
    }
}

#[test]
fn a_law_that_allows_far_too_much_costs_datagrams_only() {
    assert_eq!(run(|_| allow(1e14, 1e13)), None);
}

#[test]
fn a_server_sends_by_its_tunnel_law_to_clients_that_declare_one() {
    let phase = |declares: bool, has: bool| {
        let (mut near, mut far) = (config(1), config(2));
        near.tunnel_law = declares.then(|| "reno".into());
        far.tunnel_law = has.then(|| "cubic".into());
        let client = Haul::client(near).expect("valid");
        let server = Haul::server(far).expect("valid");
        let mut pair = of(client, server, ms(20), 1_500);
        pair.open();
        pair.server.session().send(1, 0, 1_000_000);
        pair.until(std::time::Duration::from_mins(1), |p| p.server.delivered());
        let own = pair.client.session().stats().phase;
        (own, pair.server.session().stats().phase)
    };
    let (haul, reno) = (phase(false, true), phase(true, false));
    let both = phase(true, true);
    assert_eq!(haul, phase(false, false), "the client declares nothing");
    assert_eq!(haul.1, reno.1, "the server has none");
    assert_ne!(haul.0, reno.0);
    assert_eq!(both.0, reno.0);
    assert_ne!(both.1, haul.1);
}
