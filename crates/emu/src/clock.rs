//! Reads the clock, at the emulator's only place that does so. Each router has its own epoch, so
//! that the schedules of its paths count from its start.

use std::{
    fs::File,
    io::Write,
    num::NonZeroU64,
    time::{self, Duration},
};

use farhaul_core::time::Instant;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A clock that began at its creation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: time::Instant,
    cpu: Duration,
}

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the emulator runs in real time; this is where it enters"
    )]
    pub(crate) fn start() -> Self {
        Self {
            epoch: time::Instant::now(),
            cpu: thread_cpu(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::EPOCH + self.epoch.elapsed()
    }

    /// CPU time since then, if it was made by this thread.
    pub(crate) fn cpu(&self) -> Duration {
        thread_cpu().saturating_sub(self.cpu)
    }
}

fn thread_cpu() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

/// Lets the kernel wake this thread at the requested time instead of up to 50 us later, and prefer it
/// to other work.
pub(crate) fn wake_precisely() {
    // Either may be refused; then the lateness in the report shows it.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    if farhaul_udp::priority::before_ordinary_threads().is_err() {
        let _ = rustix::process::setpriority_process(None, -20);
    }
}

/// While the file is open idle processors poll (a PM quality-of-service request), where their driver can: virtual ones may take milliseconds
/// to leave deeper states. `None` without root; then they do.
#[must_use]
pub(crate) fn stay_awake() -> Option<File> {
    let mut latency = File::options()
        .write(true)
        .open("/dev/cpu_dma_latency")
        .ok()?;
    latency.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(latency)
}

/// A duration as the kernel takes it.
pub(crate) fn timespec(d: Duration) -> Timespec {
    Timespec {
        tv_sec: d.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: d.subsec_nanos().into(),
    }
}
