//! Plays peers that were let in against either role: the drivers of the fuzz targets `receiver`,
//! `sender`, `server` and `lanes`. Bytes choose messages of both directions, content and time. A
//! real end takes them, on a real folder.
//!
//! - Nothing panics, nothing outside the folder changes, and the messages that wait to leave are
//!   bounded.
//!
//! - The owner hears how the transfer ended, and a success means that the files are there.

mod bytes;
mod grants;
mod lanes;
mod reads;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use farhaul_core::{
    protocol::{CloseReason, Event, Session},
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_io::App;
use farhaul_testkit::FakeSession;

use self::bytes::{Bytes, existing, mirror, of_receiver, of_sender};
#[cfg(test)]
pub(crate) use self::lanes::{opened_lane, with_lanes};
pub use self::{grants::fuzz_grants, lanes::fuzz_lanes, reads::fuzz_reads};
use crate::{
    client::{Download, Options, Remote, Upload},
    disk::Disk,
    host::{Simulated, VirtualTime},
    server::{Allow, DiskSpeed, Policy, Probes, Server, Share},
    summary::{Handle, Outcome},
    table::CONTENT,
    wire::{Access, BLOCK, Entry, Hash, Kind, Message, OLDEST, Out, Root, limits::MAX_FRAME},
};

/// Messages of one input.
const STEPS: usize = 200;
/// Limit on bytes that wait to leave when nothing leaves.
const WAITING: usize = 4 << 20;
/// Looks at workers while the peer is silent.
const LOOKS: usize = 500;

/// A client that fetches, and a server that says what it likes.
///
/// # Panics
/// If any of that does not hold.
pub fn fuzz_receiver(data: &[u8], dir: &Path) -> io::Result<()> {
    let ground = Ground::new(dir)?;
    let mut bytes = Bytes(data);
    let flags = bytes.u8();
    let (simulated, time) = in_virtual_time();
    let options = Options {
        server: "peer".into(),
        simulated: Some(simulated),
        sync: false,
        existing: existing(flags),
        checksum: flags & 4 != 0,
        verify_disk: flags & 8 != 0,
        mirror: mirror(bytes.u8()),
        plan: (flags & 16 != 0).then(|| -> crate::client::Plan { Arc::new(|_| {}) }),
        ..Options::default()
    };
    let dry = options.plan.is_some();
    let remote = Remote {
        share: "s".into(),
        path: [&b""[..], b"a", b"d/"][usize::from(flags >> 6) % 3].to_vec(),
    };
    // Into a pipe there is one file, and nothing to change.
    let piped = flags >> 6 == 3 && flags & 32 != 0 && !dry;
    let client = if piped {
        let remote = Remote {
            path: b"a".to_vec(),
            ..remote
        };
        Download::pipe(Box::new(io::sink()), &remote, options)
    } else {
        Download::new(&[remote], &ground.inside, options)
    };
    let client = client.map_err(io::Error::other)?;
    let handle = client.handle();
    let mut talk = Talk::new(client, time);
    talk.send(&Message::Accepted {
        version: OLDEST,
        one_file: flags & 32 != 0,
    });
    let listed = talk.run(&mut bytes);
    let outcome = ended(&handle);
    if outcome.error.is_none() && !dry && flags & 32 == 0 {
        listed.are_there(&ground.inside);
    }
    ground.check()
}

/// A client that delivers, and a server that wants what it likes.
///
/// # Panics
/// If any of that does not hold.
pub fn fuzz_sender(data: &[u8], dir: &Path) -> io::Result<()> {
    let ground = Ground::new(dir)?;
    ground.fill()?;
    let mut bytes = Bytes(data);
    let (simulated, time) = in_virtual_time();
    let (mirrors, flags) = (bytes.u8(), bytes.u8());
    let options = Options {
        server: "peer".into(),
        simulated: Some(simulated),
        mirror: mirror(mirrors),
        plan: (flags & 1 != 0).then(|| -> crate::client::Plan { Arc::new(|_| {}) }),
        ..Options::default()
    };
    let to = |path: &[u8]| Remote {
        share: "s".into(),
        path: path.to_vec(),
    };
    let client = if flags & 6 == 6 && flags & 1 == 0 {
        let input = io::repeat(7).take(u64::from(flags >> 3) << 17);
        Upload::pipe(Box::new(input), 0o644, &to(b"a"), options)
    } else {
        Upload::new(std::slice::from_ref(&ground.inside), &to(b""), options)
    };
    let client = client.map_err(io::Error::other)?;
    let handle = client.handle();
    let mut talk = Talk::new(client, time);
    talk.send(&Message::Accepted {
        version: OLDEST,
        one_file: false,
    });
    talk.run(&mut bytes);
    ended(&handle);
    ground.check()
}

/// A server with a share of each kind, and a client that asks for what it likes.
///
/// # Panics
/// If any of that does not hold.
pub fn fuzz_server(data: &[u8], dir: &Path) -> io::Result<()> {
    let ground = Ground::new(dir)?;
    ground.fill()?;
    let mut bytes = Bytes(data);
    let mut shares = Vec::new();
    for (name, access) in [
        ("r", Access::Read),
        ("w", Access::Write),
        ("c", Access::Create),
        ("rw", Access::Delete),
    ] {
        let root = ground.inside.join(name);
        fs::create_dir_all(&root)?;
        shares.push(Share::open(name, &root, access).map_err(io::Error::other)?);
    }
    let sentinel = ground.inside.join("r/kept");
    fs::write(&sentinel, "kept")?;
    let (simulated, time) = in_virtual_time();
    let policy = Policy::new(shares, Allow::Any, false).with_probes(probes());
    let server = Server::new(Arc::new(policy), None).simulated(simulated);
    let handle = server.handle();
    let mut talk = Talk::new(server, time);
    let request = match bytes.0.first() {
        Some(255) => bytes.probe(),
        _ => bytes.request(),
    };
    talk.send(&request);
    talk.run(&mut bytes);
    ended(&handle);
    assert_eq!(fs::read(&sentinel)?, b"kept", "a share that is only read");
    assert_eq!(fs::read_dir(ground.inside.join("r"))?.count(), 1);
    ground.check()
}

/// Probes that answer each word with one.
fn probes() -> Probes {
    struct Echo;
    impl Store for Echo {
        fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
            Ok(())
        }

        fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
            Ok(())
        }
    }
    impl App for Echo {
        fn on_event(&mut self, _: Instant, event: Event, session: &mut dyn Session) {
            if event == Event::Readable {
                session.read(&mut Vec::new());
                session.write(&[1]);
            }
        }

        fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
    }
    Probes {
        most: Duration::from_secs(1),
        make: Arc::new(|_| Box::new(Echo)),
        disk: Arc::new(|_, _| Ok(DiskSpeed::default())),
    }
}

fn ended(handle: &Handle) -> Outcome {
    handle
        .outcome()
        .expect("its owner is notified of the result")
}

/// Workers that take turns with the driver, on the system's files: the same input gives the same run.
fn in_virtual_time() -> (Simulated, Arc<VirtualTime>) {
    let time = Arc::new(VirtualTime::default());
    let simulated = Simulated {
        disk: Disk(None),
        time: Arc::clone(&time),
    };
    (simulated, time)
}

/// A folder that an input works in, inside one that nothing may change.
struct Ground<'a> {
    dir: &'a Path,
    inside: std::path::PathBuf,
}

impl<'a> Ground<'a> {
    fn new(dir: &'a Path) -> io::Result<Self> {
        let inside = dir.join("inside");
        match fs::remove_dir_all(&inside) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        fs::create_dir_all(&inside)?;
        fs::write(dir.join("outside"), "mine")?;
        Ok(Self { dir, inside })
    }

    fn fill(&self) -> io::Result<()> {
        let at = |name: &str| self.inside.join(name);
        fs::create_dir_all(at("d/e"))?;
        fs::write(at("empty"), "")?;
        fs::write(at("small"), [1; 100])?;
        fs::write(at("d/e/large"), vec![2; BLOCK_BYTES + 5])?;
        let sparse = fs::File::create(at("d/sparse"))?;
        sparse.set_len(1 << 40)?;
        std::os::unix::fs::symlink("small", at("link"))
    }

    fn check(&self) -> io::Result<()> {
        assert_eq!(fs::read(self.dir.join("outside"))?, b"mine");
        assert_eq!(
            fs::read_dir(self.dir)?.count(),
            2,
            "something outside was made"
        );
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a block fits into memory")]
const BLOCK_BYTES: usize = BLOCK as usize;

/// Files that were listed, and what was reported of their content.
#[derive(Clone, Default)]
struct Listed {
    /// Size, and first byte in the object, by number.
    files: BTreeMap<u64, (u64, u64)>,
    next: u64,
    end: u64,
    /// Number of a file, and how often it was listed, by path.
    names: BTreeMap<Vec<u8>, (u64, usize)>,
    roots: BTreeMap<u64, Vec<Root>>,
}

impl Listed {
    /// `first` as the peer counts; only what continues the list is taken.
    fn add(&mut self, first: u64, entries: &[Entry]) {
        if first != self.next {
            return;
        }
        for entry in entries {
            if entry.kind == Kind::File {
                self.files.insert(self.next, (entry.size, self.end));
            }
            let name = self
                .names
                .entry(entry.path.clone())
                .or_insert((self.next, 0));
            name.1 += 1;
            self.end = self.end.saturating_add(entry.size);
            self.next += 1;
        }
    }

    /// Checks that each file that was listed once has the content whose root was reported.
    fn are_there(&self, inside: &Path) {
        use std::os::unix::ffi::OsStrExt as _;
        for (path, (number, times)) in &self.names {
            let Some((size, _)) = self.files.get(number).filter(|_| *times == 1) else {
                continue;
            };
            let reported = self.roots.get(number).map_or(&[][..], Vec::as_slice);
            let is_sparse = reported.iter().any(|root| root.sparse);
            let there = fs::read(inside.join(std::ffi::OsStr::from_bytes(path)));
            let there = there.expect("a success, and the file is there");
            assert_eq!(there.len() as u64, *size);
            let hash: Hash = blake3::hash(&there).into();
            // A larger file's root is one of blocks.
            let is_plain = (1..=BLOCK).contains(size) && !is_sparse;
            assert!(
                !is_plain || reported.iter().any(|root| root.hash == hash),
                "verified"
            );
        }
    }
}

/// Makes some content of file `number`.
fn content(number: u64, range: std::ops::Range<u64>) -> Vec<u8> {
    range
        .map(|at| (number ^ at >> 10).to_le_bytes()[0])
        .collect()
}

/// A real end, and the driver's.
struct Talk<A> {
    app: A,
    line: FakeSession,
    now: Instant,
    time: Arc<VirtualTime>,
    listed: Listed,
}

impl<A: App> Talk<A> {
    fn new(mut app: A, time: Arc<VirtualTime>) -> Self {
        let mut line = FakeSession {
            peer_app: crate::wire::offer(),
            ..FakeSession::default()
        };
        let peer_key = Some(vec![7]);
        app.on_event(Instant::EPOCH, Event::Connected { peer_key }, &mut line);
        Self {
            app,
            line,
            now: Instant::EPOCH,
            time,
            listed: Listed::default(),
        }
    }

    fn send(&mut self, message: &Message) {
        message.encode(&mut Vec::new(), &mut self.line.arrived);
        self.turn();
    }

    fn turn(&mut self) {
        self.time.set(self.now);
        if !self.line.is_closed() {
            self.app.on_event(self.now, Event::Readable, &mut self.line);
        }
        if !self.line.is_closed() {
            self.app.poll(self.now, &mut self.line);
        }
        let waiting = self.line.written.len();
        assert!(waiting <= WAITING, "{waiting} bytes wait to be said");
    }

    /// Runs until the input or the session ends; returns what was listed.
    fn run(mut self, bytes: &mut Bytes<'_>) -> Listed {
        for _ in 0..STEPS {
            if bytes.0.is_empty() || self.line.is_closed() {
                break;
            }
            self.step(bytes);
        }
        if !self.line.is_closed() {
            self.wait();
        }
        self.end()
    }

    /// Ends the session; returns what was listed.
    fn end(&mut self) -> Listed {
        let reason = match self.line.closed.take() {
            Some((code, text)) => CloseReason::Local { code, text },
            None => CloseReason::TimedOut,
        };
        self.line.closed = Some((0, String::new()));
        self.app
            .on_event(self.now, Event::Closed(reason), &mut self.line);
        std::mem::take(&mut self.listed)
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.u8() % 20 {
            0..3 => self.list(bytes),
            3..5 => self.deliver(bytes),
            5 => {
                let at = bytes.number();
                let content = bytes.take();
                self.place(at, &content);
            }
            6 => self.send_roots(bytes),
            7 => self.send(&Message::End {
                entries: self.listed.next + u64::from(bytes.u8() / 200),
            }),
            8..10 => {
                let message = of_sender(bytes);
                self.send(&message);
            }
            10..13 => {
                let message = of_receiver(bytes);
                self.send(&message);
            }
            13 => self.fill(bytes),
            14 => self.line.written.clear(),
            15 => {
                self.now += Duration::from_millis(bytes.number());
                self.turn();
            }
            16 => self.wait(),
            17 => {
                let message = match bytes.u8() {
                    0..150 => bytes.request(),
                    150..200 => bytes.read(),
                    _ => bytes.probe(),
                };
                self.send(&message);
            }
            18 => {
                let frame = bytes.take();
                let kind = 1 + bytes.u8() % 46;
                if frame.len() < MAX_FRAME {
                    Out(&mut self.line.arrived).prefixed(&[&[kind], &frame[..]].concat());
                }
                self.turn();
            }
            _ => {
                let raw = bytes.take();
                self.line.arrived.extend_from_slice(&raw);
                self.turn();
            }
        }
    }

    fn list(&mut self, bytes: &mut Bytes<'_>) {
        let flags = bytes.u8();
        let first = self.listed.next + u64::from(flags > 240);
        let entries: Vec<_> = (0..=flags % 4).map(|_| bytes.entry()).collect();
        self.listed.add(first, &entries);
        self.send(&Message::Entries { first, entries });
    }

    fn send_roots(&mut self, bytes: &mut Bytes<'_>) {
        let (file, what) = (bytes.number(), bytes.u8());
        let size = self.listed.files.get(&file).map_or(0, |(size, _)| *size);
        let hash = if what < 200 && size <= 2 * BLOCK {
            blake3::hash(&content(file, 0..size)).into()
        } else {
            bytes.hash()
        };
        let root = Root {
            file,
            sparse: what & 3 == 3,
            hash,
        };
        self.listed.roots.entry(file).or_default().push(root);
        self.send(&Message::Roots(vec![root]));
    }

    /// Delivers content as it was listed: a file from a quarter of it on.
    fn deliver(&mut self, bytes: &mut Bytes<'_>) {
        let (file, from) = (bytes.number(), u64::from(bytes.u8() % 4));
        if let Some((size, at)) = self.listed.files.get(&file).copied() {
            let from = size / 4 * from;
            let content = content(file, from..size.min(from + 600_000));
            self.place(at.saturating_add(from), &content);
        }
    }

    fn place(&mut self, offset: u64, content: &[u8]) {
        let Ok(len) = u32::try_from(content.len()) else {
            return;
        };
        if len == 0 || self.app.sink().free < len.into() || offset > 1 << 62 {
            return;
        }
        let extent = Extent {
            object: CONTENT,
            offset,
            len,
            at: 0,
        };
        if let Err(e) = self.app.place(&[extent], content) {
            self.line.close(self.now, 0, &e.0);
        }
        self.turn();
    }

    /// Takes content that the session was asked to send.
    fn fill(&mut self, bytes: &mut Bytes<'_>) {
        let most = bytes.number();
        let Some((object, offset, left)) = self.line.sends.pop_back() else {
            return;
        };
        let len = left.min(most).min(60_000);
        if len < left {
            let rest = (object, offset + len, left - len);
            self.line.sends.push_back(rest);
        }
        let extent = Extent {
            object,
            offset,
            len: u32::try_from(len).unwrap_or_default(),
            at: 0,
        };
        let mut batch = vec![0; extent.len as usize];
        if let Err(e) = self.app.fill(&[extent], &mut batch) {
            self.line.close(self.now, 0, &e.0);
        }
        self.turn();
    }

    /// Workers get time, as long as they are waited for.
    fn wait(&mut self) {
        for _ in 0..LOOKS {
            let Some(next) = self.app.next_wake() else {
                return;
            };
            if self.line.is_closed() {
                return;
            }
            self.now = self.now.max(next);
            self.turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Peer that lists a file, sends it, reports its root, ends, and says that it has heard.
    pub(super) const HONEST: [u8; 16] = [0, 0, 0, 2, 0, 3, 0, 0, 6, 0, 0, 7, 0, 16, 8, 4];

    #[test]
    fn an_honest_peer_is_among_them() {
        let tmp = tempfile::tempdir().unwrap();
        let fetch = [&[0, 0][..], &HONEST].concat();
        fuzz_receiver(&fetch, tmp.path()).unwrap();
        assert_eq!(
            fs::read(tmp.path().join("inside/a")).unwrap(),
            content(0, 0..100)
        );
        let put = [&[0, 0, 3, 9, 0][..], &HONEST].concat();
        fuzz_server(&put, tmp.path()).unwrap();
        assert_eq!(
            fs::read(tmp.path().join("inside/rw/a")).unwrap(),
            content(0, 0..100)
        );
    }

    #[test]
    fn a_peer_whose_lane_carries_all_content_is_among_them() {
        let mut said = vec![3];
        for file in [0, 1] {
            for quarter in 0..4 {
                said.extend([0, 3, file, quarter]);
            }
            said.extend([1, 6, file, 0]);
        }
        // The end, time for what waits on the parallel session and for workers, then the last word.
        said.extend([1, 7, 0, 0, 15, 100, 1, 16, 0, 15, 100, 1, 16, 1, 8, 4]);
        let tmp = tempfile::tempdir().unwrap();
        fuzz_lanes(&said, tmp.path()).unwrap();
        let there = |name: &str| fs::read(tmp.path().join("inside").join(name)).unwrap();
        assert_eq!(there("a"), content(0, 0..2 * BLOCK));
        assert_eq!(there("b"), content(1, 0..BLOCK + 5));
        // The same to a server.
        said[0] = 0;
        fuzz_lanes(&said, tmp.path()).unwrap();
        assert_eq!(there("a"), content(0, 0..2 * BLOCK));
    }

    #[test]
    fn a_file_that_failed_for_no_reason_is_no_success() {
        let tmp = tempfile::tempdir().unwrap();
        let said = [0, 0, 0, 0, 1, 255, 254, 7, 100, 47, 109, 208, 251, 255];
        fuzz_receiver(&said, tmp.path()).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a_client_that_fetches_survives_any_server(data in vec(any::<u8>(), 0..600)) {
            let tmp = tempfile::tempdir().unwrap();
            fuzz_receiver(&data, tmp.path()).unwrap();
        }

        #[test]
        fn a_client_that_delivers_survives_any_server(data in vec(any::<u8>(), 0..600)) {
            let tmp = tempfile::tempdir().unwrap();
            fuzz_sender(&data, tmp.path()).unwrap();
        }

        #[test]
        fn copies_of_several_lanes_survive_any_peer(data in vec(any::<u8>(), 0..600)) {
            let tmp = tempfile::tempdir().unwrap();
            fuzz_lanes(&data, tmp.path()).unwrap();
        }

        #[test]
        fn a_client_that_reads_survives_any_server(data in vec(any::<u8>(), 0..600)) {
            fuzz_reads(&data);
        }

        #[test]
        fn a_server_that_is_read_from_survives_any_client(data in vec(any::<u8>(), 0..600)) {
            let tmp = tempfile::tempdir().unwrap();
            fuzz_server(&[&[255, 12, 0, 0, 0, 0][..], &data].concat(), tmp.path()).unwrap();
        }

        #[test]
        fn a_server_survives_any_client(data in vec(any::<u8>(), 0..600)) {
            let tmp = tempfile::tempdir().unwrap();
            fuzz_server(&data, tmp.path()).unwrap();
        }
    }
}
