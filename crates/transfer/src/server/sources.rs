//! The sources that a request names. Each is looked up in its share separately; some may
//! be missing as long as one is there.

use std::{io, path::Path, sync::Arc};

use farhaul_core::units::Rate;

use super::{Request, Server, Share};
use crate::{
    confine,
    error::TransferError,
    filter::Filter,
    scan::{self, Problem, Selection, Source},
    sender::{Planning, Sender},
    wire::{Exit, Mirror, Place, Symlinks, path},
};

/// Reason that there is no source at a place.
struct Missing {
    /// Exit of the missing source among others that are there.
    code: Exit,
    why: String,
    fix: &'static str,
}

/// Sources at `places`, which are in `shares` one by one, and the warnings for those that are
/// missing; an error if all are. Links in them may lead `anywhere`, or not out of the share.
pub(super) fn sources(
    shares: &[Share],
    places: &[Place],
    anywhere: bool,
) -> Result<(Vec<Source>, Vec<Problem>), TransferError> {
    if let ([share], [Place { path, .. }]) = (shares, places) {
        let source = source(share, path, anywhere).map_err(|Missing { why, fix, .. }| {
            let text = format!("source '{}': {why}", path::show(path));
            TransferError::new(Exit::SourceMissing, text).fix(fix)
        })?;
        return Ok((vec![source], Vec::new()));
    }
    let looked_up = shares.iter().zip(places).map(|(share, place)| {
        source(share, &place.path, anywhere).map_err(|Missing { code, why, .. }| {
            let name = path::show(&share.spoken(&place.path));
            let text = format!("{name}: {why}");
            Problem { code, text }
        })
    });
    scan::some(looked_up).map_err(|e| {
        if places.iter().any(|place| has_pattern(&place.path)) {
            e.fix(NO_PATTERNS)
        } else {
            e
        }
    })
}

const NO_PATTERNS: &str = "patterns are not expanded in a share: name the folder, with --include";

/// True if the path may have been meant as a pattern of a shell.
fn has_pattern(path: &[u8]) -> bool {
    path.iter().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// The source at `path` of the root of this machine, in a share.
fn from_top(share: &Share, path: &[u8]) -> io::Result<Source> {
    let root = share.root().path()?;
    let root = root.strip_prefix(b"/").unwrap_or(&root);
    let whole = if path.is_empty() {
        [root, b"/"].concat()
    } else {
        path::join(root, path)
    };
    let contents: &[u8] = if whole == b"/" { b"" } else { &whole };
    Source::beneath(confine::open_root(Path::new("/"))?, contents)
}

fn source(share: &Share, path: &[u8], anywhere: bool) -> Result<Source, Missing> {
    if let Some(why) = path::refusal(path.strip_suffix(b"/").unwrap_or(path)) {
        return Err(Missing {
            code: Exit::Partial,
            why: format!("not a path in a share: {why}"),
            fix: "use a plain relative path",
        });
    }
    let found = if anywhere {
        from_top(share, path)
    } else {
        Source::beneath(Arc::clone(share.root()), path)
    };
    let source = found.map_err(|e| Missing {
        code: scan::missing(&e),
        why: if confine::met_a_link(&e) {
            "a link, or behind one: links are not followed in a share".to_string()
        } else {
            e.to_string()
        },
        fix: if has_pattern(path) {
            NO_PATTERNS
        } else {
            "check the path"
        },
    })?;
    Ok(Source {
        typed: share.spoken(path),
        ..source
    })
}

impl Server {
    /// The part of a request that a delivery may do here. Other programs that read a share follow
    /// links, so links may only lead to delivered files.
    pub(super) fn allowed(&self, asked: Mirror) -> Mirror {
        if self.policy.one_person {
            return asked;
        }
        Mirror {
            symlinks: Symlinks::Within,
            ..asked
        }
    }

    /// Takes up the role of the sender.
    pub(super) fn offer(
        &mut self,
        shares: &[Share],
        request: &Request,
    ) -> Result<bool, TransferError> {
        let progress = Arc::clone(self.endpoint.handle.progress());
        let options = &*request.options;
        let follows = options.mirror.symlinks == Symlinks::Follow;
        if follows && self.by_ticket {
            let text = "a ticket is for what is at its place, which links may lead out of";
            return Err(TransferError::new(Exit::Auth, text).fix("omit --links=follow (-L)"));
        }
        let anywhere = follows && self.policy.one_person;
        let found = sources(shares, &request.places, anywhere)?;
        let one_file = request.places.len() == 1 && found.0.iter().all(|s| s.is_file);
        let brake = &mut self.endpoint.brake;
        brake.rate = brake.rate.min(options.max_rate.unwrap_or(Rate::UNLIMITED));
        brake.sharing = options.sharing;
        let selection = Selection {
            filter: Filter::from_spec(options.spec.clone())?,
            list: None,
            tell: options.dry,
            preserve: options.mirror.preserve,
            guarded: self.policy.one_person,
            keep: options.mirror.delete.is_some(),
            symlinks: options.mirror.symlinks,
            one_file_system: false,
            shard: None,
        };
        let plan = options.dry.then(Planning::default);
        let sender = Sender::new(found, selection, progress, plan, &self.host);
        let mut sender = sender.map_err(|e| TransferError::no_thread(&e).of_server())?;
        if options.pipe {
            sender.in_order();
        }
        self.endpoint.play(sender);
        Ok(one_file)
    }
}
