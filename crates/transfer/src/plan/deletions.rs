//! Reports what a copy would delete, once all is listed, some names at a time.

use super::{Planner, report_path};
use crate::{
    receiver::{Step, Walk, refusal, too_many},
    wire::{Action, Code, Message, NOT_LISTED, limits::TARGET_FRAME, path},
};

/// Names looked at in one go.
const STEPS: usize = 1000;

impl Planner {
    /// Ends the listing: nothing more is listed.
    pub(super) fn end(&mut self) {
        if let (Some(_), Some(tree)) = (self.options.mirror.delete, &self.tree) {
            let listed = std::mem::take(&mut self.listed);
            if let Some((code, why)) = refusal(&listed, &self.core.log) {
                self.core.trouble(NOT_LISTED, code, why);
                return self.core.finish();
            }
            let (filter, mirror) = (self.filter.clone(), &self.options.mirror);
            match Walk::new(tree.root(), listed, mirror, filter, true) {
                Ok(walk) => {
                    self.walk = Some(Box::new(walk));
                    return;
                }
                Err(e) => {
                    self.core
                        .trouble(NOT_LISTED, Code::of_write(&e), format!("destination: {e}"));
                }
            }
        }
        self.core.finish();
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
                    self.core.trouble(NOT_LISTED, Code::of_write(&e), text);
                }
                Step::End => {
                    self.tell_deletions();
                    self.core.tally.deleted = walk.count();
                    let most = self.options.mirror.delete.and_then(|delete| delete.most);
                    if let Some(most) = most.filter(|most| walk.count() > *most) {
                        self.core.trouble(NOT_LISTED, Code::Limit, too_many(most));
                    }
                    if let Some(why) = walk.stays() {
                        self.core.trouble(NOT_LISTED, Code::Ok, why);
                    }
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
