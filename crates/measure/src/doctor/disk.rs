//! Measures the speed of a disk. A file without a name is written, synced piece by piece, and read
//! back. The test is bounded in size and time, and the file is gone with the process, however that
//! ends.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
    time::Duration,
};

use farhaul_core::{
    rng::Rng,
    time::Instant,
    units::{Rate, Size},
};
use farhaul_io::clock;
use rustix::fs::{Advice, fadvise, fstatvfs};
use serde::Serialize;

use super::{Finding, Grade};

/// Most bytes written, and of the space that a file system has left at most this part ...
const MOST: u64 = 1 << 30;
const PART: u64 = 10;
/// ... and which is no measurement if it is less.
const LEAST: u64 = 8 << 20;
/// Time of each direction, but for a piece.
const TIME: Duration = Duration::from_secs(2);
/// Bytes synced at a time: doubled up to the last, so that a slow disk is not kept busy for long.
const PIECES: (u64, u64) = (1 << 20, 64 << 20);
const BLOCK: usize = 1 << 20;

/// Measured speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DiskSpeed {
    /// Written and read.
    pub bytes: u64,
    /// Written and synced, bit/s.
    pub write_bits_per_second: u64,
    /// Read back, bit/s; from memory where the file system keeps its files there.
    pub read_bits_per_second: u64,
}

impl fmt::Display for DiskSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} written and synced, {} read back ({})",
            Rate::from_bps(self.write_bits_per_second),
            Rate::from_bps(self.read_bits_per_second),
            Size::from_bytes(self.bytes)
        )
    }
}

/// Measures the disk of `folder`, as a finding.
pub fn disk(folder: &Path) -> (Finding, io::Result<DiskSpeed>) {
    match disk_speed(folder, MOST) {
        Ok(speed) => {
            let text = format!("{}: {speed}", folder.display());
            (Finding::new("disk", Grade::Good, text), Ok(speed))
        }
        Err(e) => {
            let text = format!("{}: {e}", folder.display());
            let finding = Finding::new("disk", Grade::Bad, text).fix(fix(&e));
            (finding, Err(e))
        }
    }
}

/// Remedy for the error.
fn fix(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space there, or name a folder on another disk"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "name a folder that you may write to"
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "name a folder that exists",
        _ => "see the kernel's log for errors of that disk",
    }
}

/// Measures the disk of `folder`, with at most `most` bytes.
pub fn disk_speed(folder: &Path, most: u64) -> io::Result<DiskSpeed> {
    let mut file = tempfile::tempfile_in(folder)?;
    let most = room(&file, most)?;
    let begin = clock::now();
    let bytes = write(&mut file, most, begin)?;
    let wrote = clock::now().since(begin);
    // So that it is read from the disk, where the file system has one.
    fadvise(&file, 0, None, Advice::DontNeed)?;
    file.rewind()?;
    let begin = clock::now();
    let back = read(&mut file, begin)?;
    let took = clock::now().since(begin);
    Ok(DiskSpeed {
        bytes,
        write_bits_per_second: Rate::of(bytes, wrote).bps(),
        read_bits_per_second: Rate::of(back, took).bps(),
    })
}

/// Bytes that may be written to the file's disk.
fn room(file: &File, most: u64) -> io::Result<u64> {
    let is = fstatvfs(file)?;
    let free = is.f_bavail.saturating_mul(is.f_frsize);
    let room = MOST.min(most).min(free / PART);
    if room < LEAST {
        let [free, all, least] = [free, LEAST * PART, LEAST].map(Size::from_bytes);
        let text = if most < LEAST {
            format!("too little to measure, which takes {least}")
        } else {
            format!("only {free} free: too little to measure, which takes {all}")
        };
        return Err(io::Error::new(io::ErrorKind::StorageFull, text));
    }
    Ok(room)
}

/// Writes at most `most` bytes until the time is over.
fn write(file: &mut File, most: u64, begin: Instant) -> io::Result<u64> {
    let mut rng = Rng::new(0x6469_736b);
    // Not to be compressed, and each block another.
    let mut block: Vec<u8> = std::iter::repeat_with(|| rng.next_u64().to_le_bytes())
        .take(BLOCK / 8)
        .flatten()
        .collect();
    let (mut piece, largest) = PIECES;
    let mut written = 0;
    while written < most && clock::now().since(begin) < TIME {
        let end = most.min(written + piece);
        while written < end {
            block[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
            let n = usize::try_from(end - written).map_or(BLOCK, |n| n.min(BLOCK));
            file.write_all(&block[..n])?;
            written += n as u64;
        }
        file.sync_data()?;
        piece = (piece * 2).min(largest);
    }
    Ok(written)
}

/// Reads until the time or the file is over.
fn read(file: &mut File, begin: Instant) -> io::Result<u64> {
    let mut block = vec![0; BLOCK];
    let mut all = 0;
    while clock::now().since(begin) < TIME {
        match file.read(&mut block)? {
            0 => break,
            n => all += n as u64,
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_disk_has_a_speed_both_ways_and_nothing_is_left_on_it() {
        let place = tempfile::tempdir().unwrap();
        let (finding, speed) = disk(place.path());
        let speed = speed.expect(&finding.text);
        assert_eq!(finding.grade, Grade::Good);
        assert!((PIECES.0..=MOST).contains(&speed.bytes), "{speed:?}");
        assert!(speed.write_bits_per_second > 0 && speed.read_bits_per_second > 0);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_folder_is_a_finding_with_its_remedy() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "x").unwrap();
        for odd in [place.path().join("none"), file] {
            let (finding, speed) = disk(&odd);
            assert!(finding.grade == Grade::Bad && speed.is_err(), "{finding:?}");
            assert_eq!(finding.fix.as_deref(), Some("name a folder that exists"));
        }
    }
}
