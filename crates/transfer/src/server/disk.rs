//! Measures the speed of a share's disk, for peers that may deliver there. A thread of its own does
//! so, for one peer at a time and within the share's quota.

use std::{
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
    time::Duration,
};

use farhaul_core::{time::Instant, units::Size};

use super::{ASKS_WITHIN, DiskSpeed, Probed, Server, Share, probe::MeasureDisk};
use crate::{
    error::TransferError,
    quota::{Claim, Quota},
    wire::{Direction, Exit, Message, Place, path},
};

/// The most that is written.
const MOST: u64 = 256 << 20;
/// Divisor of the free space: one part in so many may be used.
const PART: u64 = 10;
/// Advice where the quota is in the way.
const FIX: &str =
    "remove something from the share, or ask the server's administrator for a higher quota";
/// Time after which a disk counts as stuck.
const STUCK: Duration = Duration::from_mins(1);

/// A measurement that is under way.
pub(super) struct Measuring {
    result: Receiver<Result<DiskSpeed, TransferError>>,
    until: Instant,
}

impl Measuring {
    pub(super) const fn until(&self) -> Instant {
        self.until
    }
}

impl Server {
    /// Measures the disk of `share`, or refuses.
    pub(super) fn begin_disk(&mut self, share: &[u8]) {
        match self.measure(share) {
            Ok(measuring) => {
                self.measuring = Some(measuring);
                self.probed = Some(Probed::Disk);
                let place = Place {
                    share: share.to_vec(),
                    path: Vec::new(),
                };
                self.asked = Some((true, vec![place]));
            }
            Err(e) => self.refuse(&e),
        }
    }

    fn measure(&mut self, name: &[u8]) -> Result<Measuring, TransferError> {
        let peer = self.peer.as_deref().unwrap_or_default();
        let (turn, probes, _) = self.policy.probe(peer, Duration::ZERO)?;
        let share = self.policy.open_share(name, peer);
        let share = share.filter(|share| share.permits(Direction::Put));
        let share = share.cloned().ok_or_else(|| {
            let text = format!(
                "share '{}' is unknown, or may not be written to",
                path::show(name)
            );
            TransferError::new(Exit::Auth, text).fix("name one that you may deliver to")
        })?;
        self.check_place()?;
        self.leaves = None;
        let (send, result) = channel();
        let wake = self.host.wake.clone();
        // Work that hangs on the disk still has the turn, and its room, when the session is over.
        let work = move || {
            let done = measured(&share, &*probes.disk);
            drop(turn);
            // Nobody may be there any more.
            let _gone = send.send(done);
            if let Some(wake) = wake {
                wake();
            }
        };
        if self.host.simulated.is_some() {
            work();
        } else {
            let thread = thread::Builder::new().name("disk".into()).spawn(work);
            thread.map_err(|e| TransferError::no_thread(&e).of_server())?;
        }
        Ok(Measuring {
            result,
            until: self.now + STUCK,
        })
    }

    /// Answers when it is done.
    pub(super) fn poll_disk(&mut self) {
        let Some(measuring) = &self.measuring else {
            return;
        };
        let done = match measuring.result.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Empty) if self.now < measuring.until => return,
            Err(TryRecvError::Empty) => {
                let seconds = STUCK.as_secs();
                let text = format!("the disk of the share has not answered for {seconds} s");
                Err(TransferError::new(Exit::DestError, text))
            }
            Err(TryRecvError::Disconnected) => {
                Err(TransferError::new(Exit::Internal, "the measurement failed"))
            }
        };
        self.measuring = None;
        match done {
            Ok(speed) => {
                self.leaves = Some(self.now + ASKS_WITHIN);
                self.out.push(&Message::Disk {
                    bytes: speed.bytes,
                    write_bps: speed.write.bps(),
                    read_bps: speed.read.bps(),
                });
            }
            Err(e) => self.refuse(&e),
        }
    }
}

fn measured(share: &Share, measure: &MeasureDisk) -> Result<DiskSpeed, TransferError> {
    // Others deliver meanwhile.
    let quota = share.quota();
    let left = quota.map_or(u64::MAX, Quota::room);
    let room = (left / PART).min(MOST);
    let name = share.name();
    let mut claim = quota.cloned().map(Claim::new);
    if let Some(claim) = &mut claim {
        let full = |why| {
            let text = format!("the disk of share '{name}': the measurement {why}");
            TransferError::new(Exit::NoSpace, text).fix(FIX)
        };
        claim.hold(room).map_err(full)?;
    }
    measure(share.root().descriptor(), room).map_err(|e| {
        let code = Exit::of_write(&e);
        let is_quotas = |_: &&Quota| code == Exit::NoSpace && room < MOST && !is_fuller(share, room);
        if let Some(quota) = quota.filter(is_quotas) {
            let [left, all] = [left, quota.limit()].map(Size::from_bytes);
            let text = format!(
                "the disk of share '{name}': {left} of the share's quota of {all} are free, a tenth of which may be written: {e}"
            );
            return TransferError::new(code, text).fix(FIX);
        }
        TransferError::new(code, format!("the disk of share '{name}': {e}"))
    })
}

/// True if a tenth of the free space on the disk is less than this.
fn is_fuller(share: &Share, room: u64) -> bool {
    let free = share.root().statvfs();
    free.is_ok_and(|is| is.f_bavail.saturating_mul(is.f_frsize) / PART < room)
}
