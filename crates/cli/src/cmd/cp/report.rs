//! Result of a copy, for people and programs.

use std::sync::Arc;

use serde_json::Value;

use super::shown::Shown;
use crate::{
    app::{
        console::{Console, Level},
        copy::{self, Copied, Request},
    },
    exit::Failure,
    out,
};

/// Result of a copy, and who sees it.
pub(crate) struct Report {
    object: Value,
    /// Nothing where another host has copied, which is shown already.
    copied: Option<Copied>,
    shown: Arc<Shown>,
}

impl Report {
    /// Copies.
    pub(super) fn of(request: Request, shown: Arc<Shown>) -> Result<Self, Failure> {
        let console: Arc<dyn Console> = Arc::<Shown>::clone(&shown);
        let mut copied = copy::copy(request, &console)?;
        let object = copied.object.take();
        Ok(Self {
            object,
            copied: Some(copied),
            shown,
        })
    }

    /// The report of another host.
    pub(super) const fn of_object(object: Value, shown: Arc<Shown>) -> Self {
        Self {
            object,
            copied: None,
            shown,
        }
    }

    /// The object of `--json`; people hear the warnings.
    pub(crate) fn object(self) -> Value {
        if let Some(copied) = &self.copied {
            copy::warn(&copied.summary, &*self.shown);
        }
        self.object
    }

    /// Prints it.
    pub(crate) fn print(self) {
        if self.shown.stream {
            out::summary_line(self.object);
        } else if self.shown.json {
            out::json(&self.object);
        }
        let Some(Copied { summary, lines, .. }) = self.copied else {
            return;
        };
        let details = self.shown.details.then(|| summary.details());
        let lines = lines.iter().map(String::as_str);
        for line in lines.chain(details.as_deref().map(str::trim_end)) {
            self.shown.message(Level::Notice, line);
        }
        copy::warn(&summary, &*self.shown);
    }
}
