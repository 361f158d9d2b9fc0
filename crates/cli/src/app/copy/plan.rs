//! The plan of a copy: a line per file as it is known, or one object at the end.

use std::sync::{Arc, Mutex, PoisonError};

use farhaul_core::{text, units::Size};
use farhaul_transfer::{Action, Planned, Summary, client::Plan};
use serde_json::{Value, json};

use crate::{
    app::{console::Console, json::put_path},
    when,
};

/// Columns of permissions and time.
const STAMP: usize = 28;

/// Lines of a plan that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printed {
    /// A line for everything that would change or fail.
    Changes,
    /// A line for everything.
    All,
    /// Prints no line.
    Nothing,
    /// Prints no line: one object has it at the end.
    AtTheEnd,
}

/// True if an action changes something at the destination, may, or fails to. A listing is of
/// existing files.
const fn changes(action: Action, listing: bool) -> bool {
    listing || !matches!(action, Action::Keep | Action::Exclude)
}

/// Kind, permissions and time of a listed entry, as `ls -l` writes them, in UTC; blanks where they are unknown.
fn stamp(planned: &Planned) -> String {
    let Some(stamp) = planned.stamp else {
        return " ".repeat(STAMP);
    };
    let kind = match planned.action {
        Action::Make => 'd',
        Action::Link => 'l',
        _ => '-',
    };
    let bits = (0..9).rev().map(|bit| {
        let letter = ['x', 'w', 'r'][bit % 3];
        if stamp.mode >> bit & 1 == 1 {
            letter
        } else {
            '-'
        }
    });
    let permissions: String = bits.collect();
    let time = when::utc_minute(stamp.modified.0);
    format!("{kind}{permissions}  {time}")
}

/// Reports of a dry run.
#[derive(Clone, Debug, Default)]
pub(crate) struct DryRun {
    count: Arc<Mutex<Count>>,
    /// True if the entries at the source matter, not what would be done.
    listing: bool,
    /// True if lines of a listing begin with permissions and time.
    long: bool,
}

#[derive(Debug, Default)]
struct Count {
    files: u64,
    bytes: u64,
    /// Files of which only the content can tell.
    compared: u64,
    entries: Vec<Value>,
}

impl DryRun {
    /// Makes a dry run that shows existing entries.
    pub(crate) fn listing(long: bool) -> Self {
        Self {
            listing: true,
            long,
            ..Self::default()
        }
    }

    /// True of one that shows what there is.
    pub(super) const fn is_list(&self) -> bool {
        self.listing
    }

    /// Receives the plan of the transfer: printed as lines, or collected for the end.
    pub(super) fn sink(&self, how: Printed, console: &Arc<dyn Console>) -> Plan {
        let (dry_run, console) = (self.clone(), Arc::clone(console));
        Arc::new(move |planned| dry_run.report(&planned, how, &*console))
    }

    fn report(&self, planned: &Planned, how: Printed, console: &dyn Console) {
        let json = how == Printed::AtTheEnd;
        // A list reports the entries that were asked for; errors come at its end.
        let told = planned.action == Action::Fail && !json;
        if self.listing && (told || planned.action == Action::Exclude) {
            return;
        }
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if planned.action.sends() {
            count.files += 1;
            count.bytes += planned.bytes;
        }
        count.compared += u64::from(planned.action == Action::Compare);
        let (action, path) = (planned.action.name(), text::shown(&planned.path));
        let size = match planned.action {
            Action::Send | Action::Replace | Action::Compare => {
                Size::from_bytes(planned.bytes).to_string()
            }
            _ => String::new(),
        };
        if json {
            let mut entry = json!({
                "action": action,
                // Of what could not be listed the reason names it.
                "path": Value::Null,
                "bytes": planned.bytes,
                "why": planned.why,
            });
            if !planned.path.is_empty() {
                put_path(&mut entry, "path", &planned.path);
            }
            if let Some(stamp) = planned.stamp.filter(|_| self.listing) {
                entry["mode"] = format!("{:04o}", stamp.mode).into();
                entry["modified"] = when::utc_nanos(stamp.modified).into();
            }
            count.entries.push(entry);
        } else if how == Printed::All
            || how == Printed::Changes && changes(planned.action, self.listing)
        {
            let why = if planned.why.is_empty() {
                String::new()
            } else {
                format!("  ({})", text::plain(&planned.why))
            };
            let (path, why) = if path.is_empty() {
                (text::plain(&planned.why), String::new())
            } else {
                (path, why)
            };
            if self.listing {
                let mark = match planned.action {
                    Action::Make => "/",
                    Action::Link => "@",
                    _ => "",
                };
                let stamp = if self.long {
                    stamp(planned)
                } else {
                    String::new()
                };
                console.line(&format!("{stamp}{size:>12}  {path}{mark}{why}"));
            } else {
                console.line(&format!("{action:8}{size:>12}  {path}{why}"));
            }
        }
    }

    /// One line for people.
    pub(super) fn line(&self, summary: &Summary, to: &str) -> String {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if self.listing {
            let (files, bytes) = (count.files, Size::from_bytes(count.bytes));
            return format!(
                "{files} {}, {bytes}",
                if files == 1 { "file" } else { "files" }
            );
        }
        let mut line = format!(
            "would write {} in {} {} to {to}",
            Size::from_bytes(count.bytes),
            count.files,
            if count.files == 1 { "file" } else { "files" },
        );
        let files = &summary.files;
        for (n, what) in [
            (
                files.skipped.saturating_sub(count.compared),
                "already there",
            ),
            (count.compared, "to be compared by content"),
            (files.deleted, "to be deleted"),
            (files.failed, "would fail"),
        ] {
            if n > 0 {
                line += ", ";
                line += &n.to_string();
                line += " ";
                line += what;
            }
        }
        line
    }

    /// True if nothing was looked at.
    pub(super) fn is_empty(&self, summary: &Summary) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        count.files + summary.files.skipped + summary.files.failed == 0
    }

    /// Adds its members to the summary's object.
    pub(super) fn add_to(&self, object: &mut Value) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if self.listing {
            let totals = json!({ "files": count.files, "bytes": count.bytes });
            let entries = count.entries.iter().map(|entry| {
                let kind = match entry["action"].as_str() {
                    Some("make") => "folder",
                    Some("link") => "link",
                    Some("fail") => "unreadable",
                    _ => "file",
                };
                let mut listed =
                    json!({ "path": entry["path"], "bytes": entry["bytes"], "kind": kind });
                for more in ["path_hex", "why", "mode", "modified"] {
                    if entry[more].as_str().is_some_and(|text| !text.is_empty()) {
                        listed[more] = entry[more].clone();
                    }
                }
                listed
            });
            let entries: Vec<_> = entries.collect();
            object["schema"] = "farhaul.list/1".into();
            object["total"] = totals;
            object["entries"] = entries.into();
            return;
        }
        object["dry_run"] = true.into();
        object["would_send"] = json!({ "files": count.files, "bytes": count.bytes });
        object["plan"] = std::mem::take(&mut count.entries).into();
    }
}
