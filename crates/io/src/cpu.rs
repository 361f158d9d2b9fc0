//! Measures cost: CPU time of the calling thread and of the process, and memory at its peak.

use std::{fs, time::Duration};

use cpu_time::{ProcessTime, ThreadTime};

/// CPU time of the calling thread so far, user and system.
pub fn thread_time() -> Duration {
    ThreadTime::now().as_duration()
}

/// CPU time of the process so far, user and system, all threads.
pub fn process_time() -> Duration {
    ProcessTime::now().as_duration()
}

/// The most memory the process has held resident, bytes; `None` where the system does not report it.
pub fn max_rss() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time_and_memory() {
        let (thread, process) = (thread_time(), process_time());
        let mut x = 1_u64;
        while thread_time() == thread {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(process_time() > process);
        assert!(max_rss().unwrap() > 100_000);
    }
}
