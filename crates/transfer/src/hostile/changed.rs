//! Servers that answer changes that were not asked for, and servers that know no changes.

use super::*;
use crate::{
    client::{Found, Question, Reader, Reads},
    wire::{Change, Features},
};

/// A client that has asked to remove something, from a server with these features.
fn client(features: Vec<u8>) -> (Victim<Reader>, Reads) {
    let reads = Reads::default();
    let mut victim = Victim::declaring(Reader::new(&reads, None, None), features);
    victim.send(&Message::Reads);
    let remote = || Remote {
        share: "s".into(),
        path: b"a".to_vec(),
    };
    reads
        .ask(Question::Change(remote(), Change::Remove))
        .unwrap();
    reads.ask(Question::Stat(remote())).unwrap();
    victim.app.poll(victim.now, &mut victim.line);
    (victim, reads)
}

#[test]
fn a_client_takes_only_answers_to_what_it_asked() {
    let offer = crate::wire::offer;
    let done = |id| Message::Changed { id, more: false };
    let answers = |reads: &Reads| reads.answers(std::time::Duration::ZERO, 9);
    let (mut victim, reads) = client(offer());
    victim.send(&Message::Changed { id: 1, more: true });
    assert!(answers(&reads).is_empty());
    victim.send(&done(1));
    assert_eq!(answers(&reads), [(1, Ok(Found::Changed))]);
    victim.send(&done(1));
    assert!(
        answers(&reads).is_empty() && !victim.line.is_closed(),
        "it is over"
    );
    victim.send(&done(2));
    assert!(victim.line.is_closed(), "that was no change");
    let (mut victim, _reads) = client(offer());
    victim.send(&done(9));
    assert!(victim.line.is_closed(), "never asked");
    let (mut victim, _reads) = client(offer());
    victim.send(&Message::Found {
        id: 1,
        more: false,
        entries: Vec::new(),
    });
    assert!(victim.line.is_closed(), "that was a change");
    // An older server is asked for nothing that it does not know.
    let (mut victim, reads) = client(crate::wire::offer_of(Features::READS));
    let (id, answer) = answers(&reads).remove(0);
    assert_eq!((id, answer.unwrap_err().code), (1, Exit::Version));
    assert!(!victim.line.is_closed());
    assert!(!victim.has_said(|m| matches!(m, Message::Change { .. })));
}
