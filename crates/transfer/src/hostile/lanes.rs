//! Peers that lie on a further parallel session, or about one.

use farhaul_core::{protocol::CloseReason, store::Store as _};

use super::*;
use crate::{
    bounds,
    brake::Control,
    server::Limits,
    wire::{BLOCK, OLDEST, Token, offer},
};

pub(super) const SIZE: usize = 3 << 20;

/// Session of a peer with `key` whose handshake says that it knows parallel sessions.
pub(super) fn session<A: App>(app: A, key: u8) -> Victim<A> {
    let mut victim = Victim {
        app,
        line: FakeSession {
            peer_app: offer(),
            ..FakeSession::default()
        },
        inbox: Inbox::default(),
        now: Instant::EPOCH,
    };
    let connected = Event::Connected {
        peer_key: Some(vec![key]),
    };
    victim
        .app
        .on_event(Instant::EPOCH, connected, &mut victim.line);
    victim
}

/// A server, and a delivery to it of one large file that was listed.
pub(super) struct Delivery {
    pub(super) policy: Arc<Policy>,
    pub(super) first: Victim<Server>,
    pub(super) handle: Handle,
    pub(super) token: Token,
    pub(super) content: Vec<u8>,
    pub(super) root: tempfile::TempDir,
}

impl Delivery {
    pub(super) fn of(lanes: u32) -> Self {
        Self::limited(lanes, Limits::default())
    }

    /// Makes the scene for a peer that has `limits`.
    fn limited(lanes: u32, limits: Limits) -> Self {
        let root = tempfile::tempdir().unwrap();
        let shares = vec![Share::open("s", root.path(), Access::ReadWrite).unwrap()];
        let policy = Policy::new(shares, Allow::Any, false).limit(vec![7], limits);
        Self::under(Arc::new(policy), root, lanes, Arc::default())
    }

    /// Makes the scene under `policy`, whose share "s" is in `root`, with `control` of the first
    /// session.
    pub(super) fn under(
        policy: Arc<Policy>,
        root: tempfile::TempDir,
        lanes: u32,
        control: Arc<Control>,
    ) -> Self {
        let server = Server::new(Arc::clone(&policy), None).controlled(control);
        let handle = server.handle();
        let mut first = session(server, 7);
        first.send(&Message::request(Direction::Put, "s", ""));
        let content: Vec<u8> = (0..SIZE).map(|i| (i / 999).to_le_bytes()[0]).collect();
        first.send(&Message::Entries {
            first: 0,
            entries: vec![entry(Kind::File, "f", 0o644, SIZE)],
        });
        first.send(&Message::WantLanes {
            lanes,
            chosen: true,
        });
        let token = first.token();
        Self {
            policy,
            first,
            handle,
            token,
            content,
            root,
        }
    }

    /// A session of `key` that says `token`; whether it was taken.
    pub(super) fn join(&self, token: Token, key: u8) -> (Victim<Server>, bool) {
        self.join_with(token, key, Arc::default())
    }

    /// Joins with `control` of the session.
    pub(super) fn join_with(
        &self,
        token: Token,
        key: u8,
        control: Arc<Control>,
    ) -> (Victim<Server>, bool) {
        let server = Server::new(Arc::clone(&self.policy), None).controlled(control);
        let mut lane = session(server, key);
        lane.send(&Message::Join { token });
        let mut joined = None;
        lane.has_said(|m| {
            joined = match m {
                Message::Joined => Some(true),
                Message::Refused { .. } => Some(false),
                _ => joined,
            };
            joined.is_some()
        });
        (lane, joined.expect("it is answered"))
    }

    /// Lists no more, says the root, and ends the session when the file is there.
    pub(super) fn end(&mut self) {
        self.first.send(&Message::Roots(vec![Root {
            file: 0,
            sparse: false,
            hash: blake3::hash(&self.content).into(),
        }]));
        self.first.send(&Message::End { entries: 1 });
        self.first.until_finished();
    }

    pub(super) fn is_there(&self) -> bool {
        fs::read(self.root.path().join("f")).is_ok_and(|there| there == self.content)
    }
}

pub(super) fn place<A: App>(
    victim: &mut Victim<A>,
    offset: u64,
    bytes: &[u8],
) -> Result<(), String> {
    let mut at = 0;
    while at < bytes.len() {
        let len = (bytes.len() - at).min(60_000);
        let extent = Extent {
            object: CONTENT,
            offset: offset + at as u64,
            len: u32::try_from(len).unwrap(),
            at: 0,
        };
        let placed = victim.app.place(&[extent], &bytes[at..at + len]);
        placed.map_err(|e| e.0)?;
        at += len;
    }
    linger(victim);
    Ok(())
}

/// Runs until content that waits for more is handed over.
pub(super) fn linger<A: App>(victim: &mut Victim<A>) {
    for _ in 0..3 {
        victim.now += std::time::Duration::from_millis(30);
        if !victim.line.is_closed() {
            victim.app.poll(victim.now, &mut victim.line);
        }
    }
}

#[test]
fn only_who_was_given_the_token_joins() {
    let delivery = Delivery::of(2);
    assert!(!delivery.join([0; 16], 7).1, "an unknown token");
    assert!(!delivery.join(delivery.token, 8).1, "another key");
    assert!(delivery.join(delivery.token, 7).1);
    // Without the feature it is no message.
    let mut old = session(Server::new(Arc::clone(&delivery.policy), None), 7);
    old.line.peer_app = vec![6, 6, 0];
    let connected = Event::Connected {
        peer_key: Some(vec![7]),
    };
    old.app.on_event(old.now, connected, &mut old.line);
    old.send(&Message::Join {
        token: delivery.token,
    });
    assert!(old.line.is_closed());
}

#[test]
fn a_copy_has_its_lanes_once_however_often_they_are_joined() {
    let mut delivery = Delivery::of(4);
    let mut taken = Vec::new();
    for _ in 0..1_000 {
        let (lane, joined) = delivery.join(delivery.token, 7);
        if joined {
            taken.push(lane);
        }
    }
    assert_eq!(taken.len(), 3);
    // Those that leave make no room.
    taken.clear();
    assert!(!delivery.join(delivery.token, 7).1);
    let content = delivery.content.clone();
    place(&mut delivery.first, 0, &content).unwrap();
    delivery.end();
    assert!(delivery.is_there());
    let over = delivery.handle.outcome();
    assert!(over.is_none(), "the session goes on until it is closed");
}

#[test]
fn a_lane_is_one_of_the_sessions_that_its_peer_may_have() {
    let mut delivery = Delivery::limited(
        4,
        Limits {
            max_sessions: Some(2),
            ..Limits::default()
        },
    );
    let (lane, joined) = delivery.join(delivery.token, 7);
    assert!(joined);
    assert!(!delivery.join(delivery.token, 7).1, "a third session");
    drop(lane);
    let content = delivery.content.clone();
    place(&mut delivery.first, 0, &content).unwrap();
    delivery.end();
    assert!(delivery.is_there(), "the others go on");
}

#[test]
fn content_in_single_bytes_is_bounded_by_their_number() {
    let delivery = Delivery::of(2);
    let (mut lane, _) = delivery.join(delivery.token, 7);
    let most = bounds::GAPS as u64 + 4_096;
    let refused = (0..=most).find(|i| {
        let extent = Extent {
            object: CONTENT,
            offset: i * 2,
            len: 1,
            at: 0,
        };
        lane.app.place(&[extent], &[1]).is_err()
    });
    assert!(refused.is_some(), "{most} and more");
}

#[test]
fn lanes_are_for_copies_that_were_accepted_and_requested_once() {
    let mut delivery = Delivery::of(2);
    delivery.first.send(&Message::WantLanes {
        lanes: 2,
        chosen: true,
    });
    let closed = delivery.first.line.closed.as_ref();
    assert_eq!(closed.map(|(code, _)| *code), Some(20));
    let mut early = session(Server::new(Arc::clone(&delivery.policy), None), 7);
    early.send(&Message::WantLanes {
        lanes: 2,
        chosen: true,
    });
    assert_eq!(early.line.closed.map(|(code, _)| code), Some(20));
    let (mut lane, _) = Delivery::of(2).join([0; 16], 7);
    lane.send(&Message::End { entries: 0 });
    assert!(!delivery.is_there());
}

#[test]
fn content_that_was_never_listed_ends_the_copy() {
    let mut delivery = Delivery::of(2);
    let (mut lane, _) = delivery.join(delivery.token, 7);
    place(&mut lane, SIZE as u64 - 10, &[1; 20]).unwrap();
    delivery.first.send(&Message::Roots(Vec::new()));
    let error = delivery.handle.outcome().unwrap().error.unwrap();
    assert_eq!(error.code, Exit::Protocol, "{error}");
    linger(&mut lane);
    assert!(lane.line.is_closed(), "it ends with its copy");
}

#[test]
fn what_a_lane_repeats_or_adds_changes_nothing() {
    let mut delivery = Delivery::of(3);
    let (mut lane, _) = delivery.join(delivery.token, 7);
    let (mut silent, _) = delivery.join(delivery.token, 7);
    let content = delivery.content.clone();
    let half = SIZE / 2 + 77;
    place(&mut lane, half as u64, &content[half..]).unwrap();
    delivery.first.send(&Message::Roots(Vec::new()));
    // Other bytes for what is here already, from both.
    place(&mut lane, half as u64, &vec![0xee; SIZE - half]).unwrap();
    delivery.first.send(&Message::Roots(Vec::new()));
    place(&mut delivery.first, 0, &content).unwrap();
    delivery.end();
    assert!(delivery.is_there());
    // Nor when the file is over.
    place(&mut lane, 0, &vec![0xee; 100_000]).unwrap();
    linger(&mut delivery.first);
    assert!(delivery.is_there());
    delivery.first.app.on_event(
        delivery.first.now,
        Event::Closed(CloseReason::Peer {
            code: 0,
            text: String::new(),
        }),
        &mut delivery.first.line,
    );
    assert_eq!(delivery.handle.outcome().unwrap().error, None);
    linger(&mut silent);
    assert!(silent.line.is_closed(), "one that said nothing ends, too");
}

#[test]
fn content_that_differs_is_not_the_file_whichever_lane_it_came_on() {
    let mut delivery = Delivery::of(2);
    let (mut lane, _) = delivery.join(delivery.token, 7);
    let content = delivery.content.clone();
    place(
        &mut lane,
        BLOCK,
        &vec![0xee; SIZE - usize::try_from(BLOCK).unwrap()],
    )
    .unwrap();
    delivery.first.send(&Message::Roots(Vec::new()));
    place(&mut delivery.first, 0, &content).unwrap();
    delivery.first.send(&Message::Roots(vec![Root {
        file: 0,
        sparse: false,
        hash: blake3::hash(&content).into(),
    }]));
    while !delivery
        .first
        .has_said(|m| matches!(m, Message::AskBlocks { file: 0 }))
    {
        linger(&mut delivery.first);
        std::thread::yield_now();
    }
    assert!(!delivery.is_there());
}

#[test]
fn a_lane_takes_no_more_than_it_has_room_for() {
    let delivery = Delivery::of(2);
    let (mut lane, _) = delivery.join(delivery.token, 7);
    let room = lane.app.sink().free;
    // The first session takes nothing off it meanwhile.
    let mut refused = None;
    for i in 0..2 * room / 60_000 {
        if let Err(why) = place(&mut lane, i * 60_000 % BLOCK, &vec![1; 60_000]) {
            refused = Some(why);
            break;
        }
    }
    let why = refused.expect("there is an end to it");
    assert!(why.contains("room"), "{why}");
}

#[test]
fn confirming_what_was_not_sent_is_bounded() {
    let mut sends = crate::sender::Sends::default();
    sends.expect(0..1 << 40);
    let pieces = |n: u64| {
        (0..1_000)
            .map(|i| (n * 1_000 + i) * 4..(n * 1_000 + i) * 4 + 1)
            .collect()
    };
    let refused = (0..u64::MAX).find(|n| {
        let ranges: Vec<_> = pieces(*n);
        sends.confirm(&ranges).is_err()
    });
    assert!(refused.unwrap() <= bounds::GAPS as u64 / 1_000 + 1);
}

#[test]
fn a_server_that_offers_lanes_unasked_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let from = Remote {
        share: "s".into(),
        path: b"f".to_vec(),
    };
    let options = Options {
        open: Some(Arc::new(|_| panic!("none was asked for"))),
        ..Options::default()
    };
    let client = Download::new(&[from], tmp.path(), options).unwrap();
    let handle = client.handle();
    let mut victim = session(client, 7);
    victim.send(&Message::Accepted {
        version: OLDEST,
        one_file: true,
    });
    victim.send(&Message::Lanes {
        token: [1; 16],
        lanes: 64,
    });
    assert_eq!(
        handle.outcome().unwrap().error.unwrap().code,
        Exit::Protocol
    );
}
