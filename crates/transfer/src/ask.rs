//! Encodes a request, and the answer of the other side at the end. A request names the paths in its
//! shares, how existing files are treated, which files are selected and how the link is shared. The
//! answer names the resources used.
//!
//! - Whatever the length of a request's list of places, no more than [`MOST_PLACES`] are kept, and no
//!   more than [`MOST_PLACE_BYTES`] read.

use farhaul_core::{
    codec::{DecodeError, Reader, VARINT_MAX},
    congestion::Sharing,
    stats::{Stats, Why},
    units::Rate,
};
use farhaul_io::cpu;

use crate::{
    error::{Code, TransferError},
    filter::{self, Spec},
    message::{Message, Out},
    mirror::{Mirror, Symlinks},
};

/// The most places that one request names.
pub(crate) const MOST_PLACES: usize = 1_024;
/// The most bytes that they take on the wire.
pub(crate) const MOST_PLACE_BYTES: usize = 24 << 10;

/// A path in a share, as bytes. The path may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) share: Vec<u8>,
    pub(crate) path: Vec<u8>,
}

impl Place {
    /// Reports why these places cannot be named by one request, if they cannot.
    pub(crate) fn check(places: &[Self]) -> Result<(), TransferError> {
        let bytes = Self::list(places).len();
        if places.len() > MOST_PLACES || bytes > MOST_PLACE_BYTES {
            let text = format!(
                "{} sources with {bytes} bytes of names are more than one command can fetch, which is {MOST_PLACES} with {MOST_PLACE_BYTES} bytes",
                places.len(),
            );
            let fix = "name their folder, with --include, or copy in parts";
            return Err(TransferError::new(Code::Usage, text).fix(fix));
        }
        Ok(())
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

/// A client's options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "flags on the wire")]
pub(crate) struct Ask {
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
    pub(crate) spec: Spec,
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

impl Ask {
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
        let flag = |on, bit| if on { bit } else { 0 };
        out.u8(flag(self.one_file, ONE_FILE)
            | flag(self.dry, DRY)
            | keep
            | flag(self.checksum, CHECKSUM)
            | flag(self.verify_disk, VERIFY_DISK)
            | flag(self.pipe, PIPE));
        out.varint(self.max_rate.map_or(0, Rate::bps));
        out.u8(self.sharing as u8);
        let Spec {
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
        if exclude.len() + include.len() > filter::MOST {
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
            spec: Spec {
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

/// Resources that a transfer cost one end's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Processor time during the transfer, µs.
    pub(crate) cpu_micros: u64,
    /// The most memory the process has held, bytes; 0 if unknown.
    pub(crate) max_rss: u64,
}

impl Usage {
    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        out.varint(self.cpu_micros);
        out.varint(self.max_rss);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            cpu_micros: r.varint()?,
            max_rss: r.varint()?,
        })
    }
}

/// Counters of a session that only the side that sends knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sending {
    /// Time for which sending was held, µs, for each of [`Why::HOLDS`].
    pub(crate) held_micros: [u64; Why::HOLDS.len()],
    /// Bytes sent for the first time.
    pub(crate) data: u64,
    /// Bytes sent again.
    pub(crate) repaired: u64,
    pub(crate) datagrams: u64,
    /// Packets declared lost.
    pub(crate) lost: u64,
}

impl Sending {
    /// Counters as this side, the sender, sees them: `stats` of all its `lanes`, which were held so
    /// long on average.
    pub(crate) fn of(stats: &Stats, lanes: u32) -> Self {
        let mut held_micros = [0; Why::HOLDS.len()];
        for (place, (_, held)) in held_micros.iter_mut().zip(stats.held.totals()) {
            let held = held / lanes.max(1);
            *place = u64::try_from(held.as_micros()).unwrap_or(VARINT_MAX);
        }
        Self {
            held_micros,
            data: stats.data_sent,
            repaired: stats.repaired,
            datagrams: stats.datagrams_sent,
            lost: stats.packets_lost,
        }
    }

    /// Adds what another session of the same copy has counted.
    pub(crate) fn add(&mut self, other: &Self) {
        let held = self.held_micros.iter_mut().zip(other.held_micros);
        let counts = [
            (&mut self.data, other.data),
            (&mut self.repaired, other.repaired),
            (&mut self.datagrams, other.datagrams),
            (&mut self.lost, other.lost),
        ];
        for (all, more) in held.chain(counts) {
            *all = all.saturating_add(more);
        }
    }

    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        let counts = [self.data, self.repaired, self.datagrams, self.lost];
        for n in self.held_micros.into_iter().chain(counts) {
            out.varint(n.min(VARINT_MAX));
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut held_micros = [0; Why::HOLDS.len()];
        for place in &mut held_micros {
            *place = r.varint()?;
        }
        Ok(Self {
            held_micros,
            data: r.varint()?,
            repaired: r.varint()?,
            datagrams: r.varint()?,
            lost: r.varint()?,
        })
    }
}

/// Counts what this process uses from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter(Option<std::time::Duration>);

impl Meter {
    pub(crate) fn new() -> Self {
        Self(Some(cpu::process_time()))
    }

    /// Counts nothing: in virtual time nothing may depend on how fast this machine is.
    pub(crate) const fn idle() -> Self {
        Self(None)
    }

    pub(crate) fn usage(self) -> Usage {
        let Some(since) = self.0 else {
            return Usage::default();
        };
        let cpu = cpu::process_time().saturating_sub(since);
        Usage {
            cpu_micros: u64::try_from(cpu.as_micros()).unwrap_or(VARINT_MAX),
            max_rss: cpu::max_rss().unwrap_or(0),
        }
    }

    /// Makes the last message of a sender whose `lanes` have counted `stats` together.
    pub(crate) fn bye(self, stats: &Stats, lanes: u32) -> Message {
        Message::Bye {
            usage: self.usage(),
            sending: Sending::of(stats, lanes),
        }
    }
}
