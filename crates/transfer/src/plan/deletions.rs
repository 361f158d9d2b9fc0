//! Reports what a copy would delete, once all is listed, some names at a time.

use super::{Planner, report_path};
use crate::{
    receiver::{Step, Walk, refusal, too_many},
    wire::{Action, Exit, Message, NOT_LISTED, limits::TARGET_FRAME, path},
};

/// Names looked at in one go.
const STEPS: usize = 1000;
/// Failures that are remembered until it is known whether anything would be deleted.
const PROBLEMS: usize = 1000;

impl Planner {
    /// Ends the listing: nothing more is listed.
    pub(super) fn end(&mut self) {
        if let (Some(_), Some(tree)) = (self.rules.mirror.delete, &self.tree) {
            let listed = std::mem::take(&mut self.listed);
            if let Some((code, why)) = refusal(&listed, &self.core.log) {
                self.core.trouble(NOT_LISTED, code, why);
                self.note_unplaced(listed.waiting());
                return self.core.finish();
            }
            let (filter, mirror) = (self.filter.clone(), &self.rules.mirror);
            match Walk::new(tree.root(), listed, mirror, filter, true) {
                Ok(walk) => {
                    self.walk = Some(Box::new(walk));
                    return;
                }
                Err(e) => {
                    self.core
                        .trouble(NOT_LISTED, Exit::of_write(&e), format!("destination: {e}"));
                }
            }
        }
        self.core.finish();
    }

    /// Entries that would not get their names, since folders have them.
    fn note_unplaced<'a>(&mut self, entries: impl Iterator<Item = (&'a [u8], bool)>) {
        for (path, is_file) in entries {
            let name = path::show(path::split(path).1);
            let text = format!("{name}: the folder of this name is not deleted");
            self.core.trouble(NOT_LISTED, Exit::DestError, text);
            self.core.tally.files_failed += u64::from(is_file);
        }
    }

    /// Looks for deletions, some steps at a time: other sessions wait meanwhile.
    pub(super) fn look_for_deletions(&mut self) {
        let Some(mut walk) = self.walk.take() else {
            return;
        };
        let mut bytes = 0;
        for _ in 0..STEPS {
            match walk.step() {
                Step::Nothing => {}
                Step::Gone(path) => {
                    bytes += path.len();
                    report_path(self.sink.as_ref(), Action::Delete, path.clone());
                    self.found.push(path);
                    if bytes > TARGET_FRAME / 2 {
                        break;
                    }
                }
                Step::Failed(path, e) => {
                    let text = format!("{}: cannot be deleted: {e}", path::show(&path));
                    if self.undeletable.len() < PROBLEMS {
                        self.undeletable.push((Exit::of_write(&e), text));
                    }
                }
                Step::End => {
                    self.tell_deletions();
                    self.core.tally.deleted += walk.count();
                    let most = self.rules.mirror.delete.and_then(|delete| delete.most);
                    let most = most.filter(|most| walk.count() > *most);
                    let mut problems = std::mem::take(&mut self.undeletable);
                    problems.extend(walk.stays().map(|why| (Exit::Ok, why)));
                    if let Some(most) = most {
                        problems = vec![(Exit::Limit, too_many(most))];
                    }
                    for (code, why) in problems {
                        self.core.trouble(NOT_LISTED, code, why);
                    }
                    self.note_unplaced(walk.unplaced(most.is_some()));
                    return self.core.finish();
                }
            }
        }
        self.tell_deletions();
        self.walk = Some(walk);
    }

    fn tell_deletions(&mut self) {
        let paths = std::mem::take(&mut self.found);
        if !paths.is_empty() {
            self.core.out.push(&Message::Deletions { paths });
        }
    }
}
