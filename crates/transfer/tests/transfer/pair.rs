//! Two applications joined without a network. Content arrives out of order, duplicated, re-read for
//! repairs and in batches that mix files. The ordered stream arrives in odd pieces; nothing is
//! lost.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use farhaul_core::{
    protocol::{CloseReason, Event, Session as _},
    rng::Rng,
    store::{Extent, StoreError},
    time::Instant,
};
use farhaul_io::App;
use farhaul_testkit::FakeSession;
use farhaul_transfer::{
    Outcome,
    client::{Download, Options, Remote, Upload},
    server::{Access, Allow, Policy, Server, Share},
};

/// Sees a segment's offset and bytes.
pub(crate) type Meddle = Box<dyn FnMut(u64, &mut [u8])>;

/// Events that may happen on the way.
pub(crate) struct Way {
    pub rng: Rng,
    /// Longest segment.
    pub segment: u64,
    /// Content bytes after which the process at both ends is killed.
    pub kill_after: u64,
    /// Sees and may change every segment that is delivered.
    pub meddle: Meddle,
    /// Content bytes delivered, duplicates included.
    pub delivered: u64,
    /// Bytes of the ordered stream that may be unread.
    pub window: usize,
    /// The most that waited to leave on the ordered stream.
    pub waited: usize,
}

impl Way {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            segment: 8_900,
            kill_after: u64::MAX,
            meddle: Box::new(|_, _| {}),
            delivered: 0,
            window: 4 << 20,
            waited: 0,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }
}

/// One side.
pub(crate) struct End<'a> {
    app: &'a mut dyn App,
    session: FakeSession,
    /// Segments on their way from here.
    flying: Vec<(u64, Vec<u8>)>,
}

impl<'a> End<'a> {
    fn new(app: &'a mut dyn App) -> Self {
        let mut session = FakeSession {
            lingers: true,
            peer_app: farhaul_transfer::offer(),
            ..FakeSession::default()
        };
        session.events.push_back(Event::Connected {
            peer_key: Some(vec![7]),
        });
        Self {
            app,
            session,
            flying: Vec::new(),
        }
    }

    fn turn(&mut self, now: Instant) {
        while let Some(event) = self.session.poll_event() {
            self.app.on_event(now, event, &mut self.session);
        }
        self.app.poll(now, &mut self.session);
    }

    /// Sends a batch of up to 64 segments.
    fn transmit(&mut self, way: &mut Way) -> Result<(), StoreError> {
        let mut extents = Vec::new();
        let mut at = 0;
        while extents.len() < 64
            && let Some((object, offset, len)) = self.session.sends.front_mut()
        {
            assert!(*len > 0, "nothing is not sent");
            let n = (*len).min(way.segment);
            at += 30;
            extents.push(Extent {
                object: *object,
                offset: *offset,
                len: u32::try_from(n).unwrap(),
                at,
            });
            at += u32::try_from(n).unwrap();
            (*offset, *len) = (*offset + n, *len - n);
            if *len == 0 {
                self.session.sends.pop_front();
            }
        }
        if extents.is_empty() {
            return Ok(());
        }
        let mut batch = vec![0xee; at as usize + 16];
        self.app.fill(&extents, &mut batch)?;
        self.flying.extend(
            extents
                .iter()
                .map(|e| (e.offset, batch[e.range()].to_vec())),
        );
        // Some are read again, as for a repair, perhaps long after.
        if way.below(4) == 0 {
            let e = extents[usize::try_from(way.below(extents.len() as u64)).unwrap()];
            let mut again = vec![0; e.len as usize];
            self.app.fill(&[Extent { at: 0, ..e }], &mut again)?;
            self.flying.push((e.offset, again));
        }
        Ok(())
    }

    fn receive(&mut self, from: &mut Vec<(u64, Vec<u8>)>, way: &mut Way) -> Result<(), StoreError> {
        if self.app.sink().free < 64 * way.segment {
            // What the disk does not take waits in the socket.
            std::thread::yield_now();
            return Ok(());
        }
        let (mut extents, mut batch) = (Vec::new(), Vec::new());
        let count = way.below(65).min(from.len() as u64);
        // Mostly in order, as networks are, with a third out of it.
        for i in 0..count {
            let pick = if way.below(3) == 0 {
                way.below(from.len() as u64)
            } else {
                i.min(from.len() as u64 - 1)
            };
            let (offset, mut bytes) = from.remove(usize::try_from(pick).unwrap());
            (way.meddle)(offset, &mut bytes);
            way.delivered += bytes.len() as u64;
            batch.extend_from_slice(&[0xdd; 20]);
            let at = u32::try_from(batch.len()).unwrap();
            batch.extend_from_slice(&bytes);
            extents.push(Extent {
                object: 1,
                offset,
                len: u32::try_from(bytes.len()).unwrap(),
                at,
            });
            if way.below(10) == 0 {
                from.push((offset, bytes));
            }
            if from.is_empty() {
                break;
            }
        }
        if extents.is_empty() {
            Ok(())
        } else {
            self.app.place(&extents, &batch)
        }
    }
}

/// Runs one round between two ends.
fn exchange(ends: &mut [End<'_>; 2], now: Instant, way: &mut Way) {
    for i in [0, 1] {
        ends[i].turn(now);
        let sent = ends[i].transmit(way);
        way.waited = way.waited.max(ends[i].session.written.len());
        let (left, right) = ends.split_at_mut(1);
        let (from, to) = if i == 0 {
            (&mut left[0], &mut right[0])
        } else {
            (&mut right[0], &mut left[0])
        };
        let room = way.window - to.session.arrived.len();
        let n = usize::try_from(way.below(200_000)).unwrap();
        let n = n.min(from.session.written.len()).min(room);
        if n > 0 {
            to.session.arrived.extend(from.session.written.drain(..n));
            to.session.events.push_back(Event::Readable);
        }
        let placed = to.receive(&mut from.flying, way);
        for (side, result) in [(&mut *from, sent), (&mut *to, placed)] {
            if let Err(StoreError(text)) = result {
                side.session.closed.get_or_insert((1, text.clone()));
                side.session
                    .events
                    .push_back(Event::Closed(CloseReason::Store(text)));
            }
        }
    }
}

/// Index of the end that has closed the session, if one has.
fn closed(ends: &[End<'_>; 2]) -> Option<usize> {
    ends.iter()
        .position(|e| e.session.closed.is_some() && e.session.written.is_empty())
}

/// Reports to both ends that `i` has closed the session.
fn close(ends: &mut [End<'_>; 2], i: usize, now: Instant) {
    let (code, text) = ends[i].session.closed.clone().unwrap();
    let other = 1 - i;
    if ends[other].session.closed.is_none() {
        settle(&mut ends[other..=other], now);
    }
    ends[i]
        .session
        .events
        .push_back(Event::Closed(CloseReason::Local {
            code,
            text: text.clone(),
        }));
    ends[1 - i]
        .session
        .events
        .push_back(Event::Closed(CloseReason::Peer { code, text }));
    for end in ends {
        end.turn(now);
    }
}

/// Joins two applications until the client closes, one breaks the other, or both are killed.
pub(crate) fn run(client: &mut dyn App, server: &mut dyn App, way: &mut Way) {
    let mut ends = [End::new(client), End::new(server)];
    for round in 0..3_000_000u64 {
        let now = Instant::from_nanos(round * 100_000);
        exchange(&mut ends, now, way);
        if way.delivered >= way.kill_after {
            settle(&mut ends, now);
            return;
        }
        if let Some(i) = closed(&ends) {
            close(&mut ends, i, now);
            return;
        }
        if ends.iter().all(|e| e.flying.is_empty()) {
            std::thread::yield_now();
        }
    }
    panic!("the transfer does not end");
}

/// Runs the same with further parallel sessions, each a pair of its own.
pub(crate) mod run_lanes {
    use std::sync::Mutex;

    use farhaul_transfer::client::Lane;

    use super::*;
    use crate::lanes::Loss;

    /// Parallel sessions that the client has opened.
    pub(crate) type Opened = Arc<Mutex<Vec<Lane>>>;

    /// Keeps the parallel sessions of a copy with these `options` for [`run`].
    pub(crate) fn opener(options: &mut Options) -> Opened {
        let opened = Opened::default();
        let to = Arc::clone(&opened);
        options.open = Some(Arc::new(move |lane| to.lock().unwrap().push(lane)));
        opened
    }

    /// Runs a copy with its parallel sessions to its end; returns the content that was delivered on
    /// each further one.
    pub(crate) fn run(
        client: &mut dyn App,
        server: &mut dyn App,
        opened: &Opened,
        further: &mut dyn FnMut() -> Server,
        lose: Option<Loss>,
        way: &mut Way,
    ) -> Vec<u64> {
        let mut ends = [End::new(client), End::new(server)];
        let mut lanes: Vec<(Lane, Server)> = Vec::new();
        let mut first: u64 = 0;
        while lanes.is_empty() && first < 10_000 && closed(&ends).is_none() {
            exchange(&mut ends, Instant::from_nanos(first * 100_000), way);
            first += 1;
            let opened = std::mem::take(&mut *opened.lock().unwrap());
            lanes = opened.into_iter().map(|lane| (lane, further())).collect();
        }
        let mut carried = vec![0; lanes.len()];
        let mut pairs: Vec<Option<[End<'_>; 2]>> = lanes
            .iter_mut()
            .map(|(lane, server)| Some([End::new(lane), End::new(server)]))
            .collect();
        for round in first..3_000_000 {
            let now = Instant::from_nanos(round * 100_000);
            exchange(&mut ends, now, way);
            for (i, place) in pairs.iter_mut().enumerate() {
                let Some(pair) = place else { continue };
                let before = way.delivered;
                exchange(pair, now, way);
                carried[i] += way.delivered - before;
                if lose.is_some_and(|lose| lose.lane == i && carried[i] >= lose.after) {
                    // Both ends find out by themselves.
                    for end in &mut *pair {
                        let gone = Event::Closed(CloseReason::TimedOut);
                        end.session.events.push_back(gone);
                        end.turn(now);
                    }
                    *place = None;
                } else if let Some(i) = closed(pair) {
                    close(pair, i, now);
                    *place = None;
                }
            }
            if let Some(i) = closed(&ends) {
                close(&mut ends, i, now);
                for pair in pairs.iter_mut().flatten() {
                    exchange(pair, now, way);
                    assert!(closed(pair).is_some(), "a lane outlives its copy");
                }
                return carried;
            }
            if ends.iter().all(|e| e.flying.is_empty()) {
                std::thread::yield_now();
            }
        }
        panic!("the transfer does not end");
    }
}

/// Waits until threads have finished what they have begun before their session ends. So the rest
/// for the next run does not depend on their luck. The program does not wait for them: they hold at
/// most 12 MiB.
fn settle(ends: &mut [End<'_>], mut now: Instant) {
    // Work due later is a deadline, not work.
    let soon = Duration::from_secs(1);
    let works = |e: &End<'_>, now| e.app.next_wake().is_some_and(|at| at < now + soon);
    while ends.iter().any(|e| works(e, now)) {
        now += Duration::from_millis(1);
        for end in &mut *ends {
            end.turn(now);
        }
        std::thread::yield_now();
    }
}

/// A server for `root` as share "s".
pub(crate) fn server(root: &Path, access: Access) -> Server {
    let shares = vec![Share::open("s", root, access).unwrap()];
    let policy = Policy::new(shares, Allow::Any, false).of_one_person();
    Server::new(Arc::new(policy), None)
}

pub(crate) fn remote(path: &str) -> Remote {
    Remote {
        share: "s".into(),
        path: path.into(),
    }
}

pub(crate) fn options() -> Options {
    Options {
        sync: false,
        ..Options::default()
    }
}

/// Sends `sources` to `path` in the share `root`.
pub(crate) fn put(sources: &[PathBuf], root: &Path, path: &str, way: &mut Way) -> Outcome {
    put_by(sources, root, path, options(), way)
}

/// Sends `sources` to `path` in the share `root` with options.
pub(crate) fn put_by(
    sources: &[PathBuf],
    root: &Path,
    path: &str,
    options: Options,
    way: &mut Way,
) -> Outcome {
    let mut client = Upload::new(sources, &remote(path), options).unwrap();
    let handle = client.handle();
    run(&mut client, &mut server(root, Access::ReadWrite), way);
    handle.outcome().expect("the client knows how it ended")
}

/// Fetches `path` of the share `root` to `to`.
pub(crate) fn get(root: &Path, path: &str, to: &Path, way: &mut Way) -> Outcome {
    fetch(&[("s", root)], &[("s", path)], to, options(), way)
        .expect("the client knows how it ended")
}

/// Fetches `places`, each a share and a path, from a server of `shares` to `to`; nothing if it was
/// killed.
pub(crate) fn fetch(
    shares: &[(&str, &Path)],
    places: &[(&str, &str)],
    to: &Path,
    options: Options,
    way: &mut Way,
) -> Option<Outcome> {
    let open = |(name, root): &(&str, &Path)| Share::open(name, root, Access::Read).unwrap();
    let shares = shares.iter().map(open).collect();
    let place = |(share, path): &(&str, &str)| Remote {
        share: (*share).into(),
        path: (*path).into(),
    };
    let from: Vec<Remote> = places.iter().map(place).collect();
    let mut client = Download::new(&from, to, options).unwrap();
    let handle = client.handle();
    let mut server = Server::new(Arc::new(Policy::new(shares, Allow::Any, false)), None);
    run(&mut client, &mut server, way);
    handle.outcome()
}

/// Bytes that differ everywhere.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| rng.next_u64().to_le_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

/// Entries below `dir`: path, kind, mode, mtime, content.
pub(crate) fn tree(dir: &Path) -> Vec<(String, u32, i64, i64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut stack = vec![dir.to_path_buf()];
    while let Some(at) = stack.pop() {
        let mut names: Vec<_> = fs::read_dir(&at)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        names.sort();
        for path in names {
            let meta = path.symlink_metadata().unwrap();
            let content = if meta.is_file() {
                fs::read(&path).unwrap()
            } else if meta.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else {
                stack.push(path.clone());
                Vec::new()
            };
            let name = path
                .strip_prefix(dir)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let (time, nanos) = if meta.is_symlink() {
                (0, 0)
            } else {
                (meta.mtime(), meta.mtime_nsec())
            };
            all.push((name, meta.permissions().mode(), time, nanos, content));
        }
    }
    all.sort();
    all
}

/// A directory with a bit of everything.
pub(crate) fn mixed(dir: &Path) {
    fs::create_dir_all(dir.join("many/deep/er")).unwrap();
    fs::create_dir_all(dir.join("empty")).unwrap();
    for i in 0..300usize {
        fs::write(
            dir.join(format!("many/{i}")),
            noise(i as u64, i * 37 % 5000),
        )
        .unwrap();
    }
    fs::write(dir.join("zero"), "").unwrap();
    fs::write(dir.join("many/deep/block"), noise(1, 1 << 20)).unwrap();
    fs::write(dir.join("many/deep/more"), noise(2, (1 << 20) + 1)).unwrap();
    fs::write(dir.join("many/deep/er/big"), noise(3, 7_654_321)).unwrap();
    std::os::unix::fs::symlink("many/7", dir.join("link")).unwrap();
    fs::set_permissions(dir.join("many/3"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(
        dir.join("many/deep/er/big"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    fs::set_permissions(dir.join("empty"), fs::Permissions::from_mode(0o500)).unwrap();
    let old = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for name in ["many/5", "many/deep/er/big", "zero"] {
        fs::File::options()
            .write(true)
            .open(dir.join(name))
            .unwrap()
            .set_modified(old)
            .unwrap();
    }
}
