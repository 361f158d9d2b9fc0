//! Soak: nothing may grow. On the program: copies and benches in a loop against servers whose
//! memory, descriptors and threads are watched. In virtual time: more key updates and packet
//! numbers than a session sees in days.

mod books;

use std::{
    fs, io,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use farhaul_io::clock;

use crate::{
    Scale,
    program::{EXIT_TIMEOUT, Server, Usage, cp, farhaul, pause, timed, write_file},
    report::Report,
};

/// Seconds that the program runs.
const GATE: u64 = 10;
const FULL: u64 = 3_600;
/// The part of it, at most, in which memory may grow.
const WARM_UP: u32 = 4;
const LONGEST_WARM_UP: Duration = Duration::from_mins(5);
/// Sampling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The steepest growth, MiB an hour.
const SLOPE: f64 = 1.0;
/// Memory that allocators take and give back within seconds, MiB: a short run cannot distinguish
/// less from zero.
const NOISE: f64 = 8.0;
/// Bytes that a planted leak loses with each session: a short run finds only a large one.
const LEAK: &str = "500000";
const GATE_LEAK: &str = "2000000";

/// Runs the part.
pub(crate) fn run(scale: &Scale) -> Report {
    let mut report = Report::new("soak");
    if !scale.planted {
        books::updates(scale, &mut report);
        books::numbers(scale, &mut report);
    }
    let time = Duration::from_secs(scale.runs(GATE, FULL));
    if let Err(error) = program(scale, time, &mut report) {
        report.fault(error.to_string());
    }
    report
}

/// Memory over time, and what there was before.
struct Watched {
    name: &'static str,
    server: Server,
    base: Usage,
    /// Seconds and MiB.
    samples: Vec<(f64, f64)>,
}

impl Watched {
    fn new(name: &'static str, server: Server) -> io::Result<Self> {
        Ok(Self {
            base: Usage::of(server.program.id())?,
            name,
            server,
            samples: Vec::new(),
        })
    }

    fn sample(&mut self, at: Duration) -> io::Result<()> {
        let usage = Usage::of(self.server.program.id())?;
        self.samples
            .push((at.as_secs_f64(), mebibytes(usage.resident)));
        Ok(())
    }

    /// Waits until descriptors and threads are what they were; what there are else.
    fn rest(&self) -> io::Result<Option<Usage>> {
        let until = clock::now() + EXIT_TIMEOUT;
        loop {
            let usage = Usage::of(self.server.program.id())?;
            let back =
                usage.threads <= self.base.threads && usage.descriptors <= self.base.descriptors;
            if back || clock::now() >= until {
                return Ok((!back).then_some(usage));
            }
            pause(POLL_INTERVAL);
        }
    }
}

fn program(scale: &Scale, time: Duration, report: &mut Report) -> io::Result<()> {
    let tmp = tempfile::tempdir_in("/dev/shm")?;
    let dir = tmp.path();
    fs::create_dir_all(dir.join("from/deep"))?;
    fs::create_dir(dir.join("share"))?;
    for i in 0..20 {
        write_file(&dir.join(format!("from/deep/{i}")), 1 << (10 + i % 10))?;
    }
    write_file(&dir.join("from/big"), 8 << 20)?;
    let share = format!("s={}:rw", dir.join("share").display());
    let serve = if scale.planted {
        let leak = if scale.full { LEAK } else { GATE_LEAK };
        crate::faulty::serve(dir, &["--leak", leak, "--share", &share])?
    } else {
        Server::serve(dir, &[share])?
    };
    let mut bench = Command::new(farhaul()?);
    bench
        .args(["bench", "serve", "--listen", "127.0.0.1:0"])
        .env("HOME", dir);
    // What both take once is taken before the base is.
    let bench = Server::start(&mut bench)?;
    copy(dir, &serve)?;
    measure(dir, &bench)?;
    pause(POLL_INTERVAL * 4);
    let mut watched = [
        Watched::new("serve", serve)?,
        Watched::new("bench serve", bench)?,
    ];
    let (copies, benches) = busy(dir, time, &mut watched)?;
    report.figure(
        "work",
        format!(
            "{copies} copies and {benches} benches in {} s",
            time.as_secs()
        ),
    );
    for watched in &watched {
        judge(scale, time, watched, report)?;
    }
    for watched in watched {
        if watched.server.end(EXIT_TIMEOUT)?.0.is_none() {
            report.fault(format!("{} did not end after SIGTERM", watched.name));
        }
    }
    report.ran();
    Ok(())
}

/// Copies and benches for `time`, and samples meanwhile; how many there were.
fn busy(dir: &Path, time: Duration, watched: &mut [Watched; 2]) -> io::Result<(u64, u64)> {
    let began = clock::now();
    let over = AtomicBool::new(false);
    let [copies, benches] = [(); 2].map(|()| AtomicU64::new(0));
    let addresses = [watched[0].server.address(), watched[1].server.address()];
    let repeat = |count: &AtomicU64, work: &dyn Fn() -> io::Result<()>| -> io::Result<()> {
        while !over.load(Relaxed) {
            work()?;
            count.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let copying = scope.spawn(|| repeat(&copies, &|| copy_at(dir, addresses[0])));
        let benching = scope.spawn(|| repeat(&benches, &|| measure_at(dir, addresses[1])));
        let mut looked = Ok(());
        while clock::now().since(began) < time && looked.is_ok() {
            pause(POLL_INTERVAL);
            let at = clock::now().since(began);
            looked = watched
                .iter_mut()
                .try_for_each(|watched| watched.sample(at));
        }
        over.store(true, Relaxed);
        for work in [copying, benching] {
            work.join()
                .map_err(|_| io::Error::other("a thread panicked"))??;
        }
        looked
    })?;
    Ok((copies.into_inner(), benches.into_inner()))
}

fn copy(dir: &Path, server: &Server) -> io::Result<()> {
    copy_at(dir, server.address())
}

/// A folder there, and back; both are compared by the program itself and removed.
fn copy_at(dir: &Path, server: std::net::SocketAddr) -> io::Result<()> {
    let far = format!("{server}::s/there");
    timed(
        cp(dir)?.arg("-r").arg(dir.join("from")).arg(&far),
        EXIT_TIMEOUT,
    )?;
    timed(
        cp(dir)?.arg("-r").arg(&far).arg(dir.join("back")),
        EXIT_TIMEOUT,
    )?;
    let same = fs::read(dir.join("from/big"))? == fs::read(find(&dir.join("back"))?)?;
    fs::remove_dir_all(dir.join("share/there"))?;
    fs::remove_dir_all(dir.join("back"))?;
    if same {
        Ok(())
    } else {
        Err(io::Error::other("a copy is not what was copied"))
    }
}

/// The file `big`, wherever below `folder`.
fn find(folder: &Path) -> io::Result<std::path::PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name() == "big" {
                return Ok(entry.path());
            }
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn measure(dir: &Path, server: &Server) -> io::Result<()> {
    measure_at(dir, server.address())
}

fn measure_at(dir: &Path, server: std::net::SocketAddr) -> io::Result<()> {
    let mut command = Command::new(farhaul()?);
    command
        .args([
            "bench",
            &server.to_string(),
            "-t",
            "1",
            "-b",
            "200Mbit",
            "--json",
        ])
        .env("HOME", dir)
        .stdout(std::process::Stdio::null());
    timed(&mut command, EXIT_TIMEOUT).map(drop)
}

fn judge(scale: &Scale, time: Duration, watched: &Watched, report: &mut Report) -> io::Result<()> {
    let warm = (time / WARM_UP).min(LONGEST_WARM_UP).as_secs_f64();
    let samples: Vec<_> = watched
        .samples
        .iter()
        .copied()
        .filter(|(at, _)| *at >= warm)
        .collect();
    let (slope, error) = line(&samples);
    let (slope, error) = (slope * 3_600.0, error * 3_600.0);
    let quarter = samples.len() / 4;
    let mean = |part: &[(f64, f64)]| part.iter().map(|(_, y)| y).sum::<f64>() / count(part.len());
    let grown = mean(&samples[samples.len() - quarter..]) - mean(&samples[..quarter]);
    let name = watched.name;
    report.figure(
        name,
        format!(
            "memory {:.1} MiB, slope {slope:+.2} ± {error:.2} MiB/h over {} samples, last quarter {grown:+.2} MiB above the first",
            samples.last().map_or(0.0, |(_, y)| *y),
            samples.len()
        ),
    );
    let tolerated = if scale.full { 0.0 } else { NOISE };
    if slope - 3.0 * error > SLOPE && grown > tolerated {
        report.fault(format!(
            "{name}: memory grows by {slope:.1} ± {error:.1} MiB/h"
        ));
    }
    match watched.rest()? {
        Some(usage) => report.fault(format!(
            "{name}: {} threads and {} descriptors are left, {} and {} there were",
            usage.threads, usage.descriptors, watched.base.threads, watched.base.descriptors
        )),
        None => report.figure(
            name,
            format!(
                "back to {} threads and {} descriptors",
                watched.base.threads, watched.base.descriptors
            ),
        ),
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a count of samples")]
const fn count(n: usize) -> f64 {
    n as f64
}

/// The slope of the straight line through `points` by least squares, and its standard error.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let n = count(points.len());
    let mean = |f: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
    let xx: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let xy: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let slope = xy / xx;
    let rest: f64 = points
        .iter()
        .map(|p| (p.1 - y - slope * (p.0 - x)).powi(2))
        .sum();
    (slope, (rest / (n - 2.0) / xx).sqrt())
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_with_its_error() {
        let (slope, error) = line(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0), (3.0, 7.0)]);
        assert!((slope - 2.0).abs() < 1e-9 && error < 1e-9);
        // Residuals 1, -1, -1, 1 about a level line: s² = 4/2, xx = 5.
        let (slope, error) = line(&[(0.0, 1.0), (1.0, -1.0), (2.0, -1.0), (3.0, 1.0)]);
        assert!(slope.abs() < 1e-9 && (error - (2.0_f64 / 5.0).sqrt()).abs() < 1e-9);
    }
}
