//! Measures the most that this machine can honestly emulate: once, kept in the cache directory, and
//! checked before every run. Figures from a network faster than that describe the emulator more
//! than the program measured.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use farhaul_core::units::Rate;
use farhaul_link::{PathConfig, QueueLimit};
use serde::{Deserialize, Serialize};

use crate::{
    blast::blast,
    wan::{WanConfig, WanError},
};

/// Share of the measured capacity that a run may ask for: the programs under test need some of the
/// machine too.
const HONEST: f64 = 0.9;
/// Bytes on the network while capacity is measured: enough to keep all threads busy, little enough
/// to stay in the cache.
const WINDOW: u64 = 2_000_000;
/// One-way delay while timing is measured.
const DELAY: Duration = Duration::from_millis(5);

/// Capacity of a machine's emulator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Calibration {
    /// Kind of this object, with its version.
    pub schema: String,
    /// Kernel that the machine had; another one needs another calibration.
    pub kernel: String,
    /// One entry per MTU, in ascending order.
    pub points: Vec<Point>,
}

/// Capacity of the emulator at one MTU.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The MTU.
    pub mtu: u32,
    /// Payload bits per second delivered without any limit.
    pub capacity_bps: f64,
    /// The most a run may ask for, in bits per second.
    pub ceiling_bps: f64,
    /// Lateness of releases at half of the capacity, 50th and 99th percentile, in us.
    pub late_p50_us: f64,
    /// See above.
    pub late_p99_us: f64,
    /// CPU time of the router per second at full capacity.
    pub router_cores: f64,
}

/// The MTUs that are measured.
const MTUS: [u32; 2] = [1_500, 9_000];

/// Measures; takes four times `each`.
pub fn measure(each: Duration) -> Result<Calibration, WanError> {
    let points = MTUS.iter().map(|mtu| point(*mtu, each));
    Ok(Calibration {
        schema: "farhaul.calibration/1".into(),
        kernel: kernel(),
        points: points.collect::<Result<_, _>>()?,
    })
}

fn point(mtu: u32, each: Duration) -> Result<Point, WanError> {
    let path = |rate, delay| WanConfig {
        mtu,
        ..WanConfig::symmetric(PathConfig {
            rate,
            delay,
            queue: QueueLimit::Time(Duration::from_millis(100)),
            ..PathConfig::default()
        })
    };
    let full = blast(&path(Rate::UNLIMITED, Duration::ZERO), WINDOW, each)?;
    let half = Rate::from_f64(full.goodput_bps / 2.0);
    let window = WINDOW + half.bytes_in(DELAY);
    let timed = blast(&path(half, DELAY), window, each)?;
    let late = timed.report.health.lateness;
    Ok(Point {
        mtu,
        capacity_bps: full.goodput_bps,
        ceiling_bps: full.goodput_bps * HONEST,
        late_p50_us: late.p50_us,
        late_p99_us: late.p99_us,
        router_cores: full.report.health.cpu_seconds / full.report.seconds,
    })
}

impl Calibration {
    /// The most a run with this MTU may ask for: that of the largest measured MTU not above it.
    pub fn ceiling(&self, mtu: u32) -> Rate {
        let at_most = self.points.iter().rev().find(|point| point.mtu <= mtu);
        let point = at_most.or(self.points.first());
        point.map_or(Rate::UNLIMITED, |p| Rate::from_f64(p.ceiling_bps))
    }

    /// The calibration of this machine with its present kernel, if there is one.
    pub fn load() -> Option<Self> {
        let text = fs::read_to_string(file()?).ok()?;
        let calibration: Self = serde_json::from_str(&text).ok()?;
        (calibration.kernel == kernel()).then_some(calibration)
    }

    /// Keeps the calibration for later runs; returns its path.
    pub fn save(&self) -> io::Result<PathBuf> {
        let file = file().ok_or_else(|| {
            io::Error::other("neither XDG_CACHE_HOME nor HOME is set: no directory to store it in")
        })?;
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&file, serde_json::to_string_pretty(self)?)?;
        Ok(file)
    }
}

fn kernel() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

fn file() -> Option<PathBuf> {
    let folder = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join(Path::new("farhaul/calibration.json")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_that_of_the_next_smaller_mtu() {
        let point = |mtu, gbit: f64| Point {
            mtu,
            capacity_bps: gbit * 1e9 / HONEST,
            ceiling_bps: gbit * 1e9,
            late_p50_us: 5.0,
            late_p99_us: 50.0,
            router_cores: 1.0,
        };
        let calibration = Calibration {
            schema: String::new(),
            kernel: String::new(),
            points: vec![point(1_500, 14.0), point(9_000, 20.0)],
        };
        let ceilings = [576, 1_500, 8_999, 9_000, 65_000].map(|mtu| calibration.ceiling(mtu));
        let [low, high] = [Rate::gbit(14), Rate::gbit(20)];
        assert_eq!(ceilings, [low, low, low, high, high]);
    }
}
