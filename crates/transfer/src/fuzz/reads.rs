//! Plays a server against a client that reads. Each request has one answer, whatever the server
//! sends.

use std::time::Duration;

use farhaul_core::{
    protocol::{CloseReason, Event, Session as _},
    store::{Extent, Store as _},
    time::Instant,
};
use farhaul_io::App as _;
use farhaul_testkit::FakeSession;

use super::{WAITING, bytes::Bytes};
use crate::{
    client::{Found, Question, Reader, Reads, Remote},
    wire::Message,
};

/// A client that reads, and a server that says what it likes.
///
/// # Panics
/// If anything is left without an answer, or if content is one whose digest is another.
pub fn fuzz_reads(data: &[u8]) {
    let reads = Reads::default();
    let mut app = Reader::new(&reads, None, None);
    let mut line = FakeSession {
        peer_app: crate::wire::offer(),
        ..FakeSession::default()
    };
    let mut now = Instant::EPOCH;
    let peer_key = Some(vec![7]);
    app.on_event(now, Event::Connected { peer_key }, &mut line);
    Message::Reads.encode(&mut Vec::new(), &mut line.arrived);
    let mut bytes = Bytes(data);
    let mut asked = 0;
    while !bytes.0.is_empty() && !line.is_closed() {
        match bytes.u8() % 8 {
            0 | 1 => asked += u32::from(ask(&mut bytes, &reads)),
            2 => reads.release(1 + u32::from(bytes.u8() % 16)),
            3 => now += Duration::from_millis(bytes.number()),
            4 | 5 => place(&mut bytes, &mut app, &mut line, now),
            _ => bytes.read().encode(&mut Vec::new(), &mut line.arrived),
        }
        app.on_event(now, Event::Readable, &mut line);
        app.poll(now, &mut line);
        assert!(line.written.len() <= WAITING, "what waits to be said");
    }
    let reason = match line.closed.take() {
        Some((code, text)) => CloseReason::Local { code, text },
        None => CloseReason::TimedOut,
    };
    app.on_event(now, Event::Closed(reason), &mut line);
    if let Some(e) = app.failure() {
        reads.end(e);
    }
    let mut answered = 0;
    loop {
        let answers = reads.answers(Duration::ZERO, 9);
        if answers.is_empty() {
            break;
        }
        for (_, answer) in answers {
            answered += 1;
            if let Ok(Found::Content(content, _)) = answer {
                assert!(content.iter().all(|b| *b == 7), "what was sent");
            }
        }
    }
    assert!(answered <= asked, "{answered} answers to {asked} requests");
    assert!(reads.ended().is_some());
}

fn ask(bytes: &mut Bytes<'_>, reads: &Reads) -> bool {
    let at = Remote {
        share: "r".into(),
        path: b"a".to_vec(),
    };
    let question = match bytes.u8() % 5 {
        4 => Question::Change(at, bytes.change()),
        0 => Question::List(at),
        1 => Question::Stat(at),
        _ => Question::Read(at, bytes.number(), bytes.number()),
    };
    reads.ask(question).is_ok()
}

/// Places content of equal bytes.
fn place(bytes: &mut Bytes<'_>, app: &mut Reader, line: &mut FakeSession, now: Instant) {
    let (object, offset) = (u32::from(bytes.u8() % 17), bytes.number());
    let content = vec![7; usize::from(bytes.u8())];
    let extent = Extent::new(object, offset, content.len(), 0);
    if let Ok(extent) = extent
        && let Err(e) = app.place(&[extent], &content)
    {
        line.close(now, 0, &e.0);
    }
}
