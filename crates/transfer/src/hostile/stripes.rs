//! Peers that lie about files which several nodes send.

use farhaul_core::store::Store as _;

use super::{client::deliver, server::fetch, *};
use crate::{client::Upload, state_names::stripes_name, wire::BLOCK};

/// Stripe `index` of two of a file of `blocks` blocks, and its content; the first stripe has two
/// blocks.
fn stripe(path: &str, index: u32, blocks: u64) -> (Entry, Vec<u8>) {
    let size = if index == 0 { 2 } else { blocks - 2 };
    let mut entry = Entry::of(Kind::File, path, size * BLOCK);
    entry = entry.striped(index, u64::from(index) * 2);
    let stripe = entry.stripe.as_mut().unwrap();
    (stripe.file_size, stripe.count) = (blocks * BLOCK, 2);
    let len = usize::try_from(entry.size).unwrap();
    (entry, vec![u8::try_from(index + 1).unwrap(); len])
}

fn put(root: &Path, access: Access, stripe: &(Entry, Vec<u8>)) -> Option<TransferError> {
    let entries = [(stripe.0.clone(), &stripe.1[..])];
    deliver(root, access, "", RequestOptions::default(), &entries).0
}

#[test]
fn a_file_is_there_once_both_of_its_stripes_are() {
    for access in [Access::Write, Access::Create, Access::ReadWrite] {
        let tmp = tempfile::tempdir().unwrap();
        assert_eq!(put(tmp.path(), access, &stripe("f", 1, 5)), None);
        assert!(!tmp.path().join("f").exists());
        assert_eq!(put(tmp.path(), access, &stripe("f", 0, 5)), None);
        let whole = [stripe("f", 0, 5).1, stripe("f", 1, 5).1].concat();
        assert!(fs::read(tmp.path().join("f")).unwrap() == whole);
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 1);
    }
}

#[test]
fn what_has_the_name_under_which_stripes_are_collected_is_not_touched() {
    let tmp = tempfile::tempdir().unwrap();
    let first = stripe("f", 0, 5);
    assert_eq!(put(tmp.path(), Access::ReadWrite, &first), None);
    let mut there = fs::read_dir(tmp.path()).unwrap();
    let collected = there.next().unwrap().unwrap().path();
    let other = tmp.path().join("other");
    for kind in 0..3 {
        fs::remove_file(&collected).unwrap();
        fs::write(&other, "other").unwrap();
        match kind {
            0 => std::os::unix::fs::symlink(&other, &collected).unwrap(),
            1 => fs::hard_link(&other, &collected).unwrap(),
            _ => fs::write(&collected, "other").unwrap(),
        }
        let error = put(tmp.path(), Access::ReadWrite, &first);
        assert_eq!(error.unwrap().code, Exit::DestError, "{kind}");
        assert_eq!(fs::read(&collected).unwrap(), b"other");
        assert_eq!(fs::read(&other).unwrap(), b"other");
        assert!(!tmp.path().join("f").exists());
    }
}

#[test]
fn a_stripe_is_as_long_as_it_says_and_one_of_its_file() {
    let tmp = tempfile::tempdir().unwrap();
    let (entry, content) = stripe("f", 0, 5);
    // The other one under the same name.
    let two = [(entry.clone(), &content[..]), (stripe("f", 1, 5).0, b"")];
    let (error, failures) = deliver(
        tmp.path(),
        Access::ReadWrite,
        "",
        RequestOptions::default(),
        &two,
    );
    assert!(error.is_some());
    assert!(failures[0].contains("by this name"), "{failures:?}");
    // A name for what copies keep for themselves.
    let reserved = String::from_utf8(stripes_name(b"f", [1; 8])).unwrap();
    let error = put(tmp.path(), Access::ReadWrite, &stripe(&reserved, 0, 5));
    assert_eq!(error.unwrap().code, Exit::DestError);
    // Content behind its end.
    let mut victim = server(tmp.path(), crate::wire::offer());
    let entries = vec![stripe("g", 0, 5).0];
    victim.send(&Message::Entries { first: 0, entries });
    let extent = Extent {
        object: CONTENT,
        offset: 2 * BLOCK - 1,
        len: 2,
        at: 0,
    };
    assert!(victim.app.place(&[extent], b"xx").is_err(), "it is longer");
}

/// A server of `root` that a client which declares `offer` asks to take a delivery.
fn server(root: &Path, offer: Vec<u8>) -> Victim<Server> {
    let shares = vec![Share::open("s", root, Access::ReadWrite).unwrap()];
    let server = Server::new(Arc::new(Policy::new(shares, Allow::Any, false)), None);
    let mut victim = Victim::declaring(server, offer);
    victim.send(&Message::request(Direction::Put, "s", ""));
    victim
}

#[test]
fn stripes_that_were_not_agreed_on_end_the_session() {
    let tmp = tempfile::tempdir().unwrap();
    let mut victim = server(tmp.path(), vec![6, 6, 0]);
    assert!(!victim.line.is_closed());
    let entries = vec![stripe("f", 0, 5).0];
    victim.send(&Message::Entries { first: 0, entries });
    let closed = victim.line.closed.as_ref().map(|(code, _)| *code);
    assert_eq!(closed, Some(Exit::Protocol.number().into()));
    // A server has no others that send.
    let home = tmp.path().join("home");
    fs::create_dir(&home).unwrap();
    let (entry, content) = stripe("f", 0, 5);
    let out = fetch(
        &["f"],
        &home,
        Options::default(),
        true,
        &[(entry, &content)],
    );
    assert_eq!(out.error.unwrap().code, Exit::Protocol);
    assert!(!home.join("f").exists());
}

#[test]
fn what_is_not_divided_is_not_put_together() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("f"), "whole").unwrap();
    let to = Remote {
        share: "s".into(),
        path: Vec::new(),
    };
    let client = Upload::new(&[tmp.path().join("f")], &to, Options::default()).unwrap();
    let handle = client.handle();
    let mut victim = Victim::new(client);
    victim.send(&Message::Accepted {
        version: OLDEST,
        one_file: true,
    });
    while !victim.has_said(|m| matches!(m, Message::Entries { .. })) {
        victim.app.poll(victim.now, &mut victim.line);
        std::thread::yield_now();
    }
    victim.send(&Message::Collected {
        file: 0,
        generation: [1; 8],
        whole: true,
    });
    let error = handle.outcome().expect("it knows how it ended").error;
    assert_eq!(error.unwrap().code, Exit::Protocol);
}
