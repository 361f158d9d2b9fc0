//! A request: the paths in its shares, how existing files are treated, which files are selected and
//! how the link is shared.
//!
//! - Whatever the length of a request's list of places, no more than [`MOST_PLACES`] are kept, and no
//!   more than [`MOST_PLACE_BYTES`] read.

use farhaul_core::{
    codec::{DecodeError, Reader, VARINT_MAX},
    congestion::Sharing,
    units::Rate,
};

use crate::wire::{
    Mirror, Out, Symlinks,
    fields::bit,
    limits::{MOST_PATTERN_BYTES, MOST_PLACE_BYTES, MOST_PLACES},
};

/// A path in a share, as bytes. The path may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) share: Vec<u8>,
    pub(crate) path: Vec<u8>,
}

impl Place {
    /// Bytes that these places take, if they are more than one request names.
    pub(crate) fn excess(places: &[Self]) -> Option<usize> {
        let bytes = Self::list(places).len();
        (places.len() > MOST_PLACES || bytes > MOST_PLACE_BYTES).then_some(bytes)
    }

    fn list(places: &[Self]) -> Vec<u8> {
        let mut list = Vec::new();
        for place in places {
            let mut out = Out(&mut list);
            out.prefixed(&place.share);
            out.prefixed(&place.path);
        }
        list
    }

    /// Encodes the list of places. Versions before 3 had a share in place of the list, and a path
    /// where nothing is now. So they understand enough to refuse the version.
    pub(crate) fn encode(places: &[Self], out: &mut Out<'_>) {
        out.prefixed(&Self::list(places));
        out.prefixed(b"");
    }

    /// Decodes a list of at least one place.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Vec<Self>, DecodeError> {
        let list = r.prefixed()?;
        if list.is_empty() || list.len() > MOST_PLACE_BYTES || !r.prefixed()?.is_empty() {
            return Err(DecodeError::Malformed("list of places"));
        }
        let mut list = Reader::new(list);
        let mut places = Vec::new();
        while !list.is_empty() {
            if places.len() == MOST_PLACES {
                return Err(DecodeError::Malformed("number of places"));
            }
            places.push(Self {
                share: list.prefixed()?.to_vec(),
                path: list.prefixed()?.to_vec(),
            });
        }
        Ok(places)
    }
}

/// Treatment of a file that has the name already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The file is replaced unless it is the same.
    #[default]
    Replace,
    /// The file stays as it is.
    Keep,
    /// The file stays if it is as new as the one that would replace it, or newer.
    KeepNewer,
}

/// A filter as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterSpec {
    /// Lines that exclude.
    pub(crate) exclude: String,
    /// Patterns that include.
    pub(crate) include: String,
    /// Files smaller than this are left out, bytes.
    pub(crate) least: u64,
    /// Size above which files are left out, bytes.
    pub(crate) most: u64,
}

impl FilterSpec {
    /// True if ends without the feature `patterns` may match other paths by it.
    pub(crate) fn is_ambiguous(&self) -> bool {
        let lines = self.exclude.lines().chain(self.include.lines());
        let glued = |part: &str| part.contains("**") && part != "**";
        lines.filter(|line| !line.starts_with('#')).any(|line| {
            line.contains(['{', '}', '[', ']', '\\'])
                || line.trim_start_matches('!').split('/').any(glued)
        })
    }
}

impl Default for FilterSpec {
    fn default() -> Self {
        Self {
            exclude: String::new(),
            include: String::new(),
            least: 0,
            most: VARINT_MAX,
        }
    }
}

/// A client's options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "flags on the wire")]
pub(crate) struct RequestOptions {
    /// True if the source is a single file, which the path may rename.
    pub(crate) one_file: bool,
    /// True if nothing is to be changed, only reported.
    pub(crate) dry: bool,
    pub(crate) existing: Existing,
    /// True if files of the same size are compared by content, whatever their times.
    pub(crate) checksum: bool,
    /// True if a receiver reads what was written again from the disk before it counts.
    pub(crate) verify_disk: bool,
    /// Highest rate of a sender.
    pub(crate) max_rate: Option<Rate>,
    /// Sharing of the link by a sender; a server has to allow it.
    pub(crate) sharing: Sharing,
    /// Selection of files, for a sender; for a receiver too if it deletes.
    pub(crate) spec: FilterSpec,
    pub(crate) mirror: Mirror,
    /// True if the client's end is a pipe; only where both ends have that feature.
    pub(crate) pipe: bool,
}

/// Options of a copy that concern its receiver. A machine that orders a copy between two other hosts gives them to the
/// receiving host, which refuses the sending host anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered(Vec<u8>);

impl Ordered {
    /// Restores an order that [`Self::bytes`] gave on another host.
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Encodes the order for a message.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

const ONE_FILE: u8 = 1;
const DRY: u8 = 2;
const KEEP: u8 = 4;
const KEEP_NEWER: u8 = 8;
const CHECKSUM: u8 = 16;
const VERIFY_DISK: u8 = 32;
const PIPE: u8 = 64;
const ALL: u8 = 127;

impl RequestOptions {
    /// Options that concern the receiver.
    pub(crate) fn ordered(&self) -> Ordered {
        let mut bytes = Vec::new();
        let of_receiver = Self {
            // The receiving host makes what links the sending one lists, as far as both know how.
            mirror: Mirror {
                symlinks: Symlinks::Within,
                ..self.mirror
            },
            one_file: false,
            max_rate: None,
            sharing: Sharing::default(),
            ..self.clone()
        };
        of_receiver.encode(&mut Out(&mut bytes));
        Ordered(bytes)
    }

    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        let keep = match self.existing {
            Existing::Replace => 0,
            Existing::Keep => KEEP,
            Existing::KeepNewer => KEEP_NEWER,
        };
        out.u8(bit(self.one_file, ONE_FILE)
            | bit(self.dry, DRY)
            | keep
            | bit(self.checksum, CHECKSUM)
            | bit(self.verify_disk, VERIFY_DISK)
            | bit(self.pipe, PIPE));
        out.varint(self.max_rate.map_or(0, Rate::bps));
        out.u8(self.sharing as u8);
        let FilterSpec {
            exclude,
            include,
            least,
            most,
        } = &self.spec;
        out.prefixed(exclude.as_bytes());
        out.prefixed(include.as_bytes());
        out.varint(*least);
        out.varint(*most);
        self.mirror.encode(out);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let flags = r.u8()?;
        let existing = match flags & (KEEP | KEEP_NEWER) {
            0 => Existing::Replace,
            KEEP => Existing::Keep,
            KEEP_NEWER => Existing::KeepNewer,
            _ => return Err(DecodeError::Malformed("flags")),
        };
        if flags & !ALL != 0 {
            return Err(DecodeError::Malformed("flags"));
        }
        let rate = r.varint()?;
        let sharing = Sharing::ALL.get(usize::from(r.u8()?)).copied();
        let (exclude, include) = (utf8(r)?, utf8(r)?);
        // What it takes compiled is a multiple.
        if exclude.len() + include.len() > MOST_PATTERN_BYTES {
            return Err(DecodeError::Malformed("filter too long"));
        }
        Ok(Self {
            one_file: flags & ONE_FILE != 0,
            dry: flags & DRY != 0,
            existing,
            checksum: flags & CHECKSUM != 0,
            verify_disk: flags & VERIFY_DISK != 0,
            pipe: flags & PIPE != 0,
            sharing: sharing.ok_or(DecodeError::Malformed("sharing"))?,
            max_rate: (rate > 0).then(|| Rate::from_bps(rate)),
            spec: FilterSpec {
                exclude,
                include,
                least: r.varint()?,
                most: r.varint()?.min(VARINT_MAX),
            },
            mirror: Mirror::decode(r)?,
        })
    }
}

fn utf8(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = r.prefixed()?;
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Malformed("filter"))?;
    Ok(text.to_owned())
}
