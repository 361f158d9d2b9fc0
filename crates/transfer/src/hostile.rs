//! Tests what a malicious peer can do within the protocol. One end is real, the other is messages
//! made by hand; the disk is checked afterwards.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use farhaul_core::{
    protocol::{CloseReason, Event, Session as _},
    store::Extent,
    time::Instant,
};
use farhaul_io::App;
use farhaul_testkit::FakeSession;

use crate::{
    Existing, Exit, Filter, TransferError,
    client::{Download, Options, Remote},
    server::{Allow, Policy, Server, Share},
    summary::{Handle, Outcome},
    table::CONTENT,
    wire::{Access, Direction, Entry, Inbox, Kind, Message, OLDEST, RequestOptions, Root, Token},
};

mod changed;
mod changes;
mod client;
mod derived;
mod idle;
mod joins;
mod known;
mod lanes;
mod mirror;
mod pipe;
mod probe;
mod reads;
mod server;
mod shares;
mod stripes;

/// A real end, and what it has sent.
struct Victim<A> {
    app: A,
    line: FakeSession,
    inbox: Inbox,
    now: Instant,
}

impl<A: App> Victim<A> {
    fn new(app: A) -> Self {
        Self::declaring(app, crate::wire::offer())
    }

    /// Makes a victim whose peer declares this.
    fn declaring(mut app: A, peer_app: Vec<u8>) -> Self {
        let mut line = FakeSession {
            peer_app,
            ..FakeSession::default()
        };
        let peer_key = Some(vec![7]);
        app.on_event(Instant::EPOCH, Event::Connected { peer_key }, &mut line);
        Self {
            app,
            line,
            inbox: Inbox::default(),
            now: Instant::EPOCH,
        }
    }

    fn send(&mut self, message: &Message) {
        message.encode(&mut Vec::new(), &mut self.line.arrived);
        if !self.line.is_closed() {
            self.app.on_event(self.now, Event::Readable, &mut self.line);
            self.app.poll(self.now, &mut self.line);
        }
    }

    /// Says that the source has these.
    fn keep(&mut self, paths: &[&str]) {
        if !paths.is_empty() {
            let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
            self.send(&Message::Kept { paths });
        }
    }

    /// Lists `entries`, with their content where they have some, and ends.
    fn deliver(&mut self, first: u64, entries: &[(Entry, &[u8])]) {
        let listed = entries.iter().map(|(e, _)| e.clone()).collect();
        self.send(&Message::Entries {
            first,
            entries: listed,
        });
        let mut offset = 0;
        for (number, (entry, content)) in (first..).zip(entries) {
            if entry.kind != Kind::File || self.line.is_closed() {
                continue;
            }
            if !content.is_empty() {
                let extent = Extent {
                    object: CONTENT,
                    offset,
                    len: u32::try_from(content.len()).unwrap(),
                    at: 0,
                };
                self.app.place(&[extent], content).unwrap();
            }
            offset += content.len() as u64;
            self.send(&Message::Roots(vec![Root {
                file: number,
                sparse: false,
                hash: blake3::hash(content).into(),
            }]));
        }
        self.send(&Message::End {
            entries: first + entries.len() as u64,
        });
        self.until_finished();
    }

    /// Workers are waited for.
    fn until_finished(&mut self) {
        while !self.line.is_closed() && !self.has_said(|m| matches!(m, Message::Finished { .. })) {
            // Slowly, so that workers do not seem to be stuck.
            self.now += std::time::Duration::from_micros(50);
            self.app.poll(self.now, &mut self.line);
            std::thread::yield_now();
        }
        self.send(&Message::Bye {
            usage: crate::wire::Usage::default(),
            sending: crate::wire::Sending::default(),
        });
    }

    /// Token by which further sessions join a copy that has some.
    fn token(&mut self) -> Token {
        let mut found = None;
        self.has_said(|m| {
            found = m.lanes_token();
            found.is_some()
        });
        found.expect("it has lanes")
    }

    /// True if the next messages up to one of that kind have been sent.
    fn has_said(&mut self, mut wanted: impl FnMut(&Message) -> bool) -> bool {
        self.inbox.tail().append(&mut self.line.written);
        while let Some(message) = self.inbox.next().unwrap() {
            if wanted(&message) {
                return true;
            }
        }
        false
    }
}

fn entry(kind: Kind, path: &str, mode: u16, size: usize) -> Entry {
    Entry {
        mode,
        ..Entry::of(kind, path, size as u64)
    }
}

fn file<'a>(path: &str, mode: u16, content: &'a [u8]) -> (Entry, &'a [u8]) {
    (entry(Kind::File, path, mode, content.len()), content)
}

fn dir(path: &str, mode: u16) -> (Entry, &'static [u8]) {
    (entry(Kind::Dir, path, mode, 0), b"")
}

fn link(path: &str, target: &str) -> (Entry, &'static [u8]) {
    let mut link = entry(Kind::Symlink, path, 0o777, 0);
    link.target = target.into();
    (link, b"")
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
