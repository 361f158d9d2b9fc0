//! Verifies the blocks of a large file. They are hashed, known as holes, checked if an earlier run
//! left them, and compared with the sender's if the roots differ. Wrong blocks are requested once
//! more.

use std::{io, ops::Range};

use super::{Receiver, State, WriteJob, commit::Lost, decide::RANGES, reuse::Claims};
use crate::{
    bounds,
    digest::{Leaves, block_count, block_range},
    ranges::RangeSet,
    wire::{BLOCK, Exit, Hash, Message},
};

const NEW_HOLES: &str =
    "has holes that it had not when it was listed: the same command begins it anew";
const NO_HOLES: &str = "has holes, and the file system there cannot make any where something was left: copy it without --shard";

impl Receiver {
    /// Starts a job that hashes the unknown leaves, now that the block is complete.
    pub(super) fn hash_block(&mut self, number: u64, index: u64, size: u64, leaves: Box<Leaves>) {
        match self.part_file(number) {
            Ok(file) => self.pool.push(WriteJob::Block {
                number,
                index,
                size,
                file,
                leaves,
            }),
            Err(e) => self.fail(number, super::files::code_of(&e), &e),
        }
    }

    /// Hashes blocks as they are stored that counted as holes before, some at a time.
    pub(super) fn hash_stored(&mut self) {
        while self.pool.outstanding() < 2 * self.pool.threads()
            && let Some(&number) = self.stored.front()
        {
            let slot = self.table.get_mut(number);
            let next = slot.and_then(|slot| match &mut slot.item.state {
                State::Part(part) => {
                    let index = part.stored.first()?.start;
                    part.stored.remove(index..index + 1);
                    Some((index, slot.range.end - slot.range.start))
                }
                _ => None,
            });
            let Some((index, size)) = next else {
                self.stored.pop_front();
                continue;
            };
            let block = block_range(index, size);
            let leaves = Box::new(Leaves::new(block.end - block.start));
            self.hash_block(number, index, size, leaves);
        }
    }

    pub(super) fn block_done(&mut self, number: u64, index: u64, value: io::Result<Hash>) {
        let value = match value {
            Ok(value) => value,
            Err(e) => return self.fail(number, Exit::of_write(&e), &e),
        };
        if let Some(State::Part(part)) = self.table.get_mut(number).map(|s| &mut s.item.state) {
            part.tree.set(index, value);
            if let Some(journal) = part.journal.filter(|_| !self.dest.rules.pipe) {
                self.journal.block(journal, index, &value);
            }
            self.settle(number);
        }
    }

    /// Blocks of an earlier run were checked.
    pub(super) fn verified(&mut self, number: u64, checked: io::Result<Claims>) {
        let (good, bad) = match checked {
            Ok(checked) => checked,
            Err(e) => return self.fail(number, Exit::of_write(&e), &e),
        };
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let start = slot.range.start;
        let size = slot.range.end - start;
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        for (index, value) in &good {
            let block = block_range(*index, size);
            self.core.tally.resumed += block.end - block.start;
            part.tree.set(*index, *value);
            if let Some(journal) = part.journal {
                self.journal.block(journal, *index, value);
            }
        }
        for index in &bad {
            let block = block_range(*index, size);
            self.request(start + block.start..start + block.end);
        }
        if !bad.is_empty() {
            self.send_wants();
        }
        self.settle(number);
    }

    /// Requested bytes that the sender reports as holes: the part has them already.
    pub(super) fn hole(&mut self, range: &Range<u64>) {
        let mut pieces = Vec::new();
        self.missing.take(range.clone(), &mut pieces);
        for piece in pieces {
            let mut at = piece.start;
            while at < piece.end
                && let Some(number) = self.table.find(at)
            {
                let Some(slot) = self.table.get_mut(number) else {
                    break;
                };
                let start = slot.range.start;
                let end = piece.end.min(slot.range.end);
                let within = at - start..end - start;
                self.core.tally.resumed += end - at;
                at = end;
                if matches!(&slot.item.state, State::Part(part) if !part.cleared) {
                    let (code, why) = if slot.item.stripe.is_some() {
                        (Exit::DestError, NO_HOLES)
                    } else {
                        (Exit::SourceChanged, NEW_HOLES)
                    };
                    self.fail(number, code, &why);
                    continue;
                }
                if let State::Part(part) = &mut slot.item.state {
                    let blocks = part.tree.set_hole(&within);
                    let size = slot.range.end - start;
                    if blocks.is_empty() {
                        self.written(number, &within, &[]);
                    } else {
                        let last = block_range(blocks.end - 1, size).end;
                        self.written(number, &(within.start..blocks.start * BLOCK), &[]);
                        self.written(number, &(last..within.end), &[]);
                    }
                    self.settle(number);
                }
            }
        }
    }

    /// Acts on roots that differ.
    pub(super) fn differs(&mut self, number: u64) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        if slot.item.repaired {
            self.commit(number, true);
            return;
        }
        slot.item.repaired = true;
        slot.item.root = None;
        self.core.progress.retry();
        let size = slot.range.end - slot.range.start;
        if block_count(size) == 1 {
            part.tree.clear(0..1);
            let range = slot.range.clone();
            self.repair(number, vec![range]);
        } else {
            part.compared = Some(0);
            self.core.out.push(&Message::AskBlocks { file: number });
        }
    }

    /// Compares the sender's blocks with ours; after the last, requests the bad ones.
    pub(super) fn compare(&mut self, number: u64, first: u64, values: &[Hash]) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let start = slot.range.start;
        let size = slot.range.end - start;
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        if part.compared != Some(first) {
            return;
        }
        for (index, value) in (first..).zip(values) {
            if part.tree.get(index) == Some(*value) {
                continue;
            }
            match part.bad.last_mut() {
                // Of very many the good ones between them are requested too.
                Some(last) if last.end == index || self.bad >= bounds::RANGES => {
                    last.end = index + 1;
                }
                _ => {
                    part.bad.push(index..index + 1);
                    self.bad += 1;
                }
            }
        }
        let upto = first + values.len() as u64;
        if upto < block_count(size) {
            part.compared = Some(upto);
            return;
        }
        part.compared = None;
        let bad = std::mem::take(&mut part.bad);
        self.bad -= bad.len();
        self.want_blocks(number, bad);
    }

    /// Notes that the disk gave back other content than was written to it. For a large file `lost`
    /// has its blocks of that kind.
    pub(super) fn lost(&mut self, number: u64, lost: Option<Lost>) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let (item, Some((tree, bad))) = (&mut slot.item, lost) else {
            return;
        };
        let State::Part(part) = &mut item.state else {
            return;
        };
        (part.tree, part.lost) = (*tree, true);
        if item.repaired {
            return self.commit(number, true);
        }
        part.compared = None;
        (item.repaired, item.root) = (true, None);
        self.core.progress.retry();
        let bad: RangeSet = bad.into_iter().map(|index| index..index + 1).collect();
        self.want_blocks(number, bad.iter().collect());
    }

    /// Requests blocks once more, and lets those that counted as holes be hashed as stored.
    pub(super) fn want_blocks(&mut self, number: u64, bad: Vec<Range<u64>>) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let start = slot.range.start;
        let size = slot.range.end - start;
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        // The new root counts every block as it is stored.
        part.stored = part.tree.take_holes();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for blocks in bad {
            let bytes = blocks.start * BLOCK..size.min(blocks.end * BLOCK);
            let range = start + bytes.start..start + bytes.end;
            part.stored.remove(blocks.clone());
            part.tree.clear(blocks);
            ranges.push(range);
        }
        if !part.stored.is_empty() {
            self.stored.push_back(number);
        }
        self.repair(number, ranges);
    }

    /// Requests these bytes of a file once more, and then a new root.
    pub(super) fn repair(&mut self, number: u64, ranges: Vec<Range<u64>>) {
        if ranges.is_empty() {
            self.core.out.push(&Message::Repair {
                file: number,
                ranges,
            });
            return;
        }
        for part in ranges.chunks(RANGES) {
            self.core.out.push(&Message::Repair {
                file: number,
                ranges: part.to_vec(),
            });
        }
        for range in ranges {
            self.missing.insert(range);
        }
    }
}
