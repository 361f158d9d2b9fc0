//! Properties of this machine that are needed to interpret figures, read from where Linux reports
//! them. Properties that cannot be read are left out.

use std::{
    collections::BTreeMap,
    fmt, fs, thread,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

/// A machine and the program on it.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Program version.
    pub farhaul: &'static str,
    /// True if built without optimisation.
    pub debug_build: bool,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Processor model.
    pub processor: Option<String>,
    /// Processors this process may use.
    pub cores: usize,
    /// Instructions that matter here and are there.
    pub instructions: Vec<&'static str>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// The kernel's clock.
    pub clock: Option<String>,
    /// Congestion laws of the kernel's TCP.
    pub tcp_laws: Vec<String>,
    /// Limits of its sockets and its TCP; the emulated hosts have higher ones of their own.
    pub sysctls: BTreeMap<&'static str, String>,
}

/// Settings of `/proc/sys/net` that decide how fast sockets can be.
const SYSCTLS: [&str; 7] = [
    "core/rmem_max",
    "core/wmem_max",
    "core/netdev_max_backlog",
    "ipv4/tcp_rmem",
    "ipv4/tcp_wmem",
    "ipv4/tcp_congestion_control",
    "ipv4/udp_mem",
];

impl Host {
    /// Reads the properties of this machine.
    pub fn read() -> Self {
        Self {
            farhaul: env!("CARGO_PKG_VERSION"),
            debug_build: cfg!(debug_assertions),
            kernel: line("/proc/sys/kernel/osrelease"),
            processor: field("/proc/cpuinfo", "model name"),
            cores: thread::available_parallelism().map_or(1, usize::from),
            instructions: instructions(),
            memory_bytes: memory(),
            clock: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            tcp_laws: line("/proc/sys/net/ipv4/tcp_available_congestion_control")
                .map(|l| l.split_whitespace().map(Into::into).collect())
                .unwrap_or_default(),
            sysctls: SYSCTLS
                .into_iter()
                .filter_map(|name| {
                    let value = line(&format!("/proc/sys/net/{name}"))?;
                    Some((name, value.split_whitespace().collect::<Vec<_>>().join(" ")))
                })
                .collect(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_unknown = |x: &Option<String>| x.clone().unwrap_or_else(|| "unknown".into());
        let build = if self.debug_build {
            " (debug build)"
        } else {
            ""
        };
        writeln!(f, "farhaul    {}{build}", self.farhaul)?;
        writeln!(f, "kernel     {}", or_unknown(&self.kernel))?;
        writeln!(
            f,
            "processor  {} x {}",
            self.cores,
            or_unknown(&self.processor)
        )?;
        writeln!(f, "has        {}", self.instructions.join(" "))?;
        if let Some(bytes) = self.memory_bytes {
            writeln!(f, "memory     {} MiB", bytes >> 20)?;
        }
        writeln!(f, "clock      {}", or_unknown(&self.clock))?;
        write!(f, "tcp laws   {}", self.tcp_laws.join(" "))?;
        for (name, value) in &self.sysctls {
            write!(f, "\nsysctl     net.{} = {value}", name.replace('/', "."))?;
        }
        Ok(())
    }
}

/// The only line of a file of `/proc` or `/sys`.
pub fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

/// The value of the first `name : value` in a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Ticks per second of the times that the kernel reports in `/proc`: the same on every Linux on x86 and ARM.
const USER_HZ: f64 = 100.0;

/// Processor time of the whole machine since it started, s: every process, and what the kernel did in
/// no process. Only differences are meaningful, and only on an otherwise idle machine.
pub fn busy_seconds() -> Option<f64> {
    let uptime = line("/proc/uptime")?;
    let uptime = uptime.split_whitespace().next()?.parse().ok()?;
    busy(uptime, &fs::read_to_string("/proc/stat").ok()?)
}

/// Busy time: `uptime` without the times in which each processor had nothing to do. The kernel
/// measures those times, and only samples the others (proc(5), `/proc/stat`).
fn busy(uptime: f64, stat: &str) -> Option<f64> {
    let each = stat
        .lines()
        .filter(|l| l.starts_with("cpu") && !l.starts_with("cpu "));
    let idle = |line: &str| {
        let mut times = line.split_whitespace().skip(4);
        let mut next = || times.next()?.parse::<u32>().ok().map(f64::from);
        Some(next()? + next()?)
    };
    let idle: Vec<f64> = each.map(idle).collect::<Option<_>>()?;
    (!idle.is_empty()).then(|| idle.iter().map(|idle| uptime - idle / USER_HZ).sum())
}

fn memory() -> Option<u64> {
    let text = field("/proc/meminfo", "MemTotal")?;
    let kib: u64 = text.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// CPU instructions that make sealing cheap.
fn instructions() -> Vec<&'static str> {
    let mut there = Vec::new();
    #[cfg(target_arch = "x86_64")]
    for (name, has) in [
        ("aes", std::arch::is_x86_feature_detected!("aes")),
        (
            "pclmulqdq",
            std::arch::is_x86_feature_detected!("pclmulqdq"),
        ),
        ("vaes", std::arch::is_x86_feature_detected!("vaes")),
        (
            "vpclmulqdq",
            std::arch::is_x86_feature_detected!("vpclmulqdq"),
        ),
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
    ] {
        if has {
            there.push(name);
        }
    }
    #[cfg(target_arch = "aarch64")]
    for (name, has) in [
        ("aes", std::arch::is_aarch64_feature_detected!("aes")),
        ("pmull", std::arch::is_aarch64_feature_detected!("pmull")),
    ] {
        if has {
            there.push(name);
        }
    }
    there
}

/// The date, s: results are dated by it, nothing is decided by it.
#[expect(
    clippy::disallowed_methods,
    reason = "a date for people; all times of a run are of io::clock"
)]
pub fn seconds_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_not_work() {
        let stat = "cpu  9 9 9 9 9 9\n\
                    cpu0 100 20 300 600 80 4 6 50 0 0\n\
                    cpu1 1 2 3 900 50 7 8 9 10\n\
                    intr 1 2 3\n";
        let busy_for = busy(10.0, stat).expect("readable");
        assert!((busy_for - (3.2 + 0.5)).abs() < 1e-9, "{busy_for}");
        assert_eq!(busy(10.0, "intr 1 2 3"), None);
    }
}
