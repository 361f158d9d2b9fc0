//! A real end whose peer is the test: it writes frames by hand, as `docs/protocols/transfer.md` has them,
//! and decides when it reads. The stream has the window that haul gives it.

use std::{path::Path, sync::Arc, time::Duration};

use farhaul_core::{
    codec::Reader,
    protocol::{Event, Session as _},
    store::{Extent, StoreError},
    time::Instant,
};
use farhaul_io::App;
use farhaul_testkit::FakeSession;
use farhaul_transfer::{
    client::{Download, Options, Remote},
    server::{Access, Allow, Policy, Server, Share},
};

/// Bytes of the ordered stream that may be unread.
const WINDOW: usize = 4 << 20;
const VERSION: u64 = 6;

fn of_share(root: &Path) -> Server {
    let shares = vec![Share::open("s", root, Access::ReadWrite).unwrap()];
    Server::new(Arc::new(Policy::new(shares, Allow::Any, false)), None)
}

/// A real end, and what the test does to it.
pub(crate) struct Victim {
    app: Box<dyn App>,
    pub(crate) line: FakeSession,
    now: Instant,
    /// Bytes of frames that it was given.
    pub(crate) fed: usize,
    /// True if the peer takes written bytes.
    pub(crate) reads: bool,
}

impl Victim {
    fn new(app: Box<dyn App>) -> Self {
        // The oldest version, without features.
        let line = FakeSession {
            peer_app: vec![6, 6, 0],
            ..FakeSession::default()
        };
        Self::with(app, line)
    }

    fn with(mut app: Box<dyn App>, line: FakeSession) -> Self {
        let mut line = FakeSession {
            swallows: true,
            ..line
        };
        let connected = Event::Connected {
            peer_key: Some(vec![7]),
        };
        app.on_event(Instant::EPOCH, connected, &mut line);
        Self {
            app,
            line,
            now: Instant::EPOCH,
            fed: 0,
            reads: false,
        }
    }

    /// A server of `root` that was asked for `place` in it.
    pub(crate) fn server(root: &Path, get: bool, dry: bool) -> Self {
        Self::asked(root, &request(get, dry))
    }

    /// Makes a server of `root` that was asked with lines that exclude.
    pub(crate) fn filtering(root: &Path, lines: &[u8]) -> Self {
        Self::asked(root, &filtered(true, false, lines))
    }

    fn asked(root: &Path, request: &[u8]) -> Self {
        let mut victim = Self::new(Box::new(of_share(root)));
        assert!(victim.send(request));
        victim
    }

    /// A server of `root` in a session that reads.
    pub(crate) fn reading(root: &Path) -> Self {
        let line = FakeSession {
            peer_app: farhaul_transfer::offer(),
            ..FakeSession::default()
        };
        let mut victim = Self::with(Box::new(of_share(root)), line);
        assert!(victim.send(&Frame::of(34).0));
        victim
    }

    /// A client that fetches the contents of a folder into `to`.
    pub(crate) fn client(to: &Path) -> Self {
        let from = Remote {
            share: "s".into(),
            path: b"".to_vec(),
        };
        let options = Options {
            server: "evil:1".into(),
            sync: false,
            ..Options::default()
        };
        let client = Download::new(&[from], to, options).unwrap();
        let mut victim = Self::new(Box::new(client));
        assert!(victim.send(&Frame::of(2).n(VERSION).byte(0).0));
        victim
    }

    /// Gives it a frame, if the stream's window takes that.
    pub(crate) fn send(&mut self, body: &[u8]) -> bool {
        let room = WINDOW - self.line.arrived.len();
        if self.line.is_closed() || body.len() + 4 > room {
            return false;
        }
        let len = u32::try_from(body.len()).unwrap() | 0x8000_0000;
        self.line.arrived.extend_from_slice(&len.to_be_bytes());
        self.line.arrived.extend_from_slice(body);
        self.fed += 4 + body.len();
        self.app.on_event(self.now, Event::Readable, &mut self.line);
        self.turn();
        true
    }

    /// Gives it content at `offset`.
    pub(crate) fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let extent = Extent {
            object: 1,
            offset,
            len: u32::try_from(bytes.len()).unwrap(),
            at: 0,
        };
        self.fed += bytes.len();
        self.app.place(&[extent], bytes)
    }

    pub(crate) fn turn(&mut self) {
        self.now += Duration::from_millis(1);
        if !self.line.is_closed() {
            self.app.poll(self.now, &mut self.line);
        }
        if self.reads {
            self.line.written.clear();
        }
    }

    /// Runs until the end has nothing to do by itself.
    pub(crate) fn settle(&mut self) {
        while !self.line.is_closed()
            && self
                .app
                .next_wake()
                .is_some_and(|at| at <= self.now + Duration::from_millis(1))
        {
            self.turn();
            std::thread::yield_now();
        }
    }

    /// Takes what it has written, and returns the bodies of the frames of one kind.
    pub(crate) fn received(&mut self, kind: u8) -> Vec<Vec<u8>> {
        let written = std::mem::take(&mut self.line.written);
        let mut r = Reader::new(&written);
        let mut all = Vec::new();
        while !r.is_empty() {
            let frame = r.prefixed().unwrap();
            if frame[0] == kind {
                all.push(frame[1..].to_vec());
            }
        }
        all
    }

    /// Runs until the end has sent something of `kind`.
    pub(crate) fn until(&mut self, kind: u8) -> Vec<Vec<u8>> {
        loop {
            let received = self.received(kind);
            if !received.is_empty() {
                return received;
            }
            assert_eq!(self.line.closed, None);
            self.turn();
            std::thread::yield_now();
        }
    }
}

/// The body of a frame.
pub(crate) struct Frame(pub(crate) Vec<u8>);

impl Frame {
    pub(crate) fn of(kind: u8) -> Self {
        Self(vec![kind])
    }

    pub(crate) fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    pub(crate) fn n(mut self, n: u64) -> Self {
        match n {
            0..0x40 => self.0.push(u8::try_from(n).unwrap()),
            0x40..0x4000 => self.0.extend_from_slice(&(n | 0x4000).to_be_bytes()[6..]),
            0x4000..0x4000_0000 => self
                .0
                .extend_from_slice(&(n | 0x8000_0000).to_be_bytes()[4..]),
            _ => self
                .0
                .extend_from_slice(&(n | 0xc000_0000_0000_0000).to_be_bytes()),
        }
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn prefixed(self, bytes: &[u8]) -> Self {
        self.n(bytes.len() as u64).raw(bytes)
    }

    /// One range.
    pub(crate) fn range(self, from: u64, len: u64) -> Self {
        self.n(1).n(from).n(len)
    }

    /// An entry of `kind` that shares `shared` bytes with the one before.
    pub(crate) fn entry(
        self,
        kind: u8,
        shared: usize,
        rest: &[u8],
        size: u64,
        stored: u64,
    ) -> Self {
        let entry = self
            .byte(kind)
            .n(shared as u64)
            .prefixed(rest)
            .n(0o755)
            .n(0)
            .n(0);
        match kind {
            0 => entry.n(size).n(stored),
            _ => entry,
        }
    }
}

fn request(get: bool, dry: bool) -> Vec<u8> {
    filtered(get, dry, b"")
}

/// A request with lines that exclude.
fn filtered(get: bool, dry: bool, lines: &[u8]) -> Vec<u8> {
    let places = Frame(Vec::new()).prefixed(b"s").prefixed(b"").0;
    let wishes = Frame::of(1)
        .n(VERSION)
        .byte(u8::from(get))
        .raw(&[1; 8])
        .prefixed(&places)
        .prefixed(b"");
    let wishes = wishes.byte(if dry { 2 } else { 0 }).n(0).byte(1);
    let wishes = wishes.prefixed(lines).prefixed(b"");
    // Nothing is preserved or deleted besides.
    wishes.n(0).n((1 << 62) - 1).raw(&[0; 4]).0
}
