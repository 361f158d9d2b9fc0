//! Peers that join a copy which is not theirs, no longer theirs, or not to be joined so.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use farhaul_core::{congestion::Sharing, protocol::CloseReason, store::Store as _, units::Rate};

use super::{
    lanes::{Delivery, SIZE, linger, place, session},
    *,
};
use crate::{
    brake::{Control, HELD},
    client::Upload,
    fuzz::{opened_lane, with_lanes},
    server::{Right, Tickets},
};

/// Delivers as before; a session that joins does so under the policy that `change` makes of a new
/// one.
fn succeeded(
    delivery: &mut Delivery,
    access: Access,
    allow: Allow,
    change: impl FnOnce(Policy) -> Policy,
) {
    let share = Share::open("s", delivery.root.path(), access).unwrap();
    let policy = change(Policy::new(vec![share], allow, false));
    delivery.policy = Arc::new(policy.succeeding(&delivery.policy));
}

fn closed<A>(victim: &Victim<A>) -> Option<u32> {
    victim.line.closed.as_ref().map(|(code, _)| *code)
}

fn got(range: std::ops::Range<u64>) -> Message {
    let ranges = vec![range];
    Message::Got { ranges }
}

fn end<A: App>(victim: &mut Victim<A>) {
    let code = 0;
    let text = String::new();
    let reason = CloseReason::Peer { code, text };
    let closed = Event::Closed(reason);
    victim.app.on_event(victim.now, closed, &mut victim.line);
}

#[test]
fn a_lane_is_admitted_by_the_policy_of_its_own_session() {
    let same = |policy: Policy| policy;
    let mine = || Allow::Keys(vec![vec![7]]);
    let joins = |access, allow, change: fn(Policy) -> Policy| {
        let mut delivery = Delivery::of(2);
        succeeded(&mut delivery, access, allow, change);
        delivery.join(delivery.token, 7).1
    };
    assert!(joins(Access::Write, mine(), same));
    assert!(!joins(Access::Read, mine(), same), "another direction");
    let others = Allow::Keys(vec![vec![8]]);
    assert!(!joins(Access::ReadWrite, others, same), "revoked");
    let elsewhere = |policy: Policy| policy.deliveries_to(b"elsewhere".to_vec(), None);
    assert!(!joins(Access::ReadWrite, mine(), elsewhere), "not below it");
    // The share is gone.
    let mut delivery = Delivery::of(2);
    let policy = Policy::new(Vec::new(), Allow::Any, false).succeeding(&delivery.policy);
    delivery.policy = Arc::new(policy);
    assert!(!delivery.join(delivery.token, 7).1);
    // One that was refused has taken nobody's place.
    succeeded(&mut delivery, Access::ReadWrite, mine(), |policy| policy);
    assert!(delivery.join(delivery.token, 7).1);
}

#[test]
fn a_lane_keeps_to_the_rate_of_its_own_policy() {
    let mut delivery = Delivery::of(3);
    let (mut lane, _) = delivery.join(delivery.token, 7);
    linger(&mut lane);
    let free = lane.app.sink().free;
    let slow = |policy: Policy| policy.never_above(Some(Rate::mbit(1)));
    succeeded(&mut delivery, Access::ReadWrite, Allow::Any, slow);
    let (mut lane, joined) = delivery.join(delivery.token, 7);
    linger(&mut lane);
    assert!(joined && lane.app.sink().free <= 1 << 20 && free > 1 << 20);
}

/// A ticket with key 7 for the share, used once.
#[derive(Debug, Default)]
struct Once {
    uses: Mutex<Vec<[u8; 8]>>,
    revoked: AtomicBool,
}

impl Tickets for Once {
    fn knows(&self, key: &[u8]) -> bool {
        key == [7]
    }

    fn right(&self, key: &[u8]) -> Result<Option<Right>, TransferError> {
        if self.revoked.load(Relaxed) {
            return Err(TransferError::new(Exit::Auth, "revoked"));
        }
        Ok(self.knows(key).then(|| Right {
            share: "s".into(),
            path: Vec::new(),
            access: Access::Write,
            max_rate: None,
        }))
    }

    fn begin(&self, _: &[u8], tag: [u8; 8]) -> Result<(), TransferError> {
        self.uses.lock().unwrap().push(tag);
        Ok(())
    }

    fn end(&self, _: &[u8], _: [u8; 8]) -> Result<(), TransferError> {
        Ok(())
    }
}

#[test]
fn a_lane_is_no_use_of_a_ticket_and_none_joins_by_one_that_is_over() {
    let ticket = Arc::new(Once::default());
    let root = tempfile::tempdir().unwrap();
    let share = Share::open("s", root.path(), Access::ReadWrite).unwrap();
    let policy = Policy::new(vec![share.for_tickets(true)], Allow::None, false);
    let policy = Arc::new(policy.with_tickets(Arc::<Once>::clone(&ticket)));
    let delivery = Delivery::under(policy, root, 3, Arc::default());
    assert!(delivery.join(delivery.token, 7).1);
    assert_eq!(ticket.uses.lock().unwrap().len(), 1);
    ticket.revoked.store(true, Relaxed);
    assert!(!delivery.join(delivery.token, 7).1);
}

/// A fetch of one large file with a fair claim, and its token.
fn fetch(root: &Path) -> (Arc<Policy>, Victim<Server>, Token) {
    fs::write(root.join("f"), vec![9; SIZE]).unwrap();
    let shares = vec![Share::open("s", root, Access::Read).unwrap()];
    let policy = Arc::new(Policy::new(shares, Allow::Any, false));
    let mut first = session(Server::new(Arc::clone(&policy), None), 7);
    first.send(&Message::request(Direction::Get, "s", "f"));
    let (lanes, chosen) = (3, true);
    first.send(&Message::WantLanes { lanes, chosen });
    let token = first.token();
    (policy, first, token)
}

#[test]
fn a_lane_of_a_fetch_claims_no_more_than_its_own_policy_allows_and_takes_no_content() {
    let tmp = tempfile::tempdir().unwrap();
    let (policy, _first, token) = fetch(tmp.path());
    let mut lane = session(Server::new(Arc::clone(&policy), None), 7);
    lane.send(&Message::Join { token });
    assert!(lane.has_said(|m| matches!(m, Message::Joined)));
    assert!(place(&mut lane, 0, &[1; 100]).is_err(), "content");
    lane.send(&got(0..u64::MAX >> 2));
    assert_eq!(closed(&lane), None, "what was never sent is nothing");
    let shares = vec![Share::open("s", tmp.path(), Access::Read).unwrap()];
    let less = Policy::new(shares, Allow::Any, false).up_to(Sharing::Low);
    let less = less.succeeding(&policy);
    let mut lane = session(Server::new(Arc::new(less), None), 7);
    lane.send(&Message::Join { token });
    assert!(lane.has_said(|m| matches!(m, Message::Refused { .. })));
}

#[test]
fn a_copy_that_is_over_is_not_joined() {
    let mut delivery = Delivery::of(3);
    let content = delivery.content.clone();
    place(&mut delivery.first, 0, &content).unwrap();
    delivery.end();
    end(&mut delivery.first);
    assert!(!delivery.join(delivery.token, 7).1);
    assert!(delivery.is_there());
    // Nor one that failed, by a session that is still there.
    let mut delivery = Delivery::of(3);
    let (mut lane, _) = delivery.join(delivery.token, 7);
    delivery.first.send(&Message::Joined);
    assert!(delivery.handle.outcome().unwrap().error.is_some());
    assert!(!delivery.join(delivery.token, 7).1);
    linger(&mut lane);
    assert_eq!(closed(&lane), Some(0));
}

#[test]
fn a_session_is_one_thing_once() {
    let request = Message::request(Direction::Put, "s", "other");
    let (lanes, chosen) = (2, true);
    let mut delivery = Delivery::of(5);
    let token = delivery.token;
    for second in [
        Message::Join { token },
        request,
        Message::WantLanes { lanes, chosen },
        got(0..1),
        Message::Joined,
    ] {
        let (mut lane, joined) = delivery.join(token, 7);
        lane.send(&second);
        assert!(joined && closed(&lane).is_some(), "{second:?}");
        if matches!(second, Message::Got { .. }) {
            // The copy had its four.
            break;
        }
    }
    // A copy does not join itself.
    delivery.first.send(&Message::Join { token });
    assert_eq!(closed(&delivery.first), Some(20));
}

#[test]
fn what_is_set_for_one_lane_holds_for_all_of_the_copy() {
    let controls: [Arc<Control>; 3] = Default::default();
    let root = tempfile::tempdir().unwrap();
    let share = Share::open("s", root.path(), Access::ReadWrite).unwrap();
    let policy = Arc::new(Policy::new(vec![share], Allow::Any, false));
    let first = Arc::clone(&controls[0]);
    let mut delivery = Delivery::under(policy, root, 3, first);
    let token = delivery.token;
    let (mut lane, _) = delivery.join_with(token, 7, Arc::clone(&controls[1]));
    // One that is held before it joins.
    controls[2].hold(true);
    let (mut last, _) = delivery.join_with(token, 7, Arc::clone(&controls[2]));
    let held = || controls.iter().all(|control| control.is_held());
    assert!(held());
    controls[0].hold(false);
    assert!(controls.iter().all(|control| !control.is_held()));
    controls[1].set_rate(HELD);
    for victim in [&mut delivery.first, &mut lane, &mut last] {
        linger(victim);
        assert!(victim.app.sink().free <= 1 << 20, "each has a part of it");
    }
    controls[2].set_rate(Rate::UNLIMITED);
    for (control, victim) in controls
        .iter()
        .zip([&mut delivery.first, &mut lane, &mut last])
    {
        linger(victim);
        assert!(victim.app.sink().free > 1 << 20 && control.rate() == Rate::UNLIMITED);
    }
}

/// Exit with which a client's parallel session closes when a server says this on it.
fn told(messages: &[Message]) -> Option<u32> {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("f"), vec![9; SIZE]).unwrap();
    let (options, opened) = with_lanes(Options::default(), 2);
    let remote = Remote {
        share: "s".into(),
        path: Vec::new(),
    };
    let client = Upload::new(&[tmp.path().join("f")], &remote, options).unwrap();
    let mut first = session(client, 7);
    let lane = opened_lane(&opened, 2, |message| {
        first.send(message);
        linger(&mut first);
    });
    assert!(first.has_said(|m| matches!(m, Message::WantLanes { .. })));
    let mut lane = session(lane, 7);
    for message in messages {
        lane.send(message);
    }
    assert_eq!(closed(&first), None, "the copy goes on");
    closed(&lane)
}

#[test]
fn a_server_that_lies_on_a_lane_loses_it() {
    assert_eq!(told(&[Message::Joined, got(0..1)]), None);
    for lie in [
        &[Message::Joined, Message::Joined][..],
        &[Message::Joined, Message::End { entries: 1 }],
        &[
            Message::Joined,
            Message::Lanes {
                token: [1; 16],
                lanes: 2,
            },
        ],
        &[Message::Accepted {
            version: OLDEST,
            one_file: true,
        }],
    ] {
        assert_eq!(told(lie), Some(20), "{lie:?}");
    }
    let refused = Message::Refused {
        code: Exit::Busy,
        text: Vec::new(),
        fix: Vec::new(),
    };
    assert!(told(&[refused]).is_some());
}
