use super::*;

/// A delivery to the only share.
fn delivery() -> Request {
    Request {
        version: OLDEST,
        direction: Direction::Put,
        tag: [3; 8],
        places: vec![Place {
            share: b"s".to_vec(),
            path: Vec::new(),
        }],
        options: Box::default(),
    }
}

#[test]
fn a_destination_is_waited_for_until_the_last_worker_of_an_ended_session_is_done() {
    let tmp = tempfile::tempdir().unwrap();
    let share = Share::open("s", tmp.path(), Access::Write).unwrap();
    let policy = Arc::new(Policy::new(vec![share], Allow::Any, false));
    let server = || {
        let mut server = Server::new(Arc::clone(&policy), None);
        server.peer = Some(Vec::new());
        server.agreed = Some(Agreed::with(&crate::wire::offer(), "the client"));
        server
    };
    let mut first = server();
    first.answer(delivery());
    let receiver = first.endpoint.role_as::<Receiver>();
    let receiver = receiver.expect("it was not refused");
    // What a stalled worker holds.
    let lock = Arc::clone(receiver.lock());
    drop(first);
    let mut second = server();
    second.answer(delivery());
    assert!(second.waits.is_some() && second.endpoint.role.is_none());
    second.now += LOCK_TIMEOUT / 2;
    second.wait();
    assert!(second.waits.is_some(), "patient for a while");
    drop(lock);
    second.wait();
    assert!(second.waits.is_none());
    assert!(second.endpoint.role_as::<Receiver>().is_some());
}

#[test]
fn a_destination_in_use_is_refused_without_the_process_of_the_server() {
    let tmp = tempfile::tempdir().unwrap();
    let share = Share::open("s", tmp.path(), Access::Write).unwrap();
    let policy = Arc::new(Policy::new(vec![share], Allow::Any, false));
    let server = || {
        let mut server = Server::new(Arc::clone(&policy), None);
        server.peer = Some(Vec::new());
        server.agreed = Some(Agreed::with(&crate::wire::offer(), "the client"));
        server
    };
    let mut first = server();
    first.answer(delivery());
    let mut second = server();
    second.answer(delivery());
    for _ in 0..2 {
        second.now += LOCK_TIMEOUT / 2;
        // The peer of the first goes on sending.
        let (_, holder) = first.holds.as_ref().unwrap();
        holder.heard.store(second.now.as_nanos(), Relaxed);
        second.wait();
    }
    let mut session = farhaul_testkit::FakeSession::default();
    second.out.flush(&mut session);
    let mut inbox = crate::wire::Inbox::default();
    inbox.tail().extend_from_slice(&session.written);
    let Some(Message::Refused { code, text, fix }) = inbox.next().unwrap() else {
        panic!("it was not refused");
    };
    let text = path::show(&text);
    assert_eq!(code, Exit::Locked);
    assert!(
        text.ends_with("another copy of this server, which began 6 s ago"),
        "{text}"
    );
    assert!(path::show(&fix).contains("wait for it"));
}

#[test]
fn a_peer_with_another_key_resumes_only_where_all_are_one_person() {
    let tmp = tempfile::tempdir().unwrap();
    for one_person in [false, true] {
        let share = Share::open("s", tmp.path(), Access::ReadWrite).unwrap();
        let mut policy = Policy::new(vec![share], Allow::Any, false);
        if one_person {
            policy = policy.of_one_person();
        }
        let policy = Arc::new(policy);
        let tag = |key: u8, request: &Request| {
            let mut server = Server::new(Arc::clone(&policy), None);
            server.peer = Some(vec![key; 32]);
            server.own_tag(request)
        };
        let mut other = delivery();
        other.tag = [4; 8];
        assert_eq!(tag(1, &delivery()) == tag(2, &delivery()), one_person);
        assert_ne!(tag(1, &delivery()), tag(1, &other));
    }
}

#[test]
fn what_is_held_of_a_quota_survives_a_reload_that_renames_the_share() {
    const MIB: u64 = 1 << 20;
    let tmp = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let share = |name, path: &std::path::Path| {
        let share = Share::open(name, path, Access::Create).unwrap();
        share.within(8 * MIB).unwrap()
    };
    let policy = |shares| Policy::new(shares, Allow::Any, false);
    let before = policy(vec![share("a", tmp.path()), share("b", other.path())]);
    let mut claim = Claim::new(before.shares()[0].quota().unwrap().clone());
    claim.hold(3 * MIB).unwrap();
    // Its name is another's now.
    let after = policy(vec![share("c", tmp.path()), share("a", other.path())]);
    let after = after.succeeding(&before);
    let room = |i: usize| after.shares()[i].quota().unwrap().room();
    assert_eq!((room(0), room(1)), (5 * MIB, 8 * MIB));
}

#[test]
fn sessions_that_never_turn_again_give_their_places_back_as_often_as_there_are_places() {
    let policy = Policy::new(Vec::new(), Allow::Any, false).each_at_most(2);
    let at = |seconds| Instant::EPOCH + Duration::from_secs(seconds);
    let take = |seconds| policy.session_slot(b"key", at(seconds));
    let fits = |slot: &SessionSlot, seconds| policy.check_place(slot, at(seconds)).is_ok();
    let (first, second) = (take(1).unwrap(), take(1).unwrap());
    let beyond = take(2).unwrap();
    assert!(fits(&first, 2) && !fits(&beyond, 2));
    assert!(take(2).is_err(), "one may be beyond the limit");
    // One lives.
    second.turn(at(100));
    beyond.turn(at(100));
    assert!(fits(&beyond, 100));
    drop(beyond);
    let others = [take(200).unwrap(), take(200).unwrap()];
    assert!(others.iter().all(|slot| fits(slot, 200)));
    // Both hang, too; the threads that hang are bounded.
    assert!(take(300).is_ok_and(|slot| !fits(&slot, 300)));
    drop(first);
    let next = take(300).unwrap();
    assert!(fits(&next, 300));
}

#[test]
fn where_deliveries_go_to_one_path_nothing_else_is_allowed() {
    let tmp = tempfile::tempdir().unwrap();
    let share = Share::open("s", tmp.path(), Access::ReadWrite).unwrap();
    let policy = Policy::new(vec![share], Allow::Any, false).deliveries_to(b"new/".to_vec(), None);
    let policy = Arc::new(policy);
    let allowed = |direction, path: &str| {
        let mut server = Server::new(Arc::clone(&policy), None);
        server.peer = Some(vec![7; 32]);
        let mut request = delivery();
        request.direction = direction;
        request.places[0].path = path.into();
        server.admit(&request.places, request.direction).is_ok()
    };
    for (path, expected) in [
        ("new", true),
        ("new/", true),
        ("new/er/file", true),
        ("", false),
        ("newer", false),
        (".ssh/authorized_keys", false),
        ("new/../.ssh", false),
    ] {
        assert_eq!(allowed(Direction::Put, path), expected, "{path}");
        assert!(!allowed(Direction::Get, path), "{path}");
    }
}

#[test]
fn a_copy_through_ssh_is_the_same_before_and_after_its_folder_exists() {
    let tmp = tempfile::tempdir().unwrap();
    let below = tmp.path().join("new");
    std::fs::create_dir(&below).unwrap();
    let tag = |root: &std::path::Path, path: &str, called: bool| {
        let mut share = Share::open("s", root, Access::ReadWrite).unwrap();
        if called {
            share = share.called(root);
        }
        let policy = Policy::new(vec![share], Allow::Any, false).of_one_person();
        let mut request = delivery();
        request.places[0].path = path.into();
        Server::new(Arc::new(policy), None).own_tag(&request)
    };
    let before = tag(tmp.path(), "new/", true);
    assert_eq!(before, tag(&below, "", true));
    assert_eq!(before, tag(tmp.path(), "new", true));
    assert_ne!(before, tag(tmp.path(), "newer", true));
    assert_ne!(tag(tmp.path(), "new", false), tag(&below, "", false));
}
