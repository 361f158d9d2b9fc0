//! Reads the file of `--config`. The file has every flag of `farhaul serve` by its name, as a
//! default that the command line overrides, and tables that no flag is long enough for:
//!
//! ```toml
//! listen = "[::]:17992"
//! max-sessions = 64
//!
//! [[share]]
//! name = "in"
//! path = "/srv/in"
//! mode = "create"
//! allow = ["alice"]
//!
//! [[peer]]
//! name = "alice"
//! key = "fh-pub1..."
//! ```
//!
//! - A flag is checked by its own definition; whatever is wrong has its file and line.

use std::{collections::BTreeMap, fmt::Display, path::Path, str::FromStr};

use clap::FromArgMatches as _;
use farhaul_core::units::{Rate, Size};
use farhaul_haul::PublicKey;
use farhaul_transfer::server::{Access, Limits, Share};

use super::{
    Args,
    share::{self, Peers},
};
use crate::{
    config::{self, Entry, Setting},
    exit::{Exit, Failure},
    line::Line,
    read,
    typed::whole,
};

/// A `[[peer]]`.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) key: PublicKey,
    pub(super) limits: Limits,
}

/// The tables of a file.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) shares: Vec<Share>,
    pub(super) peers: Vec<Peer>,
}

impl Tables {
    /// Names of peers and their keys.
    pub(super) fn known(&self) -> Peers {
        self.peers.iter().map(|p| (p.name.clone(), p.key)).collect()
    }
}

/// The flags of `line`, a command line of `serve`, over those in `file`, and the tables there.
pub(super) fn merged(
    file: &Path,
    definition: clap::Command,
    line: &Line,
) -> Result<(Args, Tables), Failure> {
    let failed = |e: &dyn Display| Failure::new(Exit::Config, format!("{}: {e}", file.display()));
    let text = read::settings(file).map_err(|e| failed(&e))?;
    let (mut settings, lists) = config::parse_with(&text, file, &["share", "peer"])?;
    for setting in &mut settings {
        if let Some(table) = setting.command.first() {
            let table = config::unknown("table", table, ["[[share]]", "[[peer]]"].into_iter());
            return Err(setting.refused(table));
        }
        if setting.flag == "config" {
            return Err(setting.refused("it can only be set on the command line"));
        }
        setting.command = vec!["serve".into()];
        config::check(&definition, setting)?;
    }
    let matches = config::apply(definition, &settings, &line.off).try_get_matches_from(&line.words);
    let args = matches.and_then(|matches| {
        let matches = matches.subcommand_matches("serve");
        matches.map_or_else(
            || Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand)),
            Args::from_arg_matches,
        )
    });
    let args = args.map_err(|e| failed(&e.to_string().lines().next().unwrap_or_default()))?;
    let [shares, peers] = <[Vec<Entry>; 2]>::try_from(lists).unwrap_or_default();
    let mut tables = Tables::default();
    for entry in &peers {
        tables.peers.push(peer(entry, &tables.peers)?);
    }
    let known = tables.known();
    for entry in &shares {
        tables.shares.push(share(entry, &known, &tables.shares)?);
    }
    Ok((args, tables))
}

/// The keys of a table; each must be looked at.
struct Table<'a> {
    entry: &'a Entry,
    what: &'static str,
    known: &'static [&'static str],
}

impl<'a> Table<'a> {
    /// Refuses a key that is not known.
    fn new(
        what: &'static str,
        known: &'static [&'static str],
        entry: &'a Entry,
    ) -> Result<Self, Failure> {
        let stranger = entry.settings.iter().find(|s| !known.contains(&&*s.flag));
        match stranger {
            Some(s) => Err(s.refused(config::unknown("key", &s.flag, known.iter().copied()))),
            None => Ok(Self { entry, what, known }),
        }
    }

    fn setting(&self, key: &str) -> Option<&'a Setting> {
        debug_assert!(self.known.contains(&key), "{key}");
        self.entry.settings.iter().find(|s| s.flag == key)
    }

    /// The one value of a key, read by `read`.
    fn value<T, E: Display>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Failure> {
        let Some(setting) = self.setting(key) else {
            return Ok(None);
        };
        match setting.values.as_slice() {
            [one] => read(one).map(Some).map_err(|e| setting.refused(e)),
            _ => Err(setting.refused("write one value")),
        }
    }

    fn parsed<T: FromStr<Err: Display>>(&self, key: &str) -> Result<Option<T>, Failure> {
        self.value(key, str::parse)
    }

    fn missing(&self, key: &str) -> Failure {
        let text = format!("{}: a [[{}]] needs '{key}'", self.entry.origin, self.what);
        Failure::new(Exit::Config, text)
    }

    /// A name that none of `earlier` has.
    fn name<'b>(&self, mut earlier: impl Iterator<Item = &'b str>) -> Result<String, Failure> {
        let name = self.value("name", |name| {
            if !share::is_name(name) || ["any", "ticket"].contains(&name) {
                return Err("write a name without / and :, other than any and ticket".to_string());
            }
            if earlier.any(|other| other == name) {
                return Err(format!("there is a [[{}]] '{name}' already", self.what));
            }
            Ok(name.to_string())
        })?;
        name.ok_or_else(|| self.missing("name"))
    }
}

fn peer(entry: &Entry, earlier: &[Peer]) -> Result<Peer, Failure> {
    let table = Table::new("peer", &["name", "key", "max-rate", "max-sessions"], entry)?;
    let name = table.name(earlier.iter().map(|p| p.name.as_str()))?;
    let key = table.value("key", |text| {
        let key: PublicKey = text.parse().map_err(|e| format!("{e}"))?;
        match earlier.iter().find(|p| p.key == key) {
            Some(other) => Err(format!("peer '{}' has the same key", other.name)),
            None => Ok(key),
        }
    })?;
    let most = |text: &str| {
        let most = whole(1..=100_000)(text)?;
        usize::try_from(most).map_err(|e| e.to_string())
    };
    Ok(Peer {
        name,
        key: key.ok_or_else(|| table.missing("key"))?,
        limits: Limits {
            max_rate: table.parsed::<Rate>("max-rate")?,
            max_sessions: table.value("max-sessions", most)?,
        },
    })
}

fn share(entry: &Entry, peers: &Peers, earlier: &[Share]) -> Result<Share, Failure> {
    let keys = &["name", "path", "mode", "allow", "quota", "max-rate"];
    let table = Table::new("share", keys, entry)?;
    let name = table.name(earlier.iter().map(Share::name))?;
    let mode = table.value("mode", |word| {
        Access::parse(word).ok_or_else(|| format!("write {}", Access::WORDS))
    })?;
    let share = table.value("path", |path| {
        let path = Path::new(path);
        if !path.is_absolute() {
            return Err(format!("{}: write an absolute path", path.display()));
        }
        let opened = Share::open(&name, path, mode.unwrap_or(Access::Read));
        opened.map_err(|e| {
            format!(
                "{}: {e}; it must be a directory that exists",
                path.display()
            )
        })
    })?;
    let share = share.ok_or_else(|| table.missing("path"))?;
    let allowed = match table.setting("allow") {
        Some(setting) => share::allowed(&setting.values, peers).map_err(|e| setting.refused(e))?,
        None => share::Allowed::default(),
    };
    let share = share
        .for_peers(allowed.peers)
        .for_tickets(allowed.tickets)
        .never_above(table.parsed::<Rate>("max-rate")?);
    let Some(quota) = table.parsed::<Size>("quota")? else {
        return Ok(share);
    };
    let at = table.setting("quota").map(|s| s.origin.clone());
    share.within(quota.bytes()).map_err(|e| {
        let at = at.unwrap_or_default();
        let text = format!("{at}: share.quota: what is in the share cannot be counted: {e}");
        Failure::new(Exit::Config, text)
    })
}

/// Names of keys in messages: those of the file.
pub(super) fn names(tables: &Tables) -> BTreeMap<Vec<u8>, String> {
    let named = tables.peers.iter();
    named
        .map(|p| (p.key.as_bytes().to_vec(), p.name.clone()))
        .collect()
}

#[cfg(test)]
mod tests;
