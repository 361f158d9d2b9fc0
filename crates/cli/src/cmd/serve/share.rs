//! Parses shares of the command line, and who may use them.

use std::{collections::BTreeMap, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use farhaul_haul::PublicKey;
use farhaul_transfer::server::{Access, Allow, Share};

use crate::{
    config,
    exit::{Exit, Failure},
};

/// `NAME=PATH[:MODE]`.
pub(crate) fn share(text: &OsStr) -> Result<Share, Failure> {
    let bytes = text.as_bytes();
    let usage = || {
        Failure::usage(format!(
            "--share {}: write NAME=PATH or NAME=PATH:MODE, of {}",
            text.to_string_lossy(),
            Access::WORDS
        ))
    };
    let equals = bytes.iter().position(|b| *b == b'=').ok_or_else(usage)?;
    let name = std::str::from_utf8(&bytes[..equals]).map_err(|_| usage())?;
    if !is_name(name) {
        return Err(usage());
    }
    let rest = &bytes[equals + 1..];
    let colon = rest.iter().rposition(|b| *b == b':');
    let named =
        colon.and_then(|i| Some((i, Access::parse(std::str::from_utf8(&rest[i + 1..]).ok()?)?)));
    let (path, access) = match named {
        Some((i, access)) => (&rest[..i], access),
        None => (rest, Access::Read),
    };
    let path = Path::new(OsStr::from_bytes(path));
    Share::open(name, path, access).map_err(|e| {
        let text = format!(
            "share '{name}': {}: {e}; it must be a directory that exists, with nothing after it but a colon and {}",
            path.display(),
            Access::WORDS
        );
        Failure::new(Exit::Config, text)
    })
}

/// True if peers can ask for a share by this name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', ':'])
}

/// Peers by the names that a file gives them.
pub(super) type Peers = BTreeMap<String, PublicKey>;

/// Peers that may use a share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) peers: Allow,
    /// True if holders of tickets to it may use it, too.
    pub(super) tickets: bool,
}

/// Peers that `words` allow: keys, names of `peers`, or the words `any` and `ticket`; or the reason
/// that they do not.
pub(super) fn allowed(words: &[String], peers: &Peers) -> Result<Allowed, String> {
    let (mut keys, mut any, mut tickets) = (Vec::new(), false, false);
    for word in words {
        match word.as_str() {
            "any" => any = true,
            "ticket" => tickets = true,
            _ => {}
        }
        if matches!(word.as_str(), "any" | "ticket") {
            continue;
        }
        let key = match (peers.get(word), word.parse::<PublicKey>()) {
            (Some(key), _) => *key,
            (None, Ok(key)) => key,
            (None, Err(e)) if word.starts_with("fh-") || peers.is_empty() => {
                return Err(format!(
                    "{word}: {e}, nor 'any' or 'ticket'; names of peers are those of [[peer]] in the file of --config"
                ));
            }
            (None, Err(_)) => {
                let names = peers.keys().map(String::as_str).chain(["any", "ticket"]);
                return Err(config::unknown("peer", word, names));
            }
        };
        keys.push(key.as_bytes().to_vec());
    }
    let peers = match (any, keys.is_empty()) {
        (true, _) => Allow::Any,
        (false, true) => Allow::None,
        (false, false) => Allow::Keys(keys),
    };
    Ok(Allowed { peers, tickets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_only_by_default() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().to_str().unwrap();
        let odd = tmp.path().join("a:b");
        std::fs::create_dir(&odd).unwrap();
        for good in [
            format!("x={dir}"),
            format!("x={dir}:rw"),
            format!("x={dir}/a:b"),
            format!("x={dir}/a:b:wo"),
            format!("x={dir}:create"),
            format!("x={dir}:rw,delete"),
        ] {
            assert_eq!(share(OsStr::new(&good)).unwrap().name(), "x", "{good}");
        }
        for bad in [dir.to_string(), format!("={dir}"), format!("a/b={dir}")] {
            assert_eq!(
                share(OsStr::new(&bad)).unwrap_err().exit,
                Exit::Usage,
                "{bad}"
            );
        }
        assert_eq!(
            share(OsStr::new("x=/nonexistent")).unwrap_err().exit,
            Exit::Config
        );
    }

    #[test]
    fn no_key_is_allowed_by_default() {
        assert_eq!(allowed(&[], &Peers::new()), Ok(Allowed::default()));
        assert_eq!(
            allowed(&["any".into()], &Peers::new()).unwrap().peers,
            Allow::Any
        );
        let why = allowed(&["fh-pub1x".into()], &Peers::new()).unwrap_err();
        assert!(why.contains("fh-pub1 and 56 letters"), "{why}");
        let why = allowed(&["bob".into()], &Peers::new()).unwrap_err();
        assert!(
            why.contains("'ticket'") && why.contains("[[peer]]"),
            "{why}"
        );
    }
}
