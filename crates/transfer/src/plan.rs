//! Reports what a transfer would do. Both sides process the manifest as in a transfer; the receiver
//! reports what it would do with each entry, and changes nothing.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::Arc,
};

use farhaul_core::{protocol::Session, time::Instant, units::Size};
use rustix::fs::{FileType, Stat};

use crate::{
    bounds::{LARGEST, UNWRITTEN, WINDOW, charge},
    confine::{self, Tree},
    error::TransferError,
    filter::Filter,
    host::Host,
    meter::Meter,
    pool::{self, LOOK_AGAIN},
    progress::Progress,
    receiver::{Listed, Look, Walk},
    requested::Requested,
    role::{Role, RoleCore, State},
    scan::{self, Found, Listing, Problem, Selection, Source},
    sender::Identity,
    wire::{
        Action, Code, Entry, Kind, Message, RequestOptions, Symlinks, limits::TARGET_FRAME, path,
    },
};

mod deletions;
mod planned;

pub use planned::{ListedStamp, Planned};

/// Called with what would be done, entry by entry.
pub(crate) type Sink = Arc<dyn Fn(Planned) + Send + Sync>;

fn report(sink: Option<&Sink>, action: Action, entry: &Entry, why: String) {
    if let Some(sink) = sink
        && !entry.path.is_empty()
    {
        sink(Planned {
            action,
            path: entry.path.clone(),
            bytes: entry.size,
            why,
            stamp: Some(ListedStamp {
                mode: entry.mode,
                modified: (entry.mtime, entry.mtime_nanos),
            }),
        });
    }
}

/// Reports a failure about an entry that is not listed.
fn report_failure(sink: Option<&Sink>, code: Code, text: &str) {
    if let Some(sink) = sink.filter(|_| code != Code::Ok) {
        sink(Planned {
            action: Action::Fail,
            path: Vec::new(),
            bytes: 0,
            why: text.into(),
            stamp: None,
        });
    }
}

fn report_path(sink: Option<&Sink>, action: Action, path: Vec<u8>) {
    if let Some(sink) = sink {
        sink(Planned {
            action,
            path,
            bytes: 0,
            why: String::new(),
            stamp: None,
        });
    }
}

/// The side that has the files.
pub(crate) struct Lister {
    core: RoleCore,
    found: Listing,
    /// Listed, not judged.
    listed: VecDeque<Entry>,
    /// Memory that the listed entries cost, bytes.
    charged: usize,
    /// Number of the first of them.
    first: u64,
    /// Reasons that the entries listed last cannot be done, by number, and the bytes of those
    /// texts.
    troubles: BTreeMap<u64, String>,
    troubled: usize,
    ended: bool,
    sink: Option<Sink>,
}

impl Lister {
    /// Starts to scan sources; some are missing.
    pub(crate) fn new(
        (sources, missing): (Vec<Source>, Vec<Problem>),
        selection: Selection,
        progress: Arc<Progress>,
        sink: Option<Sink>,
        host: &Host,
    ) -> io::Result<Self> {
        let mut lister = Self {
            core: RoleCore::of_sender(Arc::clone(&progress), host.meter()),
            found: scan::start(sources, selection, progress, host)?,
            listed: VecDeque::new(),
            charged: 0,
            first: 0,
            troubles: BTreeMap::new(),
            troubled: 0,
            ended: false,
            sink,
        };
        for problem in &missing {
            lister.note(problem);
        }
        Ok(lister)
    }

    /// A problem found by the scan or before.
    fn note(&mut self, problem: &Problem) {
        self.core.note(problem);
        report_failure(self.sink.as_ref(), problem.code, &problem.text);
    }

    fn list(&mut self) {
        let first = self.first + self.listed.len() as u64;
        let (mut entries, mut paths) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        while bytes < TARGET_FRAME && self.charged < WINDOW - LARGEST {
            match self.found.pop() {
                Some(Found::Entry(scanned)) => {
                    let entry = scanned.entry;
                    bytes += entry.len();
                    self.charged += charge(&entry);
                    self.listed.push_back(entry.clone());
                    entries.push(entry);
                }
                Some(Found::Problem(problem)) => {
                    bytes += problem.text.len();
                    self.note(&problem);
                }
                Some(Found::Excluded(path)) => {
                    bytes += path.len() + 8;
                    paths.push(path);
                }
                Some(Found::Kept(path)) => {
                    bytes += path.len();
                    self.core.out.push(&Message::Kept { paths: vec![path] });
                }
                Some(Found::End(partition)) => self.core.partition = partition,
                Some(Found::Broken(why)) => self.core.fail(pool::internal(scan::DOING, &why)),
                None => break,
            }
        }
        for path in &paths {
            report_path(self.sink.as_ref(), Action::Exclude, path.clone());
        }
        if !paths.is_empty() {
            self.core.out.push(&Message::Excluded { paths });
        }
        if !entries.is_empty() {
            self.core.out.push(&Message::Entries { first, entries });
        }
    }
}

impl Role for Lister {
    fn core(&mut self) -> &mut RoleCore {
        &mut self.core
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Verdicts { first, actions }
                if first == self.first && actions.len() <= self.listed.len() =>
            {
                for action in actions {
                    let why = self.troubles.remove(&self.first).unwrap_or_default();
                    self.troubled -= why.len();
                    if let Some(entry) = self.listed.pop_front() {
                        self.charged -= charge(&entry);
                        self.core.log.planned += u64::from(action.sends());
                        report(self.sink.as_ref(), action, &entry, why);
                    }
                    self.first += 1;
                }
                Ok(())
            }
            Message::Trouble { file, code, text } => {
                let text = path::show(&text);
                let listed = self.first..self.first + self.listed.len() as u64;
                if listed.contains(&file) && self.troubled + text.len() < UNWRITTEN {
                    self.troubled += text.len();
                    let before = self.troubles.insert(file, text.clone());
                    self.troubled -= before.map_or(0, |text| text.len());
                }
                self.core.log.add(code, text);
                Ok(())
            }
            Message::Deletions { paths } if self.ended && !self.core.is_finished() => {
                for path in paths {
                    report_path(self.sink.as_ref(), Action::Delete, path);
                }
                Ok(())
            }
            Message::Finished { tally, .. } if self.ended && !self.core.is_finished() => {
                self.core.note_tally(&tally);
                self.core.state = State::Finished;
                Ok(())
            }
            _ => Err(TransferError::protocol(
                "the peer sent a message that is not allowed in a plan",
            )),
        }
    }

    fn poll(&mut self, _now: Instant, session: &mut dyn Session) {
        while self.charged < WINDOW - LARGEST && self.core.has_room(session) {
            match self.found.refill() {
                Ok(true) => self.list(),
                Ok(false) => break,
                Err(e) => self.core.fail(e),
            }
        }
        let listed = self.found.is_over() && self.core.fault.is_none();
        if listed && self.listed.is_empty() && !self.ended {
            self.ended = true;
            self.core.end_list(self.first);
        }
        self.core.part(session);
        self.core.out.flush(session);
    }

    fn is_waiting(&self) -> bool {
        self.found.is_waiting()
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.is_waiting().then(|| now + LOOK_AGAIN)
    }
}

/// The side that would get the files.
pub(crate) struct Planner {
    core: RoleCore,
    /// The destination, if it is there.
    tree: Option<Tree>,
    rename: Option<Vec<u8>>,
    options: RequestOptions,
    requested: Requested,
    /// Bytes that can be taken.
    free: u64,
    next: u64,
    listed: Listed,
    /// Selection: excluded entries stay.
    filter: Filter,
    /// Walk that looks for deletions, once all is listed.
    walk: Option<Box<Walk>>,
    /// Found and not sent.
    found: Vec<Vec<u8>>,
    /// True while the search for deletions waits for room.
    unheard: bool,
    sink: Option<Sink>,
}

impl Planner {
    /// Examines the destination.
    pub(crate) fn new(
        look: Look,
        (options, filter): (RequestOptions, Filter),
        requested: Requested,
        progress: Arc<Progress>,
        sink: Option<Sink>,
    ) -> Result<Self, TransferError> {
        let error = |e: rustix::io::Errno| {
            let e = io::Error::from(e);
            TransferError::new(Code::DestError, format!("destination: {e}"))
                .fix("choose a writable destination")
        };
        look.near.may_be_written().map_err(error)?;
        // Where it cannot be queried, writing will fail.
        let free = look
            .near
            .statvfs()
            .map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize));
        Ok(Self {
            core: RoleCore::of_receiver(progress, Meter::new()),
            tree: look.dir.map(Tree::new),
            rename: look.rename,
            options,
            requested,
            free,
            next: 0,
            listed: Listed::default(),
            filter,
            walk: None,
            found: Vec::new(),
            unheard: false,
            sink,
        })
    }

    /// Limits the plan to `room` bytes.
    #[must_use]
    pub(crate) fn with_room(mut self, room: u64) -> Self {
        self.free = self.free.min(room);
        self
    }

    fn note_kept(&mut self, paths: &[Vec<u8>]) -> Result<(), TransferError> {
        for path in paths {
            self.requested.check_kept(path)?;
            if self.options.mirror.delete.is_some() {
                self.listed.keep(path);
            }
        }
        Ok(())
    }

    fn judge(&mut self, entry: &Entry) -> Result<Action, TransferError> {
        let left_out = self.requested.check(entry)?;
        let name = match &self.rename {
            None => entry.path.clone(),
            Some(name) if entry.kind == Kind::File && !entry.path.contains(&b'/') => name.clone(),
            Some(_) => {
                return Err(TransferError::protocol(
                    "a single file was announced, a tree was listed",
                ));
            }
        };
        if self.options.mirror.delete.is_some() {
            self.listed.add(&name, entry.kind);
        }
        let looked = match left_out {
            Some(why) => Err((Code::SourceChanged, why.to_owned())),
            None => self.decide_on(&name, entry),
        };
        let (code, why) = match looked {
            Ok(action) => {
                report(self.sink.as_ref(), action, entry, String::new());
                let there = matches!(action, Action::Compare | Action::Keep);
                self.core.tally.files_skipped += u64::from(there && entry.kind == Kind::File);
                self.core.log.planned += u64::from(action.sends());
                return Ok(action);
            }
            Err((code, why)) => (code, why),
        };
        let text = format!("{}: {why}", path::show(&entry.path));
        self.core.trouble(self.next, code, text);
        self.core.tally.files_failed += u64::from(code != Code::Ok);
        report(self.sink.as_ref(), Action::Fail, entry, why);
        Ok(Action::Fail)
    }

    fn decide_on(&mut self, name: &[u8], entry: &Entry) -> Result<Action, (Code, String)> {
        if entry.kind == Kind::Symlink
            && let Some(refusal) = path::link_refusal(&entry.path, &entry.target)
            && !(refusal.leads_out && self.options.mirror.symlinks != Symlinks::Within)
        {
            return Err((path::LinkRefusal::CODE, refusal.of(&entry.target)));
        }
        let there = self
            .stat(name)
            .map_err(|e| (Code::DestError, e.to_string()))?;
        let kind = there.as_ref().map(|s| FileType::from_raw_mode(s.st_mode));
        if let Some(action) = self.of_kind(name, entry, there.as_ref())? {
            return Ok(action);
        }
        if let Some(there) = &there {
            let identity = Identity::of(entry);
            if identity.stays(self.options.existing, there) {
                return Ok(Action::Keep);
            }
            let file = kind == Some(FileType::RegularFile);
            let compares = self.options.checksum || self.options.verify_disk;
            if file && !compares && entry.size > 0 && identity.is_exactly(there) {
                return Ok(Action::Keep);
            }
            if file && identity.may_be(self.options.checksum, there) {
                return Ok(Action::Compare);
            }
            if file && entry.size == 0 && there.st_size == 0 {
                return Ok(Action::Keep);
            }
        }
        if entry.allocated > self.free {
            let (need, free) = (
                Size::from_bytes(entry.allocated),
                Size::from_bytes(self.free),
            );
            return Err((Code::NoSpace, format!("needs {need}, {free} would be free")));
        }
        self.free -= entry.allocated;
        Ok(if there.is_some() {
            Action::Replace
        } else {
            Action::Send
        })
    }

    /// Action for an entry that is no file, or for a file in whose place is something else.
    fn of_kind(
        &mut self,
        name: &[u8],
        entry: &Entry,
        there: Option<&Stat>,
    ) -> Result<Option<Action>, (Code, String)> {
        let is_dir =
            there.is_some_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory);
        let special = there.and_then(confine::is_special);
        let mirrors = self.options.mirror.delete.is_some();
        let other = match entry.kind {
            Kind::Dir if is_dir || name.is_empty() => return Ok(Some(Action::Keep)),
            Kind::Dir if there.is_none() || mirrors && special.is_none() => {
                return Ok(Some(Action::Make));
            }
            Kind::Dir => io::ErrorKind::NotADirectory,
            kind if is_dir && mirrors && self.listed.wait(name.into(), None) => {
                let file = kind == Kind::File;
                return Ok(Some(if file { Action::Replace } else { Action::Link }));
            }
            _ if is_dir => io::ErrorKind::IsADirectory,
            _ if let Some(why) = special => return Err((Code::DestError, why.into())),
            Kind::Symlink | Kind::HardLink => {
                let same = there.is_some_and(|there| self.is_link(name, entry, there));
                return Ok(Some(if same { Action::Keep } else { Action::Link }));
            }
            Kind::File => return Ok(None),
        };
        Err((Code::DestError, io::Error::from(other).to_string()))
    }

    /// True if `there` is this link already.
    fn is_link(&mut self, name: &[u8], entry: &Entry, there: &Stat) -> bool {
        if entry.kind == Kind::HardLink {
            let file = |stat: &Stat| (stat.st_dev, stat.st_ino);
            let to = self.stat(&entry.target).ok().flatten();
            return to.as_ref().map(file) == Some(file(there));
        }
        let (parent, name) = path::split(name);
        let dir = self.tree.as_mut().and_then(|tree| tree.dir(parent).ok());
        dir.is_some_and(|dir| dir.readlinkat(name).is_ok_and(|to| to == entry.target))
    }

    fn stat(&mut self, name: &[u8]) -> io::Result<Option<Stat>> {
        let Some(tree) = &mut self.tree else {
            return Ok(None);
        };
        if name.is_empty() {
            return Ok(None);
        }
        let (parent, name) = path::split(name);
        match tree.dir(parent) {
            Ok(dir) => confine::stat(&dir, name),
            // Its folder would be created first, or cannot be, which has been reported.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

impl Role for Planner {
    fn core(&mut self) -> &mut RoleCore {
        &mut self.core
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Entries { first, entries }
                if first == self.next && !self.core.is_finished() && self.walk.is_none() =>
            {
                let mut actions = Vec::with_capacity(entries.len());
                for entry in &entries {
                    actions.push(self.judge(entry)?);
                    self.next += 1;
                }
                self.core.out.push(&Message::Verdicts { first, actions });
                Ok(())
            }
            Message::Excluded { paths } => {
                for path in paths {
                    report_path(self.sink.as_ref(), Action::Exclude, path);
                }
                Ok(())
            }
            Message::Failed { code, text, .. } if !self.core.is_finished() => {
                self.core.tally.files_failed += u64::from(code != Code::Ok);
                let text = path::show(&text);
                report_failure(self.sink.as_ref(), code, &text);
                self.core.log.add(code, text);
                Ok(())
            }
            Message::Kept { paths } if !self.core.is_finished() && self.walk.is_none() => {
                self.note_kept(&paths)
            }
            Message::End { entries }
                if entries == self.next && !self.core.is_finished() && self.walk.is_none() =>
            {
                self.end();
                Ok(())
            }
            _ => Err(TransferError::protocol(
                "the peer sent a message that is not allowed in a plan",
            )),
        }
    }

    fn poll(&mut self, _now: Instant, session: &mut dyn Session) {
        self.core.progress.set(&self.core.tally);
        let room = self.core.has_room(session);
        self.unheard = !room && self.walk.is_some();
        if room {
            self.look_for_deletions();
        }
        self.core.out.flush(session);
    }

    fn is_waiting(&self) -> bool {
        self.walk.is_some() && !self.unheard
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.is_waiting().then_some(now)
    }

    fn takes_more(&self, session: &dyn Session) -> bool {
        self.core.has_room(session)
    }
}
