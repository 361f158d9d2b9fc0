//! Measurements that a server of files makes for its clients: of the path, and of the disk of a share.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

use farhaul_core::units::Rate;
use farhaul_io::App;
use farhaul_measure::{
    bench::{self, Bounds},
    doctor::disk_speed,
};
use farhaul_transfer::server::{DiskSpeed, Probes, Terms};

/// Probes of at most this time.
pub(crate) fn probes(most: Duration) -> Probes {
    Probes {
        most,
        make: Arc::new(probe),
        disk: Arc::new(disk),
    }
}

/// The server's end of a probe: a bench of one session within its terms.
fn probe(terms: Terms) -> Box<dyn App> {
    let bounds = Bounds {
        time: terms.time,
        lanes: 1,
        sharing: terms.sharing,
        rate: terms.rate,
        ..Bounds::default()
    };
    // Nobody counts them: the session is reported as any other.
    Box::new(bench::Server::new(bounds, |_| ()))
}

/// Measures the disk of an open folder.
fn disk(folder: BorrowedFd<'_>, most: u64) -> io::Result<DiskSpeed> {
    // Wherever it is by now.
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let speed = disk_speed(Path::new(&path), most)?;
    Ok(DiskSpeed {
        bytes: speed.bytes,
        write: Rate::from_bps(speed.write_bits_per_second),
        read: Rate::from_bps(speed.read_bits_per_second),
    })
}
