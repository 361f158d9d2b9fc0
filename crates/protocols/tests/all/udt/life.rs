//! Tests how a session ends, and that a peer that is gone is noticed.

use farhaul_core::protocol::CloseReason;
use farhaul_protocols::udt::{Behaviour, Framing};
use farhaul_testkit::Fate;

use super::{LIMIT, MANNERS, config, ms, pair};

#[test]
fn a_close_reaches_the_peer_with_its_words() {
    for behaviour in MANNERS {
        let mut pair = pair(&config(behaviour, Framing::Records), ms(20));
        pair.connect(None);
        pair.until(LIMIT, |p| p.client.connected() && p.server.connected());
        let now = pair.now;
        pair.client.session().close(now, 42, "enough");
        pair.until(LIMIT, |p| p.server.closed().is_some());
        let text = "enough".to_owned();
        let reason = CloseReason::Peer { code: 42, text };
        assert_eq!(pair.server.closed(), Some(&reason));
        assert!(pair.run(ms(500), |p| p.client.session().is_closed()));
        assert!(pair.server.session().is_closed());
    }
}

#[test]
fn a_peer_that_is_gone_is_noticed_in_time_with_and_without_data() {
    for (behaviour, least, most) in [(Behaviour::Libudt, 46, 48), (Behaviour::Fixed, 15, 16)] {
        for data in [0, 50_000_000] {
            let dark = std::rc::Rc::new(std::cell::Cell::new(false));
            let seen = std::rc::Rc::clone(&dark);
            let mut pair = pair(&config(behaviour, Framing::Records), ms(5))
                .with_script(move |_| Fate::drop_if(seen.get()));
            pair.connect(None);
            pair.until(LIMIT, |p| p.client.connected());
            pair.client.session().send(1, 0, data);
            pair.pass(ms(50));
            dark.set(true);
            let since = pair.now;
            assert!(
                pair.run(LIMIT, |p| p.client.closed().is_some()),
                "{behaviour:?}"
            );
            assert_eq!(pair.client.closed(), Some(&CloseReason::TimedOut));
            let took = (pair.now - since).as_secs();
            assert!(
                (least - 1..most).contains(&took),
                "{behaviour:?} {data}: {took} s"
            );
        }
    }
}

#[test]
fn silence_of_the_application_does_not_end_a_session() {
    for behaviour in MANNERS {
        let mut pair = pair(&config(behaviour, Framing::Records), ms(50));
        pair.connect(None);
        pair.until(LIMIT, |p| p.client.connected());
        pair.pass(LIMIT);
        assert_eq!(
            (pair.client.closed(), pair.server.closed()),
            (None, None),
            "{behaviour:?} at {:?}",
            pair.now
        );
        pair.server.session().send(1, 0, 1_000);
        assert!(pair.run(ms(1_000), |p| p.client.store.has(1, 1_000)));
    }
}

#[test]
fn a_blackout_is_survived() {
    for behaviour in MANNERS {
        let mut pair = pair(&config(behaviour, Framing::Records), ms(10)).with_script(|d| {
            let at = d.at.as_nanos() / 1_000_000;
            Fate::drop_if((200..4_200).contains(&at))
        });
        pair.connect(None);
        pair.until(LIMIT, |p| p.client.connected());
        pair.client.session().send(1, 0, 3_000_000);
        assert!(
            pair.run(LIMIT, |p| p.server.store.has(1, 3_000_000)),
            "{behaviour:?} {pair:#?}"
        );
    }
}
