//! Acts on the answers of workers.

use super::{Receiver, job::WriteDone, staging::Written};
use crate::{pool::Broken, wire::path};

impl Receiver {
    /// Takes what a worker has done, or that it panicked.
    pub(super) fn answered(&mut self, done: Result<WriteDone, Broken>) {
        match done {
            Ok(done) => self.done(done),
            Err(broken) => {
                let slot = broken.task.file.and_then(|n| self.table.get(n));
                let name = slot.map_or_else(String::new, |s| path::show(&s.item.path));
                self.core.fail(broken.error(&name));
            }
        }
    }

    fn done(&mut self, done: WriteDone) {
        match done {
            WriteDone::Small(endings) => {
                for (number, ending) in endings {
                    self.small_done(number, ending);
                }
            }
            WriteDone::Load { load, written } => {
                let bytes = |run: &Written| run.range.end - run.range.start;
                if load.lane.is_some() {
                    self.lane_load_done(load);
                } else {
                    self.drained += written.iter().map(bytes).sum::<u64>();
                    self.staging.recycle(load);
                }
                for run in written {
                    self.run_written(run);
                }
            }
            WriteDone::Block {
                number,
                index,
                value,
            } => self.block_done(number, index, value),
            WriteDone::Verified { number, checked } => self.verified(number, checked),
            WriteDone::Reused {
                number,
                count,
                done,
            } => self.reused(number, count, done),
            WriteDone::Checked { number, root } => self.checked(number, root.ok()),
            WriteDone::Committed {
                number,
                striped,
                ending,
            } => {
                self.completing -= usize::from(striped);
                self.committed(number, ending);
            }
            WriteDone::Twin { number, done } => self.twin_made(number, done),
            WriteDone::Deleted(deleted) => {
                deleted.note(&mut self.core);
                self.finish();
            }
            WriteDone::Finished { problems, synced } => self.finished(problems, synced),
        }
    }
}
