//! `farhaul clean DIR`: lists or removes what interrupted copies left that will not be continued.

use std::{
    fmt::Write as _,
    io::ErrorKind,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use farhaul_core::{text, units::Size};
use farhaul_transfer::{Leftover, LeftoverState, clean};
use serde_json::{Value, json};

use crate::{
    app::json::put_path,
    exit::{Exit, Failure},
    out, place,
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folders that copies went to, with everything below
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Remove what no running copy uses; without --delete, farhaul only lists
    #[arg(long)]
    delete: bool,
    /// Only list, even with --delete
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long, short = 'J')]
    json: bool,
}

impl Args {
    /// True if the arguments ask to delete; as in rsync, `-n` is stronger.
    const fn deletes(&self) -> bool {
        self.delete && !self.dry_run
    }
}

/// Leftovers that were found.
#[derive(Default)]
struct Found {
    entries: Vec<Value>,
    files: u64,
    bytes: u64,
    in_use: u64,
    failed: u64,
}

/// Lists or removes.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut found = Found::default();
    for folder in &args.folders {
        clean(folder, args.deletes(), &mut |left| {
            found.tell(folder, &left, args.json);
        })
        .map_err(|e| {
            let exit = match e.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Exit::SourceMissing,
                _ => Exit::DestError,
            };
            Failure::new(exit, format!("{}: {e}", place::local(folder)))
                .fix("name a folder into which was copied")
        })?;
    }
    let failed = found.failed;
    let object = found.finish(args);
    if failed == 0 {
        return Ok(());
    }
    let text = format!("{failed} could not be looked at or removed");
    let failure = Failure::new(Exit::DestError, text);
    let failure = failure.fix("see the reason behind each; --delete removes the rest");
    Err(if args.json {
        failure.with_object(object)
    } else {
        failure
    })
}

impl Found {
    fn tell(&mut self, folder: &Path, left: &Leftover, json: bool) {
        let (state, why) = match &left.state {
            LeftoverState::Abandoned => ("abandoned", ""),
            LeftoverState::Removed => ("removed", ""),
            LeftoverState::InUse => ("in_use", ""),
            LeftoverState::Failed(why) => ("failed", why.as_str()),
        };
        match left.state {
            LeftoverState::Abandoned | LeftoverState::Removed => {
                self.files += 1;
                self.bytes += left.bytes;
            }
            LeftoverState::InUse => self.in_use += 1,
            LeftoverState::Failed(_) => self.failed += 1,
        }
        if json {
            let mut entry = json!({ "bytes": left.bytes, "state": state, "why": why });
            put_path(&mut entry, "folder", folder.as_os_str().as_bytes());
            put_path(&mut entry, "path", &left.path);
            self.entries.push(entry);
            return;
        }
        let size = Size::from_bytes(left.bytes).to_string();
        let why = if why.is_empty() {
            String::new()
        } else {
            format!("  ({})", text::plain(why))
        };
        let folder = place::local(folder);
        let path = text::shown(&left.path);
        let word = state.replace('_', " ");
        out::line(format!("{word:<10}{size:>12}  {folder}/{path}{why}"));
    }

    /// Prints what it amounts to; the object, if a failure is to carry it.
    fn finish(self, args: &Args) -> Value {
        let object = json!({
            "schema": "farhaul.clean/1",
            "ok": self.failed == 0,
            "deleted": args.deletes(),
            "files": self.files,
            "bytes": self.bytes,
            "in_use": self.in_use,
            "failed": self.failed,
            "entries": self.entries,
        });
        if args.json {
            if self.failed == 0 {
                out::json(&object);
            }
            return object;
        }
        let noun = if self.files == 1 { "file" } else { "files" };
        let size = Size::from_bytes(self.bytes);
        let verb = if args.deletes() {
            "removed"
        } else {
            "abandoned"
        };
        let mut line = format!("{verb}: {} {noun}, {size}", self.files);
        if self.in_use > 0 {
            let _infallible = write!(line, "; {} in use", self.in_use);
        }
        if self.files > 0 && !args.deletes() {
            line += "; --delete removes them, and those copies begin anew";
        }
        errln!("{line}");
        object
    }
}
