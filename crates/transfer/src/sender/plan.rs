//! Takes what the receiver would do with each listed entry. No content is sent.

use std::collections::BTreeMap;

use super::Sender;
use crate::{
    bounds::UNWRITTEN,
    error::TransferError,
    plan::{Sink, arrives, out_of_place, report, report_path},
    wire::{Action, Exit, Message, path},
};

/// State of a sender whose entries are only judged.
#[derive(Default)]
pub(crate) struct Planning {
    pub(super) sink: Option<Sink>,
    /// Reasons that the entries listed last cannot be done, by number, and the bytes of those
    /// texts.
    troubles: BTreeMap<u64, String>,
    troubled: usize,
}

impl Planning {
    /// Reports to `sink`, if there is one, what would become of each entry.
    pub(crate) fn new(sink: Option<Sink>) -> Self {
        Self {
            sink,
            ..Self::default()
        }
    }
}

impl Sender {
    /// Takes a message of the receiver about what it would do.
    pub(super) fn handle_plan(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Verdicts { first, actions } => self.judged(first, actions),
            Message::Trouble { file, code, text } => {
                self.trouble(file, code, path::show(&text));
                Ok(())
            }
            Message::Deletions { paths } if self.ended => {
                let sink = self.plan.as_ref().and_then(|plan| plan.sink.as_ref());
                for path in paths {
                    report_path(sink, Action::Delete, path);
                }
                Ok(())
            }
            _ => Err(out_of_place()),
        }
    }

    fn judged(&mut self, first: u64, actions: Vec<Action>) -> Result<(), TransferError> {
        let Some(plan) = &mut self.plan else {
            return Err(out_of_place());
        };
        if first != self.table.first() || actions.len() > self.table.len() {
            return Err(out_of_place());
        }
        for (number, action) in (first..).zip(actions) {
            let why = plan.troubles.remove(&number).unwrap_or_default();
            plan.troubled -= why.len();
            if let Some(item) = self.table.pop_if(|_| true) {
                self.unsettled -= u64::from(!item.settled);
                self.core.log.planned += u64::from(arrives(action, &item.entry));
                report(plan.sink.as_ref(), action, &item.entry, why);
            }
        }
        self.decided = self.table.first();
        Ok(())
    }

    fn trouble(&mut self, file: u64, code: Exit, text: String) {
        if let Some(plan) = &mut self.plan
            && self.table.get(file).is_some()
            && plan.troubled + text.len() < UNWRITTEN
        {
            plan.troubled += text.len();
            let before = plan.troubles.insert(file, text.clone());
            plan.troubled -= before.map_or(0, |text| text.len());
        }
        self.core.log.add(code, text);
    }
}
