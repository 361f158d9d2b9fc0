//! `farhaul demo`: shows the main job with nothing else needed. Real files cross an emulated long
//! fat network on this machine through the commands anyone would use, and are compared byte by
//! byte. The same path is then given to haul and to the kernel's TCP from memory to memory.

use std::{
    env, fs,
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use farhaul_core::units::{Rate, Size};
use farhaul_emu::{
    WanReport,
    wan::{self, WanConfig},
};
use farhaul_lab::emulated::{Copied, EmulatedRun, EmulatedRunError};
use farhaul_link::{Loss, PathConfig, duration, share};
use farhaul_measure::{bench::Report, host::Host};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};

use super::tree;
use crate::{
    exit::{self, Exit, Failure},
    out,
    typed::seconds,
};

/// The path that is shown: what a research network between continents is like on a bad day.
const MTU: u32 = 9_000;
/// Bytes of the program's own build outputs that are copied at most.
const OWN_FILES: u64 = 768 << 20;
/// Files that are made where the build left fewer bytes, as for an installed program: how many, and of what size.
const MADE: [(u32, usize); 3] = [(3, 128 << 20), (200, 1 << 20), (2_000, 16 << 10)];

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file or folder to copy; by default files that the build of this program left behind, or random ones
    path: Option<PathBuf>,
    /// Rate of the bottleneck
    #[arg(
        long,
        value_name = "RATE",
        default_value = "10Gbit",
        allow_hyphen_values = true
    )]
    rate: Rate,
    /// Round-trip time
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration, allow_hyphen_values = true)]
    rtt: Duration,
    /// Share of the packets that is lost in each direction
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = share, allow_hyphen_values = true)]
    loss: f64,
    /// Seconds of each memory-to-memory run
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds(3..=60), allow_negative_numbers = true)]
    secs: u64,
    /// One JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
}

/// Prints the explanations.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Before any thread is started. Where it is refused, a relay takes the place of the hosts.
    let entered = wan::enter_user_namespace();
    let program = crate::line::program().map_err(|e| Failure::internal(&e))?;
    let say = |text: String| {
        if !args.json {
            out::line(text);
        }
    };
    say(format!(
        "an emulated path on this machine: {}, {} ms round trip, {} % of the packets lost each way, MTU {}",
        args.rate,
        args.rtt_ms(),
        args.loss_percent(),
        MTU
    ));
    if Host::read().debug_build {
        say("note: a debug build, many times slower; use cargo run --release -- demo".into());
    }
    let network = network(args);
    let tried = entered
        .map_err(EmulatedRunError::Wan)
        // A trial: each run builds its own.
        .and_then(|()| EmulatedRun::build(&network, &program).map(drop));
    if let Err(e) = &tried {
        say(format!("note: {e}; a UDP relay is the network instead"));
    }
    let builder = Builder {
        network,
        program,
        hosts: tried.is_ok(),
    };
    let files = copy(args, &builder, &say)?;
    let rows = compare(args, &builder, &say);
    // The kernel's TCP may be missing, for instance where there are no hosts; ours may not.
    let ours = rows.first().map(|row| row.outcome.as_ref().map_err(setup));
    let failure = ours.and_then(Result::err);
    if args.json {
        let exit = failure.as_ref().map_or(Exit::Ok, |failure| failure.exit);
        out::json(&json!({
            "schema": "farhaul.demo/1",
            "ok": failure.is_none(),
            "exit": exit::object(exit),
            "version": env!("CARGO_PKG_VERSION"),
            "rate_bits_per_second": args.rate.bps(),
            "rtt_ms": args.rtt_ms(),
            "loss_percent": args.loss_percent(),
            "copy": files,
            "runs": rows.iter().map(Row::object).collect::<Vec<_>>(),
        }));
    } else {
        table(&rows);
    }
    failure.map_or(Ok(()), Err)
}

impl Args {
    fn rtt_ms(&self) -> f64 {
        self.rtt.as_secs_f64() * 1e3
    }

    /// Loss in percent, without the digits that a binary fraction adds.
    fn loss_percent(&self) -> f64 {
        (self.loss * 1e6).round() / 1e4
    }
}

/// The path that was asked for, the same in both directions.
fn network(args: &Args) -> WanConfig {
    let path = PathConfig {
        rate: args.rate,
        delay: args.rtt / 2,
        loss: Loss::Random(args.loss),
        ..PathConfig::default()
    };
    WanConfig {
        mtu: MTU,
        seed: 1,
        ..WanConfig::symmetric(path)
    }
}

/// Builds the path anew for each run.
struct Builder {
    network: WanConfig,
    program: PathBuf,
    hosts: bool,
}

impl Builder {
    fn build(&self) -> Result<EmulatedRun, EmulatedRunError> {
        if self.hosts {
            EmulatedRun::build(&self.network, &self.program)
        } else {
            EmulatedRun::relayed(&self.network, &self.program)
        }
    }
}

/// A folder in memory if there is enough, else the directory of temporary files.
fn workplace(needed: u64) -> Result<tempfile::TempDir, Failure> {
    let shm = Path::new("/dev/shm");
    let plenty = Host::read().memory_bytes.is_some_and(|m| m / 4 > needed);
    let below = if plenty && shm.is_dir() {
        shm.to_path_buf()
    } else {
        env::temp_dir()
    };
    tempfile::Builder::new()
        .prefix("farhaul-demo-")
        .tempdir_in(&below)
        .map_err(|e| disk(&below, &e))
}

/// Copies files through `farhaul serve` and `farhaul cp`, and compares them.
fn copy(args: &Args, builder: &Builder, say: &dyn Fn(String)) -> Result<Value, Failure> {
    let needed = match &args.path {
        Some(path) => tree::content(path).map_err(|e| source(path, &e))?.bytes,
        None => 2 * OWN_FILES,
    };
    let place = workplace(needed)?;
    let into = place.path().join("far");
    fs::create_dir(&into).map_err(|e| disk(&into, &e))?;
    let from = match &args.path {
        Some(path) => path.canonicalize().map_err(|e| source(path, &e))?,
        None => own_files(&builder.program, &place.path().join("near"))?,
    };
    let content = tree::content(&from).map_err(|e| source(&from, &e))?;
    if content.files == 0 {
        let text = format!("{} has no files to copy", from.display());
        return Err(Failure::new(Exit::SourceMissing, text));
    }
    say(format!(
        "\nfarhaul cp: {}, {} ...",
        counted(content.files),
        Size::from_bytes(content.bytes)
    ));
    let attempt = || -> Result<(Copied, WanReport), EmulatedRunError> {
        let run = builder.build()?;
        Ok((run.copy(&[&from], &into)?, run.finish()?))
    };
    let (copied, wan) = attempt().map_err(|e| setup(&e))?;
    let arrived = into.join(from.file_name().unwrap_or_default());
    let different = tree::first_difference(&from, &arrived).map_err(|e| disk(&arrived, &e))?;
    if let Some(path) = different {
        let text = format!("{} arrived differently", path.display());
        return Err(Failure::new(Exit::VerifyFailed, text));
    }
    say(format!(
        "  {:.2} s, {}; all of it compared: identical{}",
        copied.seconds,
        Rate::from_f64(copied.bits_per_second()),
        lateness(&wan)
    ));
    Ok(json!({
        "files": content.files,
        "bytes": content.bytes,
        "seconds": copied.seconds,
        "goodput_bits_per_second": copied.bits_per_second(),
        "identical": true,
        "emulator_valid": wan.health.valid,
    }))
}

fn counted(files: u64) -> String {
    format!("{files} file{}", if files == 1 { "" } else { "s" })
}

/// Folder with the build outputs beside this program, as far as they are bounded; random files if
/// they are little.
fn own_files(program: &Path, into: &Path) -> Result<PathBuf, Failure> {
    let from = program.parent().unwrap_or(Path::new("."));
    fs::create_dir(into).map_err(|e| disk(into, &e))?;
    // An installed program has others beside it, which are none of a demonstration's business.
    if from.ends_with("bin") {
        return made(into).map_err(|e| disk(into, &e));
    }
    let staged = tree::stage(from, into, OWN_FILES).map_err(|e| source(from, &e))?;
    if staged.bytes < OWN_FILES / 4 {
        return made(&into.join("made")).map_err(|e| disk(into, &e));
    }
    Ok(into.to_path_buf())
}

/// Files of random content.
fn made(into: &Path) -> io::Result<PathBuf> {
    let mut content = vec![0; 1 << 20];
    for (count, size) in MADE {
        let folder = into.join(Size::from_bytes(size as u64).to_string().replace(' ', ""));
        fs::create_dir_all(&folder)?;
        for i in 0..count {
            let mut file = fs::File::create(folder.join(i.to_string()))?;
            let mut left = size;
            while left > 0 {
                let block = content.len().min(left);
                let drawn = getrandom(&mut content[..block], GetRandomFlags::empty())?;
                file.write_all(&content[..drawn])?;
                left -= drawn;
            }
        }
    }
    Ok(into.to_path_buf())
}

/// One line of the table.
struct Row {
    name: &'static str,
    outcome: Result<(Report, WanReport), EmulatedRunError>,
}

impl Row {
    fn object(&self) -> Value {
        match &self.outcome {
            Ok((report, wan)) => {
                json!({ "name": self.name, "emulator_valid": wan.health.valid, "report": report })
            }
            Err(e) => json!({ "name": self.name, "error": e.to_string() }),
        }
    }
}

/// One way to run something in an emulated network.
type Way = fn(&EmulatedRun, u64) -> Result<Report, EmulatedRunError>;

/// The same path for each, one after the other.
fn compare(args: &Args, builder: &Builder, say: &dyn Fn(String)) -> Vec<Row> {
    let ways: [(&str, Way); 3] = [
        ("farhaul (encrypted)", |run, secs| {
            run.bench(secs, &["-i", "0"])
        }),
        ("kernel TCP, CUBIC", |run, secs| run.tcp("cubic", secs)),
        ("kernel TCP, BBR", |run, secs| run.tcp("bbr", secs)),
    ];
    say(format!("\nmemory to memory, {} s each ...", args.secs));
    ways.into_iter()
        .map(|(name, way)| {
            let attempt = || {
                let run = builder.build()?;
                Ok((way(&run, args.secs)?, run.finish()?))
            };
            let row = Row {
                name,
                outcome: attempt(),
            };
            match &row.outcome {
                Ok((report, wan)) => say(format!(
                    "  {name}: {}{}",
                    Rate::from_f64(report.goodput_bits_per_second),
                    lateness(wan)
                )),
                Err(e) => say(format!("  {name}: {e}")),
            }
            row
        })
        .collect()
}

fn lateness(wan: &WanReport) -> String {
    if wan.health.valid {
        String::new()
    } else {
        format!(
            " (the emulator could not keep up: {})",
            wan.health.complaints.join("; ")
        )
    }
}

fn table(rows: &[Row]) {
    out::line(format!(
        "\n{:<20} {:>14} {:>22} {:>18}  {}",
        "", "goodput", "CPU %/Gbps, send/recv", "feedback KiB/GiB", "limited by"
    ));
    for row in rows {
        let Ok((report, _)) = &row.outcome else {
            out::line(format!("{:<20} {:>14}", row.name, "-"));
            continue;
        };
        let number = |x: Option<f64>| x.map_or_else(|| "-".into(), |x| format!("{x:.1}"));
        let cpu = format!(
            "{} / {}",
            number(report.sender.cpu_percent_per_gbps),
            number(report.receiver.cpu_percent_per_gbps)
        );
        let limits = match report.limits() {
            none if none.is_empty() => "not reported".into(),
            some => some,
        };
        out::line(format!(
            "{:<20} {:>14} {cpu:>22} {:>18}  {limits}",
            row.name,
            Rate::from_f64(report.goodput_bits_per_second).to_string(),
            number(report.feedback_kib_per_gib),
        ));
    }
    out::line("\nBoth ends and the network share this machine. The kernel's TCP is not encrypted.");
    if let Some(verdict) = verdict(rows) {
        out::line(verdict);
    }
}

/// One sentence that compares the rates.
fn verdict(rows: &[Row]) -> Option<String> {
    let rate = |row: &Row| {
        let (report, wan) = row.outcome.as_ref().ok()?;
        let rate = report.goodput_bits_per_second;
        (wan.health.valid && rate > 0.0).then_some(rate)
    };
    let (own, others) = rows.split_first()?;
    let own = rate(own)?;
    let compared: Vec<_> = others
        .iter()
        .filter_map(|row| Some(format!("{} as {}", times(own / rate(row)?), row.name)))
        .collect();
    (!compared.is_empty()).then(|| format!("farhaul was {}.", compared.join(" and ")))
}

/// A quotient of two rates in words.
fn times(quotient: f64) -> String {
    if quotient < 9.95 {
        format!("{quotient:.1} times as fast")
    } else {
        format!("{quotient:.0} times as fast")
    }
}

fn setup(error: &EmulatedRunError) -> Failure {
    let exit = match error {
        EmulatedRunError::Wan(_) => Exit::NetSetup,
        // A copy that fails has its own codes.
        EmulatedRunError::Failed { code, .. } => {
            let code = code.and_then(|code| u8::try_from(code).ok());
            code.filter(|code| *code != 0)
                .map_or(Exit::Internal, Exit::Program)
        }
        _ => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}

fn source(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::SourceMissing, format!("{}: {error}", path.display()))
}

fn disk(path: &Path, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Exit::NoSpace,
        _ => Exit::DestError,
    };
    Failure::new(exit, format!("{}: {error}", path.display()))
}
