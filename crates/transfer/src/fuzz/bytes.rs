//! Maps bytes to messages. Names, sizes and numbers are few, so that they meet.

use std::ops::Range;

use farhaul_core::{congestion::Sharing, units::Rate};

use crate::wire::{
    Access, Action, BLOCK, Change, Delete, Direction, Entry, Existing, Exit, Facts, FilterSpec,
    Hash, Kind, MOST_LANES, Message, Mirror, OLDEST, Owner, Place, Preserve, RequestOptions,
    Sending, Shared, Suffix, Symlinks, Tally, Usage,
};

/// Rest of the input; zeros after its end.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    pub(super) fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Small numbers mostly.
    pub(super) fn number(&mut self) -> u64 {
        match self.u8() {
            n @ 0..200 => u64::from(n),
            n => u64::from(self.u8()) << ((n - 200) % 54),
        }
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        let len = usize::from(self.u8()).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken.to_vec()
    }

    fn path(&mut self) -> Vec<u8> {
        const PATHS: [&str; 15] = [
            "a",
            "b",
            "d",
            "d/e",
            "d/e/f",
            "d/g",
            "a/b",
            "l",
            "l/x",
            "",
            "inside",
            "..",
            "d/../x",
            ".a.farhaul-part",
            "A",
        ];
        match usize::from(self.u8()) % 20 {
            n if n < PATHS.len() => PATHS[n].into(),
            _ => self.take(),
        }
    }

    fn size(&mut self) -> u64 {
        let sizes = [0, 1, 100, 4_096, 70_000, BLOCK + 5, 2 * BLOCK, 1 << 40];
        match self.u8() {
            n @ 0..240 => sizes[usize::from(n) % sizes.len()],
            _ => self.number() << 8,
        }
    }

    pub(super) fn entry(&mut self) -> Entry {
        let flags = self.u8();
        let kind = match (flags % 4, flags & 64 != 0) {
            (0, true) => Kind::HardLink,
            (n, _) => [Kind::File, Kind::File, Kind::Dir, Kind::Symlink][usize::from(n)],
        };
        let size = if kind == Kind::File { self.size() } else { 0 };
        let entry = Entry {
            kind,
            path: self.path(),
            mode: [0o644, 0o600, 0o7777, 0][usize::from(flags >> 2) % 4],
            mtime: if flags & 16 != 0 {
                i64::MAX
            } else {
                1_000_000_000
            },
            mtime_nanos: 0,
            size,
            allocated: if flags & 32 != 0 { 0 } else { size },
            target: if matches!(kind, Kind::Symlink | Kind::HardLink) {
                self.path()
            } else {
                Vec::new()
            },
            facts: (flags & 128 != 0).then(|| Box::new(self.facts())),
            stripe: None,
        };
        match self.pick_stripe(size) {
            Some((index, blocks)) => entry.striped(index, blocks),
            None => entry,
        }
    }

    /// Picks the stripe that an entry of so many bytes is, if it is one.
    fn pick_stripe(&mut self, size: u64) -> Option<(u32, u64)> {
        if size <= BLOCK {
            return None;
        }
        let which = self.u8();
        (which % 4 == 1).then(|| (u32::from(which >> 6), u64::from(which >> 4 & 3)))
    }

    fn facts(&mut self) -> Facts {
        let flags = self.u8();
        let names = [
            &b"user.a"[..],
            b"system.posix_acl_access",
            b"security.x",
            b"trusted.x",
        ];
        Facts {
            owner: (flags & 1 != 0).then(|| Owner {
                uid: u32::from(self.u8()),
                gid: u32::from(self.u8()),
                user: b"root".to_vec(),
                group: self.take(),
            }),
            attributes: (0..flags >> 6)
                .map(|i| (names[usize::from(i)].to_vec(), self.take()))
                .collect(),
            linked: flags & 2 != 0,
        }
    }

    /// Ascending, with gaps between them, and none past 2^64.
    fn ranges(&mut self) -> Vec<Range<u64>> {
        let (mut at, mut ranges) = (0_u64, Vec::new());
        for _ in 0..self.u8() % 20 {
            let (gap, len) = (self.number(), self.size().min(1 << 50));
            let start = at.checked_add(gap + u64::from(at > 0));
            let Some((start, end)) = start.and_then(|s| Some((s, s.checked_add(len + 1)?))) else {
                break;
            };
            ranges.push(start..end);
            at = end;
        }
        ranges
    }

    pub(super) fn hash(&mut self) -> Hash {
        [self.u8(); 32]
    }

    fn code(&mut self) -> Exit {
        Exit::from_number(self.u8() % 40).unwrap_or(Exit::NoSpace)
    }

    fn tally(&mut self) -> Tally {
        Tally {
            files_ok: self.number(),
            files_skipped: self.number(),
            files_failed: self.number(),
            bytes: self.size(),
            resumed: self.size(),
            deleted: self.number(),
        }
    }

    fn place(&mut self) -> Place {
        let name = ["r", "w", "c", "rw", "", "x"][usize::from(self.u8()) % 6];
        Place {
            share: name.into(),
            path: self.path(),
        }
    }

    pub(super) fn probe(&mut self) -> Message {
        let (what, millis) = (self.u8(), self.size());
        let (fetch, bps) = (what & 1 != 0, self.size());
        match what >> 1 & 7 {
            0 => Message::WantProbe { millis, fetch },
            1 => Message::WantDisk {
                share: [&b"r"[..], b"w", b"rw", b"none"][usize::from(what >> 3 & 3)].into(),
            },
            2 => Message::Disk {
                bytes: millis,
                write_bps: bps,
                read_bps: bps,
            },
            3 => Message::WantShares,
            4 => Message::Shares(vec![Shared {
                name: b"rw".into(),
                access: Access::ReadWrite,
            }]),
            5 => Message::Probe { millis, bps },
            _ => self.read(),
        }
    }

    /// Picks a message of a session that reads.
    pub(super) fn read(&mut self) -> Message {
        let kind = self.u8() % 15;
        let id = 1 + u32::from(self.u8() % 16);
        match kind {
            0 => Message::WantReads,
            1 => Message::Reads,
            2 => Message::List {
                id,
                place: self.place(),
            },
            3 => Message::Stat {
                id,
                place: self.place(),
            },
            4 | 5 => Message::Read {
                id,
                place: self.place(),
                offset: self.size(),
                len: self.size(),
            },
            6 => Message::Release { id },
            7 | 8 => Message::Found {
                id,
                more: self.u8() & 1 != 0,
                entries: (0..self.u8() % 4).map(|_| self.entry()).collect(),
            },
            9 => Message::Unanswered {
                id,
                code: Exit::Partial,
                text: self.take(),
            },
            12 | 13 => Message::Change {
                id,
                place: self.place(),
                change: self.change(),
            },
            14 => Message::Changed {
                id,
                more: self.u8() & 1 != 0,
            },
            _ => {
                let len = self.size();
                let hash = if self.u8() < 200 {
                    blake3::hash(&vec![
                        7;
                        usize::try_from(len.min(BLOCK)).unwrap_or_default()
                    ])
                    .into()
                } else {
                    self.hash()
                };
                let version = [self.u8(); 8];
                Message::ReadEnd {
                    id,
                    len,
                    hash,
                    version,
                }
            }
        }
    }

    pub(super) fn change(&mut self) -> Change {
        let which = self.u8();
        let flag = which & 8 != 0;
        match which % 6 {
            0 => Change::Remove,
            1 => Change::RemoveFolder,
            2 => Change::MakeFolder { parents: flag },
            3 => Change::Copy {
                to: self.path(),
                replace: flag,
            },
            _ => Change::Move {
                to: self.path(),
                replace: flag,
            },
        }
    }

    pub(super) fn request(&mut self) -> Message {
        let (flags, more) = (self.u8(), self.u8());
        let direction = if flags & 1 != 0 {
            Direction::Get
        } else {
            Direction::Put
        };
        let count = if direction == Direction::Get {
            1 + more % 4
        } else {
            1
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Message::Request {
            version: OLDEST,
            direction,
            tag: [flags; 8],
            places: (0..count).map(|_| self.place()).collect(),
            options: Box::new(RequestOptions {
                one_file: flags & 2 != 0,
                dry: flags & 4 != 0,
                existing: existing(flags >> 3),
                checksum: flags & 32 != 0,
                verify_disk: flags & 64 != 0,
                max_rate: (more & 64 != 0).then(|| Rate::from_bps(self.size())),
                sharing: Sharing::ALL[usize::from(more >> 4) % Sharing::ALL.len()],
                spec: if more & 128 != 0 {
                    FilterSpec {
                        exclude: text(self.take()),
                        include: text(self.take()),
                        least: self.number(),
                        most: u64::MAX >> 8,
                    }
                } else {
                    FilterSpec::default()
                },
                mirror: mirror(self.u8()),
                pipe: more & 32 != 0,
            }),
        }
    }
}

/// Picks a mirror by some bits.
pub(super) fn mirror(n: u8) -> Mirror {
    Mirror {
        preserve: Preserve::from_bits(n & 31).unwrap_or_default(),
        delete: (n & 32 != 0).then_some(Delete {
            most: (n & 64 != 0).then_some(1),
            excluded: n & 1 != 0,
        }),
        backup: (n & 128 != 0).then(|| Suffix::new(b"~")).flatten(),
        whole_file: n & 64 != 0,
        symlinks: Symlinks::ALL[usize::from(n & 3)],
    }
}

/// Picks the treatment of existing files by two bits.
pub(super) fn existing(n: u8) -> Existing {
    [Existing::Replace, Existing::Keep, Existing::KeepNewer][usize::from(n & 3) % 3]
}

/// Picks a message that a sender sends, but for the manifest and its roots.
pub(super) fn of_sender(bytes: &mut Bytes<'_>) -> Message {
    match bytes.u8() % 9 {
        8 => of_lanes(bytes),
        0 => Message::Holes {
            ranges: bytes.ranges(),
        },
        1 => Message::Failed {
            file: bytes.number(),
            code: bytes.code(),
            again: bytes.u8() & 1 != 0,
            text: bytes.take(),
        },
        2 => Message::Blocks {
            file: bytes.number(),
            first: bytes.number(),
            values: (0..bytes.u8() % 8).map(|_| bytes.hash()).collect(),
        },
        3 => Message::Excluded {
            paths: (0..bytes.u8() % 8).map(|_| bytes.path()).collect(),
        },
        6 => Message::Grown {
            file: bytes.number() % 3,
            size: bytes.size(),
        },
        5 => Message::Kept {
            paths: (0..bytes.u8() % 8).map(|_| bytes.path()).collect(),
        },
        _ => Message::Bye {
            usage: Usage::default(),
            sending: Sending::default(),
        },
    }
}

/// Picks a message that a receiver sends.
pub(super) fn of_receiver(bytes: &mut Bytes<'_>) -> Message {
    match bytes.u8() % 11 {
        9 => Message::Collected {
            file: bytes.number(),
            generation: [bytes.u8(); 8],
            whole: bytes.u8() & 1 != 0,
        },
        7 => of_lanes(bytes),
        8 => Message::Taken {
            file: bytes.number() % 3,
            upto: bytes.size(),
        },
        0 | 1 => Message::Want {
            upto: bytes.number(),
            ranges: bytes.ranges(),
        },
        2 => Message::Repair {
            file: bytes.number(),
            ranges: bytes.ranges(),
        },
        3 => Message::AskBlocks {
            file: bytes.number(),
        },
        4 => Message::Trouble {
            file: bytes.number(),
            code: bytes.code(),
            text: bytes.take(),
        },
        5 => Message::Report {
            resolved: bytes.number(),
            tally: bytes.tally(),
        },
        6 => Message::Finished {
            tally: bytes.tally(),
            usage: Usage::default(),
        },
        _ => Message::Verdicts {
            first: bytes.number(),
            actions: (0..bytes.u8() % 30)
                .filter_map(|_| Action::from_number(bytes.u8() % 10))
                .collect(),
        },
    }
}

/// Picks a message that opens parallel sessions, or is sent on them.
pub(super) fn of_lanes(bytes: &mut Bytes<'_>) -> Message {
    let lanes = 1 + u32::from(bytes.u8()) % MOST_LANES;
    match bytes.u8() % 8 {
        0 => Message::WantLanes {
            lanes,
            chosen: bytes.u8() & 1 != 0,
        },
        1 => Message::Lanes {
            token: [bytes.u8(); 16],
            lanes,
        },
        2 => Message::Join {
            token: [bytes.u8(); 16],
        },
        3 => Message::Joined,
        _ => Message::Got {
            ranges: bytes.ranges(),
        },
    }
}
