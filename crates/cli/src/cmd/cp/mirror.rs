//! Flags that say how far the destination is made equal to the source, with the names that cp and
//! rsync have for them.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _};

use farhaul_transfer::{Delete, Mirror, Preserve, Suffix, Symlinks};

use crate::exit::Failure;

/// Words that cp(1) takes in place of a suffix.
const CONTROLS: [&str; 8] = [
    "none", "off", "numbered", "t", "existing", "nil", "simple", "never",
];

/// Attribute that is preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Attribute {
    Mode,
    Ownership,
    Timestamps,
    Links,
    Xattr,
    Acl,
    All,
}

/// Treatment of symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Links {
    Keep,
    Follow,
    Skip,
}

/// Flags for what is preserved and deleted.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Mirror")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct Mirroring {
    /// Preserve everything, as --preserve=all
    #[arg(short, long)]
    archive: bool,
    /// Preserve a comma-separated list of ownership, links (hard links), xattr, acl, all [without a
    /// list: ownership]. farhaul always preserves modes and times; -p asks for these, never for owners
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "mode,ownership,timestamps",
        hide_possible_values = true
    )]
    preserve: Vec<Attribute>,
    /// Keep symbolic links as they are, follow them, or skip them. A server's share takes only
    /// links to copied files and folders; other links fail (5)
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_value = "keep",
        default_missing_value = "keep"
    )]
    links: Links,
    /// Copy the targets of symbolic links, as --links=follow
    #[arg(short = 'L', long, overrides_with = "links")]
    copy_links: bool,
    /// Preserve hard links among the copied files
    #[arg(short = 'H', long)]
    hard_links: bool,
    /// Preserve extended attributes: user.*, and as root security.* and trusted.*
    #[arg(short = 'X', long)]
    xattrs: bool,
    /// Preserve access control lists
    #[arg(short = 'A', long)]
    acls: bool,
    /// Preserve owners by number, not by name
    #[arg(long)]
    numeric_ids: bool,
    /// In the copied folders, delete what the source does not have, once all else succeeded;
    /// excluded files stay
    #[arg(long)]
    delete: bool,
    /// Delete nothing if more than N files and folders would go (code 19)
    #[arg(long, value_name = "N")]
    max_delete: Option<u64>,
    /// Delete as --delete does, and excluded files, too
    #[arg(long)]
    delete_excluded: bool,
    /// Keep replaced and deleted files under their names with SUFFIX [default of SUFFIX: ~]
    #[arg(
        short = 'b',
        long,
        value_name = "SUFFIX",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "~"
    )]
    backup: Option<OsString>,
    /// Send changed files whole, not only the blocks that differ
    #[arg(short = 'W', long)]
    whole_file: bool,
}

impl Mirroring {
    pub(super) fn mirror(&self) -> Result<Mirror, Failure> {
        let has = |attribute| {
            self.archive
                || self.preserve.contains(&attribute)
                || self.preserve.contains(&Attribute::All)
        };
        let deletes = self.delete || self.delete_excluded;
        if self.max_delete.is_some() && !deletes {
            return Err(Failure::usage(
                "--max-delete limits what --delete removes: add --delete",
            ));
        }
        Ok(Mirror {
            preserve: Preserve {
                ownership: has(Attribute::Ownership),
                numeric_ids: self.numeric_ids,
                links: self.hard_links || has(Attribute::Links),
                xattrs: self.xattrs || has(Attribute::Xattr),
                acls: self.acls || has(Attribute::Acl),
            },
            delete: deletes.then_some(Delete {
                most: self.max_delete,
                excluded: self.delete_excluded,
            }),
            backup: self.suffix()?,
            whole_file: self.whole_file,
            symlinks: match self.links {
                _ if self.copy_links => Symlinks::Follow,
                Links::Keep => Symlinks::Keep,
                Links::Follow => Symlinks::Follow,
                Links::Skip => Symlinks::Skip,
            },
        })
    }

    fn suffix(&self) -> Result<Option<Suffix>, Failure> {
        let Some(suffix) = &self.backup else {
            return Ok(None);
        };
        if let Some(control) = CONTROLS.iter().find(|control| *suffix == **control) {
            let text = format!("--backup={control}: backups are not numbered");
            return Err(
                Failure::usage(text).fix("write a suffix, as in --backup=.old, or --backup alone")
            );
        }
        let made = Suffix::new(suffix.as_bytes());
        made.map(Some).ok_or_else(|| {
            let text = format!(
                "'{}' cannot end the name of a backup",
                farhaul_core::text::shown(suffix.as_bytes())
            );
            let fix = format!(
                "give 1 to {} bytes without a slash, as in --backup=.old",
                Suffix::MOST
            );
            Failure::usage(text).fix(fix)
        })
    }
}
