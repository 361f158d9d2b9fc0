//! Peers that want more of a probe than they may have.

use std::{
    sync::{Mutex, mpsc::channel},
    time::Duration,
};

use farhaul_core::{
    congestion::Sharing,
    protocol::{CloseReason, Session},
    store::{Store, StoreError},
    units::Rate,
};

use super::*;
use crate::{
    client::{self, Answered},
    server::{DiskSpeed, Limits, Probes, Terms},
};
use rustix::fs::fstat;

const MOST: Duration = Duration::from_secs(5);

/// The server's end of a probe: it takes what comes, and waits for ever.
struct Patient;

impl Store for Patient {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

impl App for Patient {
    fn on_event(&mut self, _: Instant, _: Event, _: &mut dyn Session) {}

    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}

/// A server that allows probes, and what it lent.
struct Lender {
    policy: Arc<Policy>,
    terms: Arc<Mutex<Vec<Terms>>>,
    _root: tempfile::TempDir,
}

impl Lender {
    fn of(policy: impl FnOnce(Policy) -> Policy) -> Self {
        let root = tempfile::tempdir().unwrap();
        let shares = vec![Share::open("s", root.path(), Access::Write).unwrap()];
        let terms = Arc::<Mutex<Vec<Terms>>>::default();
        let lent = Arc::clone(&terms);
        let probes = Probes {
            most: MOST,
            make: Arc::new(move |terms| {
                lent.lock().unwrap().push(terms);
                Box::new(Patient)
            }),
            disk: Arc::new(|folder, most| {
                assert!(fstat(folder).is_ok());
                Ok(DiskSpeed {
                    bytes: most,
                    ..DiskSpeed::default()
                })
            }),
        };
        let base = Policy::new(shares, Allow::Keys(vec![vec![7]]), false);
        Self {
            policy: Arc::new(policy(base.with_probes(probes))),
            terms,
            _root: root,
        }
    }

    fn session(&self) -> Victim<Server> {
        Victim::new(Server::new(Arc::clone(&self.policy), None))
    }
}

impl Victim<Server> {
    /// Asks for a probe; what was answered.
    fn probes(&mut self, millis: u64, fetch: bool) -> Result<(u64, u64), (Exit, String)> {
        self.send(&Message::WantProbe { millis, fetch });
        let mut answer = None;
        self.has_said(|m| {
            match m {
                Message::Probe { millis, bps } => answer = Some(Ok((*millis, *bps))),
                Message::Refused { code, text, .. } => {
                    answer = Some(Err((*code, crate::wire::path::show(text).clone())));
                }
                _ => {}
            }
            answer.is_some()
        });
        answer.expect("it is answered")
    }

    fn offered(&mut self, bytes: u32) -> Result<(), StoreError> {
        let extent = Extent {
            object: CONTENT,
            offset: 0,
            len: bytes,
            at: 0,
        };
        let batch = vec![0; usize::try_from(bytes).unwrap()];
        self.app.place(&[extent], &batch)
    }

    fn until_it_closes(&mut self) -> Duration {
        while !self.line.is_closed() {
            self.now = self
                .app
                .next_wake()
                .expect("it waits for something")
                .max(self.now);
            self.app.poll(self.now, &mut self.line);
        }
        self.now.since(Instant::EPOCH)
    }
}

#[test]
fn a_probe_ends_when_its_time_is_over_whatever_either_end_wants() {
    let lender = Lender::of(|policy| policy);
    for fetch in [false, true] {
        let mut victim = lender.session();
        assert_eq!(victim.probes(1 << 60, fetch), Ok((5_000, 0)));
        assert!(victim.app.probe().is_some());
        let handle = victim.app.handle();
        assert_eq!(victim.until_it_closes(), MOST + Duration::from_secs(10));
        let (code, text) = victim.line.closed.clone().unwrap();
        assert_eq!(code, u32::from(Exit::Limit.number()), "{text}");
        assert!(handle.outcome().is_some_and(|o| o.error.is_some()));
    }
    let terms = lender.terms.lock().unwrap();
    assert!(
        terms
            .iter()
            .all(|t| t.time == MOST && t.rate == Rate::UNLIMITED)
    );
}

#[test]
fn a_probe_keeps_to_the_rates_of_the_server_and_the_peer() {
    let (server, peer) = (Rate::mbit(80), Rate::mbit(8));
    let lender = Lender::of(|policy| {
        let limits = Limits {
            max_rate: Some(peer),
            max_sessions: None,
        };
        let policy = policy.never_above(Some(server)).up_to(Sharing::Low);
        policy.limit(vec![7], limits)
    });
    let mut victim = lender.session();
    assert_eq!(victim.probes(3_000, false), Ok((3_000, peer.bps())));
    assert_eq!(lender.terms.lock().unwrap()[0].sharing, Sharing::Low);
    // Whatever is offered, and however often it is looked at.
    let mut placed = 0;
    while !victim.line.is_closed() {
        let free = u32::try_from(victim.app.sink().free.min(60_000)).unwrap();
        if free > 0 {
            victim.offered(free).unwrap();
            placed += u64::from(free);
        }
        victim.now += Duration::from_millis(5);
        victim.app.poll(victim.now, &mut victim.line);
    }
    // After the burst.
    let all = peer.bytes_in(victim.now.since(Instant::EPOCH)) + (1 << 20);
    assert!(placed <= all && placed > all / 2, "{placed} of {all}");
}

#[test]
fn content_the_wrong_way_is_refused() {
    let lender = Lender::of(|policy| policy);
    let mut sends = lender.session();
    sends.probes(1_000, true).unwrap();
    assert!(sends.offered(1_000).is_err());
    drop(sends);
    let mut receives = lender.session();
    receives.probes(1_000, false).unwrap();
    assert!(receives.app.fill(&[], &mut []).is_err());
    receives.offered(1_000).unwrap();
}

#[test]
fn one_probe_at_a_time_and_it_counts_as_a_session() {
    let lender = Lender::of(|policy| {
        let limits = Limits {
            max_rate: None,
            max_sessions: Some(1),
        };
        policy.limit(vec![7], limits)
    });
    let mut first = lender.session();
    first.probes(1_000, true).unwrap();
    let mut second = lender.session();
    let (code, text) = second.probes(1_000, true).unwrap_err();
    assert!(
        code == Exit::Busy && text.contains("another probe"),
        "{text}"
    );
    // One beyond the limit is let in, and may have no copy.
    drop(second);
    let mut copy = lender.session();
    copy.send(&Message::request(Direction::Put, "s", ""));
    assert!(copy.has_said(|m| matches!(
        m,
        Message::Refused {
            code: Exit::Busy,
            ..
        }
    )));
    drop(copy);
    let reason = CloseReason::Peer {
        code: 0,
        text: "done".into(),
    };
    let handle = first.app.handle();
    let closed = Event::Closed(reason);
    first.app.on_event(first.now, closed, &mut first.line);
    assert!(handle.outcome().is_some_and(|o| o.error.is_none()));
    assert!(lender.session().probes(1_000, false).is_ok());
}

#[test]
fn who_has_no_share_or_no_feature_has_no_probe() {
    let lender = Lender::of(|policy| policy);
    let session = |key: u8, offer: Vec<u8>| {
        let mut victim = lender.session();
        victim.line.peer_app = offer;
        let peer_key = Some(vec![key]);
        let connected = Event::Connected { peer_key };
        victim.app.on_event(victim.now, connected, &mut victim.line);
        victim
    };
    let (code, _) = session(8, crate::wire::offer())
        .probes(1, true)
        .unwrap_err();
    assert_eq!(code, Exit::Auth);
    let mut old = session(7, vec![6, 6, 0]);
    old.send(&Message::WantProbe {
        millis: 1,
        fetch: true,
    });
    assert!(old.line.is_closed());
    // A server that allows none.
    let root = tempfile::tempdir().unwrap();
    let shares = vec![Share::open("s", root.path(), Access::Read).unwrap()];
    let policy = Policy::new(shares, Allow::Any, false);
    let mut off = Victim::new(Server::new(Arc::new(policy), None));
    let (code, text) = off.probes(1, true).unwrap_err();
    assert!(
        code == Exit::Auth && text.contains("allows no probes"),
        "{text}"
    );
    assert!(lender.terms.lock().unwrap().is_empty());
}

#[test]
fn what_is_sent_before_the_answer_ends_the_session() {
    let lender = Lender::of(|policy| policy);
    let mut victim = lender.session();
    let message = Message::WantProbe {
        millis: 1,
        fetch: true,
    };
    message.encode(&mut Vec::new(), &mut victim.line.arrived);
    victim.line.arrived.push(0);
    victim
        .app
        .on_event(victim.now, Event::Readable, &mut victim.line);
    assert!(victim.line.is_closed());
    // Nor is there a second one, or a copy after it.
    let mut twice = lender.session();
    assert!(twice.probes(1, true).is_ok());
    twice.send(&Message::WantProbe {
        millis: 1,
        fetch: true,
    });
    assert_eq!(lender.terms.lock().unwrap().len(), 1);
}

/// A client, and the answer that it got.
fn asking(wanted: Duration) -> (Victim<client::Probe>, client::Answer) {
    let answer = client::Answer::default();
    let app = client::Probe::new(Box::new(Patient), (wanted, false), &answer, None);
    (Victim::new(app), answer)
}

#[test]
fn a_client_begins_only_what_it_was_lent() {
    let second = Duration::from_secs(1);
    let answered = |answer: &client::Answer| answer.lock().unwrap().clone();
    let (mut victim, answer) = asking(second);
    victim.send(&Message::Probe {
        millis: 1_000,
        bps: 9,
    });
    let lent = client::Lent {
        time: second,
        rate: Some(Rate::from_bps(9)),
    };
    assert_eq!(answered(&answer), Some(Ok(Answered::Lent(lent))));
    assert!(!victim.line.is_closed());
    let (mut victim, answer) = asking(second);
    victim.send(&Message::Probe {
        millis: 999,
        bps: 0,
    });
    assert!(answered(&answer).unwrap().is_ok() && victim.line.is_closed());
    // Lies, nonsense, and silence.
    let (mut victim, answer) = asking(second);
    victim.send(&Message::Joined);
    assert_eq!(answered(&answer).unwrap().unwrap_err().code, Exit::Protocol);
    assert!(victim.line.is_closed());
    let (mut victim, answer) = asking(second);
    victim.line.arrived.extend_from_slice(&[1, 0xff]);
    victim
        .app
        .on_event(victim.now, Event::Readable, &mut victim.line);
    assert_eq!(answered(&answer).unwrap().unwrap_err().code, Exit::Protocol);
    let (mut victim, answer) = asking(second);
    assert!(victim.app.place(&[], &[]).is_err());
    victim.now = victim.app.next_wake().expect("it does not wait for ever");
    victim.app.poll(victim.now, &mut victim.line);
    assert_eq!(
        answered(&answer).unwrap().unwrap_err().code,
        Exit::ConnectionLost
    );
    assert!(victim.line.is_closed());
}

#[test]
fn what_a_server_offers_is_known_before_it_is_asked() {
    assert_eq!(client::offers_probes(&crate::wire::offer()), Ok(()));
    for (declared, has) in [
        (&b""[..], "no features"),
        (&[6, 6, 0], "no features"),
        (&[6, 6, 3], "features: pipes, lanes"),
    ] {
        let e = client::offers_probes(declared).unwrap_err();
        assert!(e.code == Exit::Version && e.text.contains(has), "{e}");
    }
}

impl Lender {
    /// Answer to a peer that asks for the speed of a disk.
    fn disk(&self, share: &str) -> Result<u64, (Exit, String)> {
        let (wake, woken) = channel();
        let wake = move || wake.send(()).unwrap_or_default();
        let server = Server::new(Arc::clone(&self.policy), Some(Arc::new(wake)));
        let mut victim = Victim::new(server);
        let share = share.into();
        victim.send(&Message::WantDisk { share });
        let mut answer = None;
        loop {
            victim.has_said(|m| {
                match m {
                    Message::Disk { bytes, .. } => answer = Some(Ok(*bytes)),
                    Message::Refused { code, text, .. } => {
                        answer = Some(Err((*code, crate::wire::path::show(text).clone())));
                    }
                    _ => {}
                }
                answer.is_some()
            });
            if let Some(answer) = answer {
                return answer;
            }
            woken.recv().expect("the measurement ends");
            victim.app.poll(victim.now, &mut victim.line);
        }
    }
}

#[test]
fn the_disk_of_a_share_is_measured_for_who_may_write_there_and_within_its_quota() {
    let root = tempfile::tempdir().unwrap();
    let quota = 5 << 20;
    let share = |name: &str, access| Share::open(name, root.path(), access).unwrap();
    let small = share("small", Access::Create).within(quota).unwrap();
    let shares = vec![
        share("r", Access::Read),
        share("rw", Access::ReadWrite),
        small,
    ];
    let lender = Lender::of(|policy| {
        let mine = Allow::Keys(vec![vec![7]]);
        let probes = policy.probes().cloned().unwrap();
        Policy::new(shares, mine, false).with_probes(probes)
    });
    assert_eq!(lender.disk("rw"), Ok(256 << 20));
    assert_eq!(
        lender.disk("small"),
        Ok(quota / 10),
        "others deliver meanwhile"
    );
    for name in ["r", "none", ""] {
        let (code, _) = lender.disk(name).unwrap_err();
        assert_eq!(code, Exit::Auth, "{name}");
    }
    let mut probing = lender.session();
    probing.probes(1, true).unwrap();
    let (code, _) = lender.disk("rw").unwrap_err();
    assert_eq!(code, Exit::Busy);
}
