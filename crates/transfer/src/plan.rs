//! Reports what a transfer would do. Both sides process the manifest as in a transfer; the receiver
//! reports what it would do with each entry, and changes nothing. The sender is that of a transfer.

use std::{io, sync::Arc};

use farhaul_core::{protocol::Session, time::Instant};
use rustix::fs::Mode;

use crate::{
    confine::{self, Dir, Tree},
    decide::{Decision, Refusal, Rules, There, admit, decide, named},
    error::TransferError,
    filter::Filter,
    meter::Meter,
    progress::Progress,
    receiver::{Backups, Listed, Look, Paths, Space, Walk},
    requested::Requested,
    role::{Role, RoleCore},
    wire::{
        Action, Entry, Exit, Kind, Message,
        path::{self, Tag},
    },
};

mod deletions;
mod planned;

pub use planned::{ListedStamp, Planned};
pub(crate) use planned::{Sink, arrives, out_of_place, report, report_failure, report_path};

/// The side that would get the files.
pub(crate) struct Planner {
    core: RoleCore,
    /// The destination, if it is there.
    tree: Option<Tree>,
    rename: Option<Vec<u8>>,
    tag: Tag,
    rules: Rules,
    requested: Requested,
    space: Space,
    next: u64,
    listed: Listed,
    backups: Backups,
    /// Files that others may be links to, and those of them that would be made.
    links: Paths,
    made: Paths,
    /// Folders that a copy would not have.
    lost: Paths,
    /// Folders that their owner may not write to at the source.
    closed: Paths,
    /// Selection: excluded entries stay.
    filter: Filter,
    /// Walk that looks for deletions, once all is listed.
    walk: Option<Box<Walk>>,
    /// Found and not sent.
    found: Vec<Vec<u8>>,
    /// Found, and what keeps a copy from deleting it.
    undeletable: Vec<(Exit, String)>,
    /// True while the search for deletions waits for room.
    unheard: bool,
    sink: Option<Sink>,
}

impl Planner {
    /// Examines the destination.
    pub(crate) fn new(
        look: Look,
        tag: Tag,
        rules: Rules,
        requested: Requested,
        progress: Arc<Progress>,
        sink: Option<Sink>,
    ) -> Result<Self, TransferError> {
        let error = |e: rustix::io::Errno| {
            let e = io::Error::from(e);
            TransferError::new(Exit::DestError, format!("destination: {e}"))
                .fix("choose a writable destination")
        };
        look.near.may_be_written().map_err(error)?;
        Ok(Self {
            core: RoleCore::of_receiver(progress, Meter::new()),
            tree: look.dir.map(Tree::new),
            rename: look.rename,
            tag,
            rules,
            requested,
            space: Space::of(&look.near),
            next: 0,
            listed: Listed::new(rules.mirror.delete.is_some(), false),
            backups: Backups::new(rules.mirror.backup, false),
            links: Paths::default(),
            made: Paths::default(),
            lost: Paths::default(),
            closed: Paths::default(),
            filter: Filter::default(),
            walk: None,
            found: Vec::new(),
            undeletable: Vec::new(),
            unheard: false,
            sink,
        })
    }

    /// Sets the filter of a copy that deletes: excluded entries stay.
    pub(crate) fn excluding(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Limits the plan to `room` bytes.
    #[must_use]
    pub(crate) fn with_room(mut self, room: u64) -> Self {
        self.space.limit(room);
        self
    }

    /// Decides on entries as a copy does: on folders, links and empty files when they are listed, on
    /// other files when all of the message are, on hard links at the end.
    fn judge_all(&mut self, entries: &[Entry]) -> Result<Vec<Action>, TransferError> {
        let mut judged = Vec::with_capacity(entries.len());
        for entry in entries {
            let name = named(entry, self.rename.as_deref())?;
            let verdict = match self.admit(&name, entry)? {
                Ok(()) if entry.kind == Kind::HardLink || entry.size > 0 => None,
                admitted => Some(self.judge(&name, entry, admitted)),
            };
            judged.push((name, verdict));
        }
        for (entry, (name, verdict)) in entries.iter().zip(&mut judged) {
            if entry.kind == Kind::File && verdict.is_none() {
                *verdict = Some(self.judge(name, entry, Ok(())));
            }
        }
        let answer = |(entry, (name, verdict)): (&Entry, (Vec<u8>, Option<_>))| {
            let verdict = verdict.unwrap_or_else(|| self.judge(&name, entry, Ok(())));
            self.answer(&name, entry, verdict)
        };
        Ok(entries.iter().zip(judged).map(answer).collect())
    }

    /// Refuses an entry that is not taken, whatever is there.
    fn admit(&mut self, name: &[u8], entry: &Entry) -> Result<Result<(), Refusal>, TransferError> {
        let left_out = self.requested.check(entry)?;
        self.listed.add(name, entry.kind);
        let reserved = self.backups.refuse(name, self.tag, self.rules.strangers);
        let refused = reserved.map(|why| (Exit::DestError, why));
        let refused = refused.or(left_out.map(|why| (Exit::SourceChanged, why)));
        Ok(refused.map_or_else(
            || admit(entry, &self.rules),
            |(code, why)| Err(Refusal::new(code, why)),
        ))
    }

    /// Notes what becomes of the entry, and reports it.
    fn answer(&mut self, name: &[u8], entry: &Entry, verdict: Result<Action, Refusal>) -> Action {
        let (is_file, file) = (matches!(entry.kind, Kind::File | Kind::HardLink), self.next);
        self.next += 1;
        let Refusal { code, why } = match verdict {
            Ok(action) => {
                report(self.sink.as_ref(), action, entry, String::new());
                let there = matches!(action, Action::Compare | Action::Keep);
                self.core.tally.files_skipped += u64::from(there && is_file);
                self.core.log.planned += u64::from(arrives(action, entry));
                return action;
            }
            Err(refusal) => refusal,
        };
        let text = format!("{}: {why}", path::show(name));
        self.core.trouble(file, code, text);
        self.core.tally.files_failed += u64::from(is_file || code != Exit::Ok);
        report(self.sink.as_ref(), Action::Fail, entry, why);
        Action::Fail
    }

    /// Decides on an entry, and notes what that means for others.
    fn judge(
        &mut self,
        name: &[u8],
        entry: &Entry,
        admitted: Result<(), Refusal>,
    ) -> Result<Action, Refusal> {
        let decided = admitted.and_then(|()| self.decide(name, entry));
        if let Ok(decision) = &decided {
            if entry.facts.as_ref().is_some_and(|facts| facts.linked) {
                self.links.add(name);
                if decision.makes() {
                    self.made.add(name);
                }
            }
        } else if entry.kind == Kind::Dir {
            self.lost.add(name);
        }
        let owners = Mode::WUSR | Mode::XUSR;
        if entry.kind == Kind::Dir && !Mode::from_raw_mode(entry.mode.into()).contains(owners) {
            self.closed.add(name);
        }
        decided.map(|decision| decision.action(entry.kind))
    }

    /// Decides on an entry, unless a copy would fail to do so.
    fn decide(&mut self, name: &[u8], entry: &Entry) -> Result<Decision, Refusal> {
        if entry.kind == Kind::HardLink && !self.links.has(&entry.target) {
            return Err(Refusal::of_link_to(&entry.target));
        }
        let (parent, last) = path::split(name);
        let dir = self.dir(parent)?;
        let mut there = There::default();
        if let Some(dir) = &dir {
            there = There::look(dir, last, entry)?;
        }
        if entry.kind == Kind::HardLink && !self.made.has(&entry.target) {
            let (parent, last) = path::split(&entry.target);
            let source = self.dir(parent)?.map(|dir| confine::stat(&dir, last));
            if let Some(source) = source.transpose()?.flatten() {
                there.compare_inode(&source)?;
            }
        }
        let decision = decide(entry, &there, &self.rules)?;
        if !decision.makes() {
            return Ok(decision);
        }
        if entry.kind == Kind::File {
            let held = self.space.reserve(entry.allocated);
            held.map_err(|why| Refusal::new(Exit::NoSpace, why))?;
        }
        if let Some(dir) = &dir {
            confine::may_change(dir, self.closed.has(parent))?;
        }
        if decision == Decision::Replace {
            self.backups.make(name)?;
            if let Some((dir, suffix)) = dir.zip(self.rules.mirror.backup) {
                confine::backup_name(&dir, last, suffix.bytes())?;
            }
            self.core.tally.deleted += u64::from(entry.kind == Kind::Dir);
        }
        if decision == Decision::Wait {
            self.listed.wait(name, None, entry.kind != Kind::Symlink)?;
        }
        Ok(decision)
    }

    /// The folder of that path; none if a copy would make it.
    fn dir(&mut self, rel: &[u8]) -> io::Result<Option<Dir>> {
        let dir = match &mut self.tree {
            Some(tree) => tree.dir(rel),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        match dir {
            Ok(dir) => Ok(Some(dir)),
            Err(e) if is_no_folder(&e) && !self.lost.has(rel) => Ok(None),
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
                let actions = self.judge_all(&entries)?;
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
                self.core.tally.files_failed += u64::from(code != Exit::Ok);
                let text = path::show(&text);
                report_failure(self.sink.as_ref(), code, &text);
                self.core.log.add(code, text);
                Ok(())
            }
            Message::Kept { paths } if !self.core.is_finished() && self.walk.is_none() => {
                self.listed.keep_all(&paths, &self.requested)
            }
            Message::End { entries }
                if entries == self.next && !self.core.is_finished() && self.walk.is_none() =>
            {
                self.end();
                Ok(())
            }
            _ => Err(out_of_place()),
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

/// True if there is no folder, but nothing or something else.
fn is_no_folder(e: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&e.kind()) || confine::met_a_link(e)
}
