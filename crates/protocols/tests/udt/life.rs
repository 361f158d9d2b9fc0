//! How does it end, and is a peer that is gone noticed?

use farhaul_core::protocol::CloseReason;
use farhaul_protocols::udt::{Framing, Manner};
use farhaul_testkit::{Fate, Side};

use super::{LIMIT, MANNERS, closed, config, connected, ms, pair};

#[test]
fn a_close_reaches_the_peer_with_its_words() {
    for manner in MANNERS {
        let mut pair = pair(&config(manner, Framing::Records), ms(20));
        pair.connect(None);
        assert!(pair.run(LIMIT, |p| connected(&p.client) && connected(&p.server)));
        let now = pair.now;
        pair.client.session().unwrap().close(now, 42, "enough");
        pair.settle(Side::Client);
        assert!(pair.run(LIMIT, |p| closed(&p.server).is_some()));
        let text = "enough".to_owned();
        let reason = CloseReason::Peer { code: 42, text };
        assert_eq!(closed(&pair.server), Some(&reason));
        assert!(pair.run(ms(500), |p| p.client.session().unwrap().is_closed()));
        assert!(pair.server.session().unwrap().is_closed());
    }
}

#[test]
fn a_peer_that_is_gone_is_noticed_in_time_with_and_without_data() {
    for (manner, least, most) in [(Manner::Libudt, 46, 48), (Manner::Tuned, 15, 16)] {
        for data in [0, 50_000_000] {
            let dark = std::rc::Rc::new(std::cell::Cell::new(false));
            let seen = std::rc::Rc::clone(&dark);
            let mut pair = pair(&config(manner, Framing::Records), ms(5)).with_script(move |_| {
                if seen.get() {
                    Fate::Drop
                } else {
                    Fate::Deliver
                }
            });
            pair.connect(None);
            assert!(pair.run(LIMIT, |p| connected(&p.client)));
            pair.client.session().unwrap().send(1, 0, data);
            pair.settle(Side::Client);
            pair.run(ms(50), |_| false);
            dark.set(true);
            let since = pair.now;
            assert!(
                pair.run(LIMIT, |p| closed(&p.client).is_some()),
                "{manner:?}"
            );
            assert_eq!(closed(&pair.client), Some(&CloseReason::TimedOut));
            let took = (pair.now - since).as_secs();
            assert!(
                (least - 1..most).contains(&took),
                "{manner:?} {data}: {took} s"
            );
        }
    }
}

#[test]
fn silence_of_the_application_does_not_end_a_session() {
    for manner in MANNERS {
        let mut pair = pair(&config(manner, Framing::Records), ms(50));
        pair.connect(None);
        assert!(pair.run(LIMIT, |p| connected(&p.client)));
        pair.run(LIMIT, |_| false);
        assert_eq!(
            (closed(&pair.client), closed(&pair.server)),
            (None, None),
            "{manner:?} at {:?}",
            pair.now
        );
        pair.server.session().unwrap().send(1, 0, 1_000);
        pair.settle(Side::Server);
        assert!(pair.run(ms(1_000), |p| p.client.store.has(1, 1_000)));
    }
}

#[test]
fn a_blackout_is_survived() {
    for manner in MANNERS {
        let mut pair = pair(&config(manner, Framing::Records), ms(10)).with_script(|d| {
            let at = d.at.as_nanos() / 1_000_000;
            if (200..4_200).contains(&at) {
                Fate::Drop
            } else {
                Fate::Deliver
            }
        });
        pair.connect(None);
        assert!(pair.run(LIMIT, |p| connected(&p.client)));
        pair.client.session().unwrap().send(1, 0, 3_000_000);
        pair.settle(Side::Client);
        assert!(
            pair.run(LIMIT, |p| p.server.store.has(1, 3_000_000)),
            "{manner:?} {pair:#?}"
        );
    }
}
