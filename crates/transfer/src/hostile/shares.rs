//! Peers that ask for lists of shares, and servers that answer something else.

use super::*;
use crate::{
    client::{self, Answered},
    wire::Shared,
};

fn shares(victim: &mut Victim<Server>) -> Option<Vec<String>> {
    let mut found = None;
    victim.has_said(|message| {
        if let Message::Shares(shares) = message {
            let name = |share: &Shared| String::from_utf8(share.name.clone()).unwrap();
            found = Some(shares.iter().map(name).collect());
        }
        found.is_some()
    });
    found
}

#[test]
fn a_peer_is_told_of_its_own_shares_and_once() {
    let root = tempfile::tempdir().unwrap();
    let share = |name: &str, key: u8| {
        let share = Share::open(name, root.path(), Access::Write).unwrap();
        share.for_peers(Allow::Keys(vec![vec![key]]))
    };
    let all = vec![share("mine", 7), share("another's", 9), share("too", 7)];
    let policy = Arc::new(Policy::new(all, Allow::None, false));
    let mut victim = Victim::new(Server::new(policy, None));
    victim.send(&Message::WantShares);
    assert_eq!(shares(&mut victim).unwrap(), ["mine", "too"]);
    for _ in 0..9 {
        victim.send(&Message::WantShares);
    }
    assert_eq!(shares(&mut victim), None);
    // It does not keep its place for ever.
    while !victim.line.is_closed() {
        let next = victim.app.next_wake().expect("it waits for the end");
        victim.now = next.max(victim.now);
        victim.app.poll(victim.now, &mut victim.line);
    }
}

#[test]
fn what_is_no_list_is_no_answer() {
    for (message, fine) in [
        (Message::Shares(Vec::new()), true),
        (Message::Probe { millis: 1, bps: 1 }, false),
        (Message::WantShares, false),
    ] {
        let answer = client::Answer::default();
        let mut victim = Victim::new(client::Probe::shares(&answer, None));
        victim.send(&message);
        let answered = answer.lock().unwrap().take().expect("it is over");
        assert_eq!(
            matches!(answered, Ok(Answered::Shares { server_key: Some(_), ref shares }) if shares.is_empty()),
            fine
        );
        assert!(victim.line.is_closed());
    }
}
