//! Remembers what earlier runs proved of the paths from this machine. A file in the user's cache,
//! for careful resume (RFC 9959): private, bounded, and of use only from the same address to the
//! same address.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use farhaul_core::{congestion::SavedPath, units::Rate};
use farhaul_haul::{LIFETIME, MAX_PATHS, PathEntry, PathMemory};
use farhaul_io::clock;
use farhaul_transfer::read_whole;
use serde::{Deserialize, Serialize};

use crate::keys::{self, folder};

/// The longest file that is read.
const LONGEST: u64 = 256 << 10;

/// The flag's help.
pub(crate) const HELP: &str = "File that remembers the rates of paths, so that the next copy begins at what this one proved; \
    auto is the user's cache";

/// Place of the file, as in `--path-memory`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// The user's cache.
    #[default]
    Cache,
    Named(PathBuf),
    Never,
}

impl Place {
    /// Parses the place as it is typed.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("name a file, or write auto or never".into()),
            "auto" => Ok(Self::Cache),
            "never" => Ok(Self::Never),
            file => Ok(Self::Named(file.into())),
        }
    }

    /// The file; none without a place to keep it.
    fn file(&self) -> Option<PathBuf> {
        let cache = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        match self {
            Self::Never => None,
            Self::Named(file) => Some(file.clone()),
            Self::Cache => Some(cache()?.join("farhaul/paths.json")),
        }
    }
}

/// One line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Saved {
    from: IpAddr,
    to: IpAddr,
    capacity_bps: u64,
    min_rtt_us: u64,
    /// UDP payload of a full datagram; files of earlier versions have none.
    #[serde(default)]
    datagram: u32,
    /// Unix time, s.
    at: u64,
}

impl Saved {
    /// True if the entry is neither too old nor of a clock that was ahead.
    const fn is_fresh(&self, now: u64) -> bool {
        self.at <= now && now - self.at <= LIFETIME.as_secs()
    }
}

/// The path from this machine to one address.
pub(crate) struct Remembered {
    file: PathBuf,
    /// True if the file is in the user's cache, where nothing else is.
    cached: bool,
    from: IpAddr,
    to: IpAddr,
    memory: Arc<PathMemory>,
}

impl Remembered {
    /// Opens the memory of the path to `to`; none if nothing is to be remembered. A file that
    /// cannot be read gives the reason, and the path counts as new.
    pub(crate) fn open(place: &Place, to: SocketAddr) -> (Option<Self>, Option<String>) {
        // Within a machine there is nothing to remember.
        let Some(file) = place.file().filter(|_| !to.ip().is_loopback()) else {
            return (None, None);
        };
        // No route: the connection will say so.
        let Ok(from) = source_of(to) else {
            return (None, None);
        };
        let (known, warning) = match read(&file) {
            Ok(known) => (known, None),
            Err(e) => (Vec::new(), Some(format!("{}: {e}", file.display()))),
        };
        let remembered = Self {
            cached: *place == Place::Cache,
            file,
            from,
            to: to.ip(),
            memory: Arc::default(),
        };
        let now = clock::unix_seconds();
        let is_fit = |saved: &&Saved| remembered.is_of(saved) && saved.is_fresh(now);
        if let Some(saved) = known.iter().find(is_fit) {
            let entry = PathEntry {
                peer: None,
                address: saved.to,
                saved: SavedPath {
                    capacity: Rate::from_bps(saved.capacity_bps),
                    min_rtt: Duration::from_micros(saved.min_rtt_us),
                },
                datagram: saved.datagram,
                age: Duration::from_secs(now.saturating_sub(saved.at)),
            };
            remembered.memory.note(clock::now(), entry);
        }
        (Some(remembered), warning)
    }

    /// Memory for the configuration of the connection.
    pub(crate) fn memory(&self) -> Arc<PathMemory> {
        Arc::clone(&self.memory)
    }

    fn is_of(&self, saved: &Saved) -> bool {
        saved.from == self.from && saved.to == self.to
    }

    fn unsaved(&self, e: &io::Error) -> String {
        format!("{}: {e}", self.file.display())
    }

    /// Keeps what the connection proved, or forgets what it did not confirm.
    pub(crate) fn save(&self) -> Result<(), String> {
        // Entries that others have written meanwhile stay, unless they write at the same time. A
        // file that is no list of paths stays as it is, but for one in the cache.
        let mut known = match read(&self.file) {
            Err(e) if e.kind() != io::ErrorKind::InvalidData || !self.cached => {
                return Err(self.unsaved(&e));
            }
            known => known.unwrap_or_default(),
        };
        let before = known.len();
        known.retain(|saved| !self.is_of(saved));
        let now = clock::unix_seconds();
        let proved = self.memory.list(clock::now()).into_iter();
        let proved = proved.map(|entry| Saved {
            from: self.from,
            to: self.to,
            capacity_bps: entry.saved.capacity.bps(),
            min_rtt_us: u64::try_from(entry.saved.min_rtt.as_micros()).unwrap_or(u64::MAX),
            datagram: entry.datagram,
            at: now.saturating_sub(entry.age.as_secs()),
        });
        known.extend(proved);
        if known.is_empty() && before == 0 {
            return Ok(());
        }
        known.retain(|saved| saved.is_fresh(now));
        known.sort_by_key(|saved| std::cmp::Reverse(saved.at));
        known.truncate(MAX_PATHS);
        let text = serde_json::to_vec(&known).map_err(|e| e.to_string())?;
        // What a crash of the machine loses is no loss.
        keys::replace(&self.file, &text, 0o600, |_| Ok(())).map_err(|e| self.unsaved(&e))
    }
}

/// The address that datagrams to `to` would have as their source.
fn source_of(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if to.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

fn read(file: &Path) -> io::Result<Vec<Saved>> {
    let bytes = match read_whole(file, LONGEST) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => bytes?,
    };
    serde_json::from_slice(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_is_no_list_of_paths_stays_as_it_is() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("disk.img");
        fs::write(&file, "not a list").unwrap();
        let address = IpAddr::from([192, 0, 2, 1]);
        let mut remembered = Remembered {
            file: file.clone(),
            cached: false,
            from: address,
            to: address,
            memory: Arc::default(),
        };
        let entry = PathEntry {
            peer: None,
            address,
            saved: SavedPath {
                capacity: Rate::gbit(1),
                min_rtt: Duration::from_millis(10),
            },
            datagram: 1_472,
            age: Duration::ZERO,
        };
        remembered.memory.note(clock::now(), entry);
        assert!(remembered.save().is_err());
        assert_eq!(fs::read(&file).unwrap(), b"not a list");
        // In the cache there is nothing else.
        remembered.cached = true;
        remembered.save().unwrap();
        let known = read(&file).unwrap();
        assert!(known.len() == 1 && remembered.is_of(&known[0]));
        let ahead = Saved {
            at: known[0].at + 10,
            ..known[0].clone()
        };
        assert!(known[0].is_fresh(known[0].at) && !ahead.is_fresh(known[0].at));
    }
}
