//! The path goes dark for a while, or the peer for ever.

use std::{sync::mpsc, time::Duration};

use farhaul_core::protocol::CloseReason;
use farhaul_core::units::Rate;
use farhaul_link::{PathConfig, Window};
use farhaul_protocols::udt::Framing;

use super::{
    HOSTS, MANNERS,
    peer::program,
    run::{BOTH, Listens, Setting, run, words},
    stream::{Role, Seen, Stream},
    streams::Case,
    together,
};

/// Dark from the second second to the seventh; the stream takes more than two without that.
fn dark() -> PathConfig {
    PathConfig {
        rate: Rate::from_bps(20_000_000),
        delay: Duration::from_millis(5),
        blackouts: vec![Window {
            from: Duration::from_secs(2),
            lasts: Duration::from_secs(5),
        }],
        ..PathConfig::default()
    }
}

#[test]
fn five_dark_seconds_are_survived() {
    if program().is_none() {
        return;
    }
    let mut cases = Vec::new();
    for behaviour in MANNERS {
        for listens in BOTH {
            for role in [Role::Writes, Role::Takes] {
                let setting = Setting::new(HOSTS[0], behaviour, Framing::Stream, listens);
                cases.push(Case {
                    setting: setting.over(dark()),
                    role,
                    bytes: 6_000_000,
                });
            }
        }
    }
    together(&cases, Case::run);
}

/// After how long is asked in virtual time, in the tests of crates/protocols: 46 s and 15 s.
#[test]
fn a_peer_that_was_killed_is_noticed() {
    if program().is_none() {
        return;
    }
    let mut cases = Vec::new();
    for behaviour in MANNERS {
        for role in [Role::Sends, Role::Takes] {
            cases.push((behaviour, role));
        }
    }
    together(&cases, |&(behaviour, role)| {
        let setting = Setting::new(HOSTS[0], behaviour, Framing::Stream, Listens::They);
        let bytes = 1_u64 << 40;
        let theirs = if role == Role::Takes { "send" } else { "recv" };
        let action = words([theirs, &bytes.to_string()]);
        let (events, received) = mpsc::channel();
        let make = move || Stream::new(role, bytes, events.clone());
        let (reason, _) = run(&setting, &action, make, |peer| {
            assert!(matches!(received.recv(), Ok(Seen::UnderWay)));
            peer.kill().unwrap();
            match received.recv() {
                Ok(Seen::Over(_, reason)) => reason,
                other => panic!("{behaviour:?} {role:?}: {other:?}"),
            }
        });
        assert_eq!(reason, CloseReason::TimedOut, "{behaviour:?} {role:?}");
    });
}
